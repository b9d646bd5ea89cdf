"""A FastAPI service that answers questions for credits, a credit for each word, with the client's wheel."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import FastAPI, Header
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from credit_ledger import AsyncClient, InsufficientCredits

MOST_OF_AN_ANSWER = 5
client = AsyncClient(os.environ["LEDGER_URL"], os.environ["LEDGER_API_KEY"])


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Close the client's connections at the end."""
    async with client:
        yield


app = FastAPI(lifespan=lifespan)


class Question(BaseModel):
    """What a customer asks."""

    question: str


@app.get("/healthz")
async def healthz() -> str:
    """Say that the service runs."""
    return "ok"


@app.post("/holders/{holder}/answers")
async def answer(holder: str, body: Question, idempotency_key: Annotated[str, Header()]) -> JSONResponse:
    """Answer a question: hold what an answer costs at most, and capture what it has cost; an error gives all of it back."""
    try:
        async with client.hold(holder, amount=MOST_OF_AN_ANSWER, idempotency_key=idempotency_key) as hold:
            words = body.question.split()
            if words == ["fail"]:
                raise RuntimeError("The model is overloaded.")
            entry = await hold.capture(len(words))
    except InsufficientCredits as refusal:
        return JSONResponse({"available": refusal.available}, status_code=402)
    return JSONResponse({"answer": " ".join(reversed(words)), "balance": entry["balance"]})

"""The language model of the shop: it says a question backwards, a token for each word."""

import asyncio
from typing import NamedTuple


class Answer(NamedTuple):
    """What a model responds."""

    text: str
    tokens: int


class Overloaded(Exception):
    """The model does not answer."""


async def answer(question: str) -> Answer:
    """Return the answer to a question; or raise Overloaded."""
    await asyncio.sleep(0)
    if question == "overload":
        raise Overloaded
    words = question.split()
    return Answer(" ".join(reversed(words)), len(words))

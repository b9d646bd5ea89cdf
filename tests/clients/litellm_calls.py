"""Calls through LiteLLM with its mock responses; prints as JSON what each did, in an environment with LiteLLM.

python litellm_calls.py URL API_KEY SUFFIX_OF_HOLDERS
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from typing import Any

import litellm
from litellm.types.utils import Delta, ModelResponseStream, StreamingChoices, Usage

from credit_ledger.litellm import CreditLedger

MESSAGES = [{"role": "user", "content": "hello there"}]
LONG = "one two three four five six seven eight nine ten"


class Pieces:
    """A stream with one piece."""

    def __init__(self, logging_obj: Any, delta: Delta) -> None:
        self.logging_obj = logging_obj
        self._delta = delta

    async def __aiter__(self) -> AsyncIterator[ModelResponseStream]:
        yield ModelResponseStream(choices=[StreamingChoices(delta=self._delta)])


async def play(url: str, api_key: str) -> dict[str, Any]:
    """Make all calls and return what happened to the holders."""
    ledger = CreditLedger(url, api_key, most_completion=100, expires_after=timedelta(minutes=1))
    litellm.callbacks = [ledger]
    deployment = {"model": "gpt-4o", "mock_response": "yes", "api_key": "x"}
    router = litellm.Router(model_list=[{"model_name": "g", "litellm_params": deployment}], num_retries=2, retry_after=0)
    seen: dict[str, Any] = {}

    async def after(name: str, work: Awaitable[Any]) -> None:
        try:
            said = await work
        except Exception as error:
            said = getattr(error, "status_code", None) or repr(error)
        async with asyncio.timeout(10):
            while (await ledger.client.balance(name))["held"]:
                await asyncio.sleep(0.01)
        balance = await ledger.client.balance(name)
        kinds = [entry["kind"] async for entry in ledger.client.entries(name)]
        seen[name.split("-", maxsplit=1)[0]] = {"balance": balance["balance"], "kinds": kinds[::-1], "said": said}

    async def call(name: str, **options: Any) -> Any:
        return await litellm.acompletion(**{"model": "gpt-4o", "messages": MESSAGES, "user": name, **options})

    def cost(text: str) -> int:
        return int(litellm.token_counter("gpt-4o", messages=MESSAGES) + 3 * litellm.token_counter("gpt-4o", text=text))

    async def plain(name: str) -> int:
        usage = (await call(name, mock_response="hi")).usage
        return int(usage.prompt_tokens + 3 * usage.completion_tokens)

    async def plain_twice_with_one_id(name: str) -> int:
        calls = [await call(name, mock_response="hi", litellm_call_id="mine") for _ in range(2)]
        return sum(int(each.usage.prompt_tokens + 3 * each.usage.completion_tokens) for each in calls)

    async def streamed(name: str) -> int:
        stream = await call(name, mock_response=LONG, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in ledger.charged(stream)])
        return cost(text)

    async def closed(name: str) -> int:
        stream = ledger.charged(await call(name, mock_response=LONG * 20, stream=True))
        text = ""
        async with contextlib.aclosing(stream):
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
                if len(text) > 20:
                    break
        return cost(text)

    async def stopped(name: str, **delta: Any) -> int:
        """Stop a stream that has shown the user nothing: only reasoning, or only the call of a tool."""
        stream = await call(name, mock_response=LONG * 20, stream=True)
        pieces = Pieces(stream.logging_obj, Delta(content=None, **delta))
        async with contextlib.aclosing(ledger.charged(pieces)) as charged:
            async for _ in charged:
                break
        return cost(LONG)

    async def filtered(name: str) -> int:
        usage = Usage(prompt_tokens=20, completion_tokens=0)
        return int((await call(name, mock_response=litellm.ModelResponse(usage=usage))).usage.prompt_tokens)

    async def cached(name: str) -> int:
        usage = Usage(prompt_tokens=20, completion_tokens=2, prompt_tokens_details={"cached_tokens": 11})
        await call(name, mock_response=litellm.ModelResponse(usage=usage))
        return 1000 - int((await ledger.client.balance(name))["balance"])

    async def dear(name: str) -> int:
        """Answer with far more tokens than the call asked for; return what was held."""
        usage = Usage(prompt_tokens=20, completion_tokens=5000)
        await call(name, mock_response=litellm.ModelResponse(usage=usage))
        holds = [entry async for entry in ledger.client.entries(name, kind="hold")]
        return -int(holds[0]["amount"])

    async def free(name: str) -> str:
        answer = await call(name, mock_response="hi", model="gpt-4o-mini")
        return str(answer.choices[0].message.content)

    async def routed(name: str) -> str:
        answer = await router.acompletion(model="g", messages=MESSAGES, user=name)
        return str(answer.choices[0].message.content)

    failing = {"mock_response": Exception("boom")}
    suffix = sys.argv[3]
    for name, amount in {"plain": 1000, "twice": 1000, "streamed": 1000, "closed": 1000, "error": 1000, "short": 5,
                         "retried": 1000, "routed": 1000, "shortrouted": 5, "reasoned": 1000, "tooled": 1000,
                         "filtered": 1000, "cached": 1000}.items():  # fmt: skip
        await ledger.client.grant(f"{name}-{suffix}", amount=amount)
    await after(f"plain-{suffix}", plain(f"plain-{suffix}"))
    await after(f"twice-{suffix}", plain_twice_with_one_id(f"twice-{suffix}"))
    await after(f"streamed-{suffix}", streamed(f"streamed-{suffix}"))
    await after(f"closed-{suffix}", closed(f"closed-{suffix}"))
    await after(f"reasoned-{suffix}", stopped(f"reasoned-{suffix}", reasoning_content=LONG))
    tool = {"index": 0, "id": "t", "type": "function", "function": {"name": "", "arguments": LONG}}
    await after(f"tooled-{suffix}", stopped(f"tooled-{suffix}", tool_calls=[tool]))
    await after(f"filtered-{suffix}", filtered(f"filtered-{suffix}"))
    await after(f"cached-{suffix}", cached(f"cached-{suffix}"))
    await ledger.client.grant(f"dear-{suffix}", amount=5 + cost("") + 3 * 100)
    await after(f"dear-{suffix}", dear(f"dear-{suffix}"))
    await after(f"free-{suffix}", free(f"free-{suffix}"))
    await after(f"error-{suffix}", call(f"error-{suffix}", num_retries=2, **failing))
    await after(f"short-{suffix}", call(f"short-{suffix}", mock_response="hi"))
    await after(f"routed-{suffix}", routed(f"routed-{suffix}"))
    await after(f"retried-{suffix}", router.acompletion(model="g", messages=MESSAGES, user=f"retried-{suffix}", **failing))
    await after(f"shortrouted-{suffix}", routed(f"shortrouted-{suffix}"))
    return seen


print(json.dumps(asyncio.run(play(sys.argv[1], sys.argv[2]))))

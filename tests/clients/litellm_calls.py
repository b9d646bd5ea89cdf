"""Calls through LiteLLM with its mock responses; prints as JSON what each did, in an environment with LiteLLM.

python litellm_calls.py URL API_KEY SUFFIX_OF_HOLDERS
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import litellm

from credit_ledger.litellm import CreditLedger
from credit_ledger.tokens import TokenPrice

MESSAGES = [{"role": "user", "content": "hello there"}]
PRICES = {"gpt-4o": TokenPrice(prompt=1000, completion=3000)}
LONG = "one two three four five six seven eight nine ten"


async def play(url: str, api_key: str) -> dict[str, Any]:
    """Make all calls and return what happened to the holders."""
    ledger = CreditLedger(url, api_key, prices=PRICES, most_completion=100, expires_after=timedelta(minutes=1))
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
        return await litellm.acompletion(model="gpt-4o", messages=MESSAGES, user=name, **options)

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

    async def routed(name: str) -> str:
        answer = await router.acompletion(model="g", messages=MESSAGES, user=name)
        return str(answer.choices[0].message.content)

    failing = {"mock_response": Exception("boom")}
    suffix = sys.argv[3]
    for name, amount in {"plain": 1000, "twice": 1000, "streamed": 1000, "closed": 1000, "error": 1000, "short": 5,
                         "retried": 1000, "routed": 1000, "shortrouted": 5}.items():  # fmt: skip
        await ledger.client.grant(f"{name}-{suffix}", amount=amount)
    await after(f"plain-{suffix}", plain(f"plain-{suffix}"))
    await after(f"twice-{suffix}", plain_twice_with_one_id(f"twice-{suffix}"))
    await after(f"streamed-{suffix}", streamed(f"streamed-{suffix}"))
    await after(f"closed-{suffix}", closed(f"closed-{suffix}"))
    await after(f"error-{suffix}", call(f"error-{suffix}", num_retries=2, **failing))
    await after(f"short-{suffix}", call(f"short-{suffix}", mock_response="hi"))
    await after(f"routed-{suffix}", routed(f"routed-{suffix}"))
    await after(f"retried-{suffix}", router.acompletion(model="g", messages=MESSAGES, user=f"retried-{suffix}", **failing))
    await after(f"shortrouted-{suffix}", routed(f"shortrouted-{suffix}"))
    return seen


print(json.dumps(asyncio.run(play(sys.argv[1], sys.argv[2]))))

"""Plays recorded calls through LiteLLM with its mock responses, each with the tokens on record, in an environment with LiteLLM.

python litellm_trace.py URL API_KEY CALLS

CALLS is a file of JSON: an id, a holder, prompt tokens and generated tokens for each call. Prints how many were answered.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import litellm

from credit_ledger.litellm import CreditLedger

AT_ONCE = 16
MOST_COMPLETION = 100
"""Far more than most answers on record have, and far less than the longest."""

Call = tuple[str, str, int, int]


async def make(calls: Iterator[Call]) -> int:
    """Make one call after the other until none is left; return how many were answered."""
    answered = 0
    for call_id, holder, prompt, generated in calls:
        usage = {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}
        answer = await litellm.acompletion(
            model="gpt-4o",
            user=holder,
            messages=[{"role": "user", "content": "word " * prompt}],
            mock_response={"choices": [{"message": {"role": "assistant", "content": "yes"}}], "usage": usage},
            litellm_call_id=call_id,
        )
        answered += answer.choices[0].message.content == "yes"
    return answered


async def play(url: str, api_key: str, calls: list[Call]) -> int:
    litellm.callbacks = [CreditLedger(url, api_key, most_completion=MOST_COMPLETION)]
    waiting = iter(calls)
    return sum(await asyncio.gather(*(make(waiting) for _ in range(AT_ONCE))))


print(asyncio.run(play(sys.argv[1], sys.argv[2], json.loads(Path(sys.argv[3]).read_text()))))

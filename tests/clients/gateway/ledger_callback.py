"""What the configuration of LiteLLM's proxy names in a test: the callback, and who a key of the proxy belongs to."""

import os
from typing import Any

from litellm.proxy._types import UserAPIKeyAuth

from credit_ledger.litellm import CreditLedger

ledger = CreditLedger(
    os.environ["CREDIT_LEDGER_URL"],
    os.environ["CREDIT_LEDGER_API_KEY"],
    most_completion=100,
)


async def authenticate(request: Any, api_key: str) -> UserAPIKeyAuth:
    """Return the owner of a key: in a test, a key is `sk-` and the name of its user."""
    return UserAPIKeyAuth(api_key=api_key, user_id=api_key.removeprefix("sk-"))

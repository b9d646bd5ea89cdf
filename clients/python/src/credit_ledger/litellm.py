"""Charge the calls of a LiteLLM program, router or proxy: hold before the call, capture the price of the used tokens.

    ledger = CreditLedger("http://127.0.0.1:8000", api_key)
    litellm.callbacks = [ledger]

The prices are the server's: a rate for each model, with the components `input` and `output`, and perhaps `cached`, `cache_write`
and `reasoning`.

The state of a charge is in LiteLLM's record of the call, and ends with it. Only asynchronous calls are charged.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import anyio
import litellm
from litellm.integrations.custom_logger import CustomLogger

from credit_ledger.async_client import CLEAN_UP_S, AsyncClient, AsyncHold
from credit_ledger.client import new_key
from credit_ledger.problem import Problem
from credit_ledger.problems import BudgetExceeded, HoldClosed, InsufficientCredits, InvalidRequest, UnknownRate
from credit_ledger.tokens import Tokens

CHARGE: Final = "credit_ledger_charge"
"""The key of the charge in LiteLLM's record of a call."""


class CreditsRefused(litellm.APIError):  # type: ignore[misc, name-defined, unused-ignore]
    """The ledger refused the hold: 402 for the caller. LiteLLM neither repeats the call nor counts a failure."""


class Charge:
    """The hold of one attempt at a call. It is captured or released once."""

    def __init__(self, hold: AsyncHold, prompt: int) -> None:
        self._hold: AsyncHold | None = hold
        self._held = -hold.entry["amount"]
        self._components = frozenset(hold.entry["rating"]["quantities"])
        self.prompt = prompt

    async def capture(self, tokens: Tokens) -> None:
        """Capture the price of the tokens, by the version of the rate that priced the hold.

        The excess over the hold comes from the balance, if it suffices.
        """
        hold, self._hold = self._hold, None
        if hold is None:
            return
        quantities = tokens.quantities(self._components)
        try:
            await hold.capture(quantities=quantities, over_capture="if_available")
        except HoldClosed:
            raise
        except Problem as refusal:
            if refusal.status not in {402, 409}:
                raise
            await hold.capture(metadata={"quantities": quantities, **self._uncharged(refusal)})

    def _uncharged(self, refusal: Problem) -> dict[str, int]:
        if isinstance(refusal, InsufficientCredits | BudgetExceeded) and refusal.requested is not None:
            held = self._held if isinstance(refusal, InsufficientCredits) else 0  # a budget counts what is beyond the hold
            return {"uncharged": refusal.requested - held}
        return {}

    async def release(self) -> None:
        """Give all held credits back."""
        hold, self._hold = self._hold, None
        if hold is not None:
            await hold.release()


def holder_of(call: Mapping[str, Any]) -> str | None:
    """Return who pays: behind a proxy, the user of the proxy's key, which no caller can choose; otherwise, the call's `user`."""
    metadata = call.get("metadata") or {}
    return metadata.get("user_api_key_user_id") if "user_api_key" in metadata else call.get("user")


def rate_of(model: str) -> str:
    """Return the rate of a model: its name in small letters, with `:` for each `/`."""
    return model.lower().replace("/", ":")


class CreditLedger(CustomLogger):  # type: ignore[misc, unused-ignore]
    """A callback of LiteLLM that charges each chat completion.

    Args:
        rates: the rate of each model, by the model's name in the deployment; "*" is for all other models. By default the rate has
            the name of the model, as `rate_of` says. A model without a rate is refused.
        most_completion: for how many tokens of the answer to hold credits if the call has no `max_tokens`.
        expires_after: how long a hold remains if the process dies.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        rates: Mapping[str, str] | None = None,
        holder: Callable[[Mapping[str, Any]], str | None] = holder_of,
        most_completion: int = 1000,
        expires_after: timedelta = timedelta(minutes=15),
    ) -> None:
        super().__init__()
        self.client = AsyncClient(url, api_key)
        self._rates = rates
        self._holder = holder
        self._most_completion = most_completion
        self._expires_after = expires_after

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Hold before each attempt at a deployment.

        Raises:
            CreditsRefused: 402 if too little is available or left of a budget, 400 without a holder or a price.
        """
        if getattr(call_type, "value", call_type) != "acompletion":
            return None
        details = kwargs["litellm_logging_obj"].model_call_details
        if CHARGE not in details:
            details[CHARGE] = await self._hold(kwargs)
        # LiteLLM's own repetitions bypass all hooks, so they would be free; a router's repetitions do not.
        return kwargs if "model_info" in kwargs else kwargs | {"num_retries": 0}

    async def async_post_call_success_deployment_hook(self, request_data: dict[str, Any], response: Any, call_type: Any) -> None:
        """Capture before the caller gets the answer."""
        await self._capture(request_data["litellm_logging_obj"].model_call_details, response)

    async def async_post_call_failure_deployment_hook(
        self, request_data: Mapping[str, Any], exception: Exception, call_type: Any, fallback_depth: int | None = None
    ) -> None:
        """Release before the next attempt."""
        charge = request_data["litellm_logging_obj"].model_call_details.pop(CHARGE, None)
        if charge is not None:
            await charge.release()

    async def async_log_success_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Capture a stream that was read to its end."""
        await self._capture(kwargs, response_obj)

    async def async_log_failure_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Release a stream that the provider broke."""
        charge = kwargs.get(CHARGE)
        if charge is not None:
            await charge.release()

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
    ) -> AsyncIterator[Any]:
        """Charge a stream of the proxy, whose caller may disconnect."""
        async for chunk in self._until_closed(response, request_data["litellm_logging_obj"].model_call_details):
            yield chunk

    def charged(self, stream: Any) -> AsyncIterator[Any]:
        """Return a stream of the SDK that captures the price of what was streamed, even if it is closed in the middle."""
        return self._until_closed(stream, stream.logging_obj.model_call_details)

    async def _until_closed(self, stream: Any, details: dict[str, Any]) -> AsyncIterator[Any]:
        texts: list[str] = []
        try:
            async for chunk in stream:
                texts.extend(text for choice in getattr(chunk, "choices", ()) for text in streamed_texts(choice.delta))
                yield chunk
        except Exception:
            raise  # The provider broke it: the failure event releases.
        except BaseException:
            charge = details.get(CHARGE)
            if charge is not None:
                # A task that is cancelled captures all the same.
                with anyio.move_on_after(CLEAN_UP_S, shield=True):
                    streamed = litellm.token_counter(model=details["model"], text="".join(texts))
                    await charge.capture(Tokens(prompt=charge.prompt, completion=streamed))
            raise

    async def _hold(self, call: Mapping[str, Any]) -> Charge:
        model, holder = call["model"], self._holder(call)
        rate = rate_of(model) if self._rates is None else self._rates.get(model) or self._rates.get("*")
        if holder is None or rate is None:
            raise refused(400, "The call names no holder." if holder is None else f"The model {model!r} has no rate.", model)
        prompt = litellm.token_counter(model=model, messages=call["messages"])
        most = call.get("max_completion_tokens") or call.get("max_tokens") or self._most_completion
        call_id = str(call["litellm_call_id"])
        try:
            hold = await self.client.hold(
                holder, rate=rate, quantities={"input": prompt, "output": most * (call.get("n") or 1)},
                expires_at=datetime.now(UTC) + self._expires_after, reason=model, metadata={"call": call_id},
                # The caller of a proxy can choose the id: alone, it would be the key of two calls.
                idempotency_key=f"{call_id[:100]}/{new_key()}",
            )  # fmt: skip
        except (InsufficientCredits, BudgetExceeded) as short:
            raise refused(402, str(short), model) from short
        except (UnknownRate, InvalidRequest) as unpriced:
            raise refused(400, f"The model {model!r} has no price: {unpriced}", model) from unpriced
        return Charge(hold, prompt)

    async def _capture(self, details: Mapping[str, Any], response: Any) -> None:
        charge, usage = details.get(CHARGE), getattr(response, "usage", None)
        if charge is not None and usage is not None:
            await charge.capture(tokens_of(usage))


def tokens_of(usage: Any) -> Tokens:
    """Return what a call used, as LiteLLM says it."""

    def part(details: str, *names: str) -> int:
        of_details = getattr(usage, details, None)
        return next((count for name in names if (count := getattr(of_details, name, None))), 0)

    return Tokens(
        prompt=usage.prompt_tokens,
        completion=usage.completion_tokens,
        cached=part("prompt_tokens_details", "cached_tokens"),
        cache_write=part("prompt_tokens_details", "cache_creation_tokens", "cache_write_tokens"),
        reasoning=part("completion_tokens_details", "reasoning_tokens"),
    )


def streamed_texts(delta: Any) -> Iterator[str]:
    """Yield all that a piece of a stream has of the answer, shown to the user or not: providers count all of it as tokens."""
    for name in ("content", "reasoning_content", "refusal"):
        yield getattr(delta, name, None) or ""
    functions = [getattr(delta, "function_call", None), *(call.function for call in getattr(delta, "tool_calls", None) or ())]
    for function in functions:
        for name in ("name", "arguments"):
            yield getattr(function, name, None) or ""


def refused(status: int, message: str, model: str) -> CreditsRefused:
    """Return the error of a call that was not made."""
    return CreditsRefused(status_code=status, message=message, llm_provider="credit-ledger", model=model)

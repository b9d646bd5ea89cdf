"""Why a bank took no money: the codes of providers, as what the customer can do about it."""

from typing import Final

DECLINED, FUNDS, EXPIRED, UNCONFIRMED = "declined", "declined_funds", "declined_expired", "declined_unconfirmed"

CODES: Final = {
    "card_declined": DECLINED, "processing_error": DECLINED, "incorrect_number": DECLINED, "incorrect_cvc": DECLINED,
    "payment_intent_payment_attempt_failed": DECLINED, "insufficient_funds": FUNDS, "card_velocity_exceeded": FUNDS,
    "expired_card": EXPIRED, "authentication_required": UNCONFIRMED, "payment_intent_authentication_failure": UNCONFIRMED,
}  # fmt: skip
"""A stolen card is only said to be declined: the person who has it may not be its owner."""
WORDS: Final = {
    DECLINED: "the bank declined the card",
    FUNDS: "the card has not enough money, or has reached its limit",
    EXPIRED: "the card has expired",
    UNCONFIRMED: "the bank asked for a confirmation, and the customer did not give it",
}
"""The same for operators."""


def decline_of(error: str) -> str:
    """Return which of WORDS the last answer of a provider is; empty for a problem of another kind, such as no answer.

    Args:
        error: `code: decline_code: message`, of which the later code says more; the decline code may be missing.
    """
    codes = error.split(": ")[:2]
    return next((CODES[code] for code in reversed(codes) if code in CODES), "")

"""Rate cards: named prices of things in credits, in versions. An entry keeps the version that it was priced by."""

from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from ledger.errors import AmountLimit, Invalid, UnknownRate
from ledger.models import Rate
from ledger.rules import MAX_AMOUNT, PricedRequest
from ledger.rules.requests import RATE_CODE, RATE_CODE_RULE, check_amount, check_credit_type, check_pattern


def publish_rate(*, code: str, price: int, per: int, credit_type: str = "credits", actor: str = "") -> Rate:
    """Make the next version of a rate, which counts from now on, or raise and write nothing.

    Args:
        code: 1 to 64 characters of a-z 0-9 . _ : -.
        price: 1 .. 2^53-1 credits for `per` units: 3 credits per 1,000 tokens.
        per: 1 .. 2^53-1.

    Raises:
        Invalid: a value is not what it may be, or somebody published a version at the same moment.
    """
    check_pattern("/code", code, RATE_CODE, RATE_CODE_RULE)
    check_amount("/price", price)
    check_amount("/per", per)
    check_credit_type(credit_type)
    last = current_rate(code, credit_type)
    try:
        with transaction.atomic():
            return Rate.objects.create(
                code=code,
                credit_type=credit_type,
                version=1 if last is None else last.version + 1,
                price=price,
                per=per,
                published_at=timezone.now(),
                published_by=actor,
            )
    except IntegrityError as error:
        raise Invalid(pointer="/code", rule="unique", detail="another version was published at the same moment") from error


def current_rate(code: str, credit_type: str = "credits") -> Rate | None:
    """The newest version of the rate."""
    return Rate.objects.filter(credit_type=credit_type, code=code).order_by("-version").first()


def quote(*, rate: str, quantity: int, credit_type: str = "credits") -> tuple[int, dict[str, Any]]:
    """What a quantity costs now, started credits counted whole, and the rating that an entry would keep. Writes nothing.

    Raises:
        UnknownRate: there is no such rate.
        AmountLimit: it comes to more than 2^53-1.
    """
    found = current_rate(rate, credit_type)
    if found is None:
        raise UnknownRate(rate=rate, credit_type=credit_type)
    amount = -(-quantity * found.price // found.per)
    if amount > MAX_AMOUNT:
        raise AmountLimit(rate=rate, quantity=quantity, limit=MAX_AMOUNT)
    return amount, {"rate": rate, "version": found.version, "quantity": quantity}


def priced(request: PricedRequest) -> tuple[int, dict[str, Any] | None]:
    """The amount of a request, and the rating when it comes from a rate card.

    Raises: as `quote`.
    """
    if request.amount is not None:
        return request.amount, None
    assert request.rate is not None
    assert request.quantity is not None
    return quote(rate=request.rate, quantity=request.quantity, credit_type=request.credit_type)

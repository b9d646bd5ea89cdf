"""Exports of Stripe: its credit grants, as its API returns them.

Source: Stripe's object reference, billing.credit_grant, billing.credit_balance_transaction, billing.credit_balance_summary.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ledger.exchange.files import Line
from ledger.exchange.sources import SourceError, SourceRows, Terms, WholeExport, declare_whole_export, object_of, without_empty

WHOLE: Final = WholeExport(
    objects="the `billing.credit_grant` objects, and the `billing.credit_balance_transaction` objects of their customers",
    pages="a list that says `has_more`, transactions of a grant without its own credit, and a grant without any, are refused",
    totals="the `billing.credit_balance_summary` objects, where the file has them",
    ended="voided and expired grants are left out, and what was applied or expired of others",
    later="a grant whose `effective_at` lies ahead becomes one that begins then",
    recurring="Stripe has none",
    currencies="one in a file: import a file for each, each with its own `--credit-type`",
    minor_units=(
        "the currency's minor unit, whatever `--decimals` says; ISK and UGX, which Stripe writes in hundredths, in whole units"
    ),
)


TWO_DECIMALS_AT_STRIPE: Final = frozenset({"ISK", "UGX"})
"""Stripe writes these in hundredths, which they have not had for long. Source: Stripe, supported currencies, special cases."""


def _instant(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _id_of(value: Any) -> Any:
    """Return the id of an object of Stripe, which may stand there whole."""
    return value.get("id") if isinstance(value, Mapping) else value


@declare_whole_export(WHOLE)
def read_stripe(lines: Iterable[Line], terms: Terms) -> SourceRows:
    """Return what is left of each credit grant, as a grant with its terms and cost.

    The lines are billing.credit_grant objects, the billing.credit_balance_transaction objects of their customers, and the
    billing.credit_balance_summary objects, if there are any: they state the totals. Amounts are in the minor unit of the
    currency, whatever `decimals` says. A paid grant's cost is what is left of it.

    Raises:
        SourceError: the grants are in several currencies, which would add up in one credit type; or the transactions of a grant
            do not begin with its own credit, or a grant has none and others have, as in a part of an export.
    """
    grants: list[Line] = []
    moved: defaultdict[str, int] = defaultdict(int)
    credited: set[str] = set()
    stated: dict[str, tuple[Line, int]] = {}
    for line in lines:
        with object_of(line) as given:
            match given:
                case {"object": "billing.credit_balance_summary", "customer": customer, "balances": balances}:
                    stated[_id_of(customer)] = line, sum(_balance(line, each) for each in balances)
                case {"object": "billing.credit_grant"}:
                    grants.append(line)
                case {"object": "billing.credit_balance_transaction", "credit_grant": grant} as one:
                    moved[_id_of(grant)] += _monetary(line, one.get("credit")) - _monetary(line, one.get("debit"))
                    credited |= {_id_of(grant)} if one.get("credit") else set()
                case _:
                    raise SourceError(line.number, "is neither a billing.credit_grant nor a billing.credit_balance_transaction")
    _ensure_one_currency(grants)
    rows: list[Line] = []
    totals: defaultdict[tuple[str, str], int] = defaultdict(int)
    now = datetime.now(UTC).timestamp()
    for line in grants:
        with object_of(line) as grant:
            left = moved[grant["id"]] if grant["id"] in moved else _monetary(line, grant)
            if grant["id"] in moved and grant["id"] not in credited:
                why = f"has transactions of {grant['id']} without its own credit: export all of the customer's"
                raise SourceError(line.number, why)
            is_over = grant.get("voided_at") or (grant.get("expires_at") or now + 1) <= now
            if left <= 0 or is_over:
                continue
            effective_at = grant.get("effective_at") or grant["created"]
            if moved and grant["id"] not in moved and effective_at <= now:
                why = f"is {grant['id']}, which is in effect and has no transaction in the file: export all of the customer's"
                raise SourceError(line.number, why)
            holder, is_paid = _id_of(grant["customer"]), grant.get("category") == "paid"
            currency = grant["amount"]["monetary"]["currency"].upper()
            if currency in TWO_DECIMALS_AT_STRIPE:
                left = _whole_units(line, left)
            row = without_empty(
                row=grant["id"], holder=holder, operation="grant", amount=left, credit_type=terms.credit_type,
                source="purchased" if is_paid else "promotional", priority=grant.get("priority"),
                effective_at=_instant(effective_at),
                expires_at=_instant(grant["expires_at"]) if grant.get("expires_at") else None,
                paid_minor=left if is_paid else None, currency=currency if is_paid else None,
                sold_at=_instant(grant["created"]) if is_paid else None, document=grant["id"] if is_paid else None,
                reason=grant.get("name"), metadata=dict(grant.get("metadata") or {}),
            )  # fmt: skip
            rows.append(Line(line.number, row))
            totals[holder, terms.credit_type] += left if effective_at <= now else 0
    currencies = {line.value["amount"]["monetary"]["currency"].upper() for line in grants if line.value}
    for holder, (line, minor) in stated.items():
        totals[holder, terms.credit_type] = _whole_units(line, minor) if currencies & TWO_DECIMALS_AT_STRIPE else minor
    return SourceRows(rows, tuple(totals.items()), are_stated=bool(stated))


def _whole_units(line: Line, hundredths: int) -> int:
    if hundredths % 100:
        raise SourceError(line.number, f"has {hundredths} hundredths of a currency without decimals")
    return hundredths // 100


def _balance(line: Line, balance: Mapping[str, Any]) -> int:
    """Return what can be spent of a balance of a summary."""
    return _monetary(line, {"amount": balance["available_balance"]})


def _ensure_one_currency(grants: Iterable[Line]) -> None:
    """Return if all grants are in one currency. Raises: SourceError, with the line of the first in another one."""
    first = ""
    for line in grants:
        with object_of(line) as grant:
            currency = grant["amount"]["monetary"]["currency"].upper()
        first = first or currency
        if currency != first:
            why = f"is in {currency}, and others are in {first}: import a file for each currency, each with its own --credit-type"
            raise SourceError(line.number, why)


def _monetary(line: Line, holds: Any) -> int:
    """Return the amount of an object with an `amount`, in the currency's minor unit; 0 for none."""
    match holds:
        case None:
            return 0
        case {"amount": {"monetary": {"value": int(value)}}}:
            return value
    raise SourceError(line.number, "has an amount that is not monetary")

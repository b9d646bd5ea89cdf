"""Exports of Lago: its wallets and their transactions, as its API returns them.

Source: Lago's object reference, wallet, wallet_transaction, recurring_transaction_rules of a wallet.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from ledger.exchange.files import Line
from ledger.exchange.recurrence import next_boundary, recurring_name
from ledger.exchange.sources import (
    LeftOut,
    SourceError,
    SourceRows,
    Terms,
    WholeExport,
    declare_whole_export,
    object_of,
    read_time,
    without_empty,
)
from ledger.values import MINOR_DIGITS

WHOLE: Final = WholeExport(
    objects="the wallets and all of their wallet transactions",
    pages="a list whose `meta.total_pages` is more than 1, and a transaction of a wallet that is not in the file, are refused",
    totals="the wallets' `credits_balance`",
    ended="what a terminated wallet had left ends with it, at its `terminated_at`",
    later="a wallet's `expiration_at` is the expiry of its credits; pending and failed transactions are left out",
    recurring=(
        "a rule that grants fixed credits at an interval becomes a recurring grant from its next date on; others (paid, by a "
        "threshold, up to a target) are refused by name unless `--without-recurring` leaves them out"
    ),
    currencies="one in a file: import a file for each, each with its own `--credit-type`",
    minor_units="credits by `--decimals`; the cost in the minor unit of the wallet's currency, which Lago writes in major units",
)


INTERVALS: Final = {
    "weekly": ("week", 1),
    "monthly": ("month", 1),
    "quarterly": ("month", 3),
    "semiannual": ("month", 6),
    "yearly": ("year", 1),
}
"""Of a rule of a wallet, as the unit and number of a recurring grant's period."""


@declare_whole_export(WHOLE)
def read_lago(lines: Iterable[Line], terms: Terms) -> SourceRows:
    """Return the history of each wallet at its own times: what was purchased, granted, invoiced and voided.

    The lines are wallets, and their settled wallet transactions; all wallets of a customer share one account. Purchased credits
    have a cost, by the wallet's rate. The totals are the balances of the wallets. What a terminated wallet had left ends with it.
    Its rules that grant fixed credits at an interval are recurring grants, from their next date on.
    """
    wallets: dict[str, dict[str, Any]] = {}
    transactions: list[tuple[datetime, Line]] = []
    for line in lines:
        with object_of(line) as one:
            if "lago_wallet_id" in one:
                if one.get("status") == "settled":
                    transactions.append((read_time(one.get("settled_at") or one["created_at"]), line))
            elif "external_customer_id" in one and "credits_balance" in one:
                wallets[one["lago_id"]] = {**one, "line": line.number}
            else:
                raise SourceError(line.number, "is neither a wallet nor a wallet transaction")
    _ensure_wallets_in_one_currency(wallets.values())
    transactions += _ends_of_wallets(wallets.values(), [line for _, line in transactions])
    transactions.sort(key=itemgetter(0))
    totals: defaultdict[tuple[str, str], int] = defaultdict(int)
    for wallet in wallets.values():
        if wallet.get("status", "active") == "active":
            amount = terms.amount(wallet["line"], wallet["credits_balance"])
            totals[str(wallet["external_customer_id"]), terms.credit_type] += amount
    recurring, left_out = _of_rules(wallets.values(), terms)
    rows = (_of_lago(settled_at, line, wallets, terms) for settled_at, line in transactions)
    return SourceRows(chain(rows, recurring), tuple(totals.items()), are_stated=True, left_out=tuple(left_out))


def _of_rules(wallets: Iterable[Mapping[str, Any]], terms: Terms) -> tuple[list[Line], list[LeftOut]]:
    """Return the recurring grants of the wallets' rules, and the rules that no recurring grant can do."""
    rows: list[Line] = []
    left_out: list[LeftOut] = []
    for wallet in wallets:
        if wallet.get("status", "active") != "active":
            continue
        with object_of(Line(wallet["line"], dict(wallet))):
            for rule in wallet.get("recurring_transaction_rules") or ():
                if rule.get("status", "active") != "active":
                    continue
                if why := _why_no_recurring_grant(rule, wallet):
                    left_out.append(LeftOut(wallet["line"], f"rule {rule['lago_id']} of wallet {wallet['lago_id']} {why}"))
                else:
                    rows += _of_rule(rule, wallet, terms)
    return rows, left_out


def _why_no_recurring_grant(rule: Mapping[str, Any], wallet: Mapping[str, Any]) -> str:
    """Return why no recurring grant can do what a rule does; empty if one can."""
    if rule["trigger"] != "interval":
        return "adds credits when few are left: declare a top-up"
    if rule.get("interval") not in INTERVALS:
        return f"recurs {rule.get('interval')}, which no recurring grant does"
    if rule.get("method", "fixed") != "fixed":
        return "fills up to a target: declare a recurring grant with `up_to`"
    if Decimal(str(rule.get("paid_credits") or 0)):
        return "sells credits at an interval: sell them by a plan"
    if wallet.get("expiration_at"):
        return "grants credits that expire with the wallet: declare a recurring grant with its expiry"
    return ""


def _of_rule(rule: Mapping[str, Any], wallet: Mapping[str, Any], terms: Terms) -> list[Line]:
    """Return the recurring grant of a rule, from its next date on; none if there is no other date."""
    unit, count = INTERVALS[rule["interval"]]
    starts_at = read_time(rule.get("started_at") or rule.get("created_at") or wallet["created_at"])
    first_at = next_boundary(starts_at, unit, count, datetime.now(UTC))
    ends_at = rule.get("expiration_at")
    if not Decimal(str(rule.get("granted_credits") or 0)) or (ends_at and read_time(ends_at) <= first_at):
        return []
    row = without_empty(
        row=f"rule-{rule['lago_id']}", holder=wallet["external_customer_id"], operation="recurring_grant",
        credit_type=terms.credit_type, recurring_grant=recurring_name(rule["lago_id"]), interval=unit, interval_count=count,
        amount=terms.amount(wallet["line"], rule["granted_credits"]), starts_at=starts_at.isoformat(),
        first_at=first_at.isoformat(), ends_at=ends_at, expiry="never", reason=rule.get("transaction_name"),
        reference=f"wallet {wallet['lago_id']}",
        metadata={each["key"]: each["value"] for each in rule.get("transaction_metadata") or ()},
    )  # fmt: skip
    return [Line(wallet["line"], row)]


def _ensure_wallets_in_one_currency(wallets: Iterable[Mapping[str, Any]]) -> None:
    """Return if all wallets are in one currency. Raises: SourceError, with the line of the first in another one."""
    first = ""
    for wallet in wallets:
        first = first or str(wallet.get("currency", ""))
        if wallet.get("currency", first) != first:
            why = f"is a wallet in {wallet['currency']}, and others are in {first}: import a file for each currency"
            raise SourceError(wallet["line"], f"{why}, each with its own --credit-type")


def _ends_of_wallets(wallets: Iterable[Mapping[str, Any]], settled: Iterable[Line]) -> Iterator[tuple[datetime, Line]]:
    """Yield for each terminated wallet a transaction that takes what it had left, at its end."""
    ended = {wallet["lago_id"]: wallet for wallet in wallets if wallet.get("status") == "terminated"}
    left: defaultdict[str, Decimal] = defaultdict(Decimal)
    for line in settled:
        with object_of(line) as one:
            if one["lago_wallet_id"] in ended:
                sign = -1 if one["transaction_type"] == "outbound" else 1
                left[one["lago_wallet_id"]] += sign * Decimal(str(one["credit_amount"]))
    for wallet_id, rest in left.items():
        wallet = ended[wallet_id]
        if rest <= 0:
            continue
        ended_at = wallet.get("terminated_at")
        if ended_at is None:
            raise SourceError(wallet["line"], "is terminated and has no terminated_at")
        end = {
            "lago_id": f"{wallet_id}-terminated", "lago_wallet_id": wallet_id, "transaction_type": "outbound",
            "transaction_status": "voided: the wallet was terminated", "credit_amount": str(rest),
        }  # fmt: skip
        yield read_time(ended_at), Line(wallet["line"], end)


def _of_lago(settled_at: datetime, line: Line, wallets: Mapping[str, dict[str, Any]], terms: Terms) -> Line:
    at = settled_at.isoformat()
    with object_of(line) as one:
        wallet = wallets.get(one["lago_wallet_id"])
        if wallet is None:
            raise SourceError(line.number, f"is of wallet {one['lago_wallet_id']}, which is not in the file")
        common = without_empty(
            row=one["lago_id"], holder=wallet["external_customer_id"], occurred_at=at, credit_type=terms.credit_type,
            amount=terms.amount(line.number, one["credit_amount"]), reference=f"wallet {wallet['lago_id']}",
            metadata={each["key"]: each["value"] for each in one.get("metadata") or ()},
        )  # fmt: skip
        if one["transaction_type"] == "outbound":
            return Line(line.number, {**common, "operation": "spend", "reason": one["transaction_status"]})
        is_paid = one["transaction_status"] == "purchased"
        cost: dict[str, Any] = {}
        if is_paid:
            minor = _minor(line, one["amount"], wallet["currency"])
            cost = {"paid_minor": minor, "currency": wallet["currency"], "sold_at": at, "document": one["lago_id"]}
        expires_at = without_empty(expires_at=wallet.get("expiration_at"))
        source = "purchased" if is_paid else "promotional"
        return Line(line.number, {**common, "operation": "grant", "source": source, **expires_at, **cost})


def _minor(line: Line, major: Any, currency: str) -> int:
    """Return an amount of money in minor units; Lago writes it in major units."""
    if currency not in MINOR_DIGITS:
        raise SourceError(line.number, f"has the currency {currency}, which is not known")
    return Terms("", MINOR_DIGITS[currency]).amount(line.number, major)

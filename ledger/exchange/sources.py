"""Exports of other systems, as rows of an import: what their own API returns, one object a line or in a list.

Each source is a pure function from the objects to rows and, where the source says it, to the credits that must be spendable in
the end. Source: the object references of Stripe (billing.credit_grant, billing.credit_balance_transaction), Lago (wallet,
wallet_transaction) and OpenMeter (entitlement, grant, history of an entitlement).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from operator import itemgetter
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.utils.module_loading import import_string

from ledger.exchange.files import Line
from ledger.values import MAX_SEQUENCE, MINOR_DIGITS

Total = tuple[tuple[str, str], int]
"""An account, and its spendable credits."""


class SourceError(Exception):
    """An object of the source cannot become rows."""

    def __init__(self, line: int, why: str) -> None:
        """Name the line and the reason."""
        super().__init__(f"line {line}: {why}")


@dataclass(frozen=True)
class Terms:
    """How a source's credits are counted here.

    Args:
        credit_type: of all rows.
        decimals: how many decimals of the source's credits become units of the smallest kind: with 2, 12.5 becomes 1250.
    """

    credit_type: str
    decimals: int = 0

    def amount(self, line: int, given: Any) -> int:
        """Return the credits in the smallest unit.

        A number of JSON with a fraction is a double, of which 15 digits are exact: 0.30000000000000004 is 0.3.
        """
        try:
            exact = Decimal(f"{given:.15g}" if isinstance(given, float) else str(given)).scaleb(self.decimals)
            is_too_large = not exact.is_finite() or abs(exact) > MAX_SEQUENCE
        except ArithmeticError:
            raise SourceError(line, f"{given!r} is no number of credits") from None
        if is_too_large:
            raise SourceError(line, f"{given} credits are too many")
        if exact != exact.to_integral_value():
            needed = self.decimals - int(exact.normalize().as_tuple().exponent)
            why = f"{given} credits have more than {self.decimals} decimals, and are not rounded: --decimals {needed} counts them"
            raise SourceError(line, why)
        return int(exact)


@dataclass(frozen=True)
class SourceRows:
    """What a source has: rows, and totals to compare with before the first row is imported.

    Args:
        totals: the credits that must be spendable at the end, as the source says them.
        are_stated: the source says them apart from the rows; otherwise they are the sums of what is left of its grants.
    """

    rows: Iterable[Line]
    totals: tuple[Total, ...] = ()
    are_stated: bool = False


def _instant(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no offset")
    return at


@contextmanager
def _object_of(line: Line) -> Iterator[dict[str, Any]]:
    """Give the block the object of a line. What it lacks, or has with another type, is an error of the line."""
    if line.value is None:
        raise SourceError(line.number, line.error)
    try:
        yield line.value
    except KeyError as error:
        raise SourceError(line.number, f"has no {error}") from error
    except (TypeError, AttributeError, ValueError, OverflowError, OSError) as error:
        raise SourceError(line.number, f"has a value of another type than its source: {error}") from error


def _given(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value not in (None, "", {})}


def _id_of(value: Any) -> Any:
    """Return the id of an object of Stripe, which may stand there whole."""
    return value.get("id") if isinstance(value, Mapping) else value


# Stripe ----------------------------------------------------------------------------------------------


TWO_DECIMALS_AT_STRIPE: Final = frozenset({"ISK", "UGX"})
"""Stripe writes these in hundredths, which they have not had for long. Source: Stripe, supported currencies, special cases."""


def from_stripe(lines: Iterable[Line], terms: Terms) -> SourceRows:
    """Return what is left of each credit grant, as a grant with its terms and cost.

    The lines are billing.credit_grant objects, the billing.credit_balance_transaction objects of their customers, and the
    billing.credit_balance_summary objects, if there are any: they state the totals. Amounts are in the minor unit of the
    currency, whatever `decimals` says. A paid grant's cost is what is left of it.

    Raises:
        SourceError: the grants are in several currencies, which would add up in one credit type; or the transactions of a grant
            do not begin with its own credit, as in a part of an export.
    """
    grants: list[Line] = []
    moved: defaultdict[str, int] = defaultdict(int)
    credited: set[str] = set()
    stated: dict[str, tuple[Line, int]] = {}
    for line in lines:
        with _object_of(line) as given:
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
        with _object_of(line) as grant:
            left = moved[grant["id"]] if grant["id"] in moved else _monetary(line, grant)
            if grant["id"] in moved and grant["id"] not in credited:
                why = f"has transactions of {grant['id']} without its own credit: export all of the customer's"
                raise SourceError(line.number, why)
            is_over = grant.get("voided_at") or (grant.get("expires_at") or now + 1) <= now
            if left <= 0 or is_over:
                continue
            holder, is_paid = _id_of(grant["customer"]), grant.get("category") == "paid"
            currency = grant["amount"]["monetary"]["currency"].upper()
            if currency in TWO_DECIMALS_AT_STRIPE:
                left = _whole_units(line, left)
            effective_at = grant.get("effective_at") or grant["created"]
            row = _given(
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
        with _object_of(line) as grant:
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


# Lago ------------------------------------------------------------------------------------------------


def from_lago(lines: Iterable[Line], terms: Terms) -> SourceRows:
    """Return the history of each wallet at its own times: what was purchased, granted, invoiced and voided.

    The lines are wallets, and their settled wallet transactions; all wallets of a customer share one account. Purchased credits
    have a cost, by the wallet's rate. The totals are the balances of the wallets. What a terminated wallet had left ends with it.
    """
    wallets: dict[str, dict[str, Any]] = {}
    transactions: list[tuple[datetime, Line]] = []
    for line in lines:
        with _object_of(line) as one:
            if "lago_wallet_id" in one:
                if one.get("status") == "settled":
                    transactions.append((_time(one.get("settled_at") or one["created_at"]), line))
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
    rows = (_of_lago(settled_at, line, wallets, terms) for settled_at, line in transactions)
    return SourceRows(rows, tuple(totals.items()), are_stated=True)


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
        with _object_of(line) as one:
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
        yield _time(ended_at), Line(wallet["line"], end)


def _of_lago(settled_at: datetime, line: Line, wallets: Mapping[str, dict[str, Any]], terms: Terms) -> Line:
    at = settled_at.isoformat()
    with _object_of(line) as one:
        wallet = wallets.get(one["lago_wallet_id"])
        if wallet is None:
            raise SourceError(line.number, f"is of wallet {one['lago_wallet_id']}, which is not in the file")
        common = _given(
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
        expires_at = _given(expires_at=wallet.get("expiration_at"))
        source = "purchased" if is_paid else "promotional"
        return Line(line.number, {**common, "operation": "grant", "source": source, **expires_at, **cost})


def _minor(line: Line, major: Any, currency: str) -> int:
    """Return an amount of money in minor units; Lago writes it in major units."""
    if currency not in MINOR_DIGITS:
        raise SourceError(line.number, f"has the currency {currency}, which is not known")
    return Terms("", MINOR_DIGITS[currency]).amount(line.number, major)


# OpenMeter -------------------------------------------------------------------------------------------


def from_openmeter(lines: Iterable[Line], terms: Terms) -> SourceRows:
    """Return what is left of each grant of metered entitlements.

    Each line is an entitlement with its grants in `grants`, and in `history` the answer of its history call, whose last window
    says what is left of each grant, and of all together. The holder is the customer's key, or else the subject's.
    """
    rows: list[Line] = []
    totals: defaultdict[tuple[str, str], int] = defaultdict(int)
    are_stated = False
    now = datetime.now(UTC)
    for line in lines:
        with _object_of(line) as entitlement:
            if "featureKey" not in entitlement or "grants" not in entitlement:
                raise SourceError(line.number, "is not an entitlement with its grants")
            holder = str(entitlement.get("customerKey") or entitlement.get("subjectKey"))
            windows = (entitlement.get("history") or {}).get("burndownHistory") or [{}]
            left = windows[-1].get("grantBalancesAtEnd")
            at_end = windows[-1].get("balanceAtEnd")
            unsaid = 0
            for grant in entitlement["grants"]:
                effective_at, expires_at = grant["effectiveAt"], grant.get("expiresAt")
                # The history has no grant that begins after its last window.
                is_unused = left is None or (grant["id"] not in left and _time(effective_at) > now)
                amount = terms.amount(line.number, grant["amount"] if is_unused else left.get(grant["id"], 0))
                is_over = grant.get("voidedAt") or grant.get("deletedAt") or (expires_at and _time(expires_at) <= now)
                if amount <= 0 or is_over:
                    continue
                row = _given(
                    row=grant["id"], holder=holder, operation="grant", amount=amount, credit_type=terms.credit_type,
                    source="promotional", priority=grant.get("priority"), effective_at=effective_at, expires_at=expires_at,
                    reference=f"entitlement {entitlement['id']}", metadata=dict(grant.get("metadata") or {}),
                )  # fmt: skip
                rows.append(Line(line.number, row))
                is_live = _time(effective_at) <= now
                unsaid += amount if is_live else 0
            stated = unsaid if at_end is None else terms.amount(line.number, at_end)
            are_stated |= at_end is not None
            totals[holder, terms.credit_type] += stated
    return SourceRows(rows, tuple(totals.items()), are_stated=are_stated)


def own_rows(lines: Iterable[Line], terms: Terms) -> SourceRows:
    """Return the rows of a file in the format of this project; `terms` fills in the credit type."""

    def filled() -> Iterator[Line]:
        for line in lines:
            yield line if line.value is None else Line(line.number, {"credit_type": terms.credit_type, **line.value})

    return SourceRows(filled())


Source = Callable[[Iterable[Line], Terms], SourceRows]

SOURCES: Final = {
    "rows": "ledger.exchange.sources.own_rows",
    "stripe": "ledger.exchange.sources.from_stripe",
    "lago": "ledger.exchange.sources.from_lago",
    "openmeter": "ledger.exchange.sources.from_openmeter",
}
"""How a file becomes rows: the dotted path of a function, by the name of its source. `settings.IMPORT_SOURCES` adds to them, or
replaces one: `{"acme": "shop.exports.read_wallets"}`."""


def declared_sources() -> dict[str, str]:
    """Return the dotted paths of all sources, by name."""
    return SOURCES | getattr(settings, "IMPORT_SOURCES", {})


def find_source(name: str) -> Source:
    """Return the function of a source that is declared. Raises: ImportError, if there is none at its path."""
    source: Source = import_string(declared_sources()[name])
    return source


def check_sources(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Report a source whose function cannot be imported or called (ledger.E008)."""
    return [
        Error(f"settings.IMPORT_SOURCES[{name!r}]: {path!r} is no function that can be imported.", id="ledger.E008")
        for name, path in declared_sources().items()
        if not _is_function(path)
    ]


def _is_function(path: Any) -> bool:
    try:
        return isinstance(path, str) and callable(import_string(path))
    except ImportError:
        return False

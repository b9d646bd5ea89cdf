"""The journal of a closed month: a book as postings between the accounts of a map, for other bookkeeping programs.

Each posting has one debit and one credit account and an amount above 0, so the journal balances in every currency.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Annotated, Final, NamedTuple

from billing.books.roll_forward import Book, RollForwardSection
from billing.rating.money import minor_digits
from ledger.errors import Invalid
from ledger.months import month_after
from ledger.records import Record
from ledger.values import Integer, Text

_ACCOUNT: Final = "[A-Za-z0-9][A-Za-z0-9:._{}-]*"


def _account(text: str) -> Text:
    return Text(f"{text} `{{type}}` and `{{currency}}` stand for those of the credits.", least=1, most=100, pattern=_ACCOUNT)


@dataclass(frozen=True, kw_only=True)
class AccountMap(Record):
    """The accounts of a journal, by what they are for; and what DATEV needs to know."""

    clearing: Annotated[str, _account("Where sales are paid or invoiced.")] = "Assets:Clearing:Credits"
    deferred: Annotated[str, _account("Deferred revenue.")] = "Liabilities:Deferred:{type}"
    revenue: Annotated[str, _account("Recognised revenue.")] = "Income:Credits:{type}"
    breakage: Annotated[str, _account("Revenue from credits that expired unused.")] = "Income:Breakage:{type}"
    revoked: Annotated[str, _account("What is owed for revoked credits.")] = "Liabilities:Revoked:{type}"
    transferred: Annotated[str, _account("Transfers that one month sends and the next receives.")] = "Assets:Transit:{type}"
    opening: Annotated[str, _account("The counter-account of openings, in a file of one month.")] = "Equity:Opening-Balances"
    datev_consultant: Annotated[int, Integer("The number of the consultant.", least=1001, most=9_999_999)] = 1001
    datev_client: Annotated[int, Integer("The number of the client.", least=1, most=99_999)] = 1
    datev_account_digits: Annotated[int, Integer("How many digits accounts have.", least=4, most=8)] = 4
    datev_first_month: Annotated[int, Integer("The month with which the business year begins.", least=1, most=12)] = 1

    def account(self, role: str, section: RollForwardSection) -> str:
        """Return the account of that role for a credit type and currency."""
        given: str = getattr(self, role)
        return given.replace("{type}", component(section.credit_type)).replace("{currency}", section.currency)


class Posting(NamedTuple):
    """One posting: `minor` minor units of `currency`, above 0, from the credit to the debit account."""

    day: date
    text: str
    debit: str
    credit: str
    minor: int
    currency: str
    credit_type: str

    @property
    def amount(self) -> Decimal:
        """The amount in major units, with the decimals of its currency."""
        return Decimal(self.minor).scaleb(-minor_digits(self.currency))


COUNTER: Final = {
    "sold": "clearing", "recognised": "revenue", "breakage": "breakage", "revoked": "revoked", "transferred": "transferred",
}  # fmt: skip
"""By line of the books: the role of the account beside that of deferred revenue."""
TEXTS: Final = {
    "sold": "Credits sold",
    "recognised": "Credits used",
    "breakage": "Credits expired",
    "revoked": "Credits revoked",
    "transferred": "Credits transferred",
}


def postings(book: Book, accounts: AccountMap) -> list[Posting]:
    """Return the postings of a closed month, dated at its last day.

    Raises:
        Invalid: the month is not closed.
    """
    if not book.is_closed:
        raise Invalid(pointer="/month", rule="not-closed", detail="is not closed; its journal would change")
    return [posting for section in book.sections for posting in _of_section(book, section, accounts)]


def _of_section(book: Book, section: RollForwardSection, accounts: AccountMap) -> Iterator[Posting]:
    day = month_after(book.month) - timedelta(days=1)
    deferred = accounts.account("deferred", section)
    changes = [(name, TEXTS[name], minor) for name, minor in section.lines.items()]
    changes += [(name, f"{TEXTS[name]}, late: of a closed month", minor) for name, minor in section.late.items()]
    for name, text, minor in changes:
        other = accounts.account(COUNTER[name], section)
        if minor:
            debit, credit = (other, deferred) if minor > 0 else (deferred, other)
            yield Posting(
                day, f"{text} ({section.credit_type})", debit, credit, abs(minor), section.currency, section.credit_type
            )


def as_csv(book: Book, accounts: AccountMap) -> str:
    """Return the journal as a table, with amounts in major units."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(["date", "text", "debit", "credit", "amount", "currency", "credit_type"])
    for each in postings(book, accounts):
        writer.writerow([each.day, each.text, each.debit, each.credit, f"{each.amount:f}", each.currency, each.credit_type])
    return out.getvalue()


def component(credit_type: str) -> str:
    """Return a credit type as a part of an account's name: a capital or digit first, then letters, digits and hyphens."""
    words = credit_type.replace("_", "-").strip("-") or "type"
    return words[0].upper() + words[1:]


# A double-entry file ---------------------------------------------------------------------------------


def as_beancount(book: Book, accounts: AccountMap) -> str:
    """Return the month as a file for beancount 3: openings, postings, and the closings as balances that it asserts."""
    postings_of_month = postings(book, accounts)
    ends = _ends(book, accounts)
    names = (
        {accounts.opening}
        | {name for each in postings_of_month for name in (each.debit, each.credit)}
        | {name for name, _ in ends}
    )
    lines = [f"{book.month} open {name}" for name in sorted(names)]
    for (name, currency), (opening, _) in sorted(ends.items()):
        if opening:
            lines += ["", f'{book.month} * "Opening"', *_legs(accounts.opening, name, opening, currency)]
    for each in postings_of_month:
        lines += ["", f'{each.day} * "{each.text}"', *_legs(each.debit, each.credit, each.minor, each.currency)]
    lines.append("")
    for (name, currency), (_, closing) in sorted(ends.items()):
        lines.append(f"{month_after(book.month)} balance {name}  {_major(-closing, currency)} {currency}")
    return "\n".join(lines) + "\n"


def _ends(book: Book, accounts: AccountMap) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the opening and closing of each account of deferred revenue, by currency."""
    ends: dict[tuple[str, str], tuple[int, int]] = {}
    for section in book.sections:
        key = accounts.account("deferred", section), section.currency
        opening, closing = ends.get(key, (0, 0))
        ends[key] = opening + section.opening_minor, closing + section.closing_minor
    return ends


def _legs(debit: str, credit: str, minor: int, currency: str) -> list[str]:
    return [f"  {debit}  {_major(minor, currency)} {currency}", f"  {credit}  {_major(-minor, currency)} {currency}"]


def _major(minor: int, currency: str) -> str:
    return f"{Decimal(minor).scaleb(-minor_digits(currency)):f}"

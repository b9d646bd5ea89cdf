"""Paths of the ledger's calls. What does not fit a path's pattern is not there: 404, without a look at anything."""

from datetime import date
from typing import Any

from django.urls import URLPattern, path, register_converter

from ledger.api import balances, batches, entries, holders, holds, rates, statements
from ledger.api.credits import Grants, IncomingTransfers, Overdraft, Refunds, Revocations, Spends, Transfers
from ledger.values import HOLDER_ID, MAX_SEQUENCE, RATE_CODE


class HolderConverter:
    """A holder in a path."""

    regex = HOLDER_ID.pattern

    def to_python(self, value: str) -> str:
        """Return the holder."""
        return value

    def to_url(self, value: Any) -> str:
        """Return the holder as it stands in a path."""
        return str(value)


class SequenceConverter:
    """The number of an entry in a path, in its one spelling."""

    regex = "[1-9][0-9]{0,18}"

    def to_python(self, value: str) -> int:
        """Return the number; ValueError, which is a 404, beyond 2^63 - 1."""
        sequence = int(value)
        if sequence > MAX_SEQUENCE:
            raise ValueError(value)
        return sequence

    def to_url(self, value: Any) -> str:
        """Return the number as it stands in a path."""
        return str(value)


class RateConverter(HolderConverter):
    """The name of a rate in a path."""

    regex = RATE_CODE.pattern


class MonthConverter:
    """A month in a path."""

    regex = statements.MONTH_PATTERN

    def to_python(self, value: str) -> date:
        """Return its first day."""
        return date.fromisoformat(f"{value}-01")

    def to_url(self, value: date) -> str:
        """Return the month for a path."""
        return f"{value:%Y-%m}"


register_converter(HolderConverter, "holder")
register_converter(MonthConverter, "month")
register_converter(SequenceConverter, "sequence")
register_converter(RateConverter, "rate")

urlpatterns: list[URLPattern] = [
    # In the order in which /docs shows them.
    path("holders/<holder:holder>/grants", Grants.as_view()),
    path("holders/<holder:holder>/spends", Spends.as_view()),
    path("holders/<holder:holder>/refunds", Refunds.as_view()),
    path("holders/<holder:holder>/revocations", Revocations.as_view()),
    path("holders/<holder:holder>/transfers", Transfers.as_view()),
    path("holders/<holder:holder>/incoming-transfers", IncomingTransfers.as_view()),
    path("holders/<holder:holder>/overdraft", Overdraft.as_view()),
    path("holders/<holder:holder>/balance", balances.HolderBalance.as_view()),
    path("holders/<holder:holder>/entries", entries.HolderEntries.as_view()),
    path("holders/<holder:holder>/entries/<sequence:sequence>", entries.HolderEntry.as_view()),
    path("holders/<holder:holder>/entries/<sequence:sequence>/explanation", entries.EntryExplanation.as_view()),
    path("holders/<holder:holder>/refusals", entries.HolderRefusals.as_view()),
    path("holders/<holder:holder>/statements/<month:month>.pdf", statements.StatementPdf.as_view()),
    path("holders/<holder:holder>", holders.OneHolder.as_view()),
    path("holders", balances.Holders.as_view()),
    path("holders/<holder:holder>/holds", holds.Holds.as_view()),
    path("holders/<holder:holder>/holds/<sequence:sequence>/captures", holds.Captures.as_view()),
    path("holders/<holder:holder>/holds/<sequence:sequence>/release", holds.Release.as_view()),
    path("holders/<holder:holder>/holds/<sequence:sequence>/extend", holds.Extension.as_view()),
    path("rates", rates.Rates.as_view()),
    path("rates/<rate:code>", rates.RateVersions.as_view()),
    path("quotes", rates.Quotes.as_view()),
    path("batches", batches.Batches.as_view()),
]

"""Paths of the ledger's calls. What does not fit a path's pattern is not there: 404, without a look at anything."""

from typing import Any

from django.urls import URLPattern, path, register_converter

from ledger.api import batches, holders, holds, rates, views
from ledger.api.kit.inputs import HOLDER_PATTERN, MAX_SEQUENCE, RATE_PATTERN


class HolderConverter:
    """A holder in a path."""

    regex = HOLDER_PATTERN

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

    regex = RATE_PATTERN


register_converter(HolderConverter, "holder")
register_converter(SequenceConverter, "sequence")
register_converter(RateConverter, "rate")

urlpatterns: list[URLPattern] = [
    path("holders/<holder:holder>", holders.OneHolder.as_view()),
    path("holders/<holder:holder>/spends", views.Spends.as_view()),
    path("holders/<holder:holder>/balance", views.HolderBalance.as_view()),
    path("holders/<holder:holder>/grants", views.Grants.as_view()),
    path("holders/<holder:holder>/refunds", views.Refunds.as_view()),
    path("holders/<holder:holder>/revocations", views.Revocations.as_view()),
    path("holders/<holder:holder>/holds", holds.Holds.as_view()),
    path("holders/<holder:holder>/holds/<sequence:sequence>/captures", holds.Captures.as_view()),
    path("holders/<holder:holder>/holds/<sequence:sequence>/release", holds.Release.as_view()),
    path("holders/<holder:holder>/holds/<sequence:sequence>/extend", holds.Extension.as_view()),
    path("holders/<holder:holder>/transfers", views.Transfers.as_view()),
    path("holders/<holder:holder>/overdraft", views.Overdraft.as_view()),
    path("holders/<holder:holder>/entries", views.HolderEntries.as_view()),
    path("holders/<holder:holder>/entries/<sequence:sequence>", views.HolderEntry.as_view()),
    path("holders/<holder:holder>/entries/<sequence:sequence>/explanation", views.EntryExplanation.as_view()),
    path("holders/<holder:holder>/refusals", views.HolderRefusals.as_view()),
    path("holders", views.Holders.as_view()),
    path("batches", batches.Batches.as_view()),
    path("rates", rates.Rates.as_view()),
    path("rates/<rate:code>", rates.RateVersions.as_view()),
    path("quotes", rates.Quotes.as_view()),
]

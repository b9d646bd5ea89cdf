"""Paths of the ledger's calls. A path that matches no pattern gets 404, before any query."""

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.urls import URLPattern, path

from ledger import applications
from ledger.rest import paths  # noqa: F401 - registers the converters
from ledger.rest.calls import batches, entries, holders, holds, rates
from ledger.rest.calls.credits import urlpatterns as credit_patterns
from ledger.rest.calls.usage import HolderUsage

if not apps.is_installed("ledger.rest"):
    raise ImproperlyConfigured('"ledger.rest.urls" needs "ledger.rest" in INSTALLED_APPS')

urlpatterns: list[URLPattern] = [
    # In the order in which /docs/api shows them.
    *credit_patterns,
    path("holders/<holder:holder>/balance", holders.HolderBalance.as_view()),
    path("holders/<holder:holder>/lots", holders.Lots.as_view()),
    path("holders/<holder:holder>/usage", HolderUsage.as_view()),
    path("holders/<holder:holder>/entries", entries.HolderEntries.as_view()),
    path("holders/<holder:holder>/entries/<sequence:sequence>", entries.HolderEntry.as_view()),
    path("holders/<holder:holder>/entries/<sequence:sequence>/explanation", entries.EntryExplanation.as_view()),
    path("holders/<holder:holder>/refusals", entries.HolderRefusals.as_view()),
    path("holders/<holder:holder>", holders.OneHolder.as_view()),
    path("holders", holders.Holders.as_view()),
    path("holders/<holder:holder>/holds", holds.Holds.as_view()),
    path("holders/<holder:holder>/holds/<sequence:sequence>/captures", holds.Captures.as_view()),
    path("holders/<holder:holder>/holds/<sequence:sequence>/release", holds.Release.as_view()),
    path("holders/<holder:holder>/holds/<sequence:sequence>/extend", holds.Extension.as_view()),
    path("entries", entries.AllEntries.as_view()),
    path("entries/<holder:holder>/<credit_type:credit_type>/<sequence:sequence>", entries.OneEntry.as_view()),
    path("balances", holders.Balances.as_view()),
    path("rates", rates.Rates.as_view()),
    path("rates/<rate:code>", rates.RateVersions.as_view()),
    path("quotes", rates.Quotes.as_view()),
    path("batches", batches.Batches.as_view()),
]
urlpatterns += [each for module in applications.call_modules() for each in module.urlpatterns]

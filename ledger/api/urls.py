"""Paths of the ledger's calls. A path that matches no pattern gets 404, before any query."""

from datetime import date

from django.urls import URLPattern, path, register_converter
from django.urls.converters import IntConverter, StringConverter

from ledger.api.calls import batches, entries, holders, holds, keys, rates, statements
from ledger.api.calls.credits import (
    Budgets,
    Freeze,
    Grants,
    HolderClock,
    IncomingTransfers,
    OneBudget,
    OneOverage,
    OneRecurringGrant,
    Overdraft,
    RecurringGrants,
    Refunds,
    Reissues,
    Reversals,
    Revocations,
    Spends,
    Transfers,
    Voids,
)
from ledger.api.calls.signals import alerts, webhooks
from ledger.typesetting.typeset import IS_INSTALLED
from ledger.values import BUDGET_NAME, CREDIT_TYPE, HOLDER_ID, MAX_SEQUENCE, RATE_CODE


class HolderConverter(StringConverter):
    """A holder in a path."""

    regex = HOLDER_ID.pattern


class SequenceConverter(IntConverter):
    """The number of an entry in a path, in its one spelling."""

    regex = "[1-9][0-9]{0,18}"

    def to_python(self, value: str) -> int:
        """Return the number; ValueError, which is a 404, beyond 2^63 - 1."""
        sequence = int(value)
        if sequence > MAX_SEQUENCE:
            raise ValueError(value)
        return sequence


class CreditTypeConverter(StringConverter):
    """A credit type in a path."""

    regex = CREDIT_TYPE.pattern


class RateConverter(StringConverter):
    """The name of a rate in a path."""

    regex = RATE_CODE.pattern


class BudgetConverter(StringConverter):
    """The name of a budget, a recurring grant or an alert in a path."""

    regex = BUDGET_NAME.pattern


class MonthConverter:
    """A month in a path."""

    regex = statements.MONTH_PATTERN

    def to_python(self, value: str) -> date:
        """Return its first day."""
        return date.fromisoformat(f"{value}-01")

    def to_url(self, value: date) -> str:
        """Return the month for a path."""
        return f"{value:%Y-%m}"


register_converter(CreditTypeConverter, "credit_type")
register_converter(HolderConverter, "holder")
register_converter(BudgetConverter, "budget")
register_converter(MonthConverter, "month")
register_converter(SequenceConverter, "sequence")
register_converter(RateConverter, "rate")

urlpatterns: list[URLPattern] = [
    # In the order in which /docs/api shows them.
    path("holders/<holder:holder>/grants", Grants.as_view()),
    path("holders/<holder:holder>/spends", Spends.as_view()),
    path("holders/<holder:holder>/refunds", Refunds.as_view()),
    path("holders/<holder:holder>/revocations", Revocations.as_view()),
    path("holders/<holder:holder>/voids", Voids.as_view()),
    path("holders/<holder:holder>/reissues", Reissues.as_view()),
    path("holders/<holder:holder>/freeze", Freeze.as_view()),
    path("holders/<holder:holder>/test-clock", HolderClock.as_view()),
    path("holders/<holder:holder>/transfers", Transfers.as_view()),
    path("holders/<holder:holder>/reversals", Reversals.as_view()),
    path("holders/<holder:holder>/incoming-transfers", IncomingTransfers.as_view()),
    path("holders/<holder:holder>/overage", OneOverage.as_view()),
    path("holders/<holder:holder>/overdraft", Overdraft.as_view()),
    path("holders/<holder:holder>/budgets", Budgets.as_view()),
    path("holders/<holder:holder>/budgets/<budget:budget>", OneBudget.as_view()),
    path("holders/<holder:holder>/recurring-grants", RecurringGrants.as_view()),
    path("holders/<holder:holder>/recurring-grants/<budget:recurring_grant>", OneRecurringGrant.as_view()),
    path("holders/<holder:holder>/balance", holders.HolderBalance.as_view()),
    path("holders/<holder:holder>/lots", holders.Lots.as_view()),
    path("holders/<holder:holder>/entries", entries.HolderEntries.as_view()),
    path("holders/<holder:holder>/entries/<sequence:sequence>", entries.HolderEntry.as_view()),
    path("holders/<holder:holder>/entries/<sequence:sequence>/explanation", entries.EntryExplanation.as_view()),
    path("holders/<holder:holder>/refusals", entries.HolderRefusals.as_view()),
    path("holders/<holder:holder>/statements/<month:month>.pdf", statements.StatementPdf.as_view()),
    path("holders/<holder:holder>/page-links", statements.PageLinks.as_view()),
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
    path("webhooks", webhooks.Webhooks.as_view()),
    path("webhooks/<sequence:webhook>", webhooks.OneWebhook.as_view()),
    path("webhooks/<sequence:webhook>/rotate", webhooks.Rotation.as_view()),
    path("webhooks/<sequence:webhook>/ping", webhooks.Ping.as_view()),
    path("webhooks/<sequence:webhook>/deliveries", webhooks.Deliveries.as_view()),
    path("webhooks/<sequence:webhook>/deliveries/<uuid:signal>", webhooks.OneDelivery.as_view()),
    path("webhooks/<sequence:webhook>/deliveries/<uuid:signal>/resend", webhooks.Resending.as_view()),
    path("alerts", alerts.Alerts.as_view()),
    path("alerts/<budget:alert>", alerts.OneAlert.as_view()),
    path("alerts/<budget:alert>/accounts", alerts.AlertAccounts.as_view()),
    path("key", keys.OwnKey.as_view()),
    path("keys", keys.Keys.as_view()),
    path("keys/<sequence:key_id>", keys.OneKey.as_view()),
    path("keys/<sequence:key_id>/rotate", keys.Rotation.as_view()),
    path("keys/<sequence:key_id>/revoke", keys.Revocation.as_view()),
]
if not IS_INSTALLED:
    urlpatterns = [each for each in urlpatterns if not str(each.pattern).endswith(".pdf")]

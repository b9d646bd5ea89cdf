"""Billing's items on the first page that need attention: each reads a few rows by an index, whatever the amount of data."""

from collections import Counter
from datetime import timedelta
from typing import Any

from django.db import connection
from django.db.models import Count, Max
from django.urls import reverse
from django.utils import timezone

from billing.admin.cells import list_url
from billing.admin.run_sentences import why_not_billed
from billing.generator.run.outcomes import RunOutcome
from billing.metering.partitions import month_after, months_ahead
from billing.models import Customer, Invoice, Run, RunResult, ScheduledTask, Subscription, SuspendedBilling, VatCheck, VatLookup
from billing.models.runs import AUDIT, AUDIT_LATE_AFTER
from billing.permissions import VIEW_INVOICE, VIEW_RUN, VIEW_SUBSCRIPTION, VIEW_VATLOOKUP
from billing.rating.money import money_text
from billing.rating.vat import LookupOutcome
from billing.reads.documents import is_overdue
from ledger.operators.additions import Attention
from ledger.staff.kit.cells import day_words, instant_words, row_url

MOST = 100
"""The largest number that is counted; above it the text is "100 or more"."""
RUNS_LOOKED_AT = 50
STUCK_RUN = timedelta(hours=6)
PASSING = {0, 4, 5, 6, 130, 143}
"""Exit codes of runs that did their work, or left some to the next run: busy subscriptions, a limit, a signal."""


def items(request: Any) -> list[Attention]:
    """Return the items that this operator may see."""
    may = request.user.has_perm
    attention_items: list[Attention] = []
    if may(VIEW_SUBSCRIPTION):
        attention_items += _list_suspended()
    if may(VIEW_RUN):
        attention_items += [*_runs(), *_waiting_for_taxes(), *_audit()]
    if may(VIEW_INVOICE):
        attention_items += [*_past_grace(), *_overdue()]
    if may(VIEW_VATLOOKUP):
        attention_items += _vat_ids()
    if may(VIEW_RUN):
        attention_items += _partitions()
    return attention_items


def count_bounded(rows: Any) -> tuple[str, Any]:
    """Return how many rows there are, counted up to MOST, and the first row."""
    page_rows = list(rows[:MOST])
    return (f"{MOST} or more" if len(page_rows) == MOST else str(len(page_rows))), (page_rows[0] if page_rows else None)


def _list_suspended() -> list[Attention]:
    many, first = count_bounded(SuspendedBilling.objects.filter(resumed_at=None).order_by("-pk"))
    if first is None:
        return []
    subscription = Subscription.objects.filter(pk=first.subscription_id).first()
    ref = subscription.ref if subscription else first.subscription_id
    noun = "subscription is" if many == "1" else "subscriptions are"
    text = f"{many} {noun} suspended from billing until a person resumes it, such as {ref}: {why_not_billed(first.reason)}."
    all_of_them = f"{reverse('admin:billing_subscription_changelist')}?suspended=yes"
    url = row_url(Subscription, first.subscription_id) if many == "1" else all_of_them
    return [Attention(tone="danger", text=text, url=url, action="Resume billing" if many == "1" else "Show them")]


def _vat_ids() -> list[Attention]:
    """Customers whose VAT id VIES calls invalid, by the index on them."""
    many, first = count_bounded(
        VatCheck.objects.filter(outcome=LookupOutcome.INVALID).select_related("customer").order_by("customer_id")
    )
    if first is None:
        return []
    noun = "customer has" if many == "1" else "customers have"
    text = f"{many} {noun} a VAT id that is not valid any more, says VIES, such as {first.customer.ref}."
    url = row_url(Customer, first.customer_id) if many == "1" else list_url(VatLookup, outcome="invalid")
    return [Attention(tone="warning", text=text, url=url, action="Open the customer" if many == "1" else "Show them")]


def _runs() -> list[Attention]:
    """Yield from the newest runs the last one that failed and the last one that did not end."""
    runs = list(Run.objects.order_by("-started_at")[:RUNS_LOOKED_AT])
    day_ago, stuck_before = timezone.now() - timedelta(days=1), timezone.now() - STUCK_RUN
    bad = [run for run in runs if run.exit_code is not None and run.exit_code not in PASSING and run.started_at > day_ago]
    stuck = [run for run in runs if run.finished_at is None and run.started_at < stuck_before]
    found = []
    if bad:
        failed, first = count_bounded(RunResult.objects.filter(run_id=bad[0].pk, outcome=RunOutcome.FAILED.value).order_by("pk"))
        text = f"Invoicing failed {instant_words(bad[0].started_at)}: its last run stopped with an error."
        if first is not None:
            noun = "subscription" if failed == "1" else "subscriptions"
            text = f"Invoicing failed for {failed} {noun}, such as {first.subscription_ref}: {why_not_billed(first.detail)}"
        found.append(Attention(tone="danger", text=text, url=row_url(Run, bad[0].pk), action="See what failed"))
    if stuck:
        text = f"A run of the invoice generator on {stuck[0].host} began {instant_words(stuck[0].started_at)} and has not ended."
        found.append(Attention(tone="warning", text=text, url=row_url(Run, stuck[0].pk), action="Open the run"))
    return found


def _waiting_for_taxes() -> list[Attention]:
    """Subscriptions that the last run left, because the provider of taxes has no answer."""
    last = Run.objects.filter(finished_at__isnull=False).order_by("-started_at").first()
    if last is None:
        return []
    waiting = RunResult.objects.filter(run_id=last.pk, outcome=RunOutcome.WAITS_FOR_TAXES.value)
    many, first = count_bounded(waiting.order_by("pk"))
    if first is None:
        return []
    noun = "subscription waits for its taxes" if many == "1" else "subscriptions wait for their taxes"
    text = f"{many} {noun}, such as {first.subscription_ref}. {first.detail}"
    return [Attention(tone="warning", text=text, url=row_url(Run, last.pk), action="Open the run")]


def _audit() -> list[Attention]:
    """Say when the last audit ended, and with which result."""
    last = ScheduledTask.objects.filter(name=AUDIT).first()
    if last is None or last.finished_at is None:
        begun = ScheduledTask.objects.aggregate(tasks=Count("name"), most=Max("executions"))
        if begun["tasks"] and begun["most"] <= 1:
            # In a worker's first round each task waits its turn.
            return [Attention(tone="info", text="A worker has started; its first audit follows soon.")]
        return [Attention(tone="warning", text="No worker has audited the ledger yet: manage.py work does it every day.")]
    hours = (timezone.now() - last.finished_at) / timedelta(hours=1)
    age = f"{hours:.0f} hours ago" if hours >= 1 else "less than an hour ago"
    if last.exit_code:
        text = f"The last audit, {age}, found violations or failed: see the worker's log."
        return [Attention(tone="danger", text=text)]
    if timezone.now() - last.finished_at > AUDIT_LATE_AFTER:
        return [Attention(tone="warning", text=f"The last audit was {age}; it found no violation.")]
    return [Attention(tone="info", text=f"The last audit, {age}, found no violation.")]


def _partitions() -> list[Attention]:
    """Warn if the coming month has no partition before it begins."""
    this_month = timezone.now().date().replace(day=1)
    ahead = months_ahead(connection, this_month)
    if ahead >= 1:
        return []
    text = f"The usage table has no partition for {month_after(this_month, ahead + 1):%B %Y}: run manage.py usage_partitions."
    return [Attention(tone="warning", text=text)]


def _past_grace() -> list[Attention]:
    drafts = Invoice.objects.filter(state=Invoice.State.DRAFT, grace_ends_at__lt=timezone.now() - timedelta(hours=1))
    many, first = count_bounded(drafts.order_by("-pk"))
    if first is None:
        return []
    noun = "draft is" if many == "1" else "drafts are"
    text = f"{many} {noun} past the grace and not finalised, such as that of {first.subscription_ref}."
    return [Attention(tone="warning", text=text, url=row_url(Invoice, first.pk), action="Open the draft")]


def _overdue() -> list[Attention]:
    """Open invoices past their due date, the longest overdue first, by the index on them."""
    late = list(Invoice.objects.filter(is_overdue()).order_by("due_date", "pk").select_related("customer")[:MOST])
    if not late:
        return []
    first, sums = late[0], Counter[str]()
    for invoice in late:
        sums[invoice.currency] += invoice.amount_remaining_minor
    amounts = ", ".join(money_text(minor, currency) for currency, minor in sums.most_common())
    longest = f"{first.number} of {first.customer.name or first.customer_ref}, was due on {day_words(first.due_date)}"
    if len(late) == 1:
        text = f"1 invoice is overdue, {amounts}: {longest}."
        return [Attention(tone="danger", text=text, url=row_url(Invoice, first.pk), action="Open the invoice")]
    many = f"{MOST} or more" if len(late) == MOST else str(len(late))
    text = f"{many} invoices are overdue, {amounts}. The first, {longest}."
    return [Attention(tone="danger", text=text, url=list_url(Invoice, overdue="yes"), action="See overdue invoices")]

"""What invoices say of credits that paid usage ties to the entries, to the last unit; what only one side has breaks the tie."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from billing.books.month_end import NAME_OF_USAGE, USAGE_TIES
from billing.documents import invoices
from billing.models import Invoice
from ledger import services
from ledger.totals.ties import Tie, ties
from tests.billing.factories import at, use
from tests.billing.generator.difference.test_usage_in_credits import with_credits
from tests.billing.generator.run.test_generate import bill

pytestmark = pytest.mark.django_db


def usage_of_two_hours() -> list[Tie]:
    """The report of what usage took in credits, from an hour ago to in an hour."""
    now = datetime.now(UTC)
    return USAGE_TIES.ties(now - timedelta(hours=1), now + timedelta(hours=1))


@pytest.fixture
def billed():
    """150 calls, of which 250 credits covered 100; the invoice as it stands."""
    holder, subscription = with_credits(250)
    use(subscription, "150", at(1, 10))
    [document] = bill(subscription, at(2, 1))
    return holder, subscription, Invoice.objects.get(pk=document["id"])


def test_credits_spent_on_usage_tie_to_the_lines_of_the_invoices(billed):
    assert usage_of_two_hours() == [Tie(NAME_OF_USAGE, "credits", 250, 250)]
    now = datetime.now(UTC)
    assert Tie(NAME_OF_USAGE, "credits", 250, 250) in ties(now - timedelta(hours=1), now + timedelta(hours=1))
    assert USAGE_TIES.ties(now - timedelta(days=2), now - timedelta(days=1)) == []


def test_what_a_correction_gives_back_is_on_both_sides(billed):
    _, subscription, _ = billed
    use(subscription, "-90", at(1, 11))
    bill(subscription, at(3, 1))
    (tie,) = usage_of_two_hours()
    assert tie.documents == tie.entries == 150


def test_a_spend_that_no_line_names_breaks_the_tie(billed):
    holder, _, invoice = billed
    services.grant(holder_id=holder, amount=10, idempotency_key="more")
    key = f"usage/{invoice.pk}/999/2026-01-01T00:00:00+00:00"
    services.spend(holder_id=holder, amount=7, idempotency_key=key, actor="billing")
    assert usage_of_two_hours() == [Tie(NAME_OF_USAGE, "credits", 250, 257)]


def test_a_line_whose_entry_does_not_exist_breaks_the_tie():
    _, subscription = with_credits(250)
    use(subscription, "150", at(1, 10))
    [draft] = bill(subscription, at(2, 1), finalize=False)
    with connection.cursor() as cursor:
        wrong = "jsonb_set(jsonb_set(rating, '{covered,entries}', '[999]'), '{covered,credits}', '300')"
        cursor.execute(f"UPDATE billing_line SET rating = {wrong} WHERE invoice_id = %s", [draft["id"]])
    assert usage_of_two_hours() == [Tie(NAME_OF_USAGE, "credits", 300, 250)]


def test_a_deleted_draft_is_on_neither_side(billed):
    holder, subscription, _ = billed
    use(subscription, "10", at(2, 10))
    services.grant(holder_id=holder, amount=25, idempotency_key="more")
    [draft] = bill(subscription, at(3, 1), finalize=False)
    assert [(tie.documents, tie.entries) for tie in usage_of_two_hours()] == [(275, 275)]
    invoices.delete_draft(draft["id"])
    assert [(tie.documents, tie.entries) for tie in usage_of_two_hours()] == [(250, 250)]

"""The demo data: a little of everything that can happen, made once."""

import re
from io import StringIO
from unittest import mock
from zoneinfo import ZoneInfo

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from billing.books.month_documents import receivables_of
from billing.documents.printing import invoice_pdf
from billing.generator.options import Options
from billing.generator.run import generate
from billing.generator.run.due import DueFilter, DueWalk
from billing.metering.partitions import months_ahead
from billing.models import CreditNote, Cursor, Invoice, PaymentReturn, Subscription
from billing.reads.documents import is_overdue
from billing.reads.revenue_history import monthly_by_plan_until
from ledger import reads, services
from ledger.database.statements import fetch_rows, fetch_value
from ledger.models import Entry
from ledger_project.demonstration import sales, seeding
from ledger_project.demonstration.company import HOLDERS, METER, PLAN, TAKEN_BY_GUIDES
from ledger_project.demonstration.seeding import seed_demo
from ledger_project.operators.appearance import SECTIONS

pytestmark = pytest.mark.django_db


def printed_by_demo() -> str:
    """What `manage.py demo` prints."""
    output = StringIO()
    call_command("demo", stdout=output)
    return output.getvalue()


def row_counts() -> dict[str, int]:
    """How many rows each table of the two apps has."""
    tables = [name for name in connection.introspection.table_names() if name.startswith(("ledger_", "billing_"))]
    return {table: fetch_value(int, f"SELECT count(*) FROM {table}") for table in tables}


def names_that_exist() -> set[str]:
    """What the pages of the docs could meet: holders, and what billing calls by a name."""
    tables = {
        "ledger_entry": "holder_id", "ledger_rate": "code", "billing_customer": "ref", "billing_subscription": "ref",
        "billing_plan": "code", "billing_price": "meter", "billing_usageevent": "meter", "billing_meter": "code",
        "billing_pack": "code", "billing_coupon": "code",
    }  # fmt: skip
    found = {name for table, column in tables.items() for name in fetch_rows(str, f"SELECT DISTINCT {column} FROM {table}")}
    assert {*HOLDERS, PLAN, METER} <= found
    return found


@pytest.mark.slow
@pytest.mark.check
def test_the_demonstration_is_made_and_summed_up() -> None:
    text = printed_by_demo()

    assert re.fullmatch(
        r"Demo data: 11 holders with 1,\d{3} entries and 2 refusals; 10 subscriptions with 37 invoices, 3 months of history\n",
        text,
    ), text
    assert names_that_exist() & TAKEN_BY_GUIDES == set()


@pytest.mark.slow
def test_each_list_of_the_sidebar_has_rows() -> None:
    seed_demo()
    tabs = [tab for section in SECTIONS for tab in section.tabs if tab.url_name.endswith("_changelist")]
    models = {tab.title: apps.get_model(*tab.url_name.removesuffix("_changelist").rsplit("_", 1)) for tab in tabs}
    empty = {title for title, model in models.items() if not model.objects.exists()}
    # These begin with the server: its first run, its key, its operator and what the operator does.
    assert empty <= {"Runs", "API keys", "Operators", "Staff log", "Failed logins", "Approvals"}


@pytest.mark.slow
def test_its_history_has_its_own_times_and_is_whole() -> None:
    now = timezone.now()
    seed_demo()
    # Otherwise the home page would tell of a month that nobody can make a partition for any more.
    assert months_ahead(connection, now.date()) >= 4
    for holder_id in HOLDERS:
        times = Entry.objects.filter(holder_id=holder_id).values_list("recorded_at", flat=True)
        ages = [(now - recorded_at).days for recorded_at in times]
        assert max(ages) >= 91, holder_id
        assert len({age for age in ages if age < 90}) > 30, holder_id
    months = [month.astimezone(ZoneInfo(sales.ZONE)).date() for month in sales.months_until(now)]
    revenue = monthly_by_plan_until(months[-1], months=len(months))
    assert {(month, plan) for month, plan, _ in revenue} >= {(month, PLAN) for month in months}
    unpaid = {row.customer for row in receivables_of(months[-2]) if row.unpaid_minor}
    assert unpaid == {"CUST-HARBOR", "CUST-ATLAS", "CUST-ORCHID"}
    call_command("audit_ledger", stdout=StringIO())
    call_command("generate_invoices", "--check", stdout=StringIO())


@pytest.mark.slow
def test_its_invoices_are_paid_open_overdue_and_disputed_with_the_right_vat() -> None:
    seed_demo()
    invoices = list(Invoice.objects.exclude(number=None).order_by("pk"))
    assert {invoice.state for invoice in invoices} == {"open", "paid"}
    assert Invoice.objects.filter(is_overdue()).count() >= 6
    assert len({invoice.issue_date for invoice in invoices}) >= 4
    assert PaymentReturn.objects.get().kind == "dispute"
    assert CreditNote.objects.exclude(number=None).count() == 1
    rates = {(invoice.buyer["address"]["country"], tax.rate) for invoice in invoices for tax in invoice.taxes.all()}
    assert rates == {("DE", 19), ("AT", 0)}
    assert reads.balance("cobalt").overage is not None


@pytest.mark.slow
def test_made_again_it_leaves_what_is_billed_undue() -> None:
    seed_demo()
    now = timezone.now()
    generate.generate(ref="SUB-1001", options=Options(as_of=now))
    cursor = Cursor.objects.values("recurring_due_at", "usage_due_at").get(subscription__ref="SUB-1001")
    assert "SUB-1001" not in list(DueWalk(DueFilter(as_of=now)))

    seed_demo()
    assert "SUB-1001" not in list(DueWalk(DueFilter(as_of=now)))
    assert Cursor.objects.values("recurring_due_at", "usage_due_at").get(subscription__ref="SUB-1001") == cursor


@pytest.mark.slow
def test_made_again_it_changes_nothing() -> None:
    first = seed_demo()
    before = row_counts()

    assert seed_demo() == first
    assert row_counts() == before


@pytest.mark.slow
def test_demo_data_that_an_interrupted_run_left_out_are_made_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(seeding, "PARTS", (sales.make_catalogue, mock.Mock(side_effect=KeyboardInterrupt)))
        with pytest.raises(KeyboardInterrupt):
            seed_demo()
    assert not Subscription.objects.exists()

    made = seed_demo()
    assert (made.subscriptions, made.invoices) == (10, 37)


@pytest.mark.slow
def test_the_demonstration_has_entries_of_many_kinds() -> None:
    seed_demo()
    kinds = {entry.kind for holder in HOLDERS for entry in reads.entries(holder, limit=1_000)}
    assert kinds >= {"grant", "spend", "refund", "hold", "transfer_out", "transfer_in", "adjust"}
    refusals = {refusal.code for holder in HOLDERS for refusal in reads.refusals(holder)}
    assert refusals == {"budget-exceeded", "insufficient-credits"}


@pytest.mark.slow
def test_the_demonstration_does_not_depend_on_other_holders() -> None:
    services.grant(holder_id="adam", amount=1, idempotency_key="x")

    assert (seed_demo().holders, reads.balance("adam").balance) == (11, 1)


@pytest.mark.slow
def test_the_invoice_of_the_demo_can_be_printed() -> None:
    seed_demo()
    invoice = Invoice.objects.exclude(state=Invoice.State.DRAFT).first()
    assert invoice is not None
    assert invoice_pdf(invoice.pk).content.startswith(b"%PDF-")

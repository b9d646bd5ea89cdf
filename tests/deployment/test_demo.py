"""The demo data: a little of everything that can happen, made once."""

from collections import Counter
from io import StringIO
from unittest import mock

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from billing.documents.printing.printed import invoice_pdf
from billing.generator.options import Options
from billing.generator.run import generate
from billing.generator.run.due import DueFilter, DueWalk
from billing.models import Cursor, Invoice, Plan, Subscription
from ledger import reads, services
from ledger.database.statements import fetch_rows, fetch_value
from ledger.models import CreditType
from ledger_project import demonstration
from ledger_project.demonstration import HOLDERS, METER, PLAN, TAKEN_BY_GUIDES, seed_demo

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
def test_the_demonstration_is_made_and_summed_up() -> None:
    before = row_counts()["ledger_entry"]
    text = printed_by_demo()

    assert text == (
        "Demo data: 25 holders with 85 entries and 2 refusals; 12 subscriptions, 1 invoice; "
        "manage.py generate_invoices bills the others\n"
    )
    assert row_counts()["ledger_entry"] - before == 85 + 2
    assert names_that_exist() & TAKEN_BY_GUIDES == set()


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
        patch.setattr(demonstration, "_sell_subscriptions", mock.Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            seed_demo()
    assert not Plan.objects.filter(code="team").exists()

    assert seed_demo() == demonstration.DemoSummary(holders=25, entries=85, refusals=2, subscriptions=12, invoices=1)


@pytest.mark.slow
def test_the_demonstration_has_entries_of_every_kind() -> None:
    seed_demo()
    entries = [entry for holder in HOLDERS for entry in reads.entries(holder, limit=200)]

    assert Counter(entry.kind for entry in entries) == {
        "grant": 31, "spend": 46, "refund": 1, "revoke": 1, "expire": 1, "hold": 1, "capture": 1, "release": 1,
        "transfer_out": 1, "transfer_in": 1,
    }  # fmt: skip
    assert {entry.credit_type for entry in entries} == {"credits", "sms", "usd_cents"}
    assert CreditType.objects.get().unit == "USD"
    assert {entry.actor for entry in entries} == {"demo", "ledger"}
    assert [refusal.code for refusal in reads.refusals("ada")] == ["refund-exceeds-spend", "insufficient-credits"]
    # An expired lot that nobody has booked yet, and credits that are not effective yet.
    initech, acme = reads.balance("initech"), reads.balance("acme")
    assert (initech.balance, initech.available) == (3_100, 3_000)
    assert (acme.balance, acme.available) == (101_750, 81_750)
    ada = reads.balance("ada")
    assert (ada.balance, ada.available, ada.held) == (3_350, 3_350, 0)


@pytest.mark.slow
def test_its_subscriptions_are_due_and_one_has_its_first_invoice() -> None:
    seed_demo()

    refs = [f"SUB-{number}" for number in range(1001, 1013)]
    assert Subscription.objects.filter(ref__in=refs).count() == 12
    [invoice] = Invoice.objects.filter(subscription__ref__in=refs)
    # 49.00 + 1 seat at 12.00, and 20 % on it; paid by nobody's credits, for Acme has none that pay.
    assert (invoice.total_minor, invoice.credits_applied_minor, invoice.state) == (7_320, 0, "open")
    for ref in refs:
        assert generate.generate(ref=ref, options=Options(as_of=timezone.now())).invoices, f"{ref} is due"
    # Initech's prepaid cents pay.
    assert reads.balance("initech", "usd_cents").available < 50_000


@pytest.mark.slow
def test_the_demonstration_does_not_depend_on_other_holders() -> None:
    services.grant(holder_id="adam", amount=1, idempotency_key="x")

    assert seed_demo() == demonstration.DemoSummary(holders=25, entries=85, refusals=2, subscriptions=12, invoices=1)


@pytest.mark.slow
def test_the_invoice_of_the_demo_can_be_printed() -> None:
    seed_demo()
    invoice = Invoice.objects.exclude(state=Invoice.State.DRAFT).first()
    assert invoice is not None
    assert invoice_pdf(invoice.pk).content.startswith(b"%PDF-")

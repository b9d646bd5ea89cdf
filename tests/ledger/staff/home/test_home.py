"""The first page: what needs attention, refusals per hour, who runs dry, what expires; bounded, and by permission."""

import html
import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction

from billing.models import Invoice, Run, RunResult, ScheduledTask, SuspendedBilling
from ledger import journal, services
from ledger.database.locks import holder_lock
from ledger.errors import InsufficientCredits
from ledger.models import CreditType
from ledger.rules.accounts import AccountState
from ledger.rules.decisions import credit_rules
from ledger.rules.instants import to_us
from ledger.rules.requests import GrantRequest, SpendRequest
from ledger.staff import home_reads
from ledger.totals.counting import count_entries
from tests.billing.factories import SubscriptionFactory, at
from tests.ledger.staff.admin_site import cost_of, load_history, operator, text_of

pytestmark = pytest.mark.django_db

HOME = "/admin/"


def home_page(client):
    """The first page, as HTML."""
    response = client.get(HOME)
    assert response.status_code == 200
    return response.content.decode()


def attention_items(page):
    """Each item of the list of what needs attention: its tone, its text, its link."""
    found = re.search(r'<ul class="attention">(.*?)</ul>', page, re.DOTALL)
    items = re.findall(r'<li class="(\w+)">(.*?)</li>', found[1], re.DOTALL) if found else []
    said = [(tone, re.sub(r'<a class="act".*?</a>', "", item), item) for tone, item in items]
    return [(tone, text_of(text).strip(), (re.findall(r'href="([^"]+)"', item) or [""])[0]) for tone, text, item in said]


def append_history(*steps):
    """Append what the rules make of these steps: (hours ago, function of the account)."""
    account = AccountState("ada", "credits", 0)
    made = []
    for hours, step in steps:
        account = account._replace(now_us=to_us(datetime.now(UTC) - timedelta(hours=hours)))
        entries = step(account)
        account = account.after_all(entries)
        made += entries
    with transaction.atomic(), holder_lock("ada") as lock:
        journal.append(lock, made)


def grant_step(amount, **terms):
    """A step of a history: a grant to ada."""
    return lambda account: credit_rules.grant(
        account, GrantRequest(holder_id="ada", idempotency_key=f"g{amount}", amount=amount, **terms)
    )


def spend_step(amount):
    """A step of a history: a spend of ada."""
    return lambda account: credit_rules.spend(account, SpendRequest(holder_id="ada", idempotency_key=f"s{amount}", amount=amount))


def test_an_empty_ledger_says_how_to_start(client):
    page = home_page(client)
    assert "The ledger is empty." in text_of(page)
    assert 'href="/admin/ledger/account/grant-credits/"' in page
    assert "None in the last 24 hours." in text_of(page)


def test_holders_who_run_dry_or_whose_credits_expire_soon_are_named_with_links(client):
    soon = datetime.now(UTC) + timedelta(days=3)
    append_history((96, grant_step(500)), (48, spend_step(300)), (24, spend_step(100)))
    services.grant(holder_id="bob", amount=40, idempotency_key="g", expires_at=soon)
    services.grant(holder_id="cy", amount=40, idempotency_key="g")
    page = home_page(client)
    text = text_of(page)
    assert re.search(r"Running dry ada 100 credits 100 a day 1 day Expiring within 7 days bob 40 credits \d+ \w+", text)
    assert 'href="/admin/ledger/account/holders/ada/?type=credits"' in page
    assert ">cy<" not in page


@pytest.mark.usefixtures("stopped_clock")
def test_refusals_are_counted_by_hour_and_by_code(client):
    services.grant(holder_id="ada", amount=5, idempotency_key="g")
    for number in range(3):
        with pytest.raises(InsufficientCredits):
            services.spend(holder_id="ada", amount=50, idempotency_key=f"no{number}")
    page = home_page(client)
    assert "3 in the last 24 hours: 3 insufficient credits." in text_of(page)
    chart = json.loads(html.unescape(re.search(r'data-value="([^"]+)"', page)[1]))
    counts = chart["datasets"][0]["data"]
    assert (len(counts), sum(counts), counts[-1]) == (24, 3, 3)


def test_credits_that_expired_long_ago_and_are_not_booked_are_named(client):
    append_history((9, grant_step(50, expires_at=datetime.now(UTC) - timedelta(hours=2))))
    assert [item for item in attention_items(home_page(client)) if "not booked" in item[1]] == [
        (
            "warning",
            "1 account has expirations that are not booked over an hour after their time, such as ada's.",
            "/admin/ledger/account/holders/ada/?type=credits",
        )
    ]
    services.book_expirations(holder_id="ada")
    assert not [item for item in attention_items(home_page(client)) if "not booked" in item[1]]


def test_what_billing_is_stuck_at_is_named_the_worst_first_with_links(client):
    subscription = SubscriptionFactory()
    SuspendedBilling.objects.create(subscription_id=subscription.pk, reason="unusual-amount")
    now = datetime.now(UTC)
    bad = Run.objects.create(run_id="6f9619ff-8b86-4d11-b42d-00c04fc964ff", as_of=at(2, 1), finished_at=now, exit_code=3)
    RunResult.objects.create(run_id=bad.pk, subscription_ref="SUB-7", outcome="failed", detail="ValueError: too long")
    Run.objects.create(run_id="6f9619ff-8b86-4d11-b42d-00c04fc964fe", as_of=at(2, 1), finished_at=now, exit_code=0)
    draft = Invoice.objects.create(
        subscription_id=subscription.pk, subscription_ref=subscription.ref, customer_id=1, customer_ref="C", currency="EUR",
        as_of=at(2, 1), subtotal_minor=0, tax_minor=0, total_minor=0, amount_due_minor=0, grace_ends_at=now - timedelta(hours=2),
    )  # fmt: skip
    ScheduledTask.objects.create(
        name="audit_ledger", due_at=now, started_at=now, finished_at=now - timedelta(hours=5), exit_code=1
    )

    found = attention_items(home_page(client))

    stopped = "1 subscription is suspended from billing until a person resumes it"
    expected = [
        ("danger", f"{stopped}, such as {subscription.ref}: the amount is far above the usual one."),
        ("danger", "Invoicing failed for 1 subscription, such as SUB-7: too long"),
        ("danger", "The last audit, 5 hours ago, found violations or failed: see the worker's log."),
        ("warning", f"1 draft is past the grace and not finalised, such as that of {subscription.ref}."),
    ]
    # Beside them may stand what the machine that runs the tests is short of.
    named = [item for item in found if item[:2] in expected]
    assert [item[:2] for item in named] == expected
    links = [item[2] for item in named if item[2]]
    assert links == [
        f"/admin/billing/subscription/{subscription.pk}/change/",
        f"/admin/billing/run/{bad.pk}/change/",
        f"/admin/billing/invoice/{draft.pk}/change/",
    ]
    assert all(client.get(link).status_code == 200 for link in links)


@pytest.mark.parametrize(("exit_code", "is_bad"), [(0, False), (1, True), (3, True), (4, False), (6, False), (143, False)])
def test_a_run_that_leaves_work_to_the_next_one_did_not_fail(client, exit_code, is_bad):
    Run.objects.create(
        run_id="6f9619ff-8b86-4d11-b42d-00c04fc964ff", as_of=at(2, 1), finished_at=datetime.now(UTC), exit_code=exit_code
    )
    assert any("Invoicing failed" in item[1] for item in attention_items(home_page(client))) is is_bad


@pytest.mark.parametrize(
    ("hours", "exit_code", "expected"),
    [
        (0, 0, ("info", "The last audit, less than an hour ago, found no violation.")),
        (40, 0, ("warning", "The last audit was 40 hours ago; it found no violation.")),
        (2, 1, ("danger", "The last audit, 2 hours ago, found violations or failed: see the worker's log.")),
    ],
)
def test_the_last_audit_is_shown_with_its_age_and_result(client, hours, exit_code, expected):
    ended = datetime.now(UTC) - timedelta(hours=hours, minutes=1)
    ScheduledTask.objects.create(name="audit_ledger", due_at=ended, started_at=ended, finished_at=ended, exit_code=exit_code)
    assert expected in [item[:2] for item in attention_items(home_page(client))]


def test_a_month_without_a_partition_of_usage_is_named(client):
    first = datetime.now(UTC).replace(day=1)
    following = first + timedelta(days=32)
    text = f"The usage table has no partition for {following:%B %Y}: run manage.py usage_partitions."
    for month, is_missing in ((first, True), (following, False)):
        with connection.cursor() as cursor:
            cursor.execute("SELECT billing_make_usage_month(%s)", [month.date().replace(day=1)])
        assert (("warning", text, "") in attention_items(home_page(client))) is is_missing


def test_each_operator_sees_what_the_permissions_allow():
    services.grant(holder_id="ada", amount=5, idempotency_key="g")
    services.spend(holder_id="ada", amount=5, idempotency_key="s")
    nothing = home_page(operator("ledger.view_ratelisting"))
    assert "ada" not in nothing
    assert "Refusals per hour" not in nothing
    assert attention_items(nothing) == []
    looking = home_page(operator("ledger.view_account", name="ben"))
    assert ">ada<" in looking
    assert "grant-credits" not in looking


@pytest.mark.slow
def test_the_first_page_sends_the_same_number_of_statements_for_60_times_the_entries(client):
    load_history(holders=30, entries=100)
    few = cost_of(client, HOME)
    load_history(holders=300, entries=6_000, first_holder=101)
    many = cost_of(client, HOME)
    assert len(many.statements) == len(few.statements) <= 40
    for plan in many.plans:
        assert "Seq Scan on ledger_entry" not in plan, plan
    assert home_reads.ACCOUNTS_LOOKED_AT == 200


def test_each_credit_type_has_what_is_outstanding_and_what_the_month_brought(client):
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    services.grant(holder_id="ada", amount=10_000, credit_type="usd_cents", idempotency_key="g")
    services.grant(holder_id="ada", amount=500, credit_type="usd_cents", source="promotional", idempotency_key="p")
    services.spend(holder_id="ada", amount=2_550, credit_type="usd_cents", idempotency_key="s")
    services.refund(holder_id="ada", spend=3, amount=50, credit_type="usd_cents", idempotency_key="r")
    services.hold(holder_id="ada", amount=700, credit_type="usd_cents", idempotency_key="h")
    assert "Credits in" not in text_of(home_page(client)), "nothing is counted yet"
    count_entries(patience_seconds=0)
    page = home_page(client)
    assert (
        "US dollars 80.00 USD outstanding, 73.00 of it spendable, 7.00 held "
        "Granted, purchased 100.00 Granted, promotional 5.00 Spent 25.50 "
        "Refunded 0.50 Expired 0.00 Spent in the last 30 days: 25.50, most on one day 25.50."
    ) in text_of(page)
    assert "Entries counted up to" in text_of(page)
    assert "outstanding" not in text_of(home_page(operator("ledger.view_account", name="ben")))


def test_what_is_not_yet_effective_is_shown_by_credit_type_less_what_was_revoked(client):
    later = datetime.now(UTC) + timedelta(days=40)
    services.grant(holder_id="ada", amount=70, idempotency_key="now")
    services.grant(holder_id="ada", amount=1_000, idempotency_key="later", effective_at=later)
    services.grant(holder_id="bob", amount=500, idempotency_key="later", effective_at=later)
    services.revoke(holder_id="bob", grant=1, amount=200, idempotency_key="back")
    services.grant(holder_id="cy", amount=9, idempotency_key="back-dated", effective_at=datetime.now(UTC) - timedelta(days=3))
    count_entries(patience_seconds=0)
    assert "1,379 credits outstanding, 79 of it spendable, 1,300 not yet effective Granted" in text_of(home_page(client))


@pytest.mark.slow
def test_a_disk_that_fills_up_is_named(client, monkeypatch, settings):
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")
    settings.EMBEDDED_SERVER = True
    for free, tone in ((5, "danger"), (90, "warning"), (500, None)):
        monkeypatch.setattr("shutil.disk_usage", lambda path, free=free: usage(1_000 << 30, 0, free << 30))
        found = [item for item in attention_items(home_page(client)) if item[1].startswith("Disk: ")]
        assert [item[0] for item in found] == ([tone] if tone else [])
    assert not [
        item for item in attention_items(home_page(operator("ledger.view_account", name="ben"))) if item[1].startswith("Disk")
    ]

"""What the database refuses by itself: changes to finalised invoices, to intent that is never changed, overlapping periods."""

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from billing.documents import invoices
from billing.models import Claim, Invoice, ItemVersion, Subscription
from ledger.database.locks import sqlstate
from tests.billing.factories import SubscriptionFactory, at, use
from tests.billing.generator.run.test_generate import bill

pytestmark = pytest.mark.django_db

FROZEN, EXCLUSION = "LG001", "23P01"


def refused_with(sql: str, *parameters: object) -> str | None:
    """The SQLSTATE with which the database refuses a statement; None when it does not."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql, parameters)
    except DatabaseError as error:
        return sqlstate(error)
    return None


@pytest.fixture
def finalised() -> int:
    """The id of an open invoice with two lines and a tax."""
    subscription = SubscriptionFactory()
    use(subscription, "10", at(1, 5))
    [invoice] = bill(subscription, at(2, 1))
    return invoice["id"]


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE billing_invoice SET total_minor = total_minor + 1 WHERE id = %s",
        "UPDATE billing_invoice SET customer_ref = 'X' WHERE id = %s",
        "UPDATE billing_invoice SET state = 'draft', number = NULL, series_value = NULL WHERE id = %s",
        "UPDATE billing_invoice SET state = 'paid', amount_due_minor = 0, credits_applied_minor = total_minor WHERE id = %s",
        "DELETE FROM billing_invoice WHERE id = %s",
        "UPDATE billing_line SET amount_minor = 0 WHERE invoice_id = %s",
        "DELETE FROM billing_line WHERE invoice_id = %s",
        "UPDATE billing_invoicetax SET amount_minor = 0 WHERE invoice_id = %s",
        "DELETE FROM billing_invoicetax WHERE invoice_id = %s",
        "INSERT INTO billing_invoicetax (invoice_id, category, rate, base_minor, amount_minor) VALUES (%s, 'Z', 0, 0, 0)",
        (
            "INSERT INTO billing_invoicetax (invoice_id, category, rate, base_minor, amount_minor) VALUES (%s, 'S', 20, 0, 0)"
            " ON CONFLICT (invoice_id, category, rate, code) DO UPDATE SET amount_minor = 0"
        ),
        "MERGE INTO billing_line USING (SELECT %s::bigint AS id) AS one ON invoice_id = one.id WHEN MATCHED THEN DELETE",
    ],
)
def test_a_finalised_invoice_is_frozen(finalised: int, sql: str) -> None:
    before = Invoice.objects.filter(pk=finalised).values().get()
    assert refused_with(sql, finalised) == FROZEN
    assert Invoice.objects.filter(pk=finalised).values().get() == before


@pytest.mark.parametrize(
    "table",
    [
        "invoice",
        "line",
        "invoicetax",
        "creditnote",
        "creditnoteline",
        "creditnotetax",
        "claim",
        "plan",
        "price",
        "coupon",
        "usageevent",
        "amendment",
    ],
)
def test_truncate_is_refused_on_every_frozen_table(table: str) -> None:
    assert refused_with(f"TRUNCATE billing_{table} CASCADE") == FROZEN


def test_replica_mode_changes_nothing_of_it(finalised: int, raw_connection: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgrelid::regclass::text, tgname FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid"
            " WHERE NOT tgisinternal AND c.relname LIKE 'billing\\_%%' AND tgenabled <> 'A'"
            # What computes rather than refuses: copied rows have what it made.
            " AND tgname NOT IN ('registered', 'told', 'mailed', 'starts', 'chained', 'digested', 'keeps_rest')"
        )
        assert cursor.fetchall() == []


def test_an_invoice_begins_as_a_draft(finalised: int) -> None:
    columns = (
        "series, subscription_id, subscription_ref, customer_id, customer_ref, buyer, currency, scope, as_of, subtotal_minor,"
        " discount_minor, tax_minor, total_minor, credit_notes_minor, credits_applied_minor, amount_due_minor"
    )
    sql = f"INSERT INTO billing_invoice ({columns}, state, number, series_value) SELECT {columns}, 'open', 'X', 99 "
    assert refused_with(sql + "FROM billing_invoice WHERE id = %s", finalised) == FROZEN


def test_a_draft_can_be_deleted_and_its_period_billed_again() -> None:
    subscription = SubscriptionFactory()
    [draft] = bill(subscription, at(1, 1), finalize=False)
    invoices.delete_draft(draft["id"])
    assert not Invoice.objects.filter(pk=draft["id"]).exists()
    [again] = bill(subscription, at(1, 1))
    assert again["total_minor"] == draft["total_minor"]


@pytest.mark.parametrize(
    "table", ["billing_plan", "billing_price", "billing_amendment", "billing_usageevent", "billing_usagekey"]
)
def test_what_was_ordered_and_used_is_never_changed(table: str, finalised: int) -> None:
    column = {"billing_usagekey": "idempotency_key", "billing_usageevent": "meter", "billing_amendment": "actor"}.get(table, "id")
    assert refused_with(f"UPDATE {table} SET {column} = {column}") == FROZEN
    assert refused_with(f"DELETE FROM {table}") == FROZEN


@pytest.mark.parametrize(
    ("starts_at", "ends_at", "refused"),
    [
        (at(1, 1), at(2, 1), True),
        (at(1, 31), at(2, 3), True),
        (at(1, 31), at(3, 3), True),
        (at(3, 1), at(4, 1), False),
    ],
)
def test_claims_that_overlap_are_refused_and_those_that_touch_are_not(starts_at, ends_at, refused: bool) -> None:
    subscription = SubscriptionFactory()
    bill(subscription, at(2, 1))
    copy = (
        "INSERT INTO billing_claim (subscription_id, item_id, kind, starts_at, ends_at, price_id, quantity, amount_minor,"
        " snapshot)"
        " SELECT subscription_id, item_id, kind, %s, %s, price_id, quantity, amount_minor, snapshot"
        " FROM billing_claim WHERE subscription_id = %s AND kind = 1 AND starts_at = %s"
    )
    assert refused_with(copy, starts_at, ends_at, subscription.pk, at(1, 1)) == (EXCLUSION if refused else None)
    assert Claim.objects.filter(subscription=subscription.pk, kind=1).count() == (2 if refused else 3)


def test_versions_of_an_item_that_overlap_are_refused() -> None:
    subscription = SubscriptionFactory()
    one = ItemVersion.objects.filter(subscription=subscription.pk).first()
    assert one is not None
    copy = (
        "INSERT INTO billing_itemversion (subscription_id, item_id, plan_id, price_id, quantity, starts_at, is_termination,"
        " skips_unused) SELECT subscription_id, item_id, plan_id, price_id, quantity, %s, false, false"
        " FROM billing_itemversion WHERE id = %s"
    )
    assert refused_with(copy, at(6, 1), one.pk) == EXCLUSION


def test_no_foreign_key_points_to_intent() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint"
            " WHERE contype = 'f' AND 'billing' IN"
            " (split_part(conrelid::regclass::text, '_', 1), split_part(confrelid::regclass::text, '_', 1))"
            " ORDER BY 1, 2"
        )
        assert cursor.fetchall() == [
            ("billing_creditnoteline", "billing_creditnote"),
            ("billing_creditnotetax", "billing_creditnote"),
            ("billing_creditnoteuse", "billing_creditnote"),
            ("billing_invoicedsubscription", "billing_invoice"),
            ("billing_invoicetax", "billing_invoice"),
            ("billing_line", "billing_invoice"),
        ]


def test_the_application_only_inserts_what_is_append_only(app_role_connection: psycopg.Connection) -> None:
    rows = app_role_connection.execute(
        "SELECT c.relname, has_table_privilege(c.oid, 'UPDATE'), has_table_privilege(c.oid, 'DELETE')"
        " FROM pg_class c JOIN pg_trigger t ON t.tgrelid = c.oid AND t.tgname = 'append_only'"
        " WHERE c.relname LIKE 'billing\\_%' ORDER BY 1"
    ).fetchall()
    assert [name for name, *_ in rows] == [
        "billing_amendment", "billing_charge", "billing_creditrefund", "billing_invoicepayment", "billing_movedsubscription",
        "billing_paymentreturn", "billing_planmove", "billing_providercustomer", "billing_purchase", "billing_purchasegrant",
        "billing_purchasereturn", "billing_reminder", "billing_returnsettlement", "billing_seller", "billing_tax",
        "billing_transition",
        "billing_usageevent", "billing_usageevent_default", "billing_usagekey",
    ]  # fmt: skip
    assert {(update, delete) for _, update, delete in rows} == {(False, False)}


def test_the_subscription_row_is_not_written_by_billing_it() -> None:
    subscription = SubscriptionFactory()
    with connection.cursor() as cursor:
        cursor.execute("SELECT ctid::text, xmin::text FROM billing_subscription WHERE id = %s", [subscription.pk])
        before = cursor.fetchall()
        bill(subscription, at(3, 1))
        cursor.execute("SELECT ctid::text, xmin::text FROM billing_subscription WHERE id = %s", [subscription.pk])
        assert cursor.fetchall() == before
    assert Subscription.objects.filter(pk=subscription.pk).exists()

"""`generate_invoices --check` finds what somebody with every right changed: documents, what they were made of, what paid them."""

from decimal import Decimal

import pytest
from django.db import connection

from billing.auditing import consistency
from billing.documents import credit_notes
from billing.documents.sellers import record_seller
from billing.metering.meters import create_meter
from billing.metering.usage import NewEvent, take_in
from billing.models import Claim, Invoice, Line
from billing.orders import coupons, subscriptions
from billing.orders.customers import NewCredits
from billing.orders.subscriptions import Wish
from billing.request_keys import WriteResult, execute_once
from ledger import services
from ledger.audit.auditing import audit
from ledger.audit.chains import UNREGISTERED, registered_tables
from tests.billing.factories import (
    CustomerFactory,
    PlanFactory,
    SubscriptionFactory,
    at,
    metered,
    recurring,
    transition,
    unique,
    use,
)
from tests.billing.generator.run.test_generate import bill
from tests.tampering.owner import SELLER, as_owner

pytestmark = pytest.mark.django_db


@pytest.fixture
def history():
    """Three invoices of one subscription: paid in credits in part, with coupon, usage, a charge, a change of plan and a note."""
    holder, code = unique("holder"), unique("ten")
    record_seller(SELLER, actor="test")
    services.grant(holder_id=holder, amount=500, idempotency_key="first")
    customer = CustomerFactory(holder_id=holder, credits=NewCredits(credit_type="credits", unit_value=Decimal("0.01")))
    coupons.create_coupon(code=code, kind="percentage", value=Decimal(10), duration="once")
    coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code=code)
    tokens = metered(key="tokens", meter="tokens", tax_rate="20")
    plan = PlanFactory(prices=[recurring(tax_rate="20"), metered(tax_rate="20"), tokens])
    subscription = SubscriptionFactory(customer=customer.ref, plan=plan.code)
    use(subscription, "100", at(1, 10))
    use(subscription, "150", at(1, 20))
    create_meter(code="tokens", expression="properties.in * 1.5 + properties.out")
    take_in([NewEvent(unique("e"), subscription.ref, "tokens", occurred_at=at(1, 20), properties={"in": 8, "out": 15})])
    [first] = bill(subscription, at(1, 1))
    subscriptions.charge_once(ref=subscription.ref, amount_minor=700, description="Setup", tax_rate=Decimal(20))
    [second] = bill(subscription, at(2, 1))
    bigger = PlanFactory(prices=[recurring(unit_amount="20.00", tax_rate="20"), metered(tax_rate="20"), tokens])
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(2, 15), wish=Wish(plan=bigger.code))
    [third] = bill(subscription, at(3, 1))
    execute_once(
        collection="invoices", idempotency_key="pay it", request_digest=bytes(32),
        act=lambda: WriteResult(200, {"state": transition(third["id"], "pay").state}),
    )  # fmt: skip
    credit_notes.issue_in(
        invoice_id=second["id"], lines=[credit_notes.CreditLine(position=1, amount_minor=100)], reason="Goodwill", actor="test"
    )
    return {"first": first["id"], "second": second["id"], "third": third["id"], "subscription": subscription.pk}


def findings() -> set[str]:
    """The names of the findings of billing, and `register` if the ledger's audit has one of the register."""
    connection.ensure_connection()
    of_register = {"register"} & set(audit([connection.connection]).totals)
    return {one["finding"] for one in consistency.check()} | of_register


def register_again() -> None:
    """Write the register again from the rows as they are now, as a careful tamperer would."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM ledger_register")
        for table in registered_tables():
            key = " || '/' || ".join(f"(content ->> '{column}')" for column in table.key)
            cursor.execute(f"""
                INSERT INTO ledger_register (of_table, row_key, digest)
                SELECT '{table.name}', {key}, sha256(convert_to(content::text, 'UTF8'))
                FROM (
                    SELECT ledger_row_form(to_jsonb(r)) - '{{{UNREGISTERED}}}'::text[] AS content
                    FROM {table.name} AS r
                    WHERE {table.condition}
                ) AS row
            """)


def test_ordinary_life_is_no_finding(history):
    assert consistency.check() == []
    assert Invoice.objects.filter(digest=None).count() == 0


def test_a_column_that_a_release_adds_leaves_the_digests_of_all_rows_as_they_are(history):
    """And it is under them from then on: a value in it is found."""
    with connection.cursor() as cursor:
        # Checks that are deferred would keep the tables.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in registered_tables():
            cursor.execute(f"ALTER TABLE {table.name} ADD COLUMN added_later text")
            cursor.execute(f"ALTER TABLE {table.name} ADD CONSTRAINT {table.name}_added_later CHECK (added_later <> '')")
        assert findings() == set()
        for table in ("billing_amendment", "billing_price"):
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        cursor.execute("UPDATE billing_amendment SET added_later = 'x'")
        cursor.execute("UPDATE billing_price SET added_later = 'x'")
    assert findings() == {"digest of an amendment", "digest of a price", "register"}


MISCOMPUTED = "usage event has another value than its meter computes"
DIGEST = "digest of a document"
REWRITTEN = """
    UPDATE billing_{0} AS changed SET digest = billing_chained_digest((
        SELECT earlier.digest FROM billing_{0} AS earlier
        WHERE earlier.subscription_id = changed.subscription_id AND earlier.sequence = changed.sequence - 1
    ), billing_row_form(changed))
    WHERE subscription_id = %(subscription)s AND sequence = {1}
"""
TAMPERINGS = {
    "lines with totals lowered together": (
        [
            "UPDATE billing_line SET amount_minor = amount_minor - 100 WHERE invoice_id = %(second)s AND position = 1",
            (
                "UPDATE billing_invoicetax SET base_minor = base_minor - 100, amount_minor = amount_minor - 20 "
                "WHERE invoice_id = %(second)s"
            ),
            (
                "UPDATE billing_invoice SET subtotal_minor = subtotal_minor - 100, tax_minor = tax_minor - 20, "
                "total_minor = total_minor - 120, amount_due_minor = amount_due_minor - 120 WHERE id = %(second)s"
            ),
        ],
        {DIGEST, "claims do not add up to the lines"},
    ),
    "a line's quantity": (["UPDATE billing_line SET quantity = 7 WHERE invoice_id = %(first)s"], {DIGEST}),
    "a line's description": (["UPDATE billing_line SET description = 'Other' WHERE invoice_id = %(first)s"], {DIGEST}),
    "a line's rating": (["UPDATE billing_line SET rating = '{}' WHERE invoice_id = %(first)s"], {DIGEST}),
    "the buyer": (['UPDATE billing_invoice SET buyer = buyer || \'{"name": "Eve"}\' WHERE id = %(first)s'], {DIGEST}),
    "the due date": (["UPDATE billing_invoice SET due_date = due_date + 30 WHERE id = %(first)s"], {DIGEST}),
    "the tax": (
        [
            "UPDATE billing_invoicetax SET amount_minor = amount_minor - 1 WHERE invoice_id = %(third)s",
            (
                "UPDATE billing_invoice SET tax_minor = tax_minor - 1, total_minor = total_minor - 1, "
                "amount_due_minor = amount_due_minor - 1, amount_paid_minor = amount_paid_minor - 1 WHERE id = %(third)s"
            ),
        ],
        {DIGEST, "taxes do not follow from the lines"},
    ),
    "the state": (
        ["UPDATE billing_invoice SET state = 'uncollectible', uncollectible_at = now() WHERE id = %(second)s"],
        {"state does not follow from the transitions"},
    ),
    "the state, with what is paid": (
        ["UPDATE billing_invoice SET state = 'paid', amount_paid_minor = amount_due_minor WHERE id = %(second)s"],
        {"amount paid does not follow from the payments"},
    ),
    "a payment deleted": (
        ["DELETE FROM billing_invoicepayment WHERE invoice_id = %(third)s"],
        {"amount paid does not follow from the payments"},
    ),
    "the state, back": (
        ["UPDATE billing_invoice SET state = 'open', paid_at = NULL WHERE id = %(third)s"],
        {"state does not follow from the transitions"},
    ),
    "what is due": (
        [
            (
                "UPDATE billing_invoice SET credit_notes_minor = credit_notes_minor + 50, "
                "amount_due_minor = amount_due_minor - 50 WHERE id = %(second)s"
            )
        ],
        {"amount due does not follow from what was set against it"},
    ),
    "the last invoice, with the series": (
        [
            "DELETE FROM billing_line WHERE invoice_id = %(third)s",
            "DELETE FROM billing_invoicetax WHERE invoice_id = %(third)s",
            "DELETE FROM billing_invoice WHERE id = %(third)s",
            "UPDATE billing_numberseries SET last_value = last_value - 1 WHERE name = 'INV'",
        ],
        {"names an invoice that does not exist", "claims do not add up to the lines"},
    ),
    "an invoice in the middle": (
        [
            "DELETE FROM billing_line WHERE invoice_id = %(second)s",
            "DELETE FROM billing_invoicetax WHERE invoice_id = %(second)s",
            "DELETE FROM billing_invoice WHERE id = %(second)s",
        ],
        {DIGEST, "hole in the numbering", "names an invoice that does not exist"},
    ),
    "the series": (
        ["UPDATE billing_numberseries SET last_value = last_value + 1 WHERE name = 'INV'"],
        {"series does not match its documents"},
    ),
    "a claim's amount": (
        ["UPDATE billing_claim SET amount_minor = 0 WHERE invoice_id = %(second)s AND kind = 2"],
        {DIGEST, "claims do not add up to the lines"},
    ),
    "a claim deleted": (
        ["DELETE FROM billing_claim WHERE invoice_id = %(second)s AND kind = 2"],
        {DIGEST, "claims do not add up to the lines", "line without its claim"},
    ),
    "a claim released": (
        ["UPDATE billing_claim SET released_at = now() WHERE invoice_id = %(second)s AND kind = 2"],
        {"claims do not add up to the lines"},
    ),
    "a credit payment": (
        ["UPDATE billing_creditpayment SET credits = 1, amount_minor = 1 WHERE invoice_id = %(first)s"],
        {DIGEST, "credit payment differs from the ledger", "amount due does not follow from what was set against it"},
    ),
    "a credit payment deleted": (
        ["DELETE FROM billing_creditpayment WHERE invoice_id = %(first)s"],
        {DIGEST, "amount due does not follow from what was set against it"},
    ),
    "a coupon's use": (["UPDATE billing_couponuse SET amount_minor = 1 WHERE invoice_id = %(first)s"], {DIGEST}),
    "a coupon's use released": (
        ["UPDATE billing_couponuse SET released_at = now() WHERE invoice_id = %(first)s"],
        {"use that does not fit the state of its invoice"},
    ),
    "a credit note": (
        ["UPDATE billing_creditnote SET reason = 'None' WHERE invoice_id = %(second)s"],
        {DIGEST},
    ),
    "a credit note's line": (["UPDATE billing_creditnoteline SET description = 'Other'"], {DIGEST}),
    "a usage event's value": (
        ["UPDATE billing_usageevent SET value = 1 WHERE subscription_id = %(subscription)s AND value = 100"],
        {"usage event differs from its key", "usage differs from what was billed"},
    ),
    "the value that a meter computed": (
        ["UPDATE billing_usageevent SET value = 1 WHERE subscription_id = %(subscription)s AND value = 27"],
        {MISCOMPUTED, "usage differs from what was billed"},
    ),
    "the properties that a meter computed from": (
        ['UPDATE billing_usageevent SET properties = \'{"in": 1, "out": 25.5}\' WHERE value = 27'],
        {"usage event differs from its key"},
    ),
    "the version of the meter of an event": (
        ["UPDATE billing_usageevent SET meter_version = NULL WHERE value = 27"],
        {"usage event differs from its key"},
    ),
    "the version of the meter of an event, with its value and its key": (
        [
            "UPDATE billing_usagekey SET meter_version = NULL WHERE meter_version = 1",
            "UPDATE billing_usageevent SET meter_version = NULL, value = 1 WHERE value = 27",
        ],
        {"usage event differs from its key", "usage differs from what was billed"},
    ),
    "a usage event deleted": (
        ["DELETE FROM billing_usageevent WHERE subscription_id = %(subscription)s AND value = 100"],
        {"usage events are missing", "usage differs from what was billed"},
    ),
    "a usage event deleted with its key": (
        [
            (
                "DELETE FROM billing_usagekey WHERE idempotency_key IN (SELECT idempotency_key FROM billing_usageevent "
                "WHERE subscription_id = %(subscription)s AND value = 100)"
            ),
            "DELETE FROM billing_usageevent WHERE subscription_id = %(subscription)s AND value = 100",
        ],
        {"usage differs from what was billed"},
    ),
    "an amendment": (
        ["UPDATE billing_amendment SET effective_at = '2026-02-20Z' WHERE subscription_id = %(subscription)s AND sequence = 2"],
        {"item versions do not follow from the amendments"},
    ),
    "an amendment deleted": (
        ["DELETE FROM billing_amendment WHERE subscription_id = %(subscription)s AND sequence = 1"],
        {"hole in the amendments"},
    ),
    "the last amendment deleted": (
        ["DELETE FROM billing_amendment WHERE subscription_id = %(subscription)s AND sequence = 2"],
        {"item versions do not follow from the amendments"},
    ),
    "an item version": (
        ["UPDATE billing_itemversion SET quantity = 9 WHERE subscription_id = %(subscription)s AND superseded_at IS NULL"],
        {"item versions do not follow from the amendments"},
    ),
    "a one-off charge": (
        ["UPDATE billing_charge SET amount_minor = 1 WHERE subscription_id = %(subscription)s"],
        {"one-off charge differs from its line", "digest of a charge"},
    ),
    "the state, with a transition forged": (
        [
            "UPDATE billing_invoice SET state = 'uncollectible', uncollectible_at = now() WHERE id = %(second)s",
            (
                "INSERT INTO billing_transition (subscription_id, sequence, invoice_id, kind, actor, reason, digest) "
                "SELECT subscription_id, sequence + 1, %(second)s, 'mark_uncollectible', actor, reason, digest "
                "FROM billing_transition WHERE invoice_id = %(third)s"
            ),
        ],
        {"digest of a transition"},
    ),
    "who changed the state of an invoice": (
        ["UPDATE billing_transition SET actor = 'eve' WHERE invoice_id = %(third)s"],
        {"digest of a transition"},
    ),
    "who amended": (
        ["UPDATE billing_amendment SET actor = 'eve' WHERE subscription_id = %(subscription)s AND sequence = 2"],
        {"digest of an amendment"},
    ),
    "who amended, with the digests of all amendments": (
        [
            "UPDATE billing_amendment SET actor = 'eve' WHERE subscription_id = %(subscription)s AND sequence = 1",
            REWRITTEN.format("amendment", 1),
            REWRITTEN.format("amendment", 2),
        ],
        {DIGEST},
    ),
    "who charged, with the digest": (
        [
            "UPDATE billing_charge SET actor = 'eve' WHERE subscription_id = %(subscription)s",
            REWRITTEN.format("charge", 1),
        ],
        {DIGEST},
    ),
    "a price": (
        [
            (
                "UPDATE billing_price SET definition = definition || '{\"unit_amount\": \"11.00\"}' WHERE key = 'base' AND id IN "
                "(SELECT price_id FROM billing_line WHERE invoice_id = %(first)s)"
            )
        ],
        {"digest of a price"},
    ),
    "a price, with its digest": (
        [
            "UPDATE billing_price SET definition = definition || '{\"unit_amount\": \"11.00\"}' WHERE key = 'base'",
            "UPDATE billing_price AS p SET digest = billing_price_digest(p)",
        ],
        {DIGEST},
    ),
    "a plan": (["UPDATE billing_plan SET interval_unit = 'year'"], {"digest of a price"}),
    "a coupon": (["UPDATE billing_coupon SET value = 20"], {"digest of a coupon"}),
    "the expression of a meter": (
        ["UPDATE billing_meter SET expression = 'properties.in' WHERE code = 'tokens'"],
        {MISCOMPUTED, "register"},
    ),
    "a meter deleted": (["DELETE FROM billing_meter WHERE code = 'tokens'"], {MISCOMPUTED, "register"}),
    "a coupon, with its digest": (
        ["UPDATE billing_coupon SET value = 20", "UPDATE billing_coupon AS c SET digest = billing_coupon_digest(c)"],
        {DIGEST},
    ),
    "the seller's bank account": (
        ['UPDATE billing_seller SET details = details || \'{"iban": "DE89370400440532013000"}\''],
        {"digest of a seller"},
    ),
    "the seller's VAT id, with the digest": (
        [
            'UPDATE billing_seller SET details = details || \'{"vat_id": "DE999999999"}\'',
            "UPDATE billing_seller AS s SET digest = billing_seller_digest(s)",
        ],
        {DIGEST, "register"},
    ),
    "when an invoice was paid": (
        ["UPDATE billing_invoice SET paid_at = paid_at + interval '1 day' WHERE id = %(third)s"],
        {"register"},
    ),
    "when usage came in": (
        ["UPDATE billing_usageevent SET recorded_at = recorded_at - interval '1 day' WHERE value = 100"],
        {"usage event differs from its key"},
    ),
    "a stored response": (
        ["UPDATE billing_requestkey SET body = '{\"forged\": true}' WHERE idempotency_key = 'pay it'"],
        {"register"},
    ),
    "a stored response deleted": (["DELETE FROM billing_requestkey WHERE idempotency_key = 'pay it'"], {"register"}),
    "a name": (["UPDATE billing_customer SET currency = 'USD'"], {"register"}),
    "the subscription's anchor": (
        ["UPDATE billing_subscription SET anchor_at = anchor_at + interval '1 day' WHERE id = %(subscription)s"],
        {DIGEST},
    ),
}


@pytest.mark.products(most=5)
@pytest.mark.parametrize("name", TAMPERINGS)
def test_what_was_changed_with_triggers_off_is_found(history, name):
    statements, expected = TAMPERINGS[name]
    as_owner(*statements, **history)
    assert findings() >= expected


def test_a_restored_claim_says_what_it_restores_and_is_held_to_it(history):
    """Voiding the correction brings back what it corrected; the first invoice's digest holds as before."""
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(tax_rate="20")]).code)
    bill(subscription, at(1, 1))
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(1, 11), wish=Wish(quantities={"base": Decimal(2)}))
    [corrected] = bill(subscription, at(1, 12))
    released = Claim.objects.get(subscription_id=subscription.pk, released_by=corrected["id"])
    transition(corrected["id"], "void")
    restored = Claim.objects.get(subscription_id=subscription.pk, restores=released.pk)
    assert (restored.amount_minor, restored.invoice_id, restored.made_by) == (1000, released.invoice_id, released.made_by)
    assert findings() == set()
    as_owner("UPDATE billing_claim SET quantity = 5 WHERE id = %(restored)s", restored=restored.pk)
    assert findings() == {"restored claim differs from the released one", "register"}
    assert Line.objects.filter(invoice_id=released.invoice_id).count() == 1

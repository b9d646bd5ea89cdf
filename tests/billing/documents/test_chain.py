"""The chain of documents: the canonical form and its digest, and the ledger's anchor that holds the last of each series."""

import hashlib
import json
import re
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django.db import connection
from django.db.models import JSONField, Q

from billing.auditing import consistency
from billing.documents import credit_notes
from billing.models import (
    Amendment,
    Charge,
    Claim,
    Coupon,
    CouponUse,
    CreditNote,
    CreditNoteLine,
    CreditNoteTax,
    CreditNoteUse,
    CreditPayment,
    Invoice,
    InvoicedSubscription,
    InvoiceTax,
    Line,
    Price,
    Seller,
    Subscription,
    Tax,
    Transition,
)
from billing.orders import subscriptions
from ledger.audit.anchors import AnchorLine, read_anchor
from ledger.audit.auditing import audit
from tests.billing.auditing.test_tampering import history, register_again
from tests.billing.factories import transition
from tests.tampering.owner import as_owner

__all__ = ["history"]

pytestmark = pytest.mark.django_db


# A form that is the same on every machine --------------------------------------------------------------

GOLDEN = """
    INSERT INTO billing_seller (id, details, recorded_by, recorded_at)
    VALUES (9, '{"name": "Fern GmbH"}', 'admin:mara', '2026-01-01 03:04:05.000005Z');
    INSERT INTO billing_invoice (id, series, subscription_id, subscription_ref, customer_id, customer_ref, buyer, currency, state,
        scope, as_of, subtotal_minor, discount_minor, tax_minor, total_minor, credit_notes_minor, credits_applied_minor,
        amount_due_minor, amendments_seen, run_id, created_at)
    VALUES (900001, 'GOLD', 77, 'SUB-77', 78, 'CUST-78', '{"name": "Ada \\"✓\\"", "address": {}}', 'EUR', 'draft',
        '', '2026-01-01Z', 1000, 100, 180, 1080, 0, 0, 1080, 0, '00000000-0000-4000-8000-000000000001',
        '2026-01-02 03:04:05.000006Z');
    INSERT INTO billing_line (id, invoice_id, position, kind, item_id, price_id, price_key, description, starts_at, ends_at,
        quantity, unit_amount, amount_minor, discount_minor, tax_category, tax_rate, rating)
    VALUES (900003, 900001, 1, 'recurring', 79, 80, 'base', 'Base', '2026-01-01Z', '2026-02-01Z', 1, 10, 1000, 100, 'S', 20,
        '{"share": {"used": 31, "of": 31}}');
    INSERT INTO billing_invoicetax (id, invoice_id, category, rate, base_minor, amount_minor)
    VALUES (900004, 900001, 'S', 20, 900, 180);
    INSERT INTO billing_claim (id, subscription_id, item_id, kind, starts_at, ends_at, price_id, quantity, amount_minor,
        invoice_id, line_position, snapshot, made_by, created_at)
    VALUES (900002, 77, 79, 1, '2026-01-01Z', '2026-02-01Z', 80, 1, 900, 900001, 1, '{"share_used": 31}', 900001,
        '2026-01-02 03:04:05.000008Z');
    INSERT INTO billing_couponuse (id, customer_coupon_id, invoice_id, subscription_id, amount_minor, periods, counted_from,
        counted_until, currency, used_at)
    VALUES (900005, 81, 900001, 77, 100, '[["2026-01-01T00:00:00+00:00", 100, 0]]', '2026-01-01Z', '2026-04-01Z', 'EUR',
        '2026-01-02 03:04:05.000009Z');
    UPDATE billing_invoice SET state = 'open', series_value = 1, number = 'GOLD-000001', issue_date = '2026-01-02',
        due_date = '2026-02-01', seller_id = 9, finalized_at = '2026-01-02 03:04:05.000007Z' WHERE id = 900001;
"""
FORM = (
    '["invoice", 900001, "GOLD", 1, "GOLD-000001", 77, "SUB-77", 78, "CUST-78", 9, '
    '"2a73d747317aa22d92585cf96a1ecf9579e5abf6eec902f8672cb301a1044ae8", {"name": "Ada \\"✓\\"", "address": {}}, '
    '"EUR", "", "", 1767225600000000, "2026-01-02", "2026-02-01", 1000, 100, 180, 1080, 0, 0, null, '
    '"00000000-0000-4000-8000-000000000001", null, 1767323045000006, 1767323045000007, '
    '[[900003, 1, "recurring", 79, 80, "base", "Base", 1767225600000000, 1769904000000000, 1.000000000000, 10.000000000000, '
    '1000, 100, "S", 20.000000000000, [], {"share": {"of": 31, "used": 31}}, null]], '
    '[[900004, "S", 20.000000000000, "", null, 900, 180]], '
    "[[900002, 77, 79, 1, 1767225600000000, 1769904000000000, 80, 1.000000000000, 900, 900001, 1, "
    '{"share_used": 31}, 1767323045000008]], '
    '[[900005, 81, 100, [["2026-01-01T00:00:00+00:00", 100, 0]], 1767225600000000, 1775001600000000, "EUR", 1767323045000009, '
    "null, 77]], [], [], null, null, [], [], []]"
)
DIGEST = "6557471128a6e9622100c6bed63a2b798eadb9872e3e096c340fe0a94bc84472"


def test_the_form_and_the_digest_of_an_invoice_are_these():
    with connection.cursor() as cursor:
        cursor.execute(GOLDEN.replace("%", "%%"))
        cursor.execute("SELECT billing_invoice_form(i), encode(digest, 'hex') FROM billing_invoice AS i WHERE id = 900001")
        form, digest = cursor.fetchone()
    assert form == FORM
    assert digest == hashlib.sha256(bytes(32) + FORM.encode()).hexdigest() == DIGEST


# The same by another hand ------------------------------------------------------------------------------


NUMBER = re.compile(r'"<number (-?[0-9.]+)>"')


def plain(value):
    """What json writes as the server does; decimals with all their places are put in by `canonical_json`."""
    if isinstance(value, datetime):
        since = value - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if isinstance(value, Decimal):
        return f"<number {value:f}>"
    if value is None or isinstance(value, (int, str, list)):
        return value
    return str(value)


def plain_rows(found, *fields):
    """The fields of each row, as the canonical form writes them."""
    return [[plain(value) for value in row] for row in found.values_list(*fields)]


def canonical_json(facts, json_texts=()):
    """The form, with the text of JSON columns as the server has it in place of <0>, <1> …"""
    form = NUMBER.sub(r"\1", json.dumps(facts, ensure_ascii=False))
    for index, text in enumerate(json_texts):
        form = form.replace(f'"<{index}>"', text)
    return form


def stored_json(table, column, **where):
    """A column's JSON exactly as the server prints it, by id."""
    ((key, value),) = where.items()
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id, {column}::text FROM {table} WHERE {key} = %s", [value])
        return dict(cursor.fetchall())


def invoice_form(invoice):
    """The canonical form of an invoice, spelled here a second time from the tables."""
    head = [
        "invoice", invoice.pk, invoice.series, invoice.series_value, invoice.number, invoice.subscription_id,
        invoice.subscription_ref, invoice.customer_id, invoice.customer_ref, invoice.seller_id,
        seller_digest(invoice), "<0>", invoice.currency, invoice.note,
        invoice.scope,
        invoice.as_of, invoice.issue_date, invoice.due_date, invoice.subtotal_minor, invoice.discount_minor, invoice.tax_minor,
        invoice.total_minor, invoice.credits_applied_minor, invoice.rounding_minor, "<1>",
        invoice.run_id, invoice.grace_ends_at, invoice.created_at,
        invoice.finalized_at,
    ]  # fmt: skip
    json_texts = [stored_json("billing_invoice", column, id=invoice.pk)[invoice.pk] for column in ("buyer", "credit_units")]
    lines, claims = [], []
    ratings = stored_json("billing_line", "rating", invoice_id=invoice.pk)
    for line in Line.objects.filter(invoice_id=invoice.pk).order_by("position"):
        facts = (
            line.pk, line.position, line.kind, line.item_id, line.price_id, line.price_key, line.description, line.starts_at,
            line.ends_at,
            line.quantity, line.unit_amount, line.amount_minor, line.discount_minor, line.tax_category, line.tax_rate,
        )  # fmt: skip
        lines.append([*map(plain, facts), line.taxes, f"<{len(json_texts)}>", line.subscription_id])
        json_texts.append(ratings[line.pk])
    bases = stored_json("billing_claim", "snapshot", made_by=invoice.pk)
    for claim in Claim.objects.filter(made_by=invoice.pk, restores=None).order_by("id"):
        facts = (
            claim.pk, claim.subscription_id, claim.item_id, claim.kind, claim.starts_at, claim.ends_at, claim.price_id,
            claim.quantity, claim.amount_minor, claim.invoice_id, claim.line_position,
        )  # fmt: skip
        claims.append([*map(plain, facts), f"<{len(json_texts)}>", plain(claim.created_at)])
        json_texts.append(bases[claim.pk])
    uses = CreditNoteUse.objects.filter(invoice_id=invoice.pk).exclude(
        credit_note__kind="requested", credit_note__invoice_id=invoice.pk
    )
    payment = plain_rows(
        CreditPayment.objects.filter(invoice_id=invoice.pk),
        "id", "holder_id", "credit_type", "credits", "amount_minor", "spend_sequence", "recorded_at",
    )  # fmt: skip
    facts = [
        *map(plain, head),
        lines,
        tax_facts(InvoiceTax.objects.filter(invoice_id=invoice.pk)),
        claims,
        [
            [
                use.pk, use.customer_coupon_id, use.amount_minor, use.periods, plain(use.counted_from), plain(use.counted_until),
                use.currency, plain(use.used_at), use.customer_coupon.coupon.digest.hex(), use.subscription_id,
            ]
            for use in CouponUse.objects.filter(invoice_id=invoice.pk).order_by("id")
        ],
        plain_rows(CreditNote.objects.filter(invoice_id=invoice.pk, kind="carried").order_by("id"), "id", "amount_minor"),
        plain_rows(uses.order_by("id"), "credit_note_id", "amount_minor"),
        payment[0] if payment else None,
        order_facts(invoice),
        [[price.pk, price.digest.hex()] for price in Price.objects.filter(line_prices(invoice)).order_by("id")],
        [[charge.pk, charge.digest.hex()] for charge in Charge.objects.filter(charged_items(invoice)).order_by("id")],
        [billed_facts(one) for one in InvoicedSubscription.objects.filter(invoice_id=invoice.pk).order_by("id")],
    ]  # fmt: skip
    return canonical_json(facts, json_texts)


def tax_facts(rows):
    """The taxes of a document, each with the digest of the declared version."""
    return [
        [
            tax.pk, tax.category, plain(tax.rate), tax.code,
            None if tax.tax_id is None else Tax.objects.get(pk=tax.tax_id).digest.hex(), tax.base_minor, tax.amount_minor,
        ]
        for tax in rows.order_by("category", "rate", "code")
    ]  # fmt: skip


def seller_digest(document):
    """The digest of the seller's version on a document."""
    return None if document.seller_id is None else Seller.objects.get(pk=document.seller_id).digest.hex()


def billed_facts(billed):
    """A subscription of a consolidated invoice, with what was ordered."""
    subscription = billed.subscription
    amendment = Amendment.objects.get(subscription_id=subscription.pk, sequence=billed.amendments_seen)
    return [
        billed.pk, subscription.pk, billed.subscription_ref, plain(billed.as_of), billed.amendments_seen,
        subscription.customer_id,
        plain(subscription.started_at), plain(subscription.anchor_at), subscription.time_zone, amendment.digest.hex(),
    ]  # fmt: skip


def order_facts(invoice):
    """What was ordered, as far as the invoice depends on it."""
    subscription = invoice.subscription
    if subscription is None:
        return None
    amendment = Amendment.objects.get(subscription_id=subscription.pk, sequence=invoice.amendments_seen)
    return [
        subscription.customer_id, plain(subscription.started_at), plain(subscription.anchor_at), subscription.time_zone,
        amendment.sequence, amendment.digest.hex(),
    ]  # fmt: skip


def line_prices(invoice):
    """The prices that the invoice's lines name."""
    return Q(pk__in=Line.objects.filter(invoice_id=invoice.pk, price__isnull=False).values("price_id"))


def charged_items(invoice):
    """The items that the invoice charges."""
    return Q(pk__in=Claim.objects.filter(made_by=invoice.pk, kind=Claim.Kind.CHARGE, restores=None).values("item_id"))


def row_form(row):
    """All columns that are not null but the digest, as an object: names by length and then by bytes, JSON columns as the server
    prints them.
    """
    values, json_texts = {}, []
    for field in row._meta.concrete_fields:
        value = getattr(row, field.attname)
        if isinstance(value, datetime):
            seconds, _, fraction = value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S %f").partition(" ")
            value = seconds + f".{fraction}".rstrip("0").rstrip(".") + "+00:00"
        elif isinstance(field, JSONField) and value is not None:
            json_texts.append(stored_json(row._meta.db_table, field.column, id=row.pk)[row.pk])
            value = f"<{len(json_texts) - 1}>"
        if field.column != "digest" and value is not None:
            values[field.column] = value if isinstance(value, str) else plain(value)
    return canonical_json({name: values[name] for name in sorted(values, key=lambda name: (len(name), name))}, json_texts)


def chained_digest(before, form):
    """The digest of a form, chained to the digest before it."""
    return hashlib.sha256(before + form.encode()).digest()


def note_form(note):
    """The canonical form of a credit note, spelled here a second time from the tables."""
    lowered = CreditNoteUse.objects.filter(credit_note=note, invoice_id=note.invoice_id).values_list("amount_minor", flat=True)
    facts = [
        "credit note", note.pk, note.series, note.series_value, note.number, note.customer_id, note.subscription_id,
        note.invoice_id, note.currency,
        plain(note.issue_date), note.seller_id, seller_digest(note), note.subtotal_minor, note.tax_minor, note.rounding_minor,
        note.amount_minor, note.credits_returned,
        note.credits_returned_minor, note.refund_sequence, note.reason, note.actor, plain(note.recorded_at),
        plain_rows(CreditNoteLine.objects.filter(credit_note=note).order_by("position"),
             "id", "position", "description", "amount_minor", "tax_category", "tax_rate", "taxes"),
        tax_facts(CreditNoteTax.objects.filter(credit_note=note)),
        lowered.first(),
    ]  # fmt: skip
    return canonical_json(facts)


def test_python_comes_to_the_same_digests_from_the_documented_form(history):
    credit_notes.issue_in(invoice_id=history["third"], reason="All of it\n", actor="test")
    for documents, form in (
        (Invoice.objects.exclude(state="draft"), invoice_form),
        (CreditNote.objects.filter(kind="requested"), note_form),
    ):
        before, numbers = bytes(32), []
        for document in documents.order_by("series_value"):
            before = hashlib.sha256(before + form(document).encode()).digest()
            assert bytes(document.digest) == before, document
            numbers.append(document.series_value)
        assert len(numbers) > 1
        assert numbers == list(range(1, len(numbers) + 1))


def test_python_comes_to_the_same_digests_of_what_was_ordered(history):
    for model in (Amendment, Charge, Transition):
        before = bytes(32)
        rows = list(model.objects.filter(subscription_id=history["subscription"]).order_by("sequence"))
        assert [row.sequence for row in rows] == list(range(1, len(rows) + 1))
        for row in rows:
            before = chained_digest(before, row_form(row))
            assert bytes(row.digest) == before, row
        assert rows
    for price in Price.objects.select_related("plan"):
        assert bytes(price.digest) == chained_digest(b"", row_form(price.plan) + row_form(price))
    for coupon in Coupon.objects.all():
        assert bytes(coupon.digest) == chained_digest(b"", row_form(coupon))


def test_the_digest_of_a_row_does_not_depend_on_the_time_zone_of_the_session(history):
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL timezone = 'Asia/Kathmandu'")
    subscriptions.charge_once(ref=Subscription.objects.get(pk=history["subscription"]).ref, amount_minor=5, description="Stamp")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL timezone = 'UTC'")
    assert consistency.check() == []


def test_what_moves_later_leaves_the_digest_as_it_was(history):
    known = dict(Invoice.objects.values_list("id", "digest"))
    transition(history["first"], "mark_uncollectible")
    credit_notes.issue_in(invoice_id=history["first"], reason="Gone", actor="test")
    assert consistency.check() == []
    assert dict(Invoice.objects.values_list("id", "digest")) == known


# The anchor --------------------------------------------------------------------------------------------

ALL_TRACES = [
    "DELETE FROM billing_line WHERE invoice_id = %(third)s",
    "DELETE FROM billing_invoicetax WHERE invoice_id = %(third)s",
    "DELETE FROM billing_transition WHERE invoice_id = %(third)s",
    "DELETE FROM billing_invoicepayment WHERE invoice_id = %(third)s",
    "UPDATE billing_claim SET released_at = NULL, released_by = NULL WHERE released_by = %(third)s",
    "DELETE FROM billing_invoice WHERE id = %(third)s",
    "UPDATE billing_numberseries SET last_value = last_value - 1 WHERE name = 'INV'",
]


def session():
    """The test's own connection, as the audit takes it."""
    connection.ensure_connection()
    return connection.connection


def test_only_the_anchor_finds_an_invoice_deleted_with_everything_that_refers_to_it(history, tmp_path):
    path = tmp_path / "anchor"
    assert audit([session()], anchor_to_write=path).chains.items() >= {"documents": 2, "transitions": 1}.items()
    heads = [line for line in read_anchor(path) if line.chain not in {None, "register"}]
    (registered,) = (line for line in read_anchor(path) if line.credit_type.startswith("billing_transition "))
    last = {one.series: one for one in Invoice.objects.order_by("series_value")}
    note = CreditNote.objects.get(kind="requested")
    assert heads == [
        AnchorLine("@documents", "CN", 1, bytes(note.digest).hex()),
        AnchorLine("@documents", "INV", 3, bytes(last["INV"].digest).hex()),
        AnchorLine("@transitions", str(history["subscription"]), 1, bytes(Transition.objects.get().digest).hex()),
    ]
    assert audit([session()], anchor_to_check=path).is_clean

    as_owner("DELETE FROM billing_claim WHERE made_by = %(third)s", "DELETE FROM billing_cursor", *ALL_TRACES, **history)
    register_again()
    assert consistency.check() == []
    assert audit([session()]).is_clean
    report = audit([session()], anchor_to_check=path)
    found = [(one.law, one.holder_id, one.credit_type, one.sequence, one.found) for one in report.findings]
    assert ("anchor", "@register", registered.credit_type, 1, "no such series") in found
    assert [each for each in found if each[1] != "@register"] == [
        ("anchor", "@documents", "INV", 3, "ends at 2"),
        ("anchor", "@transitions", str(history["subscription"]), 1, "no such series"),
    ]


def test_a_chain_written_again_is_found_by_the_anchor_alone(history, tmp_path):
    """A line of the first of three invoices changes, and all digests are computed again: only the anchor has the old ones."""
    path = tmp_path / "anchor"
    audit([session()], anchor_to_write=path)
    digest_again = "UPDATE billing_invoice AS i SET digest = billing_invoice_digest(i) WHERE id = %({})s"
    as_owner(
        "UPDATE billing_line SET description = 'Other' WHERE invoice_id = %(first)s",
        *(digest_again.format(name) for name in ("first", "second", "third")),
        **history,
    )
    register_again()
    assert consistency.check() == []
    assert audit([session()]).is_clean
    report = audit([session()], anchor_to_check=path)
    assert [(one.law, one.credit_type, one.sequence) for one in report.findings] == [("anchor", "INV", 3)]


def test_who_moved_an_invoice_is_found_by_the_audit_and_gone_with_the_state_by_the_anchor(history, tmp_path):
    path, series = tmp_path / "anchor", str(history["subscription"])
    transition(history["first"], "pay")
    audit([session()], anchor_to_write=path)
    as_owner(
        "UPDATE billing_invoice SET state = 'open', paid_at = NULL, amount_paid_minor = 0, payment_changes = 0"
        " WHERE id = %(first)s",
        "DELETE FROM billing_invoicepayment WHERE invoice_id = %(first)s",
        "DELETE FROM billing_transition WHERE invoice_id = %(first)s",
        **history,
    )
    register_again()
    assert consistency.check() == []
    [finding] = [one for one in audit([session()], anchor_to_check=path).findings if one.holder_id != "@register"]
    assert (finding.law, finding.holder_id, finding.credit_type, finding.found) == ("anchor", "@transitions", series, "ends at 1")
    as_owner("UPDATE billing_transition SET reason = 'None' WHERE invoice_id = %(third)s", **history)
    register_again()
    [finding] = audit([session()]).findings
    assert (finding.law, finding.credit_type, finding.sequence) == ("transitions", series, 1)


def test_the_audit_of_the_ledger_finds_a_changed_document_and_writes_no_anchor(history, tmp_path):
    as_owner("UPDATE billing_line SET description = 'Other' WHERE invoice_id = %(second)s", **history)
    report = audit([session()], anchor_to_write=tmp_path / "anchor")
    assert [(one.law, one.holder_id, one.credit_type, one.sequence) for one in report.findings] == [
        ("documents", "@documents", "INV", 2)
    ]
    assert "documents (1): The digest of an invoice" in report.as_text()
    assert list(tmp_path.iterdir()) == []


def test_a_longer_series_is_no_finding(history, tmp_path):
    path = tmp_path / "anchor"
    audit([session()], anchor_to_write=path)
    credit_notes.issue_in(invoice_id=history["third"], reason="More", actor="test")
    assert audit([session()], anchor_to_check=path).is_clean

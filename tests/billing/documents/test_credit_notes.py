"""Credit notes on request: over REST, in the admin, in the database; what they take back, and where the money goes."""

from decimal import Decimal

import pytest
from django.db import DatabaseError, connection, transaction

from billing.auditing import consistency
from billing.documents import credit_notes
from billing.documents.credit_notes import CreditLine
from billing.errors import CreditExceedsInvoice, InvalidTransition
from billing.models import (
    CreditNote,
    CreditNoteLine,
    CreditNoteTax,
    CreditNoteUse,
    Customer,
    Invoice,
    InvoiceTax,
    Line,
    NumberSeries,
    RequestKey,
)
from billing.orders import coupons, subscriptions
from billing.orders.customers import NewCredits
from billing.orders.subscriptions import Wish
from ledger import reads, services
from ledger.database.locks import sqlstate
from ledger.keys import api_keys
from tests.billing.factories import (
    CustomerFactory,
    PlanFactory,
    SubscriptionFactory,
    amend,
    at,
    metered,
    recurring,
    transition,
    unique,
    use,
)
from tests.billing.findings import findings_of
from tests.billing.generator.run.test_generate import bill
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.staff.admin_site import hidden_key, hidden_values, operator

pytestmark = pytest.mark.django_db


def subscribed(*prices, **customer):
    """A subscription at 10.00 plus 20 percent and 5.55 plus 7 percent, or at other prices."""
    plan = PlanFactory(prices=list(prices) or [recurring(tax_rate="20"), recurring("support", "5.55", tax_rate="7")])
    return SubscriptionFactory(plan=plan.code, customer=CustomerFactory(**customer).ref)


def with_credits(count, unit_value="0.01"):
    """A subscription at 12.00 with tax whose holder has `count` credits."""
    holder = unique("holder")
    services.grant(holder_id=holder, amount=count, idempotency_key="first")
    terms = NewCredits(credit_type="credits", unit_value=Decimal(unit_value))
    return holder, subscribed(recurring(tax_rate="20"), holder_id=holder, credits=terms)


def issue_note(invoice_id, *lines, reason="as agreed"):
    """Issue a credit note for (position, amount) of lines, or for the whole invoice."""
    requested = [CreditLine(position=position, amount_minor=minor) for position, minor in lines] or None
    return credit_notes.issue_in(invoice_id=invoice_id, lines=requested, reason=reason, actor="key:shop")


def amounts_of(invoice):
    """Kind and amount of each line of an invoice."""
    return [(line["kind"], line["amount_minor"]) for line in invoice["lines"]]


def rows_of_notes():
    """What a refused credit note must leave as it was."""
    return (
        list(CreditNote.objects.order_by("pk").values()),
        CreditNoteLine.objects.count(),
        CreditNoteTax.objects.count(),
        CreditNoteUse.objects.count(),
        list(Invoice.objects.order_by("pk").values()),
        list(NumberSeries.objects.order_by("pk").values()),
    )


# Over REST -------------------------------------------------------------------------------------------


def test_a_line_is_credited_with_its_share_of_the_tax(api):
    subscription = subscribed()
    [invoice] = bill(subscription, at(1, 1))
    body = {"lines": [{"position": 2, "amount_minor": 255}], "reason": "half a month without support"}
    response = api.post(f"/v1/invoices/{invoice['id']}/credit-notes", body)
    assert response.status_code == 201, response.content
    note = dict(response.json())
    assert note.pop("issue_date")
    # 7 % of 5.55 is 0.39; of it 2.55 / 5.55 is 0.179.
    assert note == {
        "id": note["id"], "kind": "requested", "number": "CN-000001", "state": "issued", "invoice": invoice["id"],
        "invoice_number": invoice["number"], "subscription": subscription.ref, "customer": invoice["customer"],
        "currency": "EUR", "reason": "half a month without support", "actor": "key:shop", "subtotal_minor": 255, "tax_minor": 18,
        "rounding_minor": 0, "total_minor": 273,
        "lowers_due_minor": 273, "credits_returned": 0, "credits_returned_minor": 0, "left_minor": 0,
        "lines": [
            {"position": 2, "subscription": subscription.ref, "description": "support", "title": "Basic: support",
             "amount_minor": 255, "tax_category": "S", "tax_rate": "7"},
        ],
        "taxes": [{"category": "S", "rate": "7", "base_minor": 255, "amount_minor": 18}],
    }  # fmt: skip
    assert api.get(f"/v1/credit-notes/{note['id']}").json() == response.json()
    shown = api.get(f"/v1/invoices/{invoice['id']}").json()
    assert (shown["total_minor"], shown["credit_notes_minor"], shown["amount_due_minor"]) == (
        invoice["total_minor"], 273, invoice["total_minor"] - 273,
    )  # fmt: skip
    assert (shown["state"], shown["lines"], shown["taxes"]) == ("open", invoice["lines"], invoice["taxes"])


def test_without_lines_the_whole_rest_is_credited_and_nothing_due_is_paid(api):
    [invoice] = bill(subscribed(), at(1, 1))
    path = f"/v1/invoices/{invoice['id']}/credit-notes"
    first = api.post(path, {"lines": [{"position": 1, "amount_minor": 1}], "reason": "a cent"}).json()
    rest = api.post(path, {"reason": "cancelled"}).json()
    assert [line["amount_minor"] for line in rest["lines"]] == [999, 555]
    assert first["total_minor"] + rest["total_minor"] == invoice["total_minor"] == 1794
    assert first["tax_minor"] + rest["tax_minor"] == invoice["tax_minor"]
    shown = api.get(f"/v1/invoices/{invoice['id']}").json()
    assert (shown["state"], shown["amount_due_minor"]) == ("paid", 0)
    assert Invoice.objects.get(pk=invoice["id"]).paid_at is not None
    refused = api.post(path, {"reason": "again"})
    assert (refused.status_code, refused.json()["type"].rsplit("/", 1)[1]) == (409, "credit-exceeds-invoice")


def test_crediting_too_much_is_refused_with_what_is_left(api):
    [invoice] = bill(subscribed(), at(1, 1))
    issue_note(invoice["id"], (1, 400))
    before = rows_of_notes()
    response = api.post(
        f"/v1/invoices/{invoice['id']}/credit-notes", {"lines": [{"position": 1, "amount_minor": 601}], "reason": "too much"}
    )
    problem = response.json()
    assert (response.status_code, problem["type"].rsplit("/", 1)[1]) == (409, "credit-exceeds-invoice")
    assert problem["creditable_minor"] == 1794 - 480
    assert problem["lines"] == [{"position": 1, "creditable_minor": 600}, {"position": 2, "creditable_minor": 555}]
    assert rows_of_notes() == before


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/reason"),
        ({"reason": ""}, "/reason"),
        ({"reason": "  "}, "/reason"),
        ({"reason": "x" * 501}, "/reason"),
        ({"reason": "x", "lines": []}, "/lines"),
        ({"reason": "x", "lines": [{"position": 1}]}, "/lines/0/amount_minor"),
        ({"reason": "x", "lines": [{"position": 1, "amount_minor": 0}]}, "/lines/0/amount_minor"),
        ({"reason": "x", "lines": [{"position": 1, "amount_minor": "5"}]}, "/lines/0/amount_minor"),
        ({"reason": "x", "lines": [{"position": 9, "amount_minor": 5}]}, "/lines/0/position"),
        ({"reason": "x", "lines": [{"position": 1, "amount_minor": 5}] * 2}, "/lines/1/position"),
        ({"reason": "x", "number": "CN-7"}, "/number"),
    ],
)
def test_bad_requests_are_refused_by_field_and_nothing_is_written(api, body, pointer):
    [invoice] = bill(subscribed(), at(1, 1))
    before, keys = rows_of_notes(), RequestKey.objects.count()
    response = api.post(f"/v1/invoices/{invoice['id']}/credit-notes", body)
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (400, pointer)
    assert (rows_of_notes(), RequestKey.objects.count()) == (before, keys)


@pytest.mark.parametrize("state", ["draft", "void"])
def test_drafts_and_void_invoices_are_not_credited(api, state):
    [invoice] = bill(subscribed(), at(1, 1), finalize=state != "draft")
    if state == "void":
        transition(invoice["id"], "void")
    before = rows_of_notes()
    response = api.post(f"/v1/invoices/{invoice['id']}/credit-notes", {"reason": "x"})
    assert (response.status_code, response.json()["state"], response.json()["wanted"]) == (409, state, "credited")
    assert rows_of_notes() == before
    assert api.post("/v1/invoices/999999999/credit-notes", {"reason": "x"}).status_code == 404


def test_a_credit_note_is_issued_once_per_key(api):
    [invoice] = bill(subscribed(), at(1, 1))
    path, key = f"/v1/invoices/{invoice['id']}/credit-notes", unique("key")
    body = {"lines": [{"position": 1, "amount_minor": 100}], "reason": "goodwill"}
    first, second = api.post(path, body, key=key), api.post(path, body, key=key)
    assert (first.status_code, second.status_code) == (201, 201)
    assert second.headers["Idempotency-Replayed"] == "true"
    assert second.json() == first.json()
    assert api.post(path, {"reason": "other"}, key=key).status_code == 422
    assert api.post(path, body, key=None).status_code == 400
    assert CreditNote.objects.count() == 1


def test_credit_notes_are_listed_by_customer_and_invoice(api):
    one, other = subscribed(), subscribed()
    [first], [second] = bill(one, at(1, 1)), bill(other, at(1, 1))
    notes = [issue_note(first["id"], (1, 1)), issue_note(second["id"], (1, 1)), issue_note(first["id"], (1, 2))]
    customer = Customer.objects.get(pk=one.customer_id).ref

    def listed(query):
        return [row["number"] for row in api.get(f"/v1/credit-notes{query}").json()["results"]]

    assert listed("") == [note.number for note in notes[::-1]]
    assert listed(f"?customer={customer}") == listed(f"?invoice={first['id']}") == [notes[2].number, notes[0].number]
    assert listed(f"?customer={unique('CUST')}") == listed("?invoice=999999999") == []
    page = api.get("/v1/credit-notes?limit=2").json()
    assert [row["number"] for row in page["results"]] == [notes[2].number, notes[1].number]
    rest = api.get(page["next"].removeprefix("http://testserver")).json()
    assert [row["number"] for row in rest["results"]] == [notes[0].number]
    assert api.get("/v1/credit-notes?invoice=x").status_code == 400
    assert api.get("/v1/credit-notes/999999999").status_code == 404


def test_a_reader_credits_nothing():
    [invoice] = bill(subscribed(), at(1, 1))
    _, reader = api_keys.create_api_key(name=unique("key"), scopes=["billing:read"])
    assert ApiClient(reader).post(f"/v1/invoices/{invoice['id']}/credit-notes", {"reason": "x"}).status_code == 403
    assert ApiClient(reader).get("/v1/credit-notes").status_code == 200
    assert not CreditNote.objects.exists()


# Where the money goes --------------------------------------------------------------------------------


def test_of_a_paid_invoice_it_is_set_against_the_next_one():
    subscription = subscribed(recurring(tax_rate="20"))
    [invoice] = bill(subscription, at(1, 1))
    transition(invoice["id"], "pay")
    note = issue_note(invoice["id"], (1, 500))
    assert (note.amount_minor, Invoice.objects.get(pk=invoice["id"]).amount_due_minor) == (600, 1200)
    [following] = bill(subscription, at(2, 1))
    assert (following["total_minor"], following["credit_notes_minor"], following["amount_due_minor"]) == (1200, 600, 600)
    assert consistency.check() == []


def test_more_than_is_due_gives_prepaid_credits_back():
    # 12.00: 500 credits paid 5.00, 7.00 are due. 9.00 are credited: 7.00 of them nobody pays, 200 credits go back.
    holder, subscription = with_credits(500)
    [invoice] = bill(subscription, at(1, 1))
    note = issue_note(invoice["id"], (1, 750))
    assert (note.amount_minor, note.credits_returned, note.credits_returned_minor) == (900, 200, 200)
    row = Invoice.objects.get(pk=invoice["id"])
    assert (row.state, row.credit_notes_minor, row.credits_applied_minor, row.amount_due_minor) == ("paid", 700, 500, 0)
    assert reads.balance(holder).available == 200
    rest = issue_note(invoice["id"])
    assert (rest.amount_minor, rest.credits_returned) == (300, 300)
    assert reads.balance(holder).available == 500
    assert [entry.reference for entry in reads.entries(holder, kind="refund", limit=10)] == [f"invoice {invoice['id']}"] * 2
    assert consistency.check() == []


def test_what_was_paid_in_money_comes_before_what_was_paid_in_credits():
    # 12.00: 500 credits paid 5.00, and 7.00 came by card. 3.00, 6.00 and 3.00 are credited.
    holder, subscription = with_credits(500)
    [invoice] = bill(subscription, at(1, 1))
    transition(invoice["id"], "pay")
    notes = [issue_note(invoice["id"], (1, 250)), issue_note(invoice["id"], (1, 500)), issue_note(invoice["id"])]
    assert [(note.amount_minor, note.credits_returned) for note in notes] == [(300, 0), (600, 200), (300, 300)]
    assert reads.balance(holder).available == 500
    [following] = bill(subscription, at(2, 1))
    # The 7.00 that were paid in money, and not the 5.00 that went back as credits; these pay as any credits do.
    assert (following["credit_notes_minor"], following["credits_applied_minor"]) == (700, 500)
    assert consistency.check() == []


def test_credits_that_are_worth_more_than_the_credit_stay_spent():
    # One credit of 10.00, and 2.00 in money: 6.00 are credited, so 2.00 and 4.00 are left for the next invoice.
    holder, subscription = with_credits(1, "10.00")
    [invoice] = bill(subscription, at(1, 1))
    transition(invoice["id"], "pay")
    note = issue_note(invoice["id"], (1, 500))
    assert (note.credits_returned, reads.balance(holder).available) == (0, 0)
    [following] = bill(subscription, at(2, 1))
    assert following["credit_notes_minor"] == 600


def test_an_uncollectible_invoice_owes_less():
    [invoice] = bill(subscribed(recurring(tax_rate="20")), at(1, 1))
    transition(invoice["id"], "mark_uncollectible")
    issue_note(invoice["id"], (1, 500))
    row = Invoice.objects.get(pk=invoice["id"])
    assert (row.state, row.amount_due_minor) == ("uncollectible", 600)
    issue_note(invoice["id"])
    row.refresh_from_db()
    assert (row.state, row.amount_due_minor) == ("paid", 0)


def test_voiding_the_invoice_ends_its_credit_notes():
    holder, subscription = with_credits(500)
    [invoice] = bill(subscription, at(1, 1))
    note = issue_note(invoice["id"], (1, 100))
    transition(invoice["id"], "void")
    note.refresh_from_db()
    assert note.released_at is not None
    assert reads.balance(holder).available == 500
    [again] = bill(subscription, at(1, 1))
    assert (again["credit_notes_minor"], again["total_minor"]) == (0, 1200)
    assert consistency.check() == []


def test_what_a_credit_note_left_and_a_later_invoice_used_is_not_voided():
    subscription = subscribed(recurring(tax_rate="20"))
    [invoice] = bill(subscription, at(1, 1))
    transition(invoice["id"], "pay")
    issue_note(invoice["id"], (1, 500))
    [following] = bill(subscription, at(2, 1))
    transition(following["id"], "void")
    [again] = bill(subscription, at(2, 1))
    assert again["credit_notes_minor"] == 600
    with pytest.raises(InvalidTransition):
        transition(invoice["id"], "void")
    assert Invoice.objects.get(pk=invoice["id"]).state == "paid"


# What later invoices give back ----------------------------------------------------------------------


def test_what_was_credited_is_not_given_back_a_second_time_when_the_subscription_ends():
    subscription = subscribed(recurring(unit_amount="31.00", tax_rate="20"))
    [invoice] = bill(subscription, at(1, 1))
    transition(invoice["id"], "pay")
    issue_note(invoice["id"], (1, 1500))
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(1, 11), wish=Wish(sets_end=True, ends_at=at(1, 11)))
    [ended] = bill(subscription, at(1, 11))
    # 21 of 31 days are unused, but only 16.00 of the line are left.
    assert [(line["kind"], line["amount_minor"]) for line in ended["lines"]] == [("credit", -1600), ("carried", 1600)]


def test_goodwill_beside_an_unused_rest_leaves_the_rest_whole():
    subscription = subscribed(recurring(unit_amount="31.00", tax_rate="20"))
    [invoice] = bill(subscription, at(1, 1))
    issue_note(invoice["id"], (1, 500))
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(1, 11), wish=Wish(sets_end=True, ends_at=at(1, 11)))
    [ended] = bill(subscription, at(1, 11))
    assert ended["lines"][0]["amount_minor"] == -2100
    with pytest.raises(CreditExceedsInvoice) as refused:
        issue_note(invoice["id"], (1, 501))
    assert refused.value.facts["lines"] == [{"position": 1, "creditable_minor": 500}]
    assert issue_note(invoice["id"]).subtotal_minor == 500


def test_a_note_over_a_whole_change_takes_back_what_the_change_cost_and_no_more():
    subscription = subscribed(recurring(unit_amount="31.00"))
    bill(subscription, at(1, 1))
    amend(subscription, at(1, 11), quantities={"base": Decimal(3)})
    [changed] = bill(subscription, at(1, 11))
    assert amounts_of(changed) == [("credit", -2100), ("recurring", 6300)]
    note = issue_note(changed["id"])
    assert list(CreditNoteLine.objects.filter(credit_note=note).values_list("position", "amount_minor")) == [(2, 4200)]
    amend(subscription, at(1, 11), quantities={"base": Decimal(1)})
    # 63.00 less the 42.00 of the note go back, and 21.00 are charged: with January's first invoice that is 31.00 in all.
    [back] = bill(subscription, at(1, 12))
    assert amounts_of(back) == [("credit", -2100), ("recurring", 2100)]
    assert findings_of("claims do not add up") == []


def test_a_note_lowers_what_later_invoices_give_back_of_a_line_once():
    subscription = subscribed(recurring(unit_amount="31.00"))
    [invoice] = bill(subscription, at(1, 1))
    issue_note(invoice["id"], (1, 500))
    amend(subscription, at(1, 11), paused=True)
    amend(subscription, at(1, 21), paused=False)
    assert amounts_of(*bill(subscription, at(1, 21)))[0] == ("credit", -1000)
    amend(subscription, at(1, 21), paused=True)
    # Of 11.00 for the rest of January the note has given back 5.00. What was used until the 11th has not been credited.
    assert amounts_of(*bill(subscription, at(1, 22)))[0] == ("credit", -600)
    assert credit_notes.left_of(Invoice.objects.get(pk=invoice["id"])) == (1000, {1: 1000})
    amend(subscription, at(1, 1), paused=True)
    assert amounts_of(*bill(subscription, at(1, 23)))[0] == ("credit", -1000)
    assert credit_notes.left_of(Invoice.objects.get(pk=invoice["id"])) == (0, {1: 0})
    assert findings_of("claims do not add up") == []


def test_a_line_that_a_note_and_an_invoice_have_given_back_takes_nothing_from_a_note_over_the_rest():
    subscription = subscribed(recurring(unit_amount="31.00"), recurring("support", "5.00"))
    [invoice] = bill(subscription, at(1, 1))
    issue_note(invoice["id"], (1, 500))
    amend(subscription, at(1, 1), quantities={"base": Decimal(2)})
    # 26.00 and the 5.00 of the note: nothing is left of line 1.
    [changed] = bill(subscription, at(1, 2))
    assert amounts_of(changed) == [("credit", -2600), ("recurring", 6200)]
    assert issue_note(invoice["id"]).subtotal_minor == 500
    # Voiding the change bills the 26.00 again.
    transition(changed["id"], "void")
    assert issue_note(invoice["id"]).subtotal_minor == 2600


def test_usage_that_was_taken_back_later_is_not_credited():
    subscription = subscribed(metered(tax_rate="20"))
    use(subscription, "1000", at(1, 5))
    [invoice] = bill(subscription, at(2, 1))
    use(subscription, "-400", at(1, 6))
    bill(subscription, at(2, 2))
    with pytest.raises(CreditExceedsInvoice) as refused:
        issue_note(invoice["id"], (1, 1201))
    assert refused.value.facts["lines"] == [{"position": 1, "creditable_minor": 1200}]


def test_discounts_are_not_credited():
    subscription = subscribed(recurring(tax_rate="20"))
    customer = Customer.objects.get(pk=subscription.customer_id)
    code = coupons.create_coupon(code=unique("c"), kind="percentage", value=Decimal(25), duration="forever").code
    coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code=code)
    [invoice] = bill(subscription, at(1, 1))
    with pytest.raises(CreditExceedsInvoice):
        issue_note(invoice["id"], (1, 751))
    assert issue_note(invoice["id"]).amount_minor == invoice["total_minor"] == 900


def test_an_invoice_of_nothing_has_nothing_to_credit():
    [invoice] = bill(subscribed(recurring(unit_amount="0.00")), at(1, 1))
    with pytest.raises(CreditExceedsInvoice):
        issue_note(invoice["id"])
    assert not CreditNote.objects.filter(invoice_id=invoice["id"]).exists()


# What the database refuses ---------------------------------------------------------------------------


@pytest.fixture
def note_of_four():
    """A credit note of 4.00 on a subscription's first invoice."""
    [invoice] = bill(subscribed(), at(1, 1))
    return issue_note(invoice["id"], (1, 400))


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE billing_creditnote SET amount_minor = amount_minor + 1, subtotal_minor = subtotal_minor + 1 WHERE id = %s",
        "UPDATE billing_creditnote SET reason = 'other' WHERE id = %s",
        "UPDATE billing_creditnote SET number = NULL, series_value = NULL WHERE id = %s",
        "UPDATE billing_creditnote SET released_at = now(), actor = 'x' WHERE id = %s",
        "DELETE FROM billing_creditnote WHERE id = %s",
        "UPDATE billing_creditnoteline SET amount_minor = 0 WHERE credit_note_id = %s",
        "DELETE FROM billing_creditnoteline WHERE credit_note_id = %s",
        "DELETE FROM billing_creditnotetax WHERE credit_note_id = %s",
        (
            "INSERT INTO billing_creditnoteline (credit_note_id, position, description, amount_minor, tax_category, tax_rate)"
            " VALUES (%s, 2, '', 1, 'S', 0)"
        ),
        "INSERT INTO billing_creditnotetax (credit_note_id, category, rate, base_minor, amount_minor) VALUES (%s, 'Z', 0, 1, 0)",
        (
            "UPDATE billing_invoice SET credit_notes_minor = credit_notes_minor + 1, amount_due_minor = amount_due_minor - 1"
            " WHERE id = (SELECT invoice_id FROM billing_creditnote WHERE id = %s)"
        ),
        (
            "UPDATE billing_invoice SET credit_notes_minor = 0, amount_due_minor = total_minor"
            " WHERE id = (SELECT invoice_id FROM billing_creditnote WHERE id = %s)"
        ),
    ],
)
def test_an_issued_credit_note_is_frozen(note_of_four, sql):
    before = rows_of_notes()
    with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql, [note_of_four.pk])
    assert sqlstate(refused.value) == "LG001"
    assert rows_of_notes() == before


def test_a_credit_note_cannot_be_created_with_a_number():
    with pytest.raises(DatabaseError) as refused, transaction.atomic():
        CreditNote.objects.create(
            kind="requested", customer_id=1, subscription_id=1, invoice_id=1, currency="EUR", subtotal_minor=1, tax_minor=0,
            amount_minor=1, left_minor=1, number="CN-X", series="CN", series_value=1,
        )  # fmt: skip
    assert sqlstate(refused.value) == "LG001"


def test_numbers_are_gapless_though_a_refused_one_came_between(note_of_four):
    with pytest.raises(CreditExceedsInvoice):
        issue_note(note_of_four.invoice_id, (1, 601))
    assert [issue_note(note_of_four.invoice_id, (1, 1)).number, note_of_four.number] == ["CN-000002", "CN-000001"]
    assert consistency.check() == []


def _as_owner(table):
    """Let this transaction write what the triggers would refuse."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER frozen")


@pytest.mark.parametrize(
    ("table", "change", "finding"),
    [
        ("billing_creditnotetax", "UPDATE billing_creditnotetax SET base_minor = 1001", "credit notes exceed their invoice"),
        ("billing_creditnotetax", "UPDATE billing_creditnotetax SET amount_minor = 1", "credit note does not add up"),
        ("billing_creditnoteline", "UPDATE billing_creditnoteline SET amount_minor = 1", "credit note does not add up"),
        ("billing_creditnoteuse", "UPDATE billing_creditnoteuse SET amount_minor = 481", "more is used of a credit note than"),
        ("billing_creditnote", "UPDATE billing_creditnote SET series_value = 2", "hole in the numbering"),
    ],
)
def test_the_check_finds_what_is_wrong_with_credit_notes(note_of_four, table, change, finding):
    assert consistency.check() == []
    if table != "billing_creditnoteuse":
        _as_owner(table)
    with connection.cursor() as cursor:
        cursor.execute(change)
    assert any(one["finding"].startswith(finding) for one in consistency.check())


# In the admin ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.check
def test_an_operator_credits_lines_with_a_reason_and_a_double_click_credits_once():
    [invoice] = bill(subscribed(), at(1, 1))
    client, url = operator(), f"/admin/billing/invoice/{invoice['id']}/credit/"
    shown = client.get(url).content.decode()
    assert "17.94 EUR" in shown
    values = {"idempotency_key": hidden_key(shown), "line_1": "10.00", "reason": ""}
    assert client.post(url, values).status_code == 422
    assert not CreditNote.objects.exists()
    values["reason"] = "told so by phone"
    preview = client.post(url, values).content.decode()
    assert "credits 12.00 EUR" in preview
    assert not CreditNote.objects.exists()
    values = hidden_values(preview) | {"confirmed": "yes"}
    first, second = client.post(url, values), client.post(url, values)
    assert (first.status_code, second.status_code) == (302, 302)
    assert "was already done by the first click" in client.get(second["Location"]).content.decode()
    note = CreditNote.objects.get()
    assert (note.amount_minor, note.actor, note.reason) == (1200, "admin:mara", "told so by phone")
    page = client.get(f"/admin/billing/creditnote/{note.pk}/change/").content.decode()
    for words in ("CN-000001", "told so by phone", "admin:mara", "12.00 EUR", "20 % on 10.00", invoice["number"]):
        assert words in page
    assert note.number in client.get(f"/admin/billing/invoice/{invoice['id']}/change/").content.decode()
    for word in (note.number, invoice["number"], invoice["subscription"], invoice["customer"]):
        assert note.number in client.get(f"/admin/billing/creditnote/?q={word}").content.decode(), word
    assert note.number not in client.get("/admin/billing/creditnote/?q=nobody").content.decode()


def test_an_operator_credits_the_rest_and_the_button_goes():
    [invoice] = bill(subscribed(), at(1, 1))
    client, url = operator(), f"/admin/billing/invoice/{invoice['id']}/credit/"
    page = f"/admin/billing/invoice/{invoice['id']}/change/"
    assert url in client.get(page).content.decode()
    key = hidden_key(client.get(url).content.decode())
    too_much = client.post(url, {"idempotency_key": key, "line_2": "5.56", "reason": "x"})
    assert too_much.status_code == 422
    assert "The credit note exceeds the rest of the invoice" in too_much.content.decode()
    key = hidden_key(too_much.content.decode())
    preview = client.post(url, {"idempotency_key": key, "reason": "cancelled"}).content.decode()
    assert "credits 17.94 EUR" in preview
    assert client.post(url, hidden_values(preview) | {"confirmed": "yes"}).status_code == 302
    assert CreditNote.objects.get().amount_minor == 1794
    assert url not in client.get(page).content.decode()


def test_nobody_changes_a_credit_note_and_who_may_not_credit_is_not_let_through(note_of_four):
    before = rows_of_notes()
    root, page = operator(), f"/admin/billing/creditnote/{note_of_four.pk}/"
    assert root.get("/admin/billing/creditnote/").status_code == 200
    assert root.post(f"{page}change/", {"reason": "other"}).status_code == 403
    assert root.post(f"{page}delete/", {"post": "yes"}).status_code == 403
    assert root.post("/admin/billing/creditnote/add/", {}).status_code == 403
    client, url = operator("billing.view_invoice", name="ben"), f"/admin/billing/invoice/{note_of_four.invoice_id}/credit/"
    assert client.get(url).status_code == 403
    assert client.post(url, {"reason": "x", "idempotency_key": "k"}).status_code == 403
    assert client.get(f"{page}change/").status_code == 403
    assert rows_of_notes() == before


def test_the_lines_and_taxes_of_the_invoice_stay_as_they_were(note_of_four):
    before = [list(model.objects.values()) for model in (Line, InvoiceTax)]
    issue_note(note_of_four.invoice_id)
    assert [list(model.objects.values()) for model in (Line, InvoiceTax)] == before
    with pytest.raises(InvalidTransition):
        transition(note_of_four.invoice_id, "void")

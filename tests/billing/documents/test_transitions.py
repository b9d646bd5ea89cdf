"""Changing the state of documents over REST: who did it and why is kept with the document, also of a draft that was deleted."""

import re
from decimal import Decimal

import pytest
from django.db import transaction

from billing.documents import invoice_payments, invoices, transitions
from billing.errors import InvalidTransition, NotFound
from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.models import Claim, CouponUse, Customer, Invoice, InvoiceTax, Line, RequestKey, Transition
from billing.orders import coupons, subscriptions
from billing.orders.subscriptions import Wish
from ledger.errors import Invalid, Refused
from ledger.keys import api_keys
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, recurring, unique
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.staff.admin_site import hidden_key, operator

pytestmark = pytest.mark.django_db


def new_invoice(*, finalize: bool = True) -> Invoice:
    """A first invoice of 10.00 plus 20 percent, open or still a draft."""
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(tax_rate="20")]).code)
    generate_in(ref=subscription.ref, options=Options(as_of=at(1, 1), finalize=finalize))
    return Invoice.objects.get(subscription_ref=subscription.ref)


def transitions_of(invoice: Invoice) -> list[tuple[str, str, str]]:
    """Kind, actor and reason of each transition of the invoice, oldest first."""
    return list(Transition.objects.filter(invoice_id=invoice.pk).order_by("pk").values_list("kind", "actor", "reason"))


@pytest.mark.parametrize(
    ("path", "kind", "state"),
    [("pay", "pay", "paid"), ("void", "void", "void"), ("mark-uncollectible", "mark_uncollectible", "uncollectible")],
)
def test_a_transition_over_rest_is_recorded_with_the_key_and_the_reason(api, path, kind, state):
    invoice = new_invoice()
    response = api.post(f"/v1/invoices/{invoice.pk}/{path}", {"reason": "told so by phone"})
    assert (response.status_code, response.json()["state"]) == (200, state)
    assert transitions_of(invoice) == [(kind, "key:shop", "told so by phone")]
    page = operator().get(f"/admin/billing/invoice/{invoice.pk}/change/").content.decode()
    assert "told so by phone" in page
    assert "key:shop" in page
    [shown] = api.get(f"/v1/invoices/{invoice.pk}/transitions").json()["results"]
    assert shown.pop("recorded_at")
    assert shown == {"invoice": invoice.pk, "transition": path, "actor": "key:shop", "reason": "told so by phone", "draft": None}


def test_a_draft_is_finalised_over_rest_and_noted(api):
    draft = new_invoice(finalize=False)
    response = api.post(f"/v1/invoices/{draft.pk}/finalize", {"reason": "looked through"})
    assert (response.status_code, response.json()["state"]) == (200, "open")
    assert response.json()["number"].startswith("INV-")
    assert transitions_of(draft) == [("finalize", "key:shop", "looked through")]


@pytest.mark.parametrize("sent", [{"raw": b""}, {"body": {}}, {"body": {"reason": ""}}])
def test_a_reason_may_be_left_out_over_rest(api, sent):
    invoice = new_invoice()
    assert api.post(f"/v1/invoices/{invoice.pk}/pay", **sent).status_code == 200
    assert transitions_of(invoice) == [("pay", "key:shop", "")]


@pytest.mark.parametrize("body", [{"reason": "x" * 501}, {"reason": 1}, {"reason": None}, {"why": "x"}, {"reason": "\x00"}])
def test_a_reason_that_is_none_is_refused_and_nothing_changes(api, body):
    invoice = new_invoice()
    assert api.post(f"/v1/invoices/{invoice.pk}/pay", body).status_code == 400
    invoice.refresh_from_db()
    assert (invoice.state, transitions_of(invoice)) == ("open", [])


def test_a_move_is_made_and_noted_once_per_key(api):
    invoice, key = new_invoice(), unique("key")
    first = api.post(f"/v1/invoices/{invoice.pk}/pay", {"reason": "card"}, key=key)
    second = api.post(f"/v1/invoices/{invoice.pk}/pay", {"reason": "card"}, key=key)
    assert (second.status_code, second.content) == (200, first.content)
    assert second.headers["Idempotency-Replayed"] == "true"
    assert api.post(f"/v1/invoices/{invoice.pk}/pay", {"reason": "cash"}, key=key).status_code == 422
    assert transitions_of(invoice) == [("pay", "key:shop", "card")]


def test_a_move_that_is_refused_is_not_noted(api):
    invoice = new_invoice()
    invoice_payments.pay_rest(invoice.pk)
    response = api.post(f"/v1/invoices/{invoice.pk}/void", {"reason": "too late"})
    assert (response.status_code, response.json()["type"].rsplit("/", 1)[1]) == (409, "invalid-transition")
    assert transitions_of(invoice) == []


def test_a_corrected_invoice_is_not_voided_and_the_same_key_gets_the_same_bytes(api):
    invoice = new_invoice()
    subscriptions.amend_subscription(
        ref=invoice.subscription_ref, effective_at=at(1, 11), wish=Wish(quantities={"base": Decimal(2)}), actor="key:shop"
    )
    generate_in(ref=invoice.subscription_ref, options=Options(as_of=at(1, 11)))
    later = Invoice.objects.filter(subscription_ref=invoice.subscription_ref).latest("pk")
    key = unique("key")
    first, again = [api.post(f"/v1/invoices/{invoice.pk}/void", {"reason": "typo"}, key=key) for _ in range(2)]
    assert first.json() == {
        "type": "https://credit-ledger.example/problems/invalid-transition",
        "title": "A later invoice corrects this one",
        "status": 409,
        "detail": f"Invoice {later.pk} corrects this one or bills time that it gave back; void {later.pk} first.",
        "request_id": first.headers["X-Request-Id"],
        "outcome": "not_executed",
        "by": later.pk,
        "invoice": invoice.pk,
        "state": "open",
        "wanted": "void",
    }
    assert (again.status_code, again.content, again.headers["Idempotency-Replayed"]) == (409, first.content, "true")
    invoice.refresh_from_db()
    assert (invoice.state, transitions_of(invoice)) == ("open", [])


def test_each_refusal_is_stored_by_a_name_that_no_other_has():
    waiting, names = [Refused], []
    while waiting:
        refusal = waiting.pop()
        names.append(refusal.stored_as or refusal.code)
        waiting.extend(each for each in refusal.__subclasses__() if each.__module__.split(".")[0] in ("ledger", "billing"))
    assert sorted(names) == sorted(set(names))


def test_voiding_what_is_void_is_noted_once(api):
    invoice = new_invoice()
    for reason in ("first", "second"):
        assert api.post(f"/v1/invoices/{invoice.pk}/void", {"reason": reason}).status_code == 200
    assert transitions_of(invoice) == [("void", "key:shop", "first")]


def test_moves_are_listed_newest_first_by_the_page(api):
    invoice = new_invoice()
    for path in ("mark-uncollectible", "pay"):
        api.post(f"/v1/invoices/{invoice.pk}/{path}", {})
    first = api.get(f"/v1/invoices/{invoice.pk}/transitions?limit=1").json()
    assert [one["transition"] for one in first["results"]] == ["pay"]
    rest = api.get(first["next"].removeprefix("http://testserver")).json()
    assert ([one["transition"] for one in rest["results"]], rest["next"]) == (["mark-uncollectible"], None)
    assert api.get(f"/v1/invoices/{new_invoice().pk}/transitions").json()["results"] == []
    assert api.get("/v1/invoices/999999999/transitions").status_code == 404


# Deleting a draft ------------------------------------------------------------------------------------


def test_a_draft_is_deleted_and_its_period_can_be_billed_again(api):
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(tax_rate="20")]).code)
    customer = Customer.objects.get(pk=subscription.customer_id)
    code = coupons.create_coupon(code=unique("half"), kind="percentage", value=Decimal(50), duration="once").code
    coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code=code)
    generate_in(ref=subscription.ref, options=Options(as_of=at(1, 1), finalize=False))
    draft = Invoice.objects.get(subscription_ref=subscription.ref)

    response = api.delete(f"/v1/invoices/{draft.pk}?reason=wrong+plan")
    assert response.status_code == 200
    shown = dict(response.json())
    assert shown.pop("recorded_at")
    assert shown == {
        "invoice": draft.pk, "transition": "delete", "actor": "key:shop", "reason": "wrong plan",
        "draft": {"subscription": subscription.ref, "customer": customer.ref, "currency": "EUR", "total_minor": 600},
    }  # fmt: skip
    assert api.get(f"/v1/invoices/{draft.pk}").status_code == 404
    assert api.get(f"/v1/invoices/{draft.pk}/transitions").json()["results"] == [response.json()]
    assert not Line.objects.filter(invoice_id=draft.pk).exists()
    assert not InvoiceTax.objects.filter(invoice_id=draft.pk).exists()
    assert not Claim.objects.filter(invoice_id=draft.pk, released_at=None).exists()
    assert not CouponUse.objects.filter(invoice_id=draft.pk, released_at=None).exists()

    path = f"/v1/subscriptions/{subscription.ref}/invoices"
    [again] = api.post(path, {"as_of": "2026-01-01T00:00:00Z"}).json()["invoices"]
    assert (again["total_minor"], again["discount_minor"]) == (600, 500)
    page = operator().get(f"/admin/billing/subscription/{subscription.pk}/change/").content.decode()
    deletions = re.sub(r"<[^>]*>|\s+", " ", page[page.index("Deleted drafts") :])
    assert re.search(r"1 Jan 2026, 00:00:00 UTC +6\.00 EUR +wrong plan +key:shop", deletions)
    assert f"draft {draft.pk}" not in page


def test_a_draft_is_deleted_once_per_key(api):
    draft, key = new_invoice(finalize=False), unique("key")
    first, second = api.delete(f"/v1/invoices/{draft.pk}", key=key), api.delete(f"/v1/invoices/{draft.pk}", key=key)
    assert (first.status_code, second.content) == (200, first.content)
    assert second.headers["Idempotency-Replayed"] == "true"
    assert api.delete(f"/v1/invoices/{draft.pk}").status_code == 404
    assert api.delete(f"/v1/invoices/{draft.pk}", key=None).status_code == 400
    assert transitions_of(draft) == [("delete", "key:shop", "")]


@pytest.mark.parametrize("state", ["open", "paid", "void", "uncollectible"])
def test_only_a_draft_is_deleted(api, state):
    invoice = new_invoice()
    change_to = {"paid": invoice_payments.pay_rest, "void": invoices.void, "uncollectible": invoices.mark_uncollectible}
    if state in change_to:
        change_to[state](invoice.pk)
    response = api.delete(f"/v1/invoices/{invoice.pk}?reason=x")
    assert (response.status_code, response.json()["type"].rsplit("/", 1)[1]) == (409, "invalid-transition")
    assert (response.json()["state"], response.json()["wanted"]) == (state, "deleted")
    assert Invoice.objects.get(pk=invoice.pk).state == state
    assert transitions_of(invoice) == []


@pytest.mark.parametrize(
    ("query", "raw"),
    [("?reason=" + "x" * 501, b""), ("?why=x", b""), ("", b'{"reason": "x"}'), ("", b"[]"), ("?reason=%00", b"")],
)
def test_a_deletion_that_says_something_else_is_refused(api, query, raw):
    draft = new_invoice(finalize=False)
    keys = RequestKey.objects.count()
    assert api.delete(f"/v1/invoices/{draft.pk}{query}", raw=raw).status_code == 400
    assert Invoice.objects.filter(pk=draft.pk).exists()
    assert (transitions_of(draft), RequestKey.objects.count()) == ([], keys)


def test_a_reader_deletes_nothing():
    draft = new_invoice(finalize=False)
    _, reader = api_keys.create_api_key(name=unique("key"), scopes=["billing:read"])
    assert ApiClient(reader).delete(f"/v1/invoices/{draft.pk}").status_code == 403
    assert Invoice.objects.filter(pk=draft.pk).exists()


def test_the_service_refuses_what_is_not_there_or_no_draft():
    invoice = new_invoice()
    with pytest.raises(InvalidTransition), transaction.atomic():
        transitions.delete_draft_in(invoice_id=invoice.pk, actor="key:shop")
    with pytest.raises(NotFound), transaction.atomic():
        transitions.delete_draft_in(invoice_id=999999999, actor="key:shop")
    with pytest.raises(Invalid) as refused:
        transitions.apply(invoice_id=invoice.pk, kind="void", actor="admin:mara", reason=" ", idempotency_key="k")
    assert refused.value.facts == {"pointer": "/reason", "rule": "required", "detail": "is required"}
    assert Transition.objects.count() == 0


def test_a_transition_is_made_once_per_key_and_its_result_is_kept():
    invoice = new_invoice()
    for is_repeated in (False, True):
        result = transitions.apply(
            invoice_id=invoice.pk, kind="mark_uncollectible", actor="admin:mara", reason="moved away", idempotency_key="k"
        )
        assert result == transitions.TransitionResult(invoice.pk, invoice.number, "uncollectible", is_repeated)
    assert transitions_of(invoice) == [("mark_uncollectible", "admin:mara", "moved away")]
    assert list(RequestKey.objects.values_list("idempotency_key", "status")) == [("k", 200)]
    [noted] = Transition.objects.all()
    assert (noted.subscription_id, noted.customer_id, noted.sequence) == (invoice.subscription_id, None, 1)


def test_an_operator_deletes_a_draft_only_with_a_reason_and_a_second_click_changes_nothing():
    client, draft = operator(), new_invoice(finalize=False)
    url = f"/admin/billing/invoice/{draft.pk}/delete-draft/"
    values = {"idempotency_key": hidden_key(client.get(url).content.decode()), "reason": ""}
    assert client.post(url, values).status_code == 422
    assert Invoice.objects.filter(pk=draft.pk).exists()
    values |= {"reason": "ordered twice", "confirmed": "yes"}
    first, second = client.post(url, values), client.post(url, values)
    assert (first.status_code, second.status_code) == (302, 302)
    page = client.get(second["Location"]).content.decode()
    assert "was already done by the first click" in page
    assert "ordered twice" in page
    assert transitions_of(draft) == [("delete", "admin:mara", "ordered twice")]
    assert not Invoice.objects.filter(pk=draft.pk).exists()
    assert client.get("/admin/billing/invoice/999999999/delete-draft/").status_code == 404


def test_who_may_not_delete_drafts_is_not_let_through():
    draft = new_invoice(finalize=False)
    client = operator("billing.view_invoice", "billing.void_invoice", name="ben")
    url = f"/admin/billing/invoice/{draft.pk}/delete-draft/"
    assert client.get(url).status_code == 403
    assert client.post(url, {"reason": "x", "idempotency_key": "k"}).status_code == 403
    assert url not in client.get(f"/admin/billing/invoice/{draft.pk}/change/").content.decode()
    assert Invoice.objects.filter(pk=draft.pk).exists()

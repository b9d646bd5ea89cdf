"""Billing's pages for operators: everything is shown, nothing can be changed, and a page costs the same with more rows."""

import html
import re
import uuid
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.documents import invoice_payments, invoices
from billing.errors import InvoiceCorrectedLater, InvoiceGenerationBusy
from billing.generator.options import Options, Scope
from billing.generator.run.generate import generate_in
from billing.models import (
    CreditNote,
    Customer,
    Invoice,
    Plan,
    Run,
    RunResult,
    ScheduledTask,
    Subscription,
    SuspendedBilling,
    Transition,
    UsageEvent,
)
from billing.orders import coupons, subscriptions
from billing.orders.customers import NewCredits
from billing.orders.subscriptions import Wish
from ledger import reads, services
from ledger.models import CreditType
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring, use
from tests.ledger.staff.admin_site import hidden_key, older_url, operator

pytestmark = pytest.mark.django_db

BILLING = "/admin/billing"


@pytest.fixture
def billed():
    """A subscription with usage, one finalised invoice and one draft."""
    subscription = SubscriptionFactory()
    use(subscription, "150", at(1, 10), region="eu")
    generate_in(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    generate_in(ref=subscription.ref, options=Options(as_of=at(2, 1), only=Scope.USAGE, finalize=False))
    return subscription


def run_with(outcome, ref, traceback=""):
    """Record a run of the generator in which one subscription had this outcome."""
    run = Run.objects.create(
        run_id=uuid.uuid4(), as_of=at(2, 1), host="worker-1", exit_code=3, summary={"outcomes": {"created": 2, "failed": 1}}
    )
    RunResult.objects.create(run_id=run.pk, subscription_ref=ref, outcome=outcome, detail="no such price", traceback=traceback)
    return run


def addresses_of_all_pages(subscription):
    """The addresses of billing's lists, and of the page of one row of each."""
    run = run_with("failed", subscription.ref)
    rows = {
        "customer": subscription.customer_id,
        "plan": Plan.objects.get().pk,
        "subscription": subscription.pk,
        "invoice": Invoice.objects.order_by("pk").first().pk,
        "run": run.pk,
    }
    return [f"{BILLING}/{name}/" for name in (*rows, "coupon")], [f"{BILLING}/{name}/{pk}/" for name, pk in rows.items()]


@pytest.mark.slow
@pytest.mark.check
def test_a_superuser_can_look_at_everything_and_change_nothing(client, billed):
    lists, rows = addresses_of_all_pages(billed)
    before = {model: list(model.objects.order_by("pk").values()) for model in (Customer, Plan, Subscription, Invoice, Run)}
    for url in lists:
        assert client.get(url).status_code == 200, url
        assert client.post(f"{url}add/", {}).status_code in (403, 422), url
    for url in rows:
        assert client.get(f"{url}change/").status_code == 200, url
        assert client.post(f"{url}change/", {"name": "x", "ref": "x", "state": "paid"}).status_code == 403, url
        assert client.post(f"{url}delete/", {"post": "yes"}).status_code == 403, url
    assert {model: list(model.objects.order_by("pk").values()) for model in before} == before


def test_finalised_invoices_and_drafts_cannot_be_deleted_from_the_list(client, billed):
    pks = list(Invoice.objects.values_list("pk", flat=True))
    assert len(pks) == 2
    client.post(f"{BILLING}/invoice/", {"action": "delete_selected", "_selected_action": pks, "post": "yes"})
    assert Invoice.objects.count() == 2


def test_an_operator_without_permissions_sees_nothing(billed):
    client = operator("ledger.view_entrylisting")
    lists, rows = addresses_of_all_pages(billed)
    for url in [*lists, *(f"{row}change/" for row in rows), f"{BILLING}/subscription/{billed.pk}/usage/"]:
        assert client.get(url).status_code == 403, url


def test_an_invoice_is_shown_with_lines_taxes_and_totals(client, billed):
    invoice = Invoice.objects.get(state="open")
    page = client.get(f"{BILLING}/invoice/{invoice.pk}/change/").content.decode()
    assert f"Invoice {invoice.number}" in page
    for said in ("owes 12.00 EUR, due on", "VAT 20 % on 10.00", ">EUR 12.00<", "1\u00a0Jan\u00a02026 – 31\u00a0Jan\u00a02026"):
        assert said in page
    assert f'href="{BILLING}/subscription/{billed.pk}/change/"' in page
    assert f'href="{BILLING}/invoice/?subscription={billed.ref}"' in page


@pytest.mark.parametrize(
    ("query", "count"), [("", 2), ("state=draft", 1), ("state=open", 1), ("state=paid", 0), ("state=stolen", 0), ("q=nobody", 0)]
)
def test_invoices_are_filtered_by_state(client, billed, query, count):
    page = client.get(f"{BILLING}/invoice/?{query}").content.decode()
    assert page.count('class="field-name') == count


def test_invoices_are_found_by_number_subscription_and_customer(client, billed):
    other = SubscriptionFactory()
    generate_in(ref=other.ref, options=Options(as_of=at(1, 1)))
    invoice = Invoice.objects.get(state="open", subscription_ref=billed.ref)
    for word, count in ((invoice.number, 1), (billed.ref, 2), (invoice.customer_ref, 2), (other.ref, 1)):
        assert client.get(f"{BILLING}/invoice/?q={word}").content.decode().count('class="field-name') == count, word


def test_a_subscription_shows_items_periods_billed_invoices_and_usage(client, billed):
    page = client.get(f"{BILLING}/subscription/{billed.pk}/change/").content.decode()
    invoice = Invoice.objects.get(state="open")
    for fact in ("base", "calls", invoice.number, "Latest billed periods", "2026-02-01 00:00:00"):
        assert fact in page
    usage = client.get(f"{BILLING}/subscription/{billed.pk}/usage/").content.decode()
    assert "<code>region</code>: eu" in usage
    assert ">150<" in usage.replace(" ", "").replace("\n", "")
    assert client.get(f"{BILLING}/subscription/999999/usage/").status_code == 404


def test_a_subscription_whose_billing_is_suspended_says_so(client, billed):
    SuspendedBilling.objects.create(subscription=billed, reason="too-many-periods")
    why = "too many periods would be billed at once"
    assert why in client.get(f"{BILLING}/subscription/").content.decode()
    assert why in client.get(f"{BILLING}/subscription/{billed.pk}/change/").content.decode()


@pytest.mark.slow
def test_resuming_billing_takes_a_reason_and_is_recorded_with_the_operators_name(client, billed):
    url = f"{BILLING}/subscription/{billed.pk}/resume-billing/"
    assert url not in client.get(f"{BILLING}/subscription/{billed.pk}/change/").content.decode()
    assert "Billing is not suspended." in client.get(url).content.decode()
    suspended = SuspendedBilling.objects.create(subscription=billed, reason="too-many-periods")
    assert url in client.get(f"{BILLING}/subscription/{billed.pk}/change/").content.decode()
    shown = client.get(url).content.decode()
    assert "The generator suspended billing: too many periods would be billed at once." in shown
    key = {"idempotency_key": hidden_key(shown)}
    assert client.post(url, {**key, "reason": " "}).status_code == 422
    suspended.refresh_from_db()
    assert suspended.resumed_at is None
    assert operator("billing.view_subscription", name="ben").post(url, {**key, "reason": "x"}).status_code == 403
    first, second = (client.post(url, {**key, "reason": "looked at it"}) for _ in range(2))
    assert (first.status_code, second.status_code) == (302, 302)
    assert "was already done by the first click" in client.get(second["Location"]).content.decode()
    again = client.post(url, {"idempotency_key": "another", "reason": "again"})
    assert (again.status_code, "Billing of the subscription is not suspended" in again.content.decode()) == (422, True)
    suspended.refresh_from_db()
    assert (suspended.resumed_by, suspended.resume_reason) == ("admin:mara", "looked at it")
    assert suspended.resumed_at is not None


def amounts_and_documents():
    """What a transition of a document may change."""
    entries = sum(found.sequence for found in reads.holders(prefix=""))
    return list(Invoice.objects.order_by("pk").values("state", "number")), Transition.objects.count(), entries


CHANGES = re.compile(r'<tr><th scope="row">(.*?)</th><td class="figure">(.*?)</td><td class="figure">(.*?)</td></tr>')


def transition(client, invoice, name, **values):
    """Open the form of a transition, send it filled in, and confirm what is said to happen."""
    url = f"{BILLING}/invoice/{invoice.pk}/{name}/"
    sent = {"idempotency_key": hidden_key(client.get(url).content.decode()), **values}
    first = client.post(url, sent)
    return client.post(url, sent | {"confirmed": "yes"}) if first.status_code == 200 else first


@pytest.mark.parametrize(
    ("name", "after", "is_settled"),
    [
        ("finalize", "open", False),
        ("pay", "paid", True),
        ("void", "void", True),
        ("mark-uncollectible", "uncollectible", False),
        ("delete-draft", "deleted", True),
    ],
)
def test_what_a_transition_will_do_is_said_first_and_nothing_is_written(client, billed, name, after, is_settled):
    state = "draft" if name in ("finalize", "delete-draft") else "open"
    if name == "void":
        invoices.delete_draft(Invoice.objects.get(state="draft").pk)
    invoice = Invoice.objects.get(state=state)
    before = amounts_and_documents()
    url = f"{BILLING}/invoice/{invoice.pk}/{name}/"
    sent = {"idempotency_key": hidden_key(client.get(url).content.decode()), "reason": "told so"}
    response = client.post(url, sent)
    page = response.content.decode()
    said = {what: (now, then) for what, now, then in CHANGES.findall(page)}
    assert (response.status_code, said["State"]) == (200, (state, after))
    if name == "finalize":
        assert said["Number"] == ("none", "INV-000002, if no other invoice gets it before")
    assert (said["Due"][1] == "nothing") is is_settled
    assert "Nothing has been written yet." in page
    assert amounts_and_documents() == before


@pytest.mark.parametrize(
    ("before", "name", "state"),
    [
        ([], "pay", "paid"),
        ([], "void", "void"),
        ([], "mark-uncollectible", "uncollectible"),
        (["mark-uncollectible"], "pay", "paid"),
        (["mark-uncollectible"], "void", "void"),
    ],
)
def test_an_invoice_is_moved_with_a_reason_and_the_operators_name(client, billed, before, name, state):
    # Without the draft, which continues what the open one billed.
    invoices.delete_draft(Invoice.objects.get(state="draft").pk)
    invoice = Invoice.objects.get()
    for earlier in before:
        assert transition(client, invoice, earlier, reason="first").status_code == 302
    response = transition(client, invoice, name, reason="told so by phone")
    assert response["Location"] == f"{BILLING}/invoice/{invoice.pk}/change/"
    invoice.refresh_from_db()
    assert invoice.state == state
    noted = Transition.objects.order_by("-pk").first()
    assert (noted.invoice_id, noted.kind, noted.actor, noted.reason) == (
        invoice.pk, name.replace("-", "_"), "admin:mara", "told so by phone",
    )  # fmt: skip
    page = client.get(response["Location"]).content.decode()
    assert f"{invoice.number} is done: the invoice is {state}." in page
    assert "State changes" in page
    assert "told so by phone" in page


def test_a_draft_is_finalised_and_gets_the_next_number(client, billed):
    draft = Invoice.objects.get(state="draft")
    response = transition(client, draft, "finalize", reason="looked through")
    draft.refresh_from_db()
    assert (draft.state, draft.number) == ("open", "INV-000002")
    assert "“Finalise” of INV-000002 is done" in client.get(response["Location"]).content.decode()


@pytest.mark.parametrize(
    ("state", "offered"),
    [
        ("draft", {"finalize", "delete-draft"}),
        ("open", {"pay", "void", "mark-uncollectible"}),
        ("uncollectible", {"pay", "void"}),
        ("paid", set()),
    ],
)
def test_only_what_the_state_allows_is_offered(client, billed, state, offered):
    invoice = Invoice.objects.get(state="draft" if state == "draft" else "open")
    change_to = {"uncollectible": invoices.mark_uncollectible, "paid": invoice_payments.pay_rest}
    if state in change_to:
        change_to[state](invoice.pk)
    page = client.get(f"{BILLING}/invoice/{invoice.pk}/change/").content.decode()
    names = ("finalize", "pay", "void", "mark-uncollectible", "delete-draft")
    assert {name for name in names if f"{BILLING}/invoice/{invoice.pk}/{name}/" in page} == offered


def test_a_double_click_moves_once_and_shows_that_it_was_done(client):
    services.grant(holder_id="ada", amount=300, idempotency_key="g")
    customer = CustomerFactory(holder_id="ada", credits=NewCredits(credit_type="credits", unit_value=Decimal("0.01")))
    generate_in(ref=SubscriptionFactory(customer=customer.ref).ref, options=Options(as_of=at(1, 1)))
    invoice = Invoice.objects.get()
    url = f"{BILLING}/invoice/{invoice.pk}/void/"
    values = {"idempotency_key": hidden_key(client.get(url).content.decode()), "reason": "wrong plan"}
    page = client.post(url, values).content.decode()
    assert (f"{invoice.number} of {customer.ref}. Voiding returns" in page, " of ada go back." in page) == (True, True)
    values["confirmed"] = "yes"
    first, second = client.post(url, values), client.post(url, values)
    assert (first.status_code, second.status_code) == (302, 302)
    assert "was already done by the first click" in client.get(second["Location"]).content.decode()
    assert Transition.objects.count() == 1
    # Granted, spent on the invoice, given back once.
    assert (reads.balance("ada").balance, reads.balance("ada").sequence) == (300, 3)


def test_a_move_that_the_state_does_not_allow_is_refused_with_its_facts_and_not_noted(client, billed):
    invoice = Invoice.objects.get(state="open")
    invoice_payments.pay_rest(invoice.pk)
    before = amounts_and_documents()
    response = transition(client, invoice, "void", reason="too late")
    assert response.status_code == 422
    invoice.refresh_from_db()
    assert f"The invoice&#x27;s state does not allow this: invoice {invoice.number}, state paid, wanted void" in (
        response.content.decode()
    )
    assert amounts_and_documents() == before


def test_a_refusal_names_the_later_invoice_by_its_number(client, billed, monkeypatch):
    earlier = Invoice.objects.get(state="open")
    later = invoices.finalize(Invoice.objects.get(state="draft").pk)

    def corrected(invoice_id):
        raise InvoiceCorrectedLater(invoice=invoice_id, by=later.pk, state="open", wanted="void")

    monkeypatch.setattr(invoices, "void_with_corrections", corrected)
    page = transition(client, earlier, "void", reason="wrong plan").content.decode()
    assert f"A later invoice corrects this one: invoice {earlier.number}, by {later.number}, state open, wanted void" in page


def test_a_draft_that_another_operator_has_deleted_is_named_by_its_subscription(client, billed):
    draft = Invoice.objects.get(state="draft")
    deleted = transition(client, draft, "delete-draft", reason="wrong plan")
    assert f"“Delete draft” of draft for {billed.ref} is done" in client.get(deleted["Location"]).content.decode()
    refused = transition(operator(name="leo"), draft, "delete-draft", reason="me too")
    assert refused.status_code == 422
    page = refused.content.decode()
    assert f"Delete draft: draft for {billed.ref}" in page
    assert "The resource does not exist: resource invoice<" in re.sub(r"\s*<", "<", page)
    assert Transition.objects.count() == 1


@pytest.mark.parametrize("page", ["customer", "subscription"])
def test_pages_show_the_invoices_only_to_those_who_may_view_them(billed, page):
    pk = billed.customer_id if page == "customer" else billed.pk
    url, shown = f"{BILLING}/{page}/{pk}/change/", "Latest invoices"
    assert shown not in operator(f"billing.view_{page}", name="ben").get(url).content.decode()
    assert shown in operator(f"billing.view_{page}", "billing.view_invoice", name="leo").get(url).content.decode()


@pytest.mark.parametrize("pk", ["9" * 19, "9" * 30, "1" * 5_000, "-1", "draft"])
def test_a_draft_that_never_was_is_not_found(client, pk):
    assert client.get(f"{BILLING}/invoice/{pk}/delete-draft/").status_code == 404


def test_who_may_not_view_documents_gets_no_pdf_of_one(billed):
    invoice = Invoice.objects.get(state="open")
    for permission, status in (("billing.view_customer", 403), ("billing.view_invoice", 302)):
        client = operator(permission, name=permission)
        # No seller is recorded: the page of the invoice says so.
        assert client.get(f"{BILLING}/invoice/{invoice.pk}/pdf/").status_code == status
    assert operator("billing.view_invoice", name="leo").get(f"{BILLING}/creditnote/1/pdf/").status_code == 403


def test_a_move_keeps_its_key_while_invoices_of_the_subscription_are_being_made(client, billed, monkeypatch):
    invoice = Invoice.objects.get(state="open")

    def busy(invoice_id, actor):
        raise InvoiceGenerationBusy(key="invoice_gen/x", subscription=invoice.subscription_ref)

    url = f"{BILLING}/invoice/{invoice.pk}/pay/"
    values = {"idempotency_key": hidden_key(client.get(url).content.decode()), "reason": "paid by card"}
    before = amounts_and_documents()
    with monkeypatch.context() as patched:
        patched.setattr(invoice_payments, "pay_rest", busy)
        page = client.post(url, values).content.decode()
    assert "press the button again" in page
    assert hidden_key(page) == values["idempotency_key"]
    assert amounts_and_documents() == before
    assert client.post(url, {**values, "confirmed": "yes"}).status_code == 302
    assert Invoice.objects.get(pk=invoice.pk).state == "paid"


@pytest.mark.products(most=4)
@pytest.mark.parametrize("name", ["finalize", "pay", "void", "mark-uncollectible"])
@pytest.mark.parametrize("reason", ["", "   ", "x" * 501])
def test_without_a_reason_no_document_changes_its_state(client, billed, name, reason):
    invoice = Invoice.objects.get(state="draft" if name == "finalize" else "open")
    before = amounts_and_documents()
    assert transition(client, invoice, name, reason=reason).status_code == 422
    assert amounts_and_documents() == before


@pytest.mark.slow
def test_each_permission_allows_only_its_own_transition_of_an_invoice(billed):
    invoice = Invoice.objects.get(state="open")
    before = amounts_and_documents()
    permissions = {
        "finalize": "finalize_invoice",
        "pay": "pay_invoice",
        "void": "void_invoice",
        "mark-uncollectible": "mark_invoice_uncollectible",
    }
    for own, permission in permissions.items():
        client = operator("billing.view_invoice", f"billing.{permission}", name=f"operator-{own}")
        page = client.get(f"{BILLING}/invoice/{invoice.pk}/change/").content.decode()
        for name in permissions:
            url = f"{BILLING}/invoice/{invoice.pk}/{name}/"
            assert client.get(url).status_code == (200 if name == own else 403)
            assert (url in page) is (name == own != "finalize")
            if name != own:
                assert client.post(url, {"reason": "x", "idempotency_key": "k"}).status_code == 403
    assert amounts_and_documents() == before
    assert operator(name="root").get(f"{BILLING}/invoice/999999/void/").status_code == 404


def test_a_customer_leads_to_its_holder_also_before_the_holder_has_credits(client):
    """The credits of the one pay invoices; those of the other are only spent on usage, in whatever credit type."""
    terms = NewCredits(credit_type="credits", unit_value=Decimal("0.01"))
    for customer in (CustomerFactory(holder_id="not-yet", credits=terms), CustomerFactory(holder_id="not-yet")):
        page = client.get(f"{BILLING}/customer/{customer.pk}/change/").content.decode()
        [address] = re.findall(r'href="(/admin/ledger/account/[^"]*)"[^>]*>not-yet<', page)
        unknown = client.get(html.unescape(address))
        assert unknown.status_code == 200
        assert "not-yet has had no credits yet." in unknown.content.decode()
        assert f">{customer.ref}</a>" in unknown.content.decode()
        for way in ("Grant the first credits", "Customer&#x27;s page"):
            assert way in unknown.content.decode()
        form = client.get(f"{BILLING}/customer/{customer.pk}/page-link/")
        assert form.status_code == 302
        assert client.get(form.url).status_code == 200
    services.grant(holder_id="not-yet", amount=5, credit_type="sms", idempotency_key="g")
    assert "data-available>5<" in client.get(html.unescape(address)).content.decode()


def test_a_customer_without_a_holder_has_no_page_to_link_to(client):
    customer = CustomerFactory(holder_id=None)
    assert "page-link" not in client.get(f"{BILLING}/customer/{customer.pk}/change/").content.decode()
    assert client.get(f"{BILLING}/customer/{customer.pk}/page-link/").status_code == 404


def test_coupons_and_credit_notes_are_shown_on_the_invoice_and_the_customer(client):
    coupons.create_coupon(code="WELCOME", kind="percentage", value=Decimal(10), duration="recurring", periods=3)
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount="10.00", tax_rate="20")]).code)
    customer = Customer.objects.get(pk=subscription.customer_id)
    coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code="WELCOME")
    generate_in(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    invoice = Invoice.objects.get()
    page = client.get(f"{BILLING}/invoice/{invoice.pk}/change/").content.decode()
    assert re.search(r"Coupons used.*>WELCOME</a>.*1\.00 EUR", page, re.DOTALL)
    shown = client.get(f"{BILLING}/customer/{customer.pk}/change/").content.decode()
    assert re.search(r">WELCOME</a>.*10 % off, for 3 periods of each subscription.*1\.00 EUR", shown, re.DOTALL)
    # Cancelled in the middle of January: what was paid ahead comes back as a credit note.
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(1, 16), wish=Wish(sets_end=True, ends_at=at(1, 16)))
    generate_in(ref=subscription.ref, options=Options(as_of=at(1, 16)))
    credit = Invoice.objects.order_by("-pk").first()
    assert credit.pk != invoice.pk
    note = CreditNote.objects.get()
    page = client.get(f"{BILLING}/invoice/{credit.pk}/change/").content.decode()
    assert re.search(rf"Credit notes about this invoice.*{note.amount_minor / 100:.2f} EUR", page, re.DOTALL)


def test_the_outcomes_of_a_run_are_paged_by_kind(client):
    run = run_with("failed", "SUB-failed")
    RunResult.objects.bulk_create(
        RunResult(run_id=run.pk, subscription_ref=f"SUB-{number:03}", outcome="finalised") for number in range(120)
    )
    url = f"{BILLING}/run/{run.pk}/outcomes/"
    assert url in client.get(f"{BILLING}/run/{run.pk}/change/").content.decode()
    seen, query, costs = [], "?outcome=finalised", set()
    while query:
        with CaptureQueriesContext(connection) as captured:
            page = client.get(url + query if query.startswith("?") else query).content.decode()
        costs.add(len(captured))
        seen += re.findall(r"SUB-\d{3}", page)
        query = older_url(page)
    assert seen == [f"SUB-{number:03}" for number in range(120)]
    assert max(costs) == min(costs) <= 6
    assert "SUB-failed" in client.get(f"{url}?outcome=failed").content.decode()
    assert "No rows." in client.get(f"{url}?outcome=busy").content.decode()
    assert "is not a valid page link for this list" in client.get(f"{url}?p=x").content.decode()
    assert client.get(f"{BILLING}/run/{uuid.uuid4()}/outcomes/").status_code == 404
    assert operator("billing.view_invoice", name="ben").get(url).status_code == 403


@pytest.mark.slow
def test_usage_is_paged_without_gap_or_repetition(client):
    subscription = SubscriptionFactory()
    more_than_a_page = 120
    for value in range(more_than_a_page):
        # Several at one time, so that the key must tell them apart.
        use(subscription, str(value), at(1, 1 + value // 10))
    ordered = UsageEvent.objects.filter(subscription=subscription).order_by("-occurred_at", "-idempotency_key")
    expected = [event.idempotency_key for event in ordered]
    seen, url = [], f"{BILLING}/subscription/{subscription.pk}/usage/"
    while url:
        page = client.get(url).content.decode()
        seen += [key for key in expected if f">{key}<" in page]
        url = older_url(page)
    assert seen == expected


def test_a_run_shows_what_failed_with_its_traceback(client, billed):
    run = run_with("failed", billed.ref, traceback="Traceback: ZeroDivisionError")
    page = client.get(f"{BILLING}/run/{run.pk}/change/").content.decode()
    assert "Traceback: ZeroDivisionError" in page
    assert f'href="{BILLING}/subscription/{billed.pk}/change/"' in page
    assert "created 2, failed 1" in client.get(f"{BILLING}/run/").content.decode()


def test_credits_that_paid_lead_to_the_spend_in_the_ledger(client):
    services.grant(holder_id="ada", amount=1_000, idempotency_key="g")
    customer = CustomerFactory(holder_id="ada", credits=NewCredits(credit_type="credits", unit_value=Decimal("0.01")))
    subscription = SubscriptionFactory(customer=customer.ref)
    generate_in(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    invoice = Invoice.objects.get()
    page = client.get(f"{BILLING}/invoice/{invoice.pk}/change/").content.decode()
    assert 'href="/admin/ledger/entrylisting/ada_2Fcredits_2F2/change/"' in page
    assert "Paid with 1,000 credits" in page
    assert ">−10.00<" in page
    CreditType.objects.create(code="credits", name="Credits", unit="Cr", scale=1)
    assert ">100.0 Cr<" in client.get(f"{BILLING}/invoice/{invoice.pk}/change/").content.decode()


@pytest.mark.parametrize("name", ["customer", "subscription", "invoice", "plan"])
def test_more_rows_cost_no_more_queries(client, name):
    def count():
        with CaptureQueriesContext(connection) as captured:
            response = client.get(f"{BILLING}/{name}/")
        assert response.status_code == 200
        assert not [query for query in captured.captured_queries if "COUNT(" in query["sql"]]
        return len(captured)

    def subscribe():
        subscription = SubscriptionFactory(plan=PlanFactory().code)
        generate_in(ref=subscription.ref, options=Options(as_of=at(1, 1)))

    subscribe()
    one = count()
    for _ in range(9):
        subscribe()
    # What a month brings of the shown subscriptions takes four.
    assert count() == one <= 11


def test_lists_are_paged_by_key(client):
    for _ in range(51):
        CustomerFactory()
    newest_first = list(Customer.objects.order_by("-pk").values_list("ref", flat=True))
    first = client.get(f"{BILLING}/customer/").content.decode()
    assert [ref for ref in newest_first if f">{ref}<" in first] == newest_first[:50]
    second = client.get(f"{BILLING}/customer/{older_url(first)}").content.decode()
    assert [ref for ref in newest_first if f">{ref}<" in second] == newest_first[50:]
    assert older_url(second) is None
    assert "is not a valid page link for this list" in client.get(f"{BILLING}/customer/?p=x").content.decode()


def test_a_plan_shows_what_it_grants_and_a_customer_for_how_long_its_drafts_wait(client):
    allowance = {"credit_type": "tokens", "amount": 1500, "rollover_cap": 250}
    plan = PlanFactory(allowance=allowance, minimum=Decimal("12.50"), maximum=Decimal("99.90"))
    page = client.get(f"{BILLING}/plan/{plan.pk}/change/").content.decode()
    for words in (
        "Basic is billed every month in EUR.",
        "At least 12.50 EUR a month, before tax.",
        "At most 99.90 EUR a month, before tax.",
        "Grants 1,500 tokens every month; up to 250 of the rest roll over into the next one.",
    ):
        assert words in page
    CreditType.objects.create(code="tokens", name="Tokens", unit="kTok", scale=3)
    page = client.get(f"{BILLING}/plan/{plan.pk}/change/").content.decode()
    assert "Grants 1.500 kTok every month; up to 0.250 of the rest roll over into the next one." in page
    customer = CustomerFactory(grace_days=17)
    shown = client.get(f"{BILLING}/customer/{customer.pk}/change/").content.decode()
    assert "Invoices stay drafts for 17 days and accept late usage until then." in shown


def test_the_pages_of_a_customer_and_its_holder_say_how_each_subscription_is(client):
    customer = CustomerFactory(ref="C-9", holder_id="ada")
    running, stopped = (SubscriptionFactory(customer=customer.ref) for _ in range(2))
    ended = SubscriptionFactory(customer=customer.ref, ends_at=at(2, 1))
    SuspendedBilling.objects.create(subscription_id=stopped.pk, reason="unusual-amount")
    for address in (f"{BILLING}/customer/{customer.pk}/change/", "/admin/ledger/account/holders/ada/"):
        text = " ".join(re.sub(r"<[^>]+>", " ", client.get(address).content.decode()).split())
        for subscription, state in (
            (running, "active"),
            (stopped, "active, billing suspended: the amount is far above the usual one"),
            (ended, "ended"),
        ):
            shown = rf"{subscription.ref} Basic \S+ v1 {state} (0.00|10.00) EUR \d+ [A-Z][a-z]+ 20"
            assert re.search(shown, text), (address, subscription.ref, text)


def test_the_first_page_misses_an_audit_only_after_the_first_round_of_a_worker(client):
    missing, coming = "No worker has audited the ledger yet", "its first audit follows soon"
    assert missing in client.get("/admin/").content.decode()
    now = datetime.now(UTC)
    task = ScheduledTask.objects.create(
        name="update_totals", due_at=now, started_at=now, finished_at=now, exit_code=0, executions=1
    )
    page = client.get("/admin/").content.decode()
    assert (missing in page, coming in page) == (False, True)
    ScheduledTask.objects.filter(pk=task.pk).update(executions=2)
    assert missing in client.get("/admin/").content.decode()

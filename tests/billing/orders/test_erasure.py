"""A customer is erased from everything but documents, once nothing is to be billed any more."""

import json
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from billing import auditing
from billing.errors import CustomerStillBilled, NotFound
from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.models import Customer, Invoice
from billing.orders import subscriptions
from billing.orders.erasure import erase_customer
from ledger.database.statements import fetch_rows, fetch_value
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, metered, recurring, unique, use
from tests.ledger.api.conftest import ApiClient

pytestmark = pytest.mark.django_db

WHO = {"name": "Augusta Lovelace", "address": {"line1": "St James's Square 12", "city": "London"}, "vat_id": "GB999999973"}


@pytest.fixture
def ref(api: ApiClient) -> str:
    """A customer who was created and changed over REST."""
    ref = unique("CUST")
    assert (
        api.post("/v1/customers", {"ref": ref, "currency": "EUR", **WHO, "name": "Ada Byron"}, key=f"new-{ref}").status_code
        == 201
    )
    assert api.patch(f"/v1/customers/{ref}", {"name": WHO["name"]}, key=f"married-{ref}").status_code == 200
    return ref


def subscribed(ref: str, **options: Any) -> Any:
    """A subscription of the customer to a new plan with a fee and usage."""
    plan = PlanFactory(prices=[recurring(), metered()])
    return SubscriptionFactory(customer=ref, plan=plan.code, started_at=at(1, 1), **options)


def billed_to_its_end(ref: str) -> Invoice:
    """A subscription of January that was used, ended and billed; returns its invoice."""
    subscription = subscribed(ref, ends_at=at(2, 1))
    use(subscription, "5", at(1, 10))
    for month in (1, 2, 6):
        generate_in(ref=subscription.ref, options=Options(as_of=at(month, 1)))
    return Invoice.objects.filter(subscription_ref=subscription.ref).order_by("pk").first()


def tables_that_name(word: str) -> set[str]:
    """Every table with the word in any column of any row."""
    tables = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
    has_word = "SELECT EXISTS (SELECT 1 FROM {} AS each WHERE each::text LIKE %s)"
    return {table for table in fetch_rows(str, tables) if fetch_value(bool, has_word.format(table), [f"%{word}%"])}


def test_only_documents_still_say_who_it_was(api: ApiClient, ref: str) -> None:
    invoice = billed_to_its_end(ref)
    before = Invoice.objects.values().get(pk=invoice.pk)
    assert {"billing_customer", "billing_requestkey", "billing_invoice"} <= tables_that_name("Lovelace")
    erased = erase_customer(ref=ref)
    assert (erased.responses, erased.documents) == (2, 2)
    for word in ("Lovelace", "St James", "GB999999973"):
        assert tables_that_name(word) == {"billing_invoice"}
    assert tables_that_name("Ada Byron") == set()
    assert Invoice.objects.values().get(pk=invoice.pk) == before
    assert auditing.check() == []
    shown = api.get(f"/v1/customers/{ref}").json()
    assert (shown["name"], shown["address"], shown["vat_id"]) == (erased.name, {}, "")


def test_a_replay_of_an_earlier_request_has_its_response_without_personal_data(api: ApiClient, ref: str) -> None:
    asked = {"ref": ref, "currency": "EUR", **WHO, "name": "Ada Byron"}
    erased = erase_customer(ref=ref)
    response = api.post("/v1/customers", asked, key=f"new-{ref}")
    assert (response.status_code, response["Idempotency-Replayed"]) == (201, "true")
    assert (response.json()["ref"], response.json()["name"], response.json()["address"]) == (ref, erased.name, {})


def test_erased_again_nothing_changes(ref: str) -> None:
    first = erase_customer(ref=ref)
    again = erase_customer(ref=ref)
    assert (again.name, again.responses) == (first.name, 0)


def test_what_came_after_an_erasure_is_erased_on_the_same_day(api: ApiClient, ref: str) -> None:
    name = erase_customer(ref=ref).name
    assert api.patch(f"/v1/customers/{ref}", {"address": WHO["address"], "vat_id": WHO["vat_id"]}).status_code == 200
    assert erase_customer(ref=ref).responses == 1
    assert Customer.objects.get(ref=ref).name == name
    for word in ("St James", "GB999999973"):
        assert tables_that_name(word) == set()


def test_a_name_that_only_begins_like_that_of_an_erased_customer_is_erased(api: ApiClient, ref: str) -> None:
    changes = {"name": "Erased on paper Ltd", "address": {}, "vat_id": ""}
    assert api.patch(f"/v1/customers/{ref}", changes).status_code == 200
    assert erase_customer(ref=ref).responses == 3
    assert tables_that_name("Erased on paper") == set()


def test_reverse_charge_ends_with_the_vat_id(api: ApiClient, ref: str) -> None:
    assert api.patch(f"/v1/customers/{ref}", {"vat_status": "reverse_charge"}).status_code == 200
    erase_customer(ref=ref)
    assert Customer.objects.get(ref=ref).vat_status == "taxable"


def test_who_is_still_billed_is_not_erased(api: ApiClient, ref: str) -> None:
    def refused() -> str:
        before = list(Customer.objects.filter(ref=ref).values())
        with pytest.raises(CustomerStillBilled) as refusal:
            erase_customer(ref=ref)
        assert list(Customer.objects.filter(ref=ref).values()) == before
        assert "billing_requestkey" in tables_that_name("Lovelace")
        return str(refusal.value.facts["why"])

    going_on = subscribed(ref)
    assert refused() == "has no end yet"
    api.post(
        f"/v1/subscriptions/{going_on.ref}/amendments",
        {"ends_at": "2026-02-01T00:00:00Z", "effective_at": "2026-02-01T00:00:00Z"},
    )
    assert refused() == "is not billed to its end yet"
    generate_in(ref=going_on.ref, options=Options(as_of=at(6, 1), finalize=False))
    assert refused() == "has a draft that is not finalised"


@pytest.mark.parametrize("ordered", ["charge", "amendment"])
def test_who_has_something_to_bill_after_the_end_is_not_erased(ref: str, ordered: str) -> None:
    subscription = subscribed(ref, ends_at=at(2, 1))
    for month in (1, 2, 6):
        generate_in(ref=subscription.ref, options=Options(as_of=at(month, 1)))
    if ordered == "charge":
        subscriptions.charge_once(ref=subscription.ref, amount_minor=500, description="Data export")
    else:
        wish = subscriptions.Wish(quantities={"base": Decimal(2)})
        subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(1, 15), wish=wish)
    with pytest.raises(CustomerStillBilled) as refusal:
        erase_customer(ref=ref)
    assert refusal.value.facts["why"] == "is not billed to its end yet"
    assert Customer.objects.get(ref=ref).name == WHO["name"]
    generate_in(ref=subscription.ref, options=Options(as_of=at(6, 1)))
    assert erase_customer(ref=ref).name == Customer.objects.get(ref=ref).name


def test_erasing_an_unknown_customer_raises_not_found() -> None:
    with pytest.raises(NotFound):
        erase_customer(ref="nobody")


@pytest.mark.parametrize(
    "change",
    [
        'body = body || \'{"currency": "USD"}\'',
        'body = body || \'{"name": "Somebody else"}\'',
        'body = body || \'{"name": "Erased on 2026-01-01", "address": {"city": "Rome"}, "vat_id": ""}\'',
        'body = body || \'{"name": "Erased on 2026-01-01", "address": {}, "vat_id": ""}\', status = 200',
        "request_digest = '\\x00'",
    ],
)
def test_stored_responses_are_kept_but_for_an_erasure(ref: str, change: str) -> None:
    with (
        pytest.raises(DatabaseError, match="stored responses cannot be changed or deleted"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(f"UPDATE billing_requestkey SET {change} WHERE collection = 'customers'")
    for statement in ("DELETE FROM billing_requestkey", "TRUNCATE billing_requestkey"):
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)


def erase_command(*arguments: str) -> str:
    """What `manage.py erase_customer` prints."""
    out = StringIO()
    call_command("erase_customer", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_says_what_it_erased_and_what_is_kept(ref: str) -> None:
    billed_to_its_end(ref)
    with pytest.raises(CommandError, match="Add --yes") as refused:
        erase_command(ref)
    assert (refused.value.returncode, Customer.objects.get(ref=ref).name) == (2, WHO["name"])
    said = erase_command(ref, "--yes")
    assert said.endswith("without address and VAT id. 2 stored responses were erased. 2 documents keep their buyer.\n")
    assert json.loads(erase_command(ref, "--yes", "--format", "json"))["documents_kept"] == 2


def test_the_command_refuses_whom_it_does_not_know_or_still_bills(ref: str) -> None:
    subscribed(ref)
    for name, code in ((ref, 1), ("nobody", 2)):
        with pytest.raises(CommandError) as refused:
            erase_command(name, "--yes")
        assert refused.value.returncode == code
    assert Customer.objects.get(ref=ref).name == WHO["name"]

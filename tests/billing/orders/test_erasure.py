"""A customer is erased from everything but documents, once nothing is to be billed any more."""

import json
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, models, transaction
from django.test.utils import isolate_apps

from billing.auditing import consistency
from billing.dunning.models import Mail
from billing.errors import CustomerStillBilled, NotFound
from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.models import Customer, Invoice, VatLookup
from billing.models.personal import (
    DECLARATION,
    AboutPeople,
    PersonalData,
    ensure_declared,
    impersonal,
    personal,
    personal_columns,
    tables_about_people,
)
from billing.orders import subscriptions
from billing.orders.erasure import erase_customer, is_erased
from ledger.database.statements import fetch_rows, fetch_value
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, metered, recurring, unique, use
from tests.ledger.rest.conftest import ApiClient

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


@pytest.mark.slow
@pytest.mark.check
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
    assert consistency.check() == []
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
    kept = "2 stored responses were erased. 2 documents keep their buyer."
    assert said.endswith(f"without address, e-mail, VAT id, buyer reference and electronic address. {kept}\n")
    assert json.loads(erase_command(ref, "--yes", "--format", "json"))["documents_kept"] == 2


def test_the_command_refuses_whom_it_does_not_know_or_still_bills(ref: str) -> None:
    subscribed(ref)
    for name, code in ((ref, 1), ("nobody", 2)):
        with pytest.raises(CommandError) as refused:
            erase_command(name, "--yes")
        assert refused.value.returncode == code
    assert Customer.objects.get(ref=ref).name == WHO["name"]


# What is personal is said once, where the column is declared -------------------------------------------------------------


def column_names(table: str) -> list[str]:
    """The personal columns of a table, as the triggers read them."""
    return fetch_value(list, "SELECT billing_personal_columns(%s)", [table])


@pytest.mark.parametrize("model", tables_about_people())
def test_the_database_knows_the_personal_columns_of_the_models(model: type[models.Model]) -> None:
    assert column_names(model._meta.db_table) == [column.column for column, _ in personal_columns(model)]


def test_the_tables_about_people_have_these_personal_columns() -> None:
    assert column_names("billing_customer") == ["name", "address", "email", "vat_id", "buyer_reference", "electronic_address"]
    assert column_names("billing_vatlookup") == ["vat_id", "buyer", "name", "address"]
    assert column_names("billing_mail") == ["recipient"]
    assert {Customer, VatLookup, Mail} < set(tables_about_people())


def declare_personal(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make a column of customers personal, as its declaration and the migration that follows from it would."""
    monkeypatch.setattr(Customer._meta.get_field(name), DECLARATION, PersonalData(is_personal=True, words=name))
    with connection.cursor() as cursor:
        cursor.execute(f"COMMENT ON COLUMN billing_customer.{name} IS 'personal'")


def test_a_column_that_is_declared_personal_is_erased_everywhere(
    api: ApiClient, ref: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert api.patch(f"/v1/customers/{ref}", {"language": "x-lovelace"}).status_code == 200
    declare_personal(monkeypatch, "language")
    assert "without address, e-mail and VAT id" not in erase_command(ref, "--yes")
    assert Customer.objects.get(ref=ref).language == ""
    assert tables_that_name("x-lovelace") == set()
    assert consistency.check() == []


def test_who_has_a_value_in_a_column_that_became_personal_is_not_erased_yet(ref: str, monkeypatch: pytest.MonkeyPatch) -> None:
    erase_customer(ref=ref)
    assert is_erased(Customer.objects.get(ref=ref))
    declare_personal(monkeypatch, "language")
    assert not is_erased(Customer.objects.get(ref=ref))
    # The second erasure empties it.
    erase_customer(ref=ref)
    assert is_erased(Customer.objects.get(ref=ref))


def test_a_column_whose_comment_does_not_say_so_stays_in_stored_responses(ref: str, monkeypatch: pytest.MonkeyPatch) -> None:
    declare_personal(monkeypatch, "language")
    with connection.cursor() as cursor:
        cursor.execute("COMMENT ON COLUMN billing_customer.language IS 'BCP 47'")
    with pytest.raises(DatabaseError, match="stored responses cannot be changed"), transaction.atomic():
        erase_customer(ref=ref)
    assert Customer.objects.get(ref=ref).name == WHO["name"]


@isolate_apps("billing")
def test_a_column_that_does_not_say_whether_it_is_personal_ends_the_start() -> None:
    class Guest(AboutPeople):
        name = personal(models.CharField(max_length=9), words="name")
        room = impersonal(models.IntegerField())
        attention = models.CharField(max_length=9)

        class Meta:
            app_label = "billing"

    with pytest.raises(ImproperlyConfigured, match=r"Guest\.attention: .* declared by personal\(\) or impersonal\(\)"):
        ensure_declared([Guest])


def test_a_personal_column_that_cannot_be_empty_is_refused_where_it_is_declared() -> None:
    with pytest.raises(ImproperlyConfigured, match="a personal DateField needs null=True"):
        personal(models.DateField(), words="birthday")
    assert personal(models.DateField(null=True, db_comment="as told"), words="birthday").db_comment == "personal; as told"

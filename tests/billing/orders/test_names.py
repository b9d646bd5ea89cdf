"""Customers are found by words of their names, however these are written, by an index; and not any more when they are erased."""

import pytest
from django.db import connection

from billing import reads
from billing.models import Customer
from billing.orders.customers import change_customer
from billing.orders.erasure import erase_customer
from tests.billing.factories import CustomerFactory, PlanFactory

pytestmark = pytest.mark.django_db


def found(typed):
    """The names that are found, the oldest customer first."""
    return [row.name for row in reads.customers(name=typed, limit=50)][::-1]


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("Jörg Müller GmbH", ["Müller", "müller", "MULLER", "muller", "Mueller", "mül", "joerg m", "gmbh jorg", "Mu\u0308ller"]),
        ("Mueller & Söhne", ["Müller", "mueller", "sohne", "SOEHNE", "müller söhne"]),
        ("Muller SA", ["Müller", "muller", "MÜLLER"]),
        ("Straße Łódź Æther Ærø", ["strasse", "STRASSE", "lodz", "aether", "aero"]),
        ("Ångström", ["angstrom", "aangstroem", "ÅNGSTRÖM"]),
        ("Bjørn Øst", ["bjorn", "bjoern", "ost", "OEST"]),
        ("Иванов и Сыновья", ["иванов", "ИВАНОВ", "сын"]),
        ("Νίκος", ["νικος", "ΝΊΚΟΣ", "νίκ"]),
        ("O'Brien-Smith (Dublin), Ltd.", ["o'brien", "brien", "smith", "dublin ltd", "O’Brien"]),
        ("東京株式会社", ["東京"]),
        ("Ｆｕｌｌｗｉｄｔｈ ﬁnance", ["fullwidth", "finance"]),
        ("İstanbul Işık", ["istanbul", "isik"]),
        ("4711 Ltd", ["4711", "47"]),
    ],
)
def test_a_customer_is_found_however_the_name_is_written(name, typed):
    CustomerFactory(name="Somebody Else")
    CustomerFactory(name=name)
    for each in typed:
        assert found(each) == [name], each


@pytest.mark.parametrize("typed", ["ller", "muller x", "müllerin", "-", "&|!:*()", "'", "\\", "muller:*", "%", " "])
def test_what_is_no_beginning_of_a_word_finds_nothing_and_breaks_nothing(typed):
    CustomerFactory(name="Jörg Müller")
    assert found(typed) == ([] if typed != "muller:*" else ["Jörg Müller"])


@pytest.mark.parametrize("name", ["---", "'\\'", "ﷺ" * 200, "x" * 200, "\U0001f600", "a " * 100])
def test_any_name_can_be_stored_and_any_can_be_searched(name):
    CustomerFactory(name=name)
    found(name)


def test_a_changed_name_is_found_and_the_one_before_is_not():
    customer = CustomerFactory(name="Jörg Müller")
    change_customer(ref=customer.ref, name="Jörg Meier")
    assert (found("muller"), found("meier")) == ([], ["Jörg Meier"])


def test_an_erased_name_is_not_found():
    customer = CustomerFactory(name="Jörg Müller")
    erase_customer(ref=customer.ref)
    assert (found("jorg"), found("müller")) == ([], [])


def test_the_list_over_rest_filters_by_name_and_plans_too(api):
    CustomerFactory(name="Jörg Müller", currency="EUR")
    CustomerFactory(name="Ann Mueller", currency="USD")
    PlanFactory(code="team", name="Équipe")

    def names(path):
        response = api.get(path)
        assert response.status_code == 200, response.content
        return [row["name"] for row in response.json()["results"]]

    assert names("/v1/customers?name=M%C3%BCller") == ["Ann Mueller", "Jörg Müller"]
    assert names("/v1/customers?name=muller&currency=EUR") == ["Jörg Müller"]
    assert names("/v1/plans?name=EQUIPE") == ["Équipe"]
    for wrong in ("", "x" * 201, "%00"):
        assert api.get(f"/v1/customers?name={wrong}").status_code == 400, wrong


@pytest.mark.slow
def test_a_name_is_found_by_its_index_among_many(django_assert_num_queries):
    Customer.objects.bulk_create(Customer(ref=f"C-{n}", name=f"Name{n} Firm{n % 50}", currency="EUR") for n in range(3_000))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE billing_customer")
    wanted = Customer.objects.filter(name__named="name1234").order_by("-pk")[:50]
    assert "Bitmap Index Scan on billing_customer_name" in wanted.explain()
    # The customers, and the countries of their sellers.
    with django_assert_num_queries(2):
        assert found("name1234") == ["Name1234 Firm34"]

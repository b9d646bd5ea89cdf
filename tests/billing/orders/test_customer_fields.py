"""What goes out of a customer follows from the declaration of its fields, also of one that is new."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.admin.cells import file_columns
from billing.admin.order_forms.customers import CustomerChangeForm, CustomerForm
from billing.admin.order_forms.fields import shows_of
from billing.api.schemas.response_schemas import CustomerSerializer
from billing.documents import e_invoice
from billing.documents.printed_texts import TEXTS
from billing.models import Customer
from billing.models.personal import columns_on_documents
from billing.nouns import GoesOut, changeable_fields, e_invoice_terms, example_of, line_names, noun_fields
from billing.orders.customers import CustomerChange, NewCustomer
from billing.rating.values import OneLine
from billing.reads.response_fields import response_of, text
from ledger.records import Record, declared_fields

FIELDS = noun_fields(NewCustomer)
INSTEAD = {"holder_id", "credits"}
"""Fields whose responses are not the values of a column."""
TEXT = st.text(max_size=20)
ROWS = st.builds(
    Customer,
    **dict.fromkeys(("ref", "name", "currency", "time_zone", "language", "email", "vat_id", "seller", "holder_id"), TEXT),
    **dict.fromkeys(("buyer_reference", "electronic_address"), TEXT),
    e_invoice_format=st.sampled_from(["en16931", "xrechnung", "peppol"]),
    vat_status=st.sampled_from(["taxable", "reverse_charge", "exempt"]),
    address=st.dictionaries(TEXT, TEXT, max_size=4),
    **{name: st.integers(0, 400) for name in ("terms_days", "grace_days", "hold_days")},
    consolidated_invoicing=st.booleans(),
    credit_type=TEXT,
    credit_unit_value=st.none() | st.decimals(0, 1000, places=4),
)


@dataclass(frozen=True, kw_only=True)
class CustomerOfCostCentres(NewCustomer):
    """A customer with one more field."""

    cost_centre: Annotated[
        str,
        OneLine("The cost centre that pays.", most=40),
        GoesOut(
            help="As the customer names it.",
            example="4711",
            on_documents={"en": "Cost centre", "de": "Kostenstelle"},
            e_invoice_term="BT-19",
        ),
    ] = ""


@given(ROWS)
def test_a_response_is_what_it_was_when_each_field_was_written_out(row: Customer) -> None:
    row.seller_country = "DE"
    paying = {"credit_type": row.credit_type, "unit_value": row.credit_unit_value}
    written_out = {
        "ref": row.ref, "name": row.name, "currency": row.currency, "time_zone": row.time_zone, "language": row.language,
        "address": {name: row.address[name] for name in sorted(row.address)}, "email": row.email, "vat_id": row.vat_id,
        "vat_status": row.vat_status, "suggested_vat_status": None, "e_invoice_format": row.e_invoice_format,
        "buyer_reference": row.buyer_reference, "electronic_address": row.electronic_address,
        "terms_days": row.terms_days, "grace_days": row.grace_days,
        "seller": row.seller, "hold_days": row.hold_days, "consolidated_invoicing": row.consolidated_invoicing,
        "holder_id": row.holder_id or None, "credits": None if row.credit_unit_value is None else paying,
    }  # fmt: skip
    body = CustomerSerializer.body(row)
    assert list(body) == list(written_out)
    if body["credits"]:
        body["credits"] = {**body["credits"], "unit_value": row.credit_unit_value}
    if not row.vat_id:
        assert body == written_out


def test_each_field_has_its_column_but_the_objects() -> None:
    columns = {column.name for column in Customer._meta.concrete_fields}
    assert {each.name for each in FIELDS} - INSTEAD <= columns
    # What a customer has beside its fields: made by the database, or of its object `credits`.
    assert columns - {each.name for each in FIELDS} == {"id", "credit_type", "credit_unit_value", "created_at"}


def test_a_change_has_each_field_that_is_not_fixed_with_the_same_limits() -> None:
    changes = {each.name: each for each in declared_fields(CustomerChange) if each.name != "ref"}
    assert changes.keys() == {each.name for each in changeable_fields(NewCustomer)}
    for each in changeable_fields(NewCustomer):
        assert limits(changes[each.name].value) == limits(each.declared.value), each.name
        assert (changes[each.name].required, changes[each.name].default) == (False, None)


def limits(value: Any) -> tuple[type, dict[str, Any]]:
    return type(value), {name: each for name, each in value.openapi().items() if name != "description"}


@pytest.mark.django_db
def test_the_forms_show_each_field_and_each_has_a_place_on_them() -> None:
    plain = {each.name for each in FIELDS if each.is_plain}
    assert plain <= CustomerForm.shows.keys()
    assert {each.name for each in changeable_fields(NewCustomer) if each.is_plain} <= CustomerChangeForm.shows.keys()
    placed = [field.name for section in CustomerForm().sections() for field in (*section.shown, *section.folded)]
    assert plain <= set(placed)
    assert len(placed) == len(set(placed))


def test_documents_print_only_what_they_keep_of_their_buyer_in_each_language() -> None:
    for language in TEXTS:
        assert line_names(NewCustomer, language).keys() <= set(columns_on_documents(Customer))
    assert line_names(NewCustomer, "de") == {"vat_id": "Ihre {buyer_id}"}


def test_a_new_field_is_in_the_response_the_example_the_file_the_forms_and_the_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Customer(ref="CUST-7", name="Ada")
    row.cost_centre = "4711"
    response = response_of(
        CustomerOfCostCentres, "Shown", "Who pays.", instead={"credits": lambda: text(lambda customer: None)}, after={}
    )
    assert response.body(row)["cost_centre"] == "4711"
    assert example_of(CustomerOfCostCentres)["cost_centre"] == "4711"
    title, read = file_columns(CustomerOfCostCentres)[-1].in_file
    assert (title, read(row)) == ("Cost centre", "4711")
    assert shows_of(noun_fields(CustomerOfCostCentres))["cost_centre"].help == "As the customer names it."
    assert line_names(CustomerOfCostCentres, "de")["cost_centre"] == "Kostenstelle"
    monkeypatch.setattr(e_invoice, "NewCustomer", CustomerOfCostCentres)
    assert e_invoice._terms_of_buyer({"cost_centre": "4711", "buyer_reference": ""}) == {"BT-19": "4711"}


def test_e_invoices_have_only_what_documents_keep_of_their_buyer() -> None:
    assert e_invoice_terms(NewCustomer) == {"buyer_reference": "BT-10"}
    assert e_invoice_terms(NewCustomer).keys() <= set(columns_on_documents(Customer))


def test_a_field_that_does_not_say_how_it_goes_out_is_refused() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Mute(Record):
        ref: Annotated[str, OneLine("It says nothing.", most=40)]

    with pytest.raises(TypeError, match=r"Mute\.ref does not say how it goes out"):
        noun_fields(Mute)

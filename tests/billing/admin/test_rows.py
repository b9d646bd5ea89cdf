"""Tables of rows in forms: what is typed stays after a fault, in the second step, and when a page without scripts adds rows."""

import json
from decimal import Decimal

import pytest
from django.core.exceptions import ValidationError
from django.utils import translation

from billing.admin.order_forms.fields import AmountsField, PhasesField, TiersField
from billing.admin.order_forms.prices import BucketsField, FiltersField
from ledger.staff.kit.form_fields import as_typed
from ledger.staff.kit.rows import RowsField, TypedRows
from tests.billing.admin.test_order_forms import (
    BILLING,
    PLAN,
    amount,
    hidden_values,
    new_order,
    quantity,
    row_counts,
    rows_typed,
    send_first_step,
    text_of_response,
)


def in_euros(field: RowsField) -> RowsField:
    """The field with its money in euros."""
    field.set_currency("EUR")
    return field


VALUES = [
    (
        PhasesField,
        [
            {"intervals": 1, "trial": True},
            {"ends_at": "2027-01-01T00:00:00Z", "plan": "team", "quantities": {"seats": "5", "rooms": "2"}},
            {"intervals": 3, "price_override": {"percent_off": "20"}},
            {"list_prices": True},
        ],
    ),
    (PhasesField, [{"intervals": 1, "trial": True}, {}]),
    (
        AmountsField,
        {
            "calls": {
                "tiers": [{"up_to": "100", "unit_amount": "0.4", "flat_amount": "1"}, {"up_to": None, "unit_amount": "0.1"}],
                "minimum": "3",
            },
            "sales": {"rate": "2.5", "fixed_amount": "0.25"},
            "fees": {"tiers": [{"up_to": "9", "rate": "3"}, {"up_to": None, "rate": "1.5"}]},
        },
    ),
    (TiersField, [{"up_to": "1000", "unit_amount": "0.125"}, {"up_to": None, "unit_amount": "1.125", "flat_amount": "2"}]),
    (FiltersField, {"region": ["eu", "us, or other"], "a = b": [" x"]}),
    (
        BucketsField,
        [
            {"key": "eu", "unit_amount": "0.02", "filters": {"region": ["eu", "uk"], "plan": ["pro"]}},
            {"key": "us", "unit_amount": "0.03", "filters": {"region": ["us"]}},
        ],
    ),
]


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize(("make", "value"), VALUES, ids=[str(number) for number in range(len(VALUES))])
def test_a_value_is_the_same_after_it_was_shown_as_rows_and_sent_by_cell_and_as_json(make, value, language):
    with translation.override(language):
        rows = in_euros(make()).prepare_value(value)
        by_cell, hidden = rows_typed("it", *rows), {"it": as_typed(rows)}
        for sent in (by_cell, hidden):
            field = in_euros(make())
            assert field.to_python(field.widget.value_from_datadict(sent, {}, "it")) == value


WRONG_ROWS = [
    (PhasesField, [{"ends": "periods"}], (0, "intervals")),
    (PhasesField, [{"plan": "team"}], (0, "ends")),
    (PhasesField, [{"ends": "also", "key": "seats", "quantity": "1"}], (0, "ends")),
    (PhasesField, [{"ends": "then", "intervals": "3"}], (0, "intervals")),
    (PhasesField, [{"ends": "then", "prices": "trial", "percent_off": "3"}], (0, "percent_off")),
    (PhasesField, [{"ends": "then", "key": "a", "quantity": "1"}, {"ends": "also", "key": "a", "quantity": "2"}], (1, "key")),
    (PhasesField, [{"ends": "then"}, {"ends": "also", "key": "a", "plan": "team"}], (1, "plan")),
    (AmountsField, [{"key": "a", "what": "unit_amount", "amount": "x"}], (0, "amount")),
    (AmountsField, [{"key": "a", "amount": "1"}], (0, "what")),
    (AmountsField, [{"what": "unit_amount", "amount": "1"}], (0, "key")),
    (AmountsField, [{"key": "a", "what": "unit_amount", "amount": "1"}] * 2, (1, "what")),
    (AmountsField, [{"key": "a", "what": "unit_amount", "amount": "1", "up_to": "5"}], (0, "up_to")),
    (BucketsField, [{"key": "a", "unit_amount": "1"}, {"key": "a", "unit_amount": "2"}], (1, "unit_amount")),
]


@pytest.mark.parametrize(("make", "rows", "place"), WRONG_ROWS)
def test_a_row_that_no_request_can_have_is_refused_at_its_cell(make, rows, place):
    field = in_euros(make())
    with pytest.raises(ValidationError) as refused:
        field.to_python(TypedRows(rows))
    assert list(field.widget.faults) == [place]
    assert refused.value.messages[0].startswith(f"{field.widget.noun} {place[0] + 1}: ")


@pytest.mark.parametrize("text", ["", "x", "{}", "[1]", '"a"', "[" * 5000, '[{"key": ["a"]}]'])
def test_a_hidden_text_that_no_page_sends_is_no_error(text):
    field = in_euros(AmountsField())
    assert field.widget.value_from_datadict({"it": text}, {}, "it") in ([], [{"key": "['a']"}])


@pytest.mark.django_db
def test_a_page_without_scripts_adds_rows_and_keeps_what_is_typed(client):
    order = new_order()
    before = row_counts()
    typed = order | quantity("base", "3") | {"more": "quantities", "idempotency_key": "k"}
    again = client.post(f"{BILLING}/subscription/add/", typed)
    page = again.content.decode()
    assert (again.status_code, 'value="base"' in page, 'name="quantities-4-key"' in page) == (200, True, True)
    assert "This field is required" not in page
    assert '<noscript><button class="text-link" name="more" value="quantities">' in page
    assert row_counts() == before


@pytest.mark.django_db
def test_a_fault_stands_at_its_row_and_the_other_rows_stay(client):
    order = new_order() | rows_typed("quantities", {"key": "base", "quantity": "3"}, {"key": "seats", "quantity": "five"})
    before = row_counts()
    refused = send_first_step(client, f"{BILLING}/subscription/add/", order)
    page = refused.content.decode()
    assert refused.status_code == 422
    assert 'aria-invalid="true" aria-describedby="id_quantities-1-quantity_fault"' in page
    assert "Row 2: " in refused.context_data["form"].errors["quantities"][0]
    assert 'value="base"' in page
    assert row_counts() == before


@pytest.mark.django_db
def test_the_second_step_leads_back_to_the_rows_as_they_were_typed(client):
    order = new_order() | amount("base", "unit_amount", "1,234.50")
    shown = send_first_step(client, f"{BILLING}/subscription/add/", order)
    assert shown.status_code == 200, text_of_response(shown)
    sent = hidden_values(shown)
    assert json.loads(sent["prices"]) == [{"key": "base", "what": "unit_amount", "amount": "1,234.50"}]
    again = client.post(f"{BILLING}/subscription/add/", sent | {"edit": "yes"})
    assert 'value="1,234.50"' in again.content.decode()
    assert '<span id="id_prices-0-amount_currency" data-currency-of="plan">EUR</span>' in again.content.decode()
    assert Decimal("1234.50") == Decimal(again.context_data["form"].cleaned_data["prices"]["base"]["unit_amount"])


@pytest.mark.django_db
def test_prices_of_a_plan_add_rows_of_their_own(client):
    again = client.post(f"{BILLING}/plan/add/", PLAN | {"more": "price_1_tiers", "idempotency_key": "k"})
    page = again.content.decode()
    assert 'name="price_1_tiers-5-up_to"' in page
    assert 'name="price_2_key"' not in page


def test_more_rows_than_a_form_takes_are_refused_and_not_cut_off():
    field = in_euros(TiersField())
    sent = {f"tiers-{number}-up_to": str(number + 1) for number in range(1_500)}
    typed = field.widget.value_from_datadict(sent, {}, "tiers")
    with pytest.raises(ValidationError, match="at most 1,000 rows"):
        field.to_python(typed)
    assert len(field.widget.value_from_datadict(dict(list(sent.items())[:1_000]), {}, "tiers")) == 1_000

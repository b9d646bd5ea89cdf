"""Money in forms: it is typed as people write it, with its currency beside it, and no form says how the API writes it."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.utils import translation

from billing.admin.amount_forms import AmountForm
from billing.documents.sellers import NewSeller, record, usual_currency
from billing.models import Coupon
from billing.payments.models import Pack
from billing.payments.testing import PackFactory
from billing.testing import CustomerFactory
from ledger.operators import additions
from ledger.staff.kit.form_fields import Display, UTCField
from ledger.staff.kit.idempotent_forms import KeyedForm, RequestForm
from ledger.staff.kit.money_fields import HasCurrency, MoneyField, NotOneNumber, read_typed
from ledger.staff.kit.rows import RowsField
from tests.ledger.staff.admin_site import operator, text_of

CODED = re.compile(
    r"(?i:\b(?:minor|major|smallest) units?\b|\bcents?\b|\bISO 4217\b)|\bJSON\b|\{'|\[\]|\bNone\b|\bTrue\b|\bFalse\b"
    r"|\b[a-z_]+\.[a-z_]+\.[a-z_]+\b|\b[a-z]+_[a-z_]+\b"
)
"""How a program writes a value; an operator reads sentences."""
PROGRAM = re.compile(r"\bJSON\b|\^|\[a-z|\{\d|\bstring\b|\binteger\b|\bbytes\b|\b[a-z]+_[a-z_]+\b|(?<!\w)/[a-z_]+/")
"""How a program says a rule."""
MOST_CHOICES = 20
"""Of a list in which nobody searches; that of currencies goes to the letters that are typed."""


@pytest.mark.parametrize(
    ("typed", "decimals", "sign", "expected"),
    [
        ("12", 2, ".", "12"),
        ("12.5", 2, ".", "12.5"),
        ("12,50", 2, ".", "12.50"),
        ("1,234.50", 2, ".", "1234.50"),
        ("1.234,50", 2, ".", "1234.50"),
        ("1.234,50", 2, ",", "1234.50"),
        ("1 234,50", 2, ",", "1234.50"),
        ("1'234.50", 2, ".", "1234.50"),
        ("1,234,567", 2, ".", "1234567"),
        ("1.234.567", 0, ",", "1234567"),
        ("1,234", 2, ".", "1234"),
        ("1.234", 2, ",", "1234"),
        ("0.015", 12, ".", "0.015"),
        ("0,015", 12, ".", "0.015"),
        ("1.234", 12, ".", "1.234"),
        ("1,234", 12, ",", "1.234"),
        ("1234.567", 3, ",", "1234.567"),
    ],
)
def test_an_amount_is_read_as_people_write_it(typed, decimals, sign, expected):
    assert read_typed(typed, decimals=decimals, decimal_sign=sign) == Decimal(expected)


@pytest.mark.parametrize(
    ("typed", "decimals", "sign", "why"),
    [
        ("1.234", 2, ".", "can be read in two ways"),
        ("1,234", 2, ",", "can be read in two ways"),
        ("1,234", 12, ".", "can be read in two ways"),
        ("1.234", 3, ",", "can be read in two ways"),
        ("1,23.50", 2, ".", "do not stand before three digits"),
        ("1,234 567.00", 2, ".", "do not stand before three digits"),
        ("12.505", 0, ".", "can be read in two ways"),
        ("0.505", 2, ".", "has 3 decimals, and there can be at most 2 decimals"),
        ("12.5", 0, ".", "there can be no decimals"),
        ("1e5", 2, ".", "is not an amount"),
        ("-5", 2, ".", "is not an amount"),
        ("٣", 2, ".", "is not an amount"),
        ("twelve", 2, ".", "is not an amount"),
        ("9" * 61, 2, ".", "is not an amount"),
    ],
)
def test_an_amount_with_two_readings_or_none_is_refused_with_the_rule(typed, decimals, sign, why):
    with pytest.raises(NotOneNumber, match=why):
        read_typed(typed, decimals=decimals, decimal_sign=sign)


def record_seller(country: str) -> None:
    """Record the default seller, of this country."""
    record(NewSeller(name="Nimbus", line1="Road 1", city="Town", country=country), actor="admin:mara")


def amount_field(currency: str, *, is_minor: bool = True) -> MoneyField:
    field = MoneyField(least=1, most=10**9, is_minor=is_minor, label="Price")
    field.set_currency(currency)
    return field


def test_a_field_gives_minor_units_of_its_currency_and_shows_them_again():
    assert [amount_field(code).clean("1234.5" if code != "JPY" else "1234") for code in ("EUR", "JPY", "BHD")] == [
        123450, 1234, 1234500,
    ]  # fmt: skip
    assert [amount_field("EUR").clean(typed) for typed in ("20 EUR", "€ 20", "20.00€")] == [2000] * 3
    assert [amount_field(code).prepare_value(2000) for code in ("EUR", "JPY", "BHD")] == ["20.00", "2000", "2.000"]
    assert amount_field("EUR", is_minor=False).clean("1.0125") == Decimal("1.0125")
    for typed, why in (
        ("20 USD", "Price: “20 USD” is not an amount"),
        ("0", "Price must be at least 0.01 EUR"),
        ("1.234", "Price: “1.234” can be read in two ways; write decimals after a point and thousands without a sign"),
    ):
        with pytest.raises(ValidationError, match=re.escape(why)):
            amount_field("EUR").clean(typed)
    with pytest.raises(ValidationError, match="Price: choose a currency"):
        amount_field("").clean("5")


def test_a_single_sign_is_read_in_the_language_of_the_page():
    with translation.override("de"):
        assert amount_field("EUR").clean("1.234") == 123400
        assert amount_field("EUR").prepare_value(123450) == "1234,50"
        with pytest.raises(ValidationError, match="write decimals after a comma"):
            amount_field("EUR").clean("1,234")
    assert amount_field("EUR").clean("1,234") == 123400


# All forms -------------------------------------------------------------------------------------------


def form_classes() -> list[type[KeyedForm]]:
    """All forms of the operators' pages; a form of amounts in a currency."""
    admin.autodiscover()
    waiting: list[Any] = [KeyedForm]
    found = []
    while waiting:
        form = waiting.pop()
        waiting += form.__subclasses__()
        if not form.is_abstract and form.__module__.partition(".")[0] in ("ledger", "billing", "ledger_project"):
            found.append(form.in_currency("EUR", "What came in.") if issubclass(form, AmountForm) and not form.currency else form)
    return found


def coded_words(field: forms.Field) -> list[str]:
    """What the field's words have of how a program writes values."""
    choices = [str(words) for _, words in getattr(field, "choices", ())]
    return [found for text in (str(field.label or ""), str(field.help_text), *choices) for found in CODED.findall(text)]


def money_without_currency(form: KeyedForm) -> Iterator[str]:
    """The fields for money of the form that have no currency beside them."""
    pointers = getattr(form, "pointers", {})
    for name, field in fields_and_cells(form):
        is_rows = isinstance(field, RowsField)
        is_money = not is_rows and (isinstance(field, HasCurrency) or pointers.get(name, name).endswith("_minor"))
        widget: Any = field.widget
        if is_money and not (getattr(widget, "currency", "") or getattr(widget, "currency_field", "")):
            yield name


def fields_and_cells(form: KeyedForm) -> Iterator[tuple[str, forms.Field]]:
    """The fields of a form and the cells of its rows; not money whose row has a column for the currency."""
    for name, field in form.fields.items():
        yield name, field
        if isinstance(field, RowsField):
            for column, cell in field.columns.items():
                if not (isinstance(cell, HasCurrency) and field.widget.currency_column in field.columns):
                    yield f"{name}-{column}", cell


@pytest.mark.django_db
def test_no_form_says_how_a_program_writes_a_value_and_each_amount_has_its_currency():
    record_seller("DE")
    found = form_classes()
    assert len(found) > 50
    wrong = {}
    for form in found:
        beside = {"currency": "EUR", "credit_type": "credits"}
        shown = form(fixed={name: value for name, value in beside.items() if name not in getattr(form, "shows", {})})
        words = {name: coded for name, field in fields_and_cells(shown) if (coded := coded_words(field))}
        if words or list(money_without_currency(shown)):
            wrong[form.__qualname__] = (words, list(money_without_currency(shown)))
    assert wrong == {}


@pytest.mark.django_db
def test_control_a_form_with_a_code_and_an_amount_without_a_currency_is_found():
    class Bad(RequestForm[Any]):
        is_abstract = True
        declared = next(form for form in form_classes() if form.__name__ == "PackForm").declared
        shows = {"price": Display(at="/price_minor", help="In minor units: {'EUR': 2000}.")}

    shown = Bad()
    assert coded_words(shown.fields["price"]) == ["minor units", "{'"]
    assert list(money_without_currency(shown)) == ["price"]


@pytest.mark.django_db
def test_forms_begin_with_the_currency_of_the_seller():
    client = operator()
    assert client.get("/admin/billing_payments/pack/add/").context_data["form"]["currency"].value() in (None, "")
    record_seller("CH")
    assert usual_currency() == "CHF"
    for noun in ("pack", "plan", "coupon", "customer"):
        page = client.get(f"/admin/{'billing_payments' if noun == 'pack' else 'billing'}/{noun}/add/")
        assert page.context_data["form"]["currency"].value() == "CHF", noun
        assert ">CHF</span>" in page.content.decode(), noun


@pytest.mark.django_db
def test_an_amount_with_two_readings_is_refused_and_nothing_is_written():
    client = operator()
    pack = {"code": "starter", "name": "Starter", "credits": "10", "currency": "EUR", "idempotency_key": "k"}
    refused = client.post("/admin/billing_payments/pack/add/", pack | {"price": "1.234"})
    assert refused.status_code == 422
    assert "Price: “1.234” can be read in two ways" in text_of(refused.content.decode())
    coupon = {"code": "TEN", "kind": "percentage", "percent": "10", "amount": "5", "currency": "EUR", "duration": "forever"}
    refused = client.post("/admin/billing/coupon/add/", coupon | {"idempotency_key": "k"})
    assert refused.context_data["form"].errors["amount"] == ["Leave this empty: the discount is a percentage."]
    assert (Pack.objects.count(), Coupon.objects.count()) == (0, 0)


@pytest.mark.django_db
def test_an_amount_of_a_purchase_is_in_the_currency_of_its_pack():
    PackFactory(code="starter", currency="JPY", price_minor=2000)
    client = operator()
    form = {"pack": "starter", "holder_id": "ada", "payment": "p-1", "idempotency_key": "k"}
    refused = client.post("/admin/billing_payments/purchase/add/", form | {"paid": "0"})
    assert "at least 1 JPY" in str(refused.context_data["form"].errors)


# References ------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_field_that_refers_to_rows_searches_among_them():
    PackFactory(code="starter", name="Starter pack")
    CustomerFactory(ref="C-7", name="Ada Lovelace")
    page = operator().get("/admin/billing_payments/purchase/add/").content.decode()
    assert '<option value="starter">Starter pack</option>' in page
    assert '<option value="C-7">Ada Lovelace</option>' in page
    for name, noun in (("pack", "pack"), ("customer", "customer")):
        [tag] = re.findall(rf'<input[^>]*name="{name}"[^>]*>', page)
        assert f'list="references-{noun}"' in tag


def shown_forms() -> Iterator[KeyedForm]:
    """Each form as its page shows it."""
    beside = {"currency": "EUR", "credit_type": "credits"}
    for form in form_classes():
        yield form(fixed={name: value for name, value in beside.items() if name not in getattr(form, "shows", {})})


@pytest.mark.django_db
def test_no_form_has_a_reference_as_free_text():
    names = set(additions.references())
    assert names >= {
        "customer", "plan", "pack", "coupon", "seller", "meter", "holder_id", "credit_type", "time_zone", "rate_code",
        "subscription", "price_key", "tax_class", "tax_category", "country", "language",
    }  # fmt: skip
    free = []
    for shown in shown_forms():
        for name, text in shown._texts():
            is_searched = text.widget.attrs.get("list") or hasattr(text, "choices") or isinstance(text, HasCurrency | RowsField)
            if name in names - shown.fixed.keys() and not is_searched:
                free.append(f"{type(shown).__qualname__}.{name}")
    assert free == []


@pytest.mark.django_db
def test_what_a_field_refers_to_is_registered():
    """A field whose noun nobody lists would be free text."""
    nouns = {str(getattr(field, "references", "")) for shown in shown_forms() for _, field in fields_and_cells(shown)}
    assert nouns - {""} <= set(additions.references())
    assert {"price_key", "subscription", "rate_code", "plan"} <= nouns


@pytest.mark.django_db
def test_a_list_that_is_no_search_has_few_choices_or_is_of_currencies():
    long = {
        f"{type(shown).__qualname__}.{name}"
        for shown in shown_forms()
        for name, field in fields_and_cells(shown)
        if len(list(getattr(field.widget, "choices", ()))) > MOST_CHOICES and "currency" not in name
    }
    assert long == set()


@pytest.mark.django_db
def test_the_folds_of_a_form_in_which_nothing_is_typed_are_closed():
    opened = [
        (type(shown).__qualname__, each.summary) for shown in shown_forms() for each in shown.sections() if each.is_unfolded
    ]
    assert opened == []


@pytest.mark.django_db
def test_each_field_for_a_time_says_that_it_is_utc():
    times = [(type(shown).__qualname__, field) for shown in shown_forms() for _, field in fields_and_cells(shown)]
    found = [(form, str(field.label)) for form, field in times if isinstance(field, UTCField)]
    assert len(found) > 20
    assert [each for each in found if "UTC" not in each[1]] == []


# Errors ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.django_db
@pytest.mark.parametrize("junk", ["???", "\x00", "x" * 4000])
def test_whatever_is_typed_each_form_says_what_is_wrong_in_words(junk):
    """No error of the server, no pattern, no type of JSON."""
    wrong = {}
    for form in form_classes():
        beside = {"currency": "EUR", "credit_type": "credits", "ref": "C-7"}
        fixed = {name: value for name, value in beside.items() if name not in getattr(form, "shows", {})}
        data = {"idempotency_key": "k"}
        for name, field in form(fixed=fixed).fields.items():
            cells = [f"{name}-0-{column}" for column in field.columns] if isinstance(field, RowsField) else [name]
            data |= {cell: junk for cell in cells if cell != "idempotency_key"}
        filled = form(data, fixed=fixed)
        texts = [str(text).replace(junk, "…") for errors in filled.errors.values() for text in errors]
        if coded := [text for text in texts if PROGRAM.search(text)]:
            wrong[form.__qualname__] = coded
    assert wrong == {}

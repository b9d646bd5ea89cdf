"""Forms take amounts in the unit of their credit type, convert them exactly, and write what their second step showed."""

import re

import pytest
from django.contrib.admin.utils import quote

from ledger import reads, services
from ledger.errors import InsufficientCredits
from ledger.models import CreditType, Rate, StaffEvent
from tests.ledger.staff.admin_site import entries_and_refusals, hidden_key, hidden_values, text_of

pytestmark = pytest.mark.django_db

CENTS = "usd_cents"
GRANT = "/admin/ledger/account/grant-credits/"
PUBLISH = "/admin/ledger/ratelisting/publish-rate/"
ASKED = {
    "holder_id": "ada",
    "holder_again": "ada",
    "credit_type": CENTS,
    "amount": "12.50",
    "source": "promotional",
    "priority": "100",
    "reason": "goodwill",
}


@pytest.fixture(autouse=True)
def dollars() -> CreditType:
    """usd_cents is shown in USD with two decimals."""
    return CreditType.objects.create(code=CENTS, name="US dollars", unit="USD", scale=2)


def account_form(action, credit_type=CENTS):
    """The address of a form about Ada's credits of a type."""
    return f"/admin/ledger/account/{quote(f'ada/{credit_type}')}/{action}/"


def entry_form(sequence, action):
    """The address of a form about one of Ada's entries in cents."""
    return f"/admin/ledger/entrylisting/{quote(f'ada/{CENTS}/{sequence}')}/{action}/"


def opened(client, address):
    """The form as it is opened, and its hidden fields."""
    page = client.get(address).content.decode()
    stated = re.search(r'<input type="hidden" name="shown_in"[^>]*value="([^"]*)"', page)
    return page, {"idempotency_key": hidden_key(page), "shown_in": stated[1].replace("&quot;", '"')}


def first_step(client, address, **values):
    """Open the form and send it filled in."""
    return client.post(address, {**opened(client, address)[1], **values})


def confirmed(client, address, response):
    """Send what the second step's button sends."""
    return client.post(address, hidden_values(response.content.decode()) | {"confirmed": "yes"})


def typed_into(page, name):
    """What a field of the form contains."""
    field = re.search(rf'<input[^>]*name="{name}"[^>]*>', page)[0]
    found = re.search(r'value="([^"]*)"', field)
    return found and found[1]


def unit_beside(page, name):
    """What is said beside a field, and to screen readers about it."""
    assert f'aria-describedby="id_{name}_unit"' in re.search(rf'<input[^>]*name="{name}"[^>]*>', page)[0]
    return text_of(re.search(rf'<span id="id_{name}_unit">.*?</span></span>', page)[0]).strip()


def test_an_amount_in_the_types_unit_is_shown_recorded_and_logged_as_the_same(client):
    response = first_step(client, GRANT, **ASKED)
    shown = text_of(response.content.decode())
    assert "12.50 added, for ada (US dollars). The API shows 12.50 USD as 1250." in shown
    assert "Balance 0.00 12.50" in shown
    assert entries_and_refusals() == (0, 0)
    assert hidden_values(response.content.decode())["amount"] == "12.50"

    done = confirmed(client, GRANT, response)
    assert done.status_code == 302
    assert reads.entry("ada", CENTS, 1).amount == 1_250
    assert "Grant #1 is done: +12.50 USD for ada." in text_of(client.get(done["Location"]).content.decode())
    assert StaffEvent.objects.get(action="form").details == "Grant #1: +12.50 USD for ada; reason: goodwill"


@pytest.mark.products(most=4)
@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("12", 1_200),
        ("12.5", 1_250),
        (" 12.50 ", 1_250),
        ("0.01", 1),
        # Each of these is another number as a float, or after a multiplication of floats.
        ("1.15", 115),
        ("4.35", 435),
        ("1.1", 110),
        ("70368744177664.01", 7_036_874_417_766_401),
        ("90071992547409.91", 2**53 - 1),
    ],
)
def test_amounts_are_converted_exactly(client, typed, stored):
    assert confirmed(client, GRANT, first_step(client, GRANT, **ASKED | {"amount": typed})).status_code == 302
    assert reads.entry("ada", CENTS, 1).amount == stored


@pytest.mark.products(most=4)
@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("12.505", "Amount has 3 decimals; an amount of USD has at most 2."),
        ("12.500", "Amount has 3 decimals; an amount of USD has at most 2."),
        ("0.001", "Amount has 3 decimals; an amount of USD has at most 2."),
        ("0", "Amount must be at least 0.01 USD."),
        ("0.00", "Amount must be at least 0.01 USD."),
        ("-1", "Amount must be at least 0.01 USD."),
        ("-0", "Amount must be at least 0.01 USD."),
        ("90071992547409.92", "Amount must be at most 90,071,992,547,409.91 USD."),
        ("9" * 60, "Amount must be at most 90,071,992,547,409.91 USD."),
        ("", "This field is required."),
    ],
)
def test_an_amount_out_of_its_decimals_or_range_is_refused_by_name_and_rule(client, typed, message):
    response = first_step(client, GRANT, **ASKED | {"amount": typed})
    assert response.status_code == 422
    assert message in text_of(response.content.decode())
    assert typed_into(response.content.decode(), "amount") == (typed or None), "what was typed stays"
    assert entries_and_refusals() == (0, 0)


@pytest.mark.products(most=3)
@pytest.mark.parametrize(
    "typed", ["12,50", "1,250.00", "−1", "--1", "+1", "1e3", ".5", "5.", "1 000", "NaN", "Infinity", "١٢", "1" * 61, "x"]
)
def test_what_is_no_plain_number_is_refused_with_an_example(client, typed):
    response = first_step(client, GRANT, **ASKED | {"amount": typed})
    assert response.status_code == 422
    assert "Amount: type digits, with a point before decimals and no commas, such as 1250.50." in text_of(
        response.content.decode()
    )
    assert entries_and_refusals() == (0, 0)


@pytest.mark.slow
def test_the_conversion_follows_the_type_that_is_chosen_in_the_form(client):
    page, _ = opened(client, GRANT)
    assert (typed_into(page, "credit_type"), unit_beside(page, "amount")) == ("credits", "credits")
    # The page knows the units of the types, to show them while one is typed.
    assert '"usd_cents": ["USD", "USD"]' in page
    for credit_type, typed, stored in [(CENTS, "7.25", 725), ("credits", "7", 7), ("api_calls", "8", 8)]:
        response = first_step(client, GRANT, **ASKED | {"credit_type": credit_type, "amount": typed})
        assert confirmed(client, GRANT, response).status_code == 302
        assert reads.entry("ada", credit_type, 1).amount == stored
    refused = first_step(client, GRANT, **ASKED | {"credit_type": "api_calls", "amount": "7.25"})
    assert "Amount must be a whole number of api calls." in text_of(refused.content.decode())
    assert unit_beside(refused.content.decode(), "amount") == "api calls"


@pytest.mark.parametrize("credit_type", ["SMS", "a b", "x" * 33, "nul\x00"])
def test_a_credit_type_that_is_none_is_refused_at_its_field(client, credit_type):
    response = client.post(GRANT, ASKED | {"idempotency_key": "k", "credit_type": credit_type})
    assert response.status_code == 422
    assert entries_and_refusals() == (0, 0)


@pytest.mark.slow
def test_forms_about_an_entry_or_account_prefill_amounts_and_name_the_unit(client):
    common = {"holder_id": "ada", "credit_type": CENTS}
    services.grant(**common, amount=10_000, idempotency_key="g")
    services.spend(**common, amount=2_505, idempotency_key="s")
    services.set_overdraft(**common, limit=5_000, idempotency_key="o")
    for address, name, value in [
        (entry_form(2, "refund"), "amount", "25.05"),
        (entry_form(1, "revoke"), "amount", "74.95"),
        (account_form("set-overdraft"), "limit", "50.00"),
        (account_form("transfer"), "amount", None),
    ]:
        page, _ = opened(client, address)
        assert (typed_into(page, name), unit_beside(page, name)) == (value, "USD"), address
        assert "named-units" not in page

    assert (
        confirmed(
            client, entry_form(2, "refund"), first_step(client, entry_form(2, "refund"), reason="x", amount="5.05")
        ).status_code
        == 302
    )
    assert reads.entry("ada", CENTS, 4).amount == 505
    transfer = account_form("transfer")
    response = first_step(client, transfer, reason="x", to="bob", holder_again="bob", amount="0.95")
    assert "0.95 sent to bob, for ada (US dollars)." in text_of(response.content.decode())
    assert confirmed(client, transfer, response).status_code == 302
    assert reads.balance("bob", CENTS).balance == 95
    overdraft = account_form("set-overdraft")
    response = first_step(client, overdraft, reason="x", limit="0")
    assert "Overdraft limit 50.00 0.00" in text_of(response.content.decode())
    assert confirmed(client, overdraft, response).status_code == 302
    assert reads.balance("ada", CENTS).overdraft == 0


def test_an_empty_amount_is_the_whole_rest(client):
    services.grant(holder_id="ada", credit_type=CENTS, amount=10_000, idempotency_key="g")
    response = first_step(client, entry_form(1, "revoke"), reason="x")
    assert hidden_values(response.content.decode())["amount"] == ""
    assert confirmed(client, entry_form(1, "revoke"), response).status_code == 302
    assert reads.balance("ada", CENTS).balance == 0


@pytest.mark.parametrize("when", ["before the first step", "before the second step"])
def test_what_was_typed_under_another_unit_is_refused_until_it_is_checked(client, dollars, when):
    """See Note [What a form says is what it writes]."""
    address = account_form("grant")
    services.grant(holder_id="ada", credit_type=CENTS, amount=1, idempotency_key="g")
    page, hidden = opened(client, address)
    assert unit_beside(page, "amount") == "USD"
    values = hidden | ASKED
    if when == "before the second step":
        values = hidden_values(client.post(address, values).content.decode()) | {"confirmed": "yes"}
    dollars.scale = 0
    dollars.save()
    refused = client.post(address, values | {"amount": "12"})
    assert refused.status_code == 422
    assert "usd_cents is now shown in USD with 0 decimals. Check Amount." in text_of(refused.content.decode())
    assert entries_and_refusals() == (1, 0)
    # The form now says the new unit; sent again, it is taken.
    _, again = refused, re.search(r'name="shown_in"[^>]*value="([^"]*)"', refused.content.decode())
    response = client.post(address, values | {"amount": "12", "shown_in": again[1].replace("&quot;", '"'), "confirmed": "yes"})
    assert response.status_code == 302
    assert reads.entry("ada", CENTS, 2).amount == 12


@pytest.mark.parametrize("stated", ["", "no JSON", "[]", "7", '{"usd_cents": 3}', "[" * 5_000])
def test_units_that_cannot_be_read_harm_nobody(client, stated):
    response = client.post(GRANT, ASKED | {"idempotency_key": "k", "shown_in": stated})
    assert response.status_code in (200, 422)
    assert entries_and_refusals() == (0, 0)


def test_a_refusals_remedy_leads_to_a_form_with_the_amount_in_the_unit(client):
    services.grant(holder_id="ada", credit_type=CENTS, amount=262, idempotency_key="g")
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", credit_type=CENTS, amount=700, idempotency_key="no")
    page = client.get(f"/admin/ledger/refusallisting/{quote(f'ada/{CENTS}/2')}/change/").content.decode()
    assert "Grant 4.38 USD" in page
    address = re.search(r'href="([^"]*/grant/\?[^"]*)"', page)[1].replace("&amp;", "&")
    assert typed_into(client.get(address).content.decode(), "amount") == "4.38"


def test_a_rate_is_published_in_the_unit_of_its_type(client):
    page, hidden = opened(client, PUBLISH)
    assert unit_beside(page, "price") == "credits"
    values = {"code": "gpt.out", "credit_type": CENTS, "price": "0.25", "per": "1000", "reason": "price list"}
    done = client.post(PUBLISH, hidden | values | {"confirmed": "yes"})
    assert done.status_code == 302
    rate = Rate.objects.get()
    assert (rate.price, rate.per) == (25, 1_000)
    assert "Version 1 of gpt.out is done: 0.25 USD per 1,000." in text_of(client.get(done["Location"]).content.decode())
    next_price = f"/admin/ledger/ratelisting/{quote(f'{CENTS}/gpt.out/1')}/new-price/"
    page, hidden = opened(client, next_price)
    assert (typed_into(page, "price"), unit_beside(page, "price")) == ("0.25", "USD")
    refused = client.post(next_price, hidden | values | {"price": "0.255"})
    assert (refused.status_code, Rate.objects.count()) == (422, 1)
    assert "Price has 3 decimals; an amount of USD has at most 2." in text_of(refused.content.decode())

"""Operators look at rates and batches, and publish a new price with a reason."""

import html
import json
import re
from zoneinfo import ZoneInfo

import pytest
from django.contrib.admin.utils import quote
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ledger import journal, services
from ledger.models import Batch, CreditType, Rate
from ledger.rules.requests import GrantRequest, SpendRequest
from ledger.staff.links import entry_url
from tests.ledger.staff.admin_site import hidden_key, older_url, operator, shown_time, text_of

pytestmark = pytest.mark.django_db

RATES = "/admin/ledger/ratelisting/"
PUBLISH = f"{RATES}publish-rate/"
BATCHES = "/admin/ledger/batchlisting/"
PRICE = {"code": "tokens", "credit_type": "credits", "price": "3", "per": "1000", "reason": "price list 2026"}


def rate_url(version, code="tokens", credit_type="credits", page="change"):
    """The address of a page about a version of a rate."""
    return f"{RATES}{quote(f'{credit_type}/{code}/{version}')}/{page}/"


def submit_form(client, address, **values):
    """Open the form at that address, send it filled in, and confirm it."""
    key = hidden_key(client.get(address).content.decode())
    return client.post(address, {"idempotency_key": key, "confirmed": "yes", **values})


def components(*rows):
    """The rows of components, as a browser sends them: name, price and number of units."""
    cells = [zip(("name", "price", "per"), row, strict=True) for row in rows]
    return {f"components-{number}-{column}": text for number, row in enumerate(cells) for column, text in row}


def first_step(client, address, **values):
    """Send the form filled in; return the text of the page that says what would happen."""
    response = client.post(address, {"idempotency_key": hidden_key(client.get(address).content.decode()), **values})
    assert response.status_code == 200, text_of(response.content.decode())
    return text_of(response.content.decode())


def test_publishing_is_recorded_with_the_operators_name_and_reason(client):
    response = submit_form(client, PUBLISH, **PRICE)
    assert response["Location"] == rate_url(1)
    [made] = Rate.objects.all()
    assert (made.version, made.price, made.per, made.published_by, made.published_because) == (
        1, 3, 1_000, "admin:mara", "price list 2026",
    )  # fmt: skip
    assert "Version 1 of tokens is done: 3 credits per 1,000." in text_of(client.get(response["Location"]).content.decode())


def test_a_rate_published_over_rest_shows_its_reason_and_its_key(client):
    services.publish_rate(code="tokens", price=3, per=1_000, reason="price list of March", actor="key:shop", idempotency_key="k")
    services.publish_rate(code="tokens", price=4, per=1_000, actor="key:shop", idempotency_key="l")
    for address in (RATES, rate_url(1)):
        page = client.get(address).content.decode()
        assert "price list of March" in page
        assert "key:shop" in page
    assert list(Rate.objects.order_by("version").values_list("published_because", flat=True)) == ["price list of March", ""]


def test_the_form_for_a_new_price_shows_the_old_one_and_saves_the_next_version(client):
    submit_form(client, PUBLISH, **PRICE)
    address = rate_url(1, page="new-price")
    page = client.get(address).content.decode()
    assert re.search(r'name="code"[^>]*value="tokens"|value="tokens"[^>]*name="code"', page)
    submit_form(client, address, **PRICE | {"price": "0"})
    cost, _ = services.quote(rate="tokens", quantity=1_000)
    assert cost == 0
    page = client.get(rate_url(2, page="new-price")).content.decode()
    assert re.search(r'name="price"[^>]*value="0"|value="0"[^>]*name="price"', page)
    listed = text_of(client.get(RATES).content.decode())
    assert re.search(r"v2 0 credits per 1,000 units .* current .* v1 3 credits per 1,000 units .* superseded", listed)
    assert "superseded" in client.get(rate_url(1)).content.decode()


def use_rate(holder, quantity, **more):
    services.grant(holder_id=holder, amount=100_000, idempotency_key="g")
    return services.spend(holder_id=holder, rate="tokens", quantity=quantity, idempotency_key="s", **more)


def test_the_second_step_says_what_a_new_price_changes_from_when_for_whom_and_how_much(client):
    submit_form(client, PUBLISH, **PRICE)
    for holder, quantity in (("ada", 2_000), ("bob", 1_500)):
        use_rate(holder, quantity)
    text = first_step(client, rate_url(1, page="new-price"), **PRICE | {"price": "5"})
    assert "tokens costs 5 credits per 1,000, from the moment at which you publish version 2." in text
    assert "tokens 3 credits per 1,000 5 credits per 1,000" in text
    # 2,000 cost 6 and would cost 10; 1,500 cost 4.5, so 5, and would cost 7.5, so 8.
    assert "2 uses by 2 holders since" in text
    assert "cost 11 credits; at this price they would have cost 18 credits, 7 credits more." in text
    assert Rate.objects.count() == 1


def test_the_second_step_says_of_which_components_uses_will_be_refused(client):
    services.publish_rate(
        code="tokens", components={"input": {"price": 1, "per": 1}, "output": {"price": 4, "per": 1}}, actor="key:shop"
    )
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.spend(holder_id="ada", rate="tokens", quantities={"input": 3}, idempotency_key="s")
    services.spend(holder_id="ada", rate="tokens", quantities={"output": 2}, idempotency_key="t")
    values = {"price": "", "per": ""} | components(("input", "2", "1"))
    text = first_step(client, rate_url(1, page="new-price"), **PRICE | values)
    assert "Uses of output will be refused: this version has no such component." in text
    assert "1 use by 1 holder since" in text
    assert "cost 3 credits; at this price they would have cost 6 credits, 3 credits more." in text
    assert "output 4 credits per 1 not there" in text


def test_the_second_step_of_a_new_rate_and_of_one_without_use_says_so(client):
    assert "It is a new rate." in first_step(client, PUBLISH, **PRICE)
    submit_form(client, PUBLISH, **PRICE)
    text = first_step(client, rate_url(1, page="new-price"), **PRICE | {"price": "5"})
    assert "The newest 20,000 entries have no use of it." in text


def test_the_form_publishes_components_row_by_row_in_the_unit_of_the_type(client):
    CreditType.objects.create(code="usd", name="Dollars", unit="USD", scale=2)
    values = {"code": "gpt", "credit_type": "usd", "price": "", "per": "", "reason": "price list 2026"}
    values |= components(("input", "0.01", "1000"), ("", "", ""), ("output", "3", "1000"))
    opened = client.get(PUBLISH).content.decode()
    units = json.dumps({"usd": ["USD", 2]})
    response = client.post(PUBLISH, values | {"idempotency_key": hidden_key(opened), "shown_in": units, "confirmed": "yes"})
    assert response["Location"] == rate_url(1, "gpt", "usd")
    [made] = Rate.objects.all()
    assert made.components == {"input": {"price": 1, "per": 1000}, "output": {"price": 300, "per": 1000}}
    assert (made.price, made.per) == (None, None)
    page = text_of(client.get(response["Location"]).content.decode())
    assert "Version 1 of gpt is done: input 0.01 USD per 1,000, output 3.00 USD per 1,000." in page
    assert "input 0.01 USD per 1,000" in text_of(client.get(RATES).content.decode())
    next_price = client.get(rate_url(1, "gpt", "usd", page="new-price")).context_data["form"]
    assert next_price["components"].value() == [
        {"name": "input", "price": "0.01", "per": "1000"},
        {"name": "output", "price": "3.00", "per": "1000"},
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("input", "1", "")], "Component 1: Type a number of units, such as 1000."),
        ([("input", "1", "1000"), ("input", "2", "1000")], "Component 2: input has two rows."),
        ([("input", "1.5", "1000")], "Component 1: Price must be a whole number of credits."),
        ([("input", "-1", "1000")], "Component 1: A price is 0 or more."),
        ([("input", "", "1000")], "Component 1: Type the price."),
        ([("", "1", "1000")], "Component 1: Name the component."),
        ([("INPUT", "1", "1000")], "A name must be 1 to 40 characters of a-z 0-9 . _ -, beginning with a letter or digit."),
        ([("input", "1", "0")], "This must be at least 1."),
        ([], "Give price and per, or components."),
    ],
)
def test_wrong_components_are_reported_and_not_published(client, rows, message):
    response = submit_form(client, PUBLISH, **PRICE | {"price": "", "per": ""} | components(*rows))
    assert response.status_code == 422
    assert message in html.unescape(response.content.decode())
    both = submit_form(client, PUBLISH, **PRICE | components(("input", "1", "1000")))
    assert (both.status_code, Rate.objects.exists()) == (422, False)
    assert "Give either this or price, not both." in both.content.decode()


def test_a_double_click_publishes_once(client):
    values = PRICE | {"idempotency_key": hidden_key(client.get(PUBLISH).content.decode()), "confirmed": "yes"}
    first, second = client.post(PUBLISH, values), client.post(PUBLISH, values)
    assert (first["Location"], second["Location"]) == (rate_url(1), rate_url(1))
    assert Rate.objects.count() == 1
    assert "was already done by the first click" in client.get(second["Location"]).content.decode()
    changed = client.post(PUBLISH, values | {"price": "5"})
    assert changed.status_code == 422
    assert "Another request has used this idempotency key" in changed.content.decode()
    assert Rate.objects.count() == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"reason": ""}, "This field is required."),
        ({"reason": "  "}, "This field is required."),
        ({"reason": "x" * 501}, "at most 500 characters"),
        ({"price": "-1"}, "Price must be at least 0 credits."),
        ({"per": "1.5"}, "Enter a whole number."),
        ({"code": "No Such"}, "1 to 64 characters"),
        ({"credit_type": "SMS"}, "1 to 32 characters"),
    ],
)
def test_a_wrong_price_is_reported_and_not_published(client, changed, message):
    response = submit_form(client, PUBLISH, **PRICE | changed)
    assert response.status_code == 422
    assert message in response.content.decode()
    assert not Rate.objects.exists()


def test_an_operator_with_view_rights_only_cannot_publish():
    services.publish_rate(code="tokens", price=3, per=1_000)
    looking = operator("ledger.view_ratelisting")
    assert looking.get(rate_url(1)).status_code == 200
    assert PUBLISH not in looking.get(RATES).content.decode()
    for address in (PUBLISH, rate_url(1, page="new-price")):
        assert looking.get(address).status_code == 403
        assert looking.post(address, PRICE | {"idempotency_key": "k"}).status_code == 403
    assert Rate.objects.count() == 1
    publishing = operator("ledger.publish_rate", name="ben")
    assert publishing.get(RATES).status_code == 403


def test_a_superuser_can_change_neither_rates_nor_batches(client):
    services.publish_rate(code="tokens", price=3, per=1_000)
    services.batch([GrantRequest(holder_id="ada", amount=5, idempotency_key="1")], mode="each", idempotency_key="nightly")
    before = list(Rate.objects.values()), list(Batch.objects.values())
    for listing, row in ((RATES, rate_url(1)), (BATCHES, f"{BATCHES}{quote('/nightly')}/change/")):
        assert client.get(listing).status_code == 200
        assert client.get(row).status_code == 200
        for address in (row, row.replace("/change/", "/delete/"), f"{listing}add/"):
            assert client.post(address, {"post": "yes", "price": "9"}).status_code == 403, address
    assert (list(Rate.objects.values()), list(Batch.objects.values())) == before


@pytest.mark.slow
def test_rates_are_paged_newest_version_first_and_found_by_the_start_of_their_code(client):
    for number in range(30):
        for version in (1, 2):
            services.publish_rate(code=f"code-{number:02}", price=version, per=1)
    services.publish_rate(code="sms", price=1, per=1, credit_type="sms")
    expected = [(f"code-{number:02}", version) for number in range(30) for version in ("v2", "v1")] + [("sms", "v1")]
    seen, query = [], "?"
    while query:
        page = client.get(RATES + query).content.decode()
        cells = re.findall(r"field-code_cell.*?>([\w-]+)</a>.*?field-version_cell[^>]*>\s*(v\d+)", page, re.DOTALL)
        states = re.findall(r">\s*(current|superseded)\s*<", page)
        assert states == ["current" if version == "v2" or code == "sms" else "superseded" for code, version in cells]
        seen, query = seen + cells, older_url(page)
    assert seen == expected
    assert text_of(client.get(f"{RATES}?q=code-07").content.decode()).count("code-07") == 2
    assert "code-" not in client.get(f"{RATES}?credit_type=sms").content.decode()
    assert "The page link is not valid for this list." in client.get(f"{RATES}?p=x").content.decode()


@pytest.mark.products(most=2)
@pytest.mark.parametrize("key", ["credits/tokens/2", "credits/tokens/x", "tokens", "credits/tokens/1/1", "a_00b_2Fc_2F1"])
def test_an_unknown_rate_is_a_404(client, key):
    services.publish_rate(code="tokens", price=3, per=1_000)
    quoted = key if "_" in key else quote(key)
    assert b"Perhaps it was deleted" in client.get(f"{RATES}{quoted}/change/", follow=True).content
    assert client.get(f"{RATES}{quoted}/new-price/").status_code == 404
    assert b"Perhaps it was deleted" in client.get(f"{BATCHES}{quoted}/change/", follow=True).content


def test_a_batch_shows_the_outcome_of_each_operation(client):
    operations = [
        GrantRequest(holder_id="ada", amount=5, idempotency_key="1"),
        SpendRequest(holder_id="ada", amount=9, idempotency_key="2"),
        SpendRequest(holder_id="ada", amount=4, idempotency_key="3"),
    ]
    services.batch(operations, mode="each", idempotency_key="nightly", actor="key:shop")
    listed = text_of(client.get(BATCHES).content.decode())
    assert re.search(r"nightly each 3 2 1 .* key:shop", listed)
    markup = client.get(f"{BATCHES}{quote('/nightly')}/change/").content.decode().replace("&nbsp;", " ")
    page = text_of(markup)
    assert "0 written ada, credits #1" in page
    assert "1 refused ada, credits insufficient-credits available 5, balance 5, requested 9, shortfall 4" in page
    assert "2 written ada, credits #3" in page
    for sequence, kind in ((1, "Grant"), (3, "Spend")):
        entry = entry_url("ada", "credits", sequence)
        assert f'href="{entry}"' in markup
        assert kind in text_of(client.get(entry).content.decode())


def test_a_batch_has_its_time_and_its_link_to_entries_in_the_operators_zone(client):
    client.post("/admin/preferences/", {"time_zone": "Asia/Tokyo"})
    services.batch([GrantRequest(holder_id="ada", amount=5, idempotency_key="1")], mode="each", idempotency_key="nightly")
    recorded_at = Batch.objects.get().recorded_at.astimezone(ZoneInfo("Asia/Tokyo"))
    markup = client.get(f"{BATCHES}{quote('/nightly')}/change/").content.decode()
    assert f"Batch of {shown_time(recorded_at, '%H:%M')}" in text_of(markup)
    address = re.search(r'href="(/admin/ledger/entrylisting/\?until=[^"]+)"', markup)
    assert address is not None
    assert entry_url("ada", "credits", 1) in client.get(address[1]).content.decode()


def test_a_batch_stored_without_holders_shows_its_entries_by_sequence_only(client):
    journal.record_batch(("old", "", b"0" * 16, "each", '[{"sequence":7}]', timezone.now(), "key:shop", ""))
    assert "0 written #7" in text_of(client.get(f"{BATCHES}{quote('/old')}/change/").content.decode())


def test_a_rejected_atomic_batch_shows_that_it_was_rejected(client):
    operations = [
        GrantRequest(holder_id="ada", amount=5, idempotency_key="1"),
        SpendRequest(holder_id="ada", amount=9, idempotency_key="2"),
    ]
    services.batch(operations, mode="atomic", idempotency_key="all")
    page = text_of(client.get(f"{BATCHES}{quote('/all')}/change/").content.decode())
    assert "0 rejected with the batch" in page
    assert "1 refused ada, credits insufficient-credits" in page


@pytest.mark.slow
def test_batches_are_paged_and_found_by_their_key_and_mode(client):
    for number in range(55):
        request = GrantRequest(holder_id="ada", amount=5, idempotency_key=str(number))
        services.batch([request], mode="each" if number % 2 else "atomic", idempotency_key=f"batch-{number:02}")

    def page_of(query):
        with CaptureQueriesContext(connection) as captured:
            page = client.get(BATCHES + query).content.decode()
        return page, re.findall(r"<code[^>]*>(batch-\d+)</code>", page), len(captured)

    first, newest, queries = page_of("")
    _, oldest, queries_behind = page_of(older_url(first))
    assert newest + oldest == [f"batch-{number:02}" for number in reversed(range(55))]
    assert queries == queries_behind <= 5
    assert page_of("?q=batch-07")[1] == ["batch-07"]
    assert len(page_of("?mode=atomic")[1]) == 28
    assert page_of("?q=batch")[1] == []


def test_two_batches_with_one_key_show_the_holder_to_which_their_api_key_is_confined(client):
    for confined_to in ("", "ada", "bob"):
        request = GrantRequest(holder_id="ada", amount=5, idempotency_key=f"by {confined_to}")
        services.batch([request], mode="each", idempotency_key="a/b", confined_to=confined_to)
    page = client.get(f"{BATCHES}?q=a/b").content.decode()
    assert re.findall(r"field-confined[^>]*>(?:<code[^>]*>(\w+)</code>)?", page) == ["bob", "ada", ""]
    for sequence, confined_to in enumerate(("", "ada", "bob"), start=1):
        address = f"{BATCHES}{quote(f'{confined_to}/a/b')}/change/"
        assert address in page
        assert f"0 written ada, credits #{sequence}" in text_of(client.get(address).content.decode())
    assert b"Perhaps it was deleted" in client.get(f"{BATCHES}{quote('carl/a/b')}/change/", follow=True).content


def test_batches_are_paged_newest_first_also_where_a_key_has_slashes(client, monkeypatch):
    monkeypatch.setattr("ledger.staff.kit.pages.PAGE_ROWS", 1)
    for key in ("a/1", "a/2", "a/3"):
        services.batch([GrantRequest(holder_id="ada", amount=5, idempotency_key=key)], mode="each", idempotency_key=key)
    query, shown = "", []
    while query is not None:
        page = client.get(f"{BATCHES}{query}").content.decode()
        shown += re.findall(r"<code[^>]*>(a/\d)</code>", page)
        query = older_url(page)
    assert shown == ["a/3", "a/2", "a/1"]
    for wrong in ("x", "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00+00:00/ada/\0"):
        assert "is not a valid page link for this list." in text_of(client.get(BATCHES, {"p": wrong}).content.decode())

"""Every page of the operators writes amounts with the decimals of their credit type: what is stored never stands on a page."""

import html
import re
from datetime import timedelta

import pytest
from django.contrib.admin.utils import quote
from django.db import connection
from django.utils import timezone

from ledger import services
from ledger.errors import InsufficientCredits, RefundExceedsSpend
from ledger.models import CreditType
from ledger.rules.requests import GrantRequest, SpendRequest
from tests.ledger.staff.admin_site import hidden_key

pytestmark = pytest.mark.django_db

CENTS = "usd_cents"
ENTRIES, ACCOUNT = "/admin/ledger/entrylisting/", f"/admin/ledger/account/{quote(f'ada/{CENTS}')}/"
STORED = ("1234567", "1,234,567", "345678", "345,678", "98765", "98,765", "246913", "246,913", "7654321", "7,654,321")
"""The amounts of the history as they are stored, and with grouped thousands."""


@pytest.fixture
def ada():
    """Ada was granted 12,345.67 USD (entry 1), spent 3,456.78 (2), and 987.65 are held (3)."""
    CreditType.objects.create(code=CENTS, name="US dollars", unit="USD", scale=2)
    common = {"holder_id": "ada", "credit_type": CENTS}
    services.grant(**common, amount=1_234_567, idempotency_key="g", source="purchased")
    services.spend(**common, amount=345_678, idempotency_key="s")
    services.hold(**common, amount=98_765, idempotency_key="h", expires_at=timezone.now() + timedelta(hours=2))


def page(sequence, name="change", listing="entrylisting"):
    """The address of a page about an entry of Ada."""
    return f"/admin/ledger/{listing}/{quote(f'ada/{CENTS}/{sequence}')}/{name}/"


def words(markup):
    """What there is to read on the page, in one line; what fields contain is no part of it."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<script.*?</script>|<[^>]+>", " ", markup, flags=re.DOTALL)))


def shown(client, address):
    """The text of a page, in which no amount stands as it is stored."""
    response = client.get(address)
    assert response.status_code == 200
    found = words(response.content.decode())
    assert [amount for amount in STORED if re.search(rf"(?<![\d,.]){amount}(?![\d,])", found)] == []
    return found


def numbers_of_rows():
    """How many entries and refusals there are, refusals included in the first."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*), count(*) FILTER (WHERE kind = 'refusal') FROM ledger_entry")
        return cursor.fetchone()


@pytest.mark.slow
def test_an_entry_with_its_lots_holds_and_what_refers_to_it(client, ada):
    held = shown(client, page(3))
    assert "987.65 still held" in held
    assert re.search(r"Open holds after this entry .* #3 987\.65 .* #1 \( 987\.65 \)", held)
    services.capture(holder_id="ada", credit_type=CENTS, hold=3, amount=10_000, final=False, idempotency_key="c")
    assert "What became of the hold: 100.00 captured" in shown(client, page(3))
    services.refund(holder_id="ada", credit_type=CENTS, spend=2, amount=5_000, idempotency_key="r")
    assert "Referred to by: 50.00 refunded" in shown(client, page(2))


@pytest.mark.parametrize(
    ("address", "explanation"),
    [
        (page(2, "refund"), "The entry took 3,456.78 USD. You can refund 3,456.78."),
        (page(1, "revoke"), "The grant added 12,345.67 USD; 7,901.24 are unspent."),
        (page(3, "release"), "987.65 of 987.65 USD are held until"),
        (f"{ACCOUNT}transfer/", "7,901.24 USD are available."),
        (f"{ACCOUNT}set-overdraft/", "Spends may take the balance of US dollars this far below 0."),
    ],
)
def test_forms_explain_in_the_unit_and_say_it_beside_the_amount(client, ada, address, explanation):
    page = client.get(address).content.decode()
    assert explanation in words(page)
    assert ('_unit"><span>USD</span>' in page) == ("release" not in address)


@pytest.mark.slow
def test_a_forms_refusal_and_its_result_are_shown_in_the_unit(client, ada):
    def sent(amount, **more):
        key = hidden_key(client.get(page(2, "refund")).content.decode())
        values = {"idempotency_key": key, "reason": "goodwill", "amount": amount}
        return client.post(page(2, "refund"), {**values, **more}, follow=True)

    before = numbers_of_rows()
    tried = words(sent("76543.21").content.decode())
    assert numbers_of_rows() == before
    refused = words(sent("76543.21", confirmed="yes").content.decode())
    for found in (tried, refused):
        assert "The refund exceeds the spend: sequence 2, refundable 3,456.78, requested 76,543.21" in found
    assert numbers_of_rows() == (before[0] + 1, before[1] + 1)
    assert "Refund #5 is done: +2,469.13 USD for ada." in words(sent("2469.13", confirmed="yes").content.decode())


def test_a_refusals_facts_lots_and_holds_and_what_was_asked(client, ada):
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", credit_type=CENTS, amount=7_654_321, idempotency_key="no")
    with pytest.raises(RefundExceedsSpend):
        services.refund(holder_id="ada", credit_type=CENTS, spend=2, amount=7_654_321, idempotency_key="much")
    found = words(client.get(page(4, listing="refusallisting")).content.decode())
    assert "available 7,901.24, balance 7,901.24" in found
    assert "held 987.65, requested 76,543.21, shortfall 68,641.97" in found
    assert re.search(r"Lots then .* #1 7,901\.24 .* Open holds then .* #3 987\.65", found)
    # The request itself stays as it was sent.
    assert "amount : 7654321, that is 76,543.21 USD" in found
    assert "refundable 3,456.78, requested 76,543.21" in shown(client, page(2))


def test_a_batch_shows_the_refused_operations_in_the_unit(client, ada):
    operations = [
        SpendRequest(holder_id="ada", credit_type=CENTS, amount=7_654_321, idempotency_key="1"),
        GrantRequest(holder_id="bob", amount=5, idempotency_key="2"),
    ]
    services.batch(operations, mode="each", idempotency_key="nightly")
    again = services.batch(operations, mode="each", idempotency_key="nightly")
    assert (again.outcomes[0].error.code, again.outcomes[1].entry.sequence) == ("insufficient-credits", 1)
    found = shown(client, f"/admin/ledger/batchlisting/{quote('/nightly')}/change/")
    assert f"0 refused ada, {CENTS} insufficient-credits available 7,901.24" in found


def test_lists_the_holders_page_and_the_first_page(client, ada):
    for address in (ENTRIES, "/admin/ledger/account/", f"/admin/ledger/account/holders/ada/?type={CENTS}", "/admin/"):
        shown(client, address)

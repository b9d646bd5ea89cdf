"""Statements of a month as PDFs: to the last unit, with the digest of the last entry, the same once the month is over."""

import io
import re
from datetime import UTC, date, datetime, timedelta

import pytest
from pypdf import PdfReader

from ledger import services
from ledger.errors import Refused
from ledger.models import CreditType, Entry
from ledger.rules.requests import GrantRequest, SpendRequest
from ledger.statements import statements
from ledger.statements.statements import TEXTS
from ledger.totals.counting import count_entries
from ledger.typesetting.languages import ENGLISH, LANGUAGES
from ledger.values import MAX_AMOUNT
from tests.billing.documents.issued import add_seller
from tests.billing.factories import CustomerFactory

pytestmark = pytest.mark.django_db

THIS_MONTH = datetime.now(UTC).date().replace(day=1)
MONTH = date.fromordinal(THIS_MONTH.toordinal() - 1).replace(day=1)

MAX_BIGINT = 2**63 - 1


@pytest.fixture
def at_noon_of(ledger_clock):
    """`at_noon_of(day)`: from now on the ledger records as if it were noon of that day of the last month."""

    def move(day: int) -> None:
        at = datetime(MONTH.year, MONTH.month, day, 12, tzinfo=UTC)
        ledger_clock((at - datetime.now(UTC)) / timedelta(days=1))

    return move


def write_history(at_noon_of):
    """Two months of an account: a grant, a spend, a hold with its capture, and what else a statement shows."""
    at_noon_of(2)
    services.grant(holder_id="ada", amount=1_000, idempotency_key="1", reason="#order *77*", reference="payment-1")
    at_noon_of(3)
    services.spend(holder_id="ada", amount=250, idempotency_key="2", reason="chat")
    held = services.hold(holder_id="ada", amount=100, idempotency_key="3")
    services.capture(holder_id="ada", hold=held.sequence, amount=40, idempotency_key="4")
    services.hold(holder_id="ada", amount=30, idempotency_key="5")
    with pytest.raises(Refused):
        services.spend(holder_id="ada", amount=9_999, idempotency_key="6")


def text_of_pdf(pdf: bytes) -> str:
    """The text of all pages, each run of white space as one space."""
    return re.sub(r"\s+", " ", " ".join(page.extract_text() for page in PdfReader(io.BytesIO(pdf)).pages))


def test_a_statement_shows_the_month_to_the_last_unit_and_stays_the_same(make_api, at_noon_of, ledger_clock):
    write_history(at_noon_of)
    api = make_api("ledger:read")
    path = f"/v1/holders/ada/statements/{MONTH:%Y-%m}.pdf"
    assert "PRELIMINARY" in text_of_pdf(api.get(path).content)
    count_entries()
    response = api.get(path)
    assert response.status_code == 200, response.content
    assert response.headers["Content-Type"] == "application/pdf"
    assert response.headers["Content-Disposition"] == f'inline; filename="statement-ada-credits-{MONTH:%Y-%m}.pdf"'
    text = text_of_pdf(response.content)
    last = Entry.objects.filter(holder_id="ada").order_by("-sequence").first()
    for words in (
        " ".join(f"Statement of credits, {ENGLISH.month(MONTH)}".split()),
        "Credits at the start 0 Grant 1,000 Spend −250 Held credits spent −40 Credits at the end 710 of which held 30",
        "Grant · #order *77* · payment-1 1,000 1,000",
        "1 request was refused and changed nothing.",
        f"Entry {last.sequence} is the last one",
    ):
        assert words in text, words
    assert bytes(last.digest).hex() in text.replace(" ", "")
    assert "PRELIMINARY" not in text
    ledger_clock(0)
    services.grant(holder_id="ada", amount=1, idempotency_key="later")
    assert api.get(path).content == response.content
    german = text_of_pdf(api.get(f"{path}?language=de").content)
    assert "Guthaben am Ende 710 davon reserviert 30" in german
    assert "Credits at the start 710" in text_of_pdf(api.get(f"/v1/holders/ada/statements/{THIS_MONTH:%Y-%m}.pdf").content)


def test_amounts_have_the_unit_and_decimals_of_their_credit_type(make_api, at_noon_of):
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    at_noon_of(2)
    services.grant(holder_id="ada", amount=123_456, credit_type="usd_cents", idempotency_key="1")
    services.spend(holder_id="ada", amount=1, credit_type="usd_cents", idempotency_key="2")
    text = text_of_pdf(statements.statement_pdf("ada", MONTH, credit_type="usd_cents"))
    assert "US dollars (usd_cents)" in text
    assert "Credits at the start 0.00 Grant 1,234.56 Spend −0.01 Credits at the end 1,234.55 USD" in text
    assert "Amount (USD) Not held (USD)" in text
    assert "Spend −0.01 1,234.55" in text
    german = text_of_pdf(statements.statement_pdf("ada", MONTH, credit_type="usd_cents", language="de"))
    assert "Guthaben am Ende 1.234,55 USD" in german
    assert "Verbrauch −0,01 1.234,55" in german


def test_more_entries_than_are_listed_are_summed_up_by_day_and_kind(monkeypatch, at_noon_of):
    write_history(at_noon_of)
    monkeypatch.setattr(statements, "MOST_ENTRIES", 4)
    text = text_of_pdf(statements.statement_pdf("ada", MONTH))
    assert "The month has 6 entries. They are summed up by day and kind." in text
    assert "Credits at the start 0 Grant 1,000 Spend −250 Held credits spent −40 Credits at the end 710" in text
    assert "Held · 2 entries −130" in text


def test_a_day_may_sum_up_to_more_than_one_balance_can_be(at_noon_of):
    at_noon_of(2)
    pairs = MAX_BIGINT // MAX_AMOUNT + 1
    movements = [
        kind(holder_id="ada", amount=MAX_AMOUNT, idempotency_key=f"{kind.operation} {pair}")
        for pair in range(pairs)
        for kind in (GrantRequest, SpendRequest)
    ]
    for first in range(0, len(movements), 250):
        part = movements[first : first + 250]
        services.batch(part, mode="atomic", idempotency_key=f"{first}")
    text = text_of_pdf(statements.statement_pdf("ada", MONTH))
    total = f"{pairs * MAX_AMOUNT:,}"
    assert f"Credits at the start 0 Grant {total} Spend −{total} Credits at the end 0" in text


def test_an_unknown_holder_has_an_empty_statement(make_api):
    text = text_of_pdf(make_api("ledger:read").get(f"/v1/holders/nobody/statements/{MONTH:%Y-%m}.pdf").content)
    assert "Credits at the start 0 Credits at the end 0" in text
    assert "Nothing was recorded in this month." in text
    assert "No entry was recorded up to the end of the month." in text


def test_what_is_no_month_or_not_yet_or_not_ones_own_is_refused(make_api):
    api = make_api("ledger:read", holder_id="ada")
    for month, status in (("2026-13", 404), ("2026-1", 404), ("2199-12", 400), ("1999-12", 404)):
        assert api.get(f"/v1/holders/ada/statements/{month}.pdf").status_code == status, month
    problem = api.get("/v1/holders/ada/statements/2199-12.pdf").json()
    assert problem["errors"] == [{"pointer": "/month", "code": "in-the-future", "detail": "has not begun"}]
    assert api.get(f"/v1/holders/bob/statements/{MONTH:%Y-%m}.pdf").status_code == 404
    assert api.get(f"/v1/holders/ada/statements/{MONTH:%Y-%m}.pdf?language=fr").status_code == 400
    assert make_api("ledger:spend").get(f"/v1/holders/ada/statements/{MONTH:%Y-%m}.pdf").status_code == 403


def test_every_language_has_every_text():
    assert {language.code for language in LANGUAGES} == set(TEXTS)
    assert {frozenset(texts) for texts in TEXTS.values()} == {frozenset(TEXTS["en"])}


def test_a_statement_names_the_seller_and_is_in_the_customers_language(make_api, at_noon_of):
    add_seller()
    CustomerFactory(holder_id="ada", language="de-AT")
    at_noon_of(2)
    services.grant(holder_id="ada", amount=5, idempotency_key="1")
    api = make_api("ledger:read")
    address = f"/v1/holders/ada/statements/{MONTH:%Y-%m}.pdf"
    german, english = (text_of_pdf(api.get(f"{address}{query}").content) for query in ("", "?language=en"))
    for words in (
        "Guthabenauszug",
        "Nimbus Computing GmbH",
        "Lindenstraße 7 · 10969 Berlin",
        "USt-IdNr. DE987654328",
        "Deutschland",
    ):
        assert words in german, words
    for words in ("Statement of credits", "Nimbus Computing GmbH", "VAT id DE987654328", "Germany"):
        assert words in english, words
    others = text_of_pdf(statements.statement_pdf("bob", MONTH))
    assert "Statement of credits" in others
    assert "Nimbus Computing GmbH" in others

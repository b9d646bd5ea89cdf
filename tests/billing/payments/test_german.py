"""What a German customer reads: no English word on pages, in mails and PDFs, and numbers and dates as German writes them."""

import io
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, time, timedelta
from html import unescape
from typing import Any, Final

import pytest
import time_machine
from django.test import Client
from pypdf import PdfReader

from billing import customer_page as documents_page
from billing import customer_plans
from billing.documents import printed_texts
from billing.documents.printing import invoice_pdf
from billing.dunning import messages
from billing.dunning.models import Mail
from billing.models import Invoice
from billing.payments import customer_texts
from billing.payments.testing import PackFactory
from ledger import services
from ledger.portal import texts as page_texts
from ledger.rules.kinds import KINDS
from ledger.statements import downloads, statements
from ledger.statements.statements import statement_pdf
from tests.billing.documents.issued import add_seller
from tests.billing.payments.stripe_double import StripeDouble
from tests.billing.payments.test_customer_page import Browser, ask_stripe, comes_back, stripe
from tests.billing.test_customer_page import billed

__all__ = ["stripe"]

# Stripe's package sends its forms in a way that httpx deprecates.
pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")]

TEXTS: Final[tuple[Mapping[str, Mapping[str, str]], ...]] = (
    page_texts.TEXTS, documents_page.TEXTS, customer_plans.TEXTS, customer_texts.TEXTS, downloads.TEXTS, statements.TEXTS,
    messages.TEXTS, printed_texts.TEXTS,
    {code: {name: kind.on_statement[code] for name, kind in KINDS.items() if kind.on_statement} for code in ("en", "de")},
)  # fmt: skip
"""All that is said to customers, each in every language."""
WORD: Final = re.compile(r"(?<!\w)[^\W\d_]{2,}(?!\w)")
NOT_GERMAN: Final = {
    "a number with a comma before three digits": r"\d,\d{3}\b",
    "a day as in ISO 8601": r"\d{4}-\d\d",
    "a money amount with a point": r"\d\.\d\d (?:EUR|USD)",
    "a month of English": r"\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s\d{4}",
}
"""How English, or a machine, writes numbers and days."""


def words_of(texts: Any) -> set[str]:
    """The words of texts, without the fields that are filled in."""
    return {word.lower() for text in texts for word in WORD.findall(re.sub(r"\{\w+\}", " ", text))}


ONLY_ENGLISH: Final = words_of(text for texts in TEXTS for text in texts["en"].values()) | {"credits", "team", "month"}
GERMAN: Final = words_of(text for texts in TEXTS for text in texts["de"].values())


def faults_of(shown: str) -> set[str]:
    """What of a text is not German; the German words that English has too, such as "an" and "die", are German."""
    return (words_of([shown]) & (ONLY_ENGLISH - GERMAN)) | {
        f"{name}: {found}" for name, pattern in NOT_GERMAN.items() for found in re.findall(pattern, shown)
    }


def text_of(html: str) -> str:
    """What is there to read of a page."""
    body = re.sub(r"<(style|svg|head)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return unescape(" ".join(re.sub(r"<[^>]*>", " ", body).split()))


def test_everything_is_said_in_each_language_with_the_same_fields() -> None:
    fields = re.compile(r"\{(?!tax\}|Tax\})(\w+)\}")  # German says "netto" where English names the tax
    for texts in TEXTS:
        assert texts["en"].keys() == texts["de"].keys()
        differing = {
            name for name, text in texts["en"].items() if set(fields.findall(text)) != set(fields.findall(texts["de"][name]))
        }
        assert differing == set()


@pytest.mark.parametrize("text", ["1,234 übrig", "am 2026-11", "12.50 EUR", "12 Nov 2026", "5 credits", "Amount due"])
def test_control_what_is_not_german_is_found(text: str) -> None:
    assert faults_of(text)
    assert not faults_of("1.234 Guthabeneinheiten, 12,50 EUR, am 12.11.2026, November 2026, klein-4be0")


@pytest.fixture
def ada() -> Iterator[Invoice]:
    """A German customer with all that a page can show, on the day after her invoice was due."""
    add_seller()
    _, invoice = billed("ada", name="Ada KG", language="de", time_zone="Europe/Berlin", email="ada@example.com")
    assert invoice.due_date is not None
    with time_machine.travel(datetime.combine(invoice.due_date, time(12), UTC) + timedelta(days=1)):
        who: dict[str, Any] = {"holder_id": "ada"}
        now = datetime.now(UTC)
        services.grant(**who, amount=70_001, expires_at=now + timedelta(days=3), idempotency_key="1")
        services.grant(**who, amount=1_250, source="promotional", idempotency_key="2", applies_to={"labels": {"member": ["kim"]}})
        services.set_budget(**who, budget="b", limit=5_000, window="month", by="label", label="member", idempotency_key="3")
        services.set_budget(**who, budget="c", limit=9_000, window="rolling", hours=48, idempotency_key="4")
        services.spend(**who, amount=1_003, metadata={"member": "kim", "model": "nimbus"}, idempotency_key="5")
        services.hold(**who, amount=2_040, idempotency_key="6")
        services.revoke(**who, grant=1, idempotency_key="7")
        yield invoice


def test_no_english_word_is_on_the_german_page_and_its_steps(client: Client, stripe: StripeDouble, ada: Invoice) -> None:
    PackFactory(name="Einstieg", credits=12_000)
    pages = []
    browser = Browser(client, allow_plan_changes=True, plans=["klein"])
    pages.append(browser.html)
    for path in (["Bezahlen", "Mit Karte"], ["Kaufen"], ["Einschalten"], ["Ansehen und ändern"], ["Ändern oder kündigen"]):
        browser = Browser(client, allow_plan_changes=True, plans=["klein"])
        for text in path:
            browser.press(text)
            pages.append(browser.html)
    browser = Browser(client)
    browser.press("Kaufen")
    intent = ask_stripe()
    stripe.decline(intent.checkout, "expired_card")
    ask_stripe()
    comes_back(browser, intent)
    pages.append(browser.html)
    pages.append("<p " + client.get("/c/?link=x").content.decode().partition('lang="de"')[2])
    assert [fault for html in pages if (fault := faults_of(text_of(html)))] == []
    assert "1 Rechnung ist überfällig: 49,17 EUR. Ansehen und bezahlen" in text_of(pages[0])


def test_no_english_word_is_in_german_mails_and_pdfs(ada: Invoice) -> None:
    services.grant(holder_id="ada", amount=12_345, idempotency_key="8")
    mail = messages.message_of(Mail(invoice_id=ada.pk, kind="invoice", recipient="ada@example.com"))
    [html] = [str(part) for part, kind in mail.alternatives if kind == "text/html"]
    month = datetime.now(UTC).date().replace(day=1)
    papers = [invoice_pdf(ada.pk).content, statement_pdf("ada", month)]
    printed = [page.extract_text() for paper in papers for page in PdfReader(io.BytesIO(paper)).pages]
    texts = [mail.subject, mail.body, text_of(html), *printed]
    assert [fault for text in texts if (fault := faults_of(text))] == []
    assert "49,17 EUR" in mail.body

"""A stranger's first hour: clone, a plan, a sale by card, use, the invoice and a refund, each found by what the pages say.

The files of a clone, a fresh `manage.py serve` with its demo company, and a stand-in for Stripe. Nobody types an address: each
step begins at what the last one shows, or with one search. The first use is the call that the page of a new key shows.
"""

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.billing.payments.stripe_double import StripeDouble, serving
from tests.browser.chromium import Chromium, Visit
from tests.browser.test_questions import Demo, found_in
from tests.conftest import wait_for_answer
from tests.deployment.serving.test_serve import ROOT, Serving

pytestmark = pytest.mark.slow

PATIENCE_MS, MINUTES_S = 60_000, 180
ICON = r"^\s*(?:[a-z_]+\s+)?"


@dataclass
class Stranger:
    """Somebody who has read nothing, and uses the words on the pages."""

    visit: Visit

    def press(self, words: str, *, is_whole: bool = False) -> None:
        """Press the first visible link, button or fold whose text begins with the words, or is the words."""
        found = self.visit.page.locator("a:visible, button:visible, summary:visible")
        self.visit.click(found.filter(has_text=re.compile(ICON + re.escape(words) + (r"\s*$" if is_whole else ""))).first)

    def find(self, words: str, hit: str) -> None:
        """Search, and open the hit."""
        self.visit.page.keyboard.press("Control+k")
        field = self.visit.page.locator("#search-input-command")
        field.fill(words[:-1])
        field.press_sequentially(words[-1])
        self.visit.click(self.visit.page.locator("#command-results-list a").filter(has_text=hit).first)

    def fill(self, **values: str) -> None:
        """Fill in the fields whose labels begin with these words."""
        for label, value in values.items():
            field = self.visit.page.get_by_label(re.compile(rf"^\s*{label.replace('_', ' ')}")).first
            if field.evaluate("each => each.tagName") == "SELECT":
                field.select_option(label=value)
            elif field.get_attribute("type") == "checkbox":
                field.check(force=True)
            else:
                field.fill(value)

    def waits_for(self, words: str) -> None:
        """Press reload until the page says it, for at most some minutes: workers bill each minute."""
        ends = time.monotonic() + MINUTES_S
        while not re.search(words, self.visit.page.inner_text("body")) and time.monotonic() < ends:
            self.visit.page.reload()
        self.sees(words)

    def sees(self, words: str) -> None:
        """Fail unless the page says it; the words are a regular expression."""
        text = " ".join(self.visit.page.inner_text("body").split())
        assert re.search(words, text), f"{words!r} is not on {self.visit.page.url}: {text[:3000]}"


@pytest.fixture
def stripe() -> Iterator[StripeDouble]:
    double = StripeDouble()
    with serving(double) as address:
        double.pages, double.cards = f"{address}/checkout", {}
        yield double


def clone(folder: Path) -> Path:
    """The files that git knows, as they are now, in a new folder."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture
def demo(stripe: StripeDouble) -> Iterator[Demo]:
    """It is started from nothing, as by `make run`, with the secret key of a Stripe."""
    folder = Path(tempfile.mkdtemp(prefix="ledger-hour-"))
    folder.chmod(0o755)
    settings = "tests.concurrency.settings_of_payments"
    checkout = clone(folder / "checkout")
    address = stripe.pages.removesuffix("/checkout")
    serving = Serving(folder / "data", checkout=checkout, cwd=checkout, DJANGO_SETTINGS_MODULE=settings, STRIPE_DOUBLE=address)
    try:
        serving.wait_until_ready()
        wait_for_answer(f"{serving.pages_url}/healthz", serving.process)
        yield Demo(serving.pages_url, found_in(serving.said, r"^Login     admin / (\S+)"), "")
    finally:
        serving.stop()
        serving.kill_everything()
        shutil.rmtree(folder)


def sign_in(stranger: Stranger, password: str) -> None:
    stranger.fill(Username="admin", Password=password)
    stranger.press("Log in")


def make_a_plan(stranger: Stranger) -> None:
    stranger.find("create plan", "Create a plan")
    stranger.fill(Ref="hour", Name="Hour", Currency="EUR", Credits_granted_each_period="1000")
    stranger.fill(Key="base", Charged="every period", Model="a fixed amount", Price="49", Tax_in_percent="19")
    stranger.press("Continue")
    stranger.sees(r"Hour is billed every month in EUR\. base: 49\.00 EUR a month, in advance\. 19 % tax\.")
    stranger.press("Create the plan")
    stranger.sees("Grants 1,000 credits every month")


def sell_it(stranger: Stranger) -> None:
    stranger.find("create customer", "Create a customer")
    stranger.fill(Reference="ADA", Name="Ada Lovelace", Currency="EUR")
    stranger.press("Address")
    stranger.fill(Street="Parkweg 1", Postal_code="10115", City="Berlin", Country="DE")
    stranger.press("Payment with credits")
    stranger.fill(Holder="ada")
    stranger.press("Continue")
    stranger.press("Create the customer")
    stranger.press("New subscription")
    stranger.fill(Reference="ADA-1", Plan="hour", It_starts="when its first invoice is paid")
    stranger.press("Continue")
    stranger.sees("Total 58.31")
    stranger.press("Create the subscription")
    stranger.sees("ADA-1 .*It starts when its first invoice is paid")
    stranger.press("Ada Lovelace")
    stranger.press("Customer's page")
    stranger.fill(Allow_payments="yes")
    stranger.press("Make a link")


def pay_it_as_the_customer(stranger: Stranger) -> None:
    with stranger.visit.page.expect_popup() as opened:
        stranger.press("Open the page in a new tab")
    customer = Stranger(Visit(opened.value, stranger.visit.url))
    customer.sees(r"Open invoices|58\.31 EUR")
    customer.press("Pay")
    customer.press("By card")
    opened.value.get_by_text("Checkout of the stand-in").wait_for()
    customer.press("Pay now")
    opened.value.get_by_text("Thank you. Your payment has arrived.").wait_for()
    opened.value.close()
    stranger.press("Back to the holder")
    stranger.waits_for("1,000 (credits )?available")


def use_it(stranger: Stranger) -> None:
    stranger.press("Spend by a call")
    stranger.fill(Name="hour")
    stranger.press("Create the key")
    copied = stranger.visit.page.locator("#call-spend").inner_text()
    answer = subprocess.run(["bash", "-c", copied], capture_output=True, check=True, timeout=60).stdout
    assert json.loads(answer)["balance"] == 999, answer
    stranger.press("See what ada has left")
    stranger.sees("999 available")


def read_the_invoice(stranger: Stranger) -> None:
    stranger.press("INV-")
    stranger.sees(r"Invoice INV-\d+ .*paid .*58\.31")


def credit_and_refund_it(stranger: Stranger) -> None:
    """The form of the refund says that the invoice would be due again, and what to do first."""
    stranger.press("Refund", is_whole=True)
    stranger.sees(r"58\.31 EUR can be sent back")
    stranger.press("Continue")
    stranger.sees(r"stripe is asked to send 58\.31 EUR back\. .* Credit the invoice first")
    stranger.press("Cancel")
    stranger.press("invoice")
    stranger.press("Credit", is_whole=True)
    stranger.fill(Reason="They left")
    stranger.press("Continue")
    stranger.press("Credit", is_whole=True)
    stranger.press("INV-")
    stranger.press("Refund", is_whole=True)
    stranger.press("Continue")
    stranger.press("Send the money back")
    stranger.waits_for(r"58\.31 EUR went back")


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_a_stranger_makes_a_plan_sells_it_uses_it_and_refunds_it_in_the_first_hour(
    demo: Demo, stripe: StripeDouble, chromium: Chromium
) -> None:
    def look(visit: Visit) -> None:
        visit.page.set_default_timeout(PATIENCE_MS)
        visit.open(f"{demo.pages_url}/admin/")
        stranger = Stranger(visit)
        sign_in(stranger, demo.password)
        make_a_plan(stranger)
        sell_it(stranger)
        pay_it_as_the_customer(stranger)
        use_it(stranger)
        read_the_invoice(stranger)
        credit_and_refund_it(stranger)
        assert visit.complaints == []

    chromium.look(demo.pages_url, look)
    assert list(stripe.taken.values()) == [1]
    assert [row["amount"] for row in stripe.rows.values() if row.get("object") == "refund"] == [5831]

"""Each question of people is answered within two clicks or one search from the first page, by mouse and by keyboard.

Against one fresh `manage.py serve`, with its demo company, in a browser that has logged in.
"""

import json
import re
import shutil
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.chromium import Chromium, Visit
from tests.browser.questions import CUSTOMERS_PAGE, QUESTIONS, Click, Question, Search
from tests.deployment.serving.test_serve import Serving

if TYPE_CHECKING:
    from playwright.sync_api import Locator

pytestmark = pytest.mark.slow

MOST_CLICKS, MOST_TABS, PATIENCE_MS = 2, 250, 15_000
ANSWERED = 59
"""This number of the 59 is answered; the aim is 56."""


@dataclass(frozen=True)
class Demo:
    """A server with its demo company."""

    pages_url: str
    password: str
    customers_page: str


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    """It is started from nothing, as by `make run`."""
    folder = Path(tempfile.mkdtemp(prefix="ledger-questions-"))
    folder.chmod(0o755)
    serving = Serving(folder / "data")
    try:
        serving.wait_until_ready()
        password, key = (found_in(serving.said, line) for line in (r"^Login     admin / (\S+)", r"^API key   (\S{40,})"))
        link = {
            "expires_in": 3600,
            "allow_payments": True,
            "allow_plan_changes": True,
            "plans": ["solo", "team"],
            "language": "en",
        }
        body = json.dumps(link).encode()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{serving.url}/v1/holders/willow/page-links", body, headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            yield Demo(serving.pages_url, password, json.load(response)["url"])
    finally:
        serving.stop()
        serving.kill_everything()
        shutil.rmtree(folder)


def found_in(said: str, line: str) -> str:
    """What a line of the server's output says."""
    found = re.search(line, said, re.MULTILINE)
    assert found is not None, said
    return found[1]


def by_mouse(visit: Visit, link: "Locator") -> None:
    """Press a link."""
    visit.click(link)


def by_keyboard(visit: Visit, link: "Locator") -> None:
    """Go to a link with Tab, and press Enter."""
    wanted = link.element_handle()
    for _ in range(MOST_TABS):
        if visit.page.evaluate("wanted => document.activeElement === wanted", wanted):
            break
        visit.page.keyboard.press("Tab")
    else:
        raise AssertionError("Tab does not reach it")
    with visit.page.expect_navigation():
        visit.page.keyboard.press("Enter")
    visit.clicks += 1


HANDS = {"mouse": by_mouse, "keyboard": by_keyboard}
PLACES = {"DATE": r"\d+\s\w+\s\d{4}", "NEXT MONTH": r"\w+\s\d{4}\s›"}
"""How links begin whose text is another each day."""
ICON = r"^\s*(?:[a-z_]+\s+)?"


def follow(visit: Visit, step: Click | Search, press: "Callable[[Visit, Locator], None]") -> None:
    """Take one step of a way."""
    if isinstance(step, Click):
        beginning = PLACES.get(step.text, re.escape(step.text))
        press(visit, visit.page.locator("a:visible, button:visible").filter(has_text=re.compile(ICON + beginning)).first)
        return
    visit.page.keyboard.press("Control+k")
    field = visit.page.locator("#search-input-command")
    field.fill(step.words[:-1])
    field.press_sequentially(step.words[-1])
    hit = visit.page.locator("#command-results-list a").filter(has_text=step.hit).first
    hit.wait_for(timeout=PATIENCE_MS)
    press(visit, hit)


def answered(visit: Visit, demo: Demo, question: Question, press: "Callable[[Visit, Locator], None]") -> str:
    """What is wrong with the answer; empty if it stands there."""
    visit.open(demo.customers_page if question.begins_at == CUSTOMERS_PAGE else f"{demo.pages_url}/admin/")
    visit.clicks = 0
    try:
        for step in question.way:
            follow(visit, step, press)
        visit.page.wait_for_load_state("load")
        text = " ".join(visit.page.inner_text("body").split())
    except Exception as error:
        return f"{question.words} {type(error).__name__}: {str(error)[:300]}"
    if visit.clicks > MOST_CLICKS:
        return f"{question.words} {visit.clicks} clicks"
    return "" if re.search(question.answer, text) else f"{question.words} {text[:1500]}"


@pytest.mark.parametrize("hand", HANDS)
def test_each_question_that_the_product_answers_is_answered(demo: Demo, chromium: Chromium, hand: str) -> None:
    def look(visit: Visit) -> list[str]:
        visit.page.set_default_timeout(PATIENCE_MS)
        visit.page.goto(f"{demo.pages_url}/admin/login/")
        visit.page.fill("input[name=username]", "admin")
        visit.page.fill("input[name=password]", demo.password)
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_selector("#nav-sidebar")
        asked = [question for question in QUESTIONS if not question.reason]
        return [fault for question in asked if (fault := answered(visit, demo, question, HANDS[hand]))]

    assert chromium.look(demo.pages_url, look) == []


def test_few_questions_have_no_answer_and_each_of_them_has_a_reason() -> None:
    assert len(QUESTIONS) == 59
    assert all(bool(question.answer) is not bool(question.reason) for question in QUESTIONS)
    assert all(len([*question.way]) <= MOST_CLICKS for question in QUESTIONS)
    assert sum(not question.reason for question in QUESTIONS) >= ANSWERED

"""The pages by keyboard alone: Tab comes to everything that a mouse can click, one sees where one is, and nothing is a trap."""

from typing import Any

import pytest
from django.test import Client

from ledger.portal.links import link
from tests.browser.billed import billed_with_everything
from tests.browser.chromium import Visit, site_of
from tests.browser.test_accessibility import client_of_acme
from tests.ledger.staff.admin_site import operator

__all__ = ["client_of_acme"]

pytestmark = pytest.mark.django_db

MOST_STOPS = 400
NOTHING: dict[str, list[str]] = {"missed": [], "unmarked": [], "hidden": [], "ahead": []}
"""What a walk finds on a page without faults."""
FIND = """() => {
    const selector = "a[href], button, input:not([type=hidden]), select, textarea, summary, [x-on\\\\:click], [\\\\@click]";
    // Tab comes to the chosen one of a group of radio buttons; arrows go to the others.
    const isBesideChosen = each => each.type === "radio" && !each.checked
        && document.querySelector(`input[type=radio][name="${each.name}"]:checked`);
    const rest = [...document.querySelectorAll(selector)].filter(each => !each.disabled && !isBesideChosen(each)
        && each.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }) && !each.closest("[inert]")
        && each.getClientRects().length && each.getBoundingClientRect().width > 1);
    rest.forEach((each, number) => each.dataset.walked = number);
    return rest.map(each => each.outerHTML.slice(0, 160).replace(/\\s+/g, " "));
}"""
BEGIN = """() => {
    if (document.activeElement === document.body) return;
    const before = document.createElement("button");
    document.body.prepend(before);
    before.focus();
    before.remove();
}"""
"""Lets Tab begin with the page where a field of it has the focus from the start, as that of a new password has."""
FILTERS = 'a[x-on\\:click="filterOpen = true"]'
USER_MENU = '[x-on\\:click="openUserLinks = !openUserLinks"]'
MENU = '#header-inner [x-on\\:click="sidebarMobileOpen = !sidebarMobileOpen"]'
MORE = '[x-on\\:click="actionDropdownOpen = !actionDropdownOpen"]'
HERE = """() => {
    const each = document.activeElement;
    if (!each || each === document.body) return null;
    const style = getComputedStyle(each);
    const marked = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 || style.boxShadow !== "none";
    const box = each.getBoundingClientRect();
    const [left, right] = [Math.max(box.left, 0), Math.min(box.right, innerWidth)];
    const [top, bottom] = [Math.max(box.top, 0), Math.min(box.bottom, innerHeight)];
    const points = [0.05, 0.5, 0.95].flatMap(x =>
        [0.1, 0.5, 0.9].map(y => [left + (right - left) * x, top + (bottom - top) * y]));
    const seen = points.some(([x, y]) => {
        const there = document.elementFromPoint(x, y);
        const labels = [...(each.labels ?? [])];
        return there && [each, ...labels].some(one => one.contains(there) || there.contains(one));
    });
    return [each.dataset.walked ?? null, marked, seen, each.outerHTML.slice(0, 160).replace(/\\s+/g, " ")];
}"""
"""What has the focus: its number, whether it is marked, and whether one of nine points of its part in the window is seen."""
AHEAD = """() => [...document.querySelectorAll("[tabindex]")]
    .filter(each => each.tabIndex > 0).map(each => each.outerHTML.slice(0, 160))"""


def walk(visit: Visit, *, first: str = "") -> dict[str, list[str]]:
    """Press Tab until the page is left; return what was not reached, what did not show that it had the focus, what had it behind
    something else, and what comes before its place on the page.
    """
    visit.page.evaluate(BEGIN)
    found: list[str] = visit.page.evaluate(FIND)
    reached: set[str] = set()
    unmarked: list[str] = []
    hidden: list[str] = []
    last = None
    for _ in range(MOST_STOPS):
        visit.page.keyboard.press("Tab")
        assert reached or not first or focus(visit) == first, visit.page.url
        here: Any = visit.page.evaluate(HERE)
        # A field with a date has a stop for each of its parts.
        if here is None or (here[0] is not None and here[0] in reached and here[0] != last):
            break
        number, is_marked, is_seen, text = here
        is_part, last = number == last, number
        reached.add(number)
        if not is_marked and not is_part:
            unmarked.append(text)
        if not is_seen:
            hidden.append(text)
    else:
        raise AssertionError("Tab does not leave the page")
    missed = [text for number, text in enumerate(found) if str(number) not in reached]
    return {"missed": missed, "unmarked": unmarked, "hidden": hidden, "ahead": visit.page.evaluate(AHEAD)}


def walk_from_the_skip_link(visit: Visit) -> dict[str, list[str]]:
    """The same of a page with a sidebar, whose first stop is the link that skips it."""
    return walk(visit, first="Skip to the content")


def focus(visit: Visit) -> str:
    """The words or the name of what has the focus."""
    return str(
        visit.page.evaluate("document.activeElement.ariaLabel || document.activeElement.innerText || document.activeElement.name")
    )


def tab_to(visit: Visit, selector: str) -> None:
    """Press Tab until the focus is on the first visible element of the selector."""
    for _ in range(MOST_STOPS):
        visit.page.keyboard.press("Tab")
        if visit.page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"Tab does not come to {selector}")


def open_and_close(visit: Visit, selector: str) -> tuple[bool, str | None, str | None]:
    """Open what the button opens by Enter, and close it by Escape.

    Returns:
        whether the focus went into what opened; the state that is said while it is open, and after Escape, with the focus back.
    """
    tab_to(visit, selector)
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_function("selector => !document.activeElement.matches(selector)", arg=selector)
    went_in = bool(visit.page.evaluate("document.activeElement.checkVisibility()"))
    state = "selector => document.querySelector(selector).ariaExpanded"
    opened = visit.page.evaluate(state, selector)
    visit.page.keyboard.press("Escape")
    visit.page.wait_for_function("selector => document.activeElement.matches(selector)", arg=selector)
    return went_in, opened, visit.page.evaluate(state, selector)


@pytest.fixture
def client() -> Client:
    return operator()


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 390])
def test_tab_comes_to_everything_on_the_pages_of_a_customer_and_of_the_login(client_of_acme, chromium, width):
    """Each page of the operators is walked by test_every_page.py."""
    customers_page = link(holder_id="acme-gmbh", allow_payments=True, allow_plan_changes=True).url
    with site_of(Client()) as site:
        found = {
            name: chromium.visit(f"{site.url}{address}", walk, width=width)
            for name, address in (("login", "/admin/login/"), ("customer's page", customers_page))
        }
    assert found == dict.fromkeys(found, NOTHING)


@pytest.mark.slow
@pytest.mark.check
def test_menus_filters_and_the_sidebar_open_by_enter_and_close_by_escape(client, chromium):
    def look(visit: Visit) -> list[Any]:
        visit.page.keyboard.press("Tab")
        first = focus(visit)
        visit.page.keyboard.press("Enter")
        assert visit.page.evaluate("document.activeElement.id") == "content"
        return [first, open_and_close(visit, FILTERS), open_and_close(visit, USER_MENU), walk(visit)]

    with site_of(client) as site:
        skip, *opened, walked = chromium.visit(f"{site.url}/admin/billing/invoice/", look)
    assert skip == "Skip to the content"
    assert opened == [(True, "true", "false")] * 2
    assert walked["unmarked"] == []


@pytest.mark.slow
def test_in_a_narrow_window_the_menu_and_the_filters_open_by_enter_and_close_by_escape(client, chromium):
    """The sidebar is behind the menu button there; its first stop is within it."""

    def look(visit: Visit) -> list[Any]:
        return [open_and_close(visit, MENU), open_and_close(visit, FILTERS)]

    with site_of(client) as site:
        assert chromium.visit(f"{site.url}/admin/billing/invoice/", look, width=390) == [(True, "true", "false")] * 2


@pytest.mark.slow
def test_more_actions_open_by_enter_and_the_focus_goes_into_them(client, chromium):
    invoice, _, _ = billed_with_everything()
    with site_of(client) as site:
        url = f"{site.url}/admin/billing/invoice/{invoice.pk}/change/"
        assert chromium.visit(url, lambda visit: open_and_close(visit, MORE)) == (True, "true", "false")


@pytest.mark.slow
def test_control_what_only_a_mouse_opens_and_a_focus_that_is_not_seen_are_found(client, chromium):
    unseen = '<a href="#" style="outline: none !important; box-shadow: none">Unseen</a>'
    below = '<div style="position: fixed; inset: auto 0 0 0; height: 90px; z-index: 99; background: white">Above all</div>'
    hidden = '<a href="#" tabindex="1" style="position: fixed; bottom: 20px">Behind it</a>'
    wrong = f'<div x-on:click="other = !other">Only by mouse</div>{unseen}{hidden}{below}'

    def look(visit: Visit) -> dict[str, list[str]]:
        visit.page.evaluate("html => document.querySelector('#content').insertAdjacentHTML('beforeend', html)", wrong)
        return walk(visit)

    with site_of(client) as site:
        found = chromium.visit(f"{site.url}/admin/preferences/", look)
    assert [len(found["missed"]), len(found["unmarked"]), len(found["ahead"])] == [1, 1, 1]
    assert any("Behind it" in each for each in found["hidden"])

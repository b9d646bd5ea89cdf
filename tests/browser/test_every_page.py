"""Each page of the operators, found by its links, by axe and by keyboard: light and dark, in a wide and in a narrow window.

A page is forgotten by nobody: the pages are those to which the walk of tests/deployment/operators/test_links.py comes, and it
comes to each view. Each page is loaded once for each look.

A role may find other fields, links and buttons on a page than somebody who may do everything. Each role has a case, which looks
at the pages that it is the first to find so. That it finds nothing that it may not use is what test_links.py tests.
"""

import re
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import pytest
from django.test import Client

from ledger import services
from ledger_project.operators.roles import ROLES
from tests.browser.chromium import Chromium, Visit, site_of
from tests.browser.test_accessibility import violations
from tests.browser.test_keyboard import walk, walk_from_the_skip_link
from tests.deployment.operators.test_links import Walk, linked_views, words_for_everything
from tests.deployment.operators.test_roles import client_of_role
from tests.ledger.staff.admin_site import operator

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

LOOKS: Final[tuple[tuple[Literal["light", "dark"], int], ...]] = (("light", 1400), ("dark", 1400), ("light", 390))
HEIGHT: Final = 900
ONE_LOOK: Final = LOOKS[:1]
"""How roles see pages: themes and widths are the same for everybody."""
OF_ONE_VISIT: Final = re.compile(r'admin-[0-9a-f]{32}|name="csrfmiddlewaretoken" value="\w+"|/_[0-9a-f]+_/')
"""What differs each time a page is shown: keys of forms and tokens."""


class Fault(NamedTuple):
    """What is wrong on a page: how it was looked at, and what was found."""

    address: str
    how: str
    found: Any


def pages_of(client: Client) -> dict[str, str]:
    """The address of a page of each view of the admin; asserts that there is one of each view."""
    links = Walk(client).begin_at("/admin/", *(f"/admin/search/?s={word}" for word in words_for_everything()))
    assert linked_views() - set(links.views.values()) == set()
    pages: dict[str, str] = {}
    for address, view in links.views.items():
        if address in links.pages:
            pages.setdefault(view, address)
    return pages


def faults_of(visit: Visit, address: str, looks: Any = LOOKS) -> list[Fault]:
    """Look at one page in every way."""
    faults = []

    def note(how: str, found: Any) -> None:
        if found:
            faults.append(Fault(address, how, found))

    for theme, width in looks:
        visit.page.emulate_media(color_scheme=theme)
        visit.page.set_viewport_size({"width": width, "height": HEIGHT})
        visit.open(f"{visit.url}{address}")
        note(f"{theme}, {width}, wider than the window", visit.is_wider_than_the_window)
        note(f"{theme}, {width}, axe", violations(visit))
        if theme == "light":
            found = walk(visit) if visit.is_narrow else walk_from_the_skip_link(visit)
            note(f"{width}, keyboard", {kind: told for kind, told in found.items() if told})
    note("the browser complains", [*visit.complaints])
    visit.complaints.clear()
    return faults


def look_at(visit: Visit, address: str, looks: Any = LOOKS) -> list[Fault]:
    """The same; a page that cannot be looked at is a fault too, and the others are looked at all the same."""
    try:
        return faults_of(visit, address, looks)
    except Exception as error:
        return [Fault(address, "cannot be looked at", f"{type(error).__name__}: {str(error)[:500]}")]


def test_each_page_is_accessible_by_axe_and_by_keyboard_in_both_widths_light_and_dark(chromium: Chromium) -> None:
    client = operator()
    pages = pages_of(client)

    def look(visit: Visit) -> list[Fault]:
        return [fault for address in pages.values() for fault in look_at(visit, address)]

    with site_of(client) as site:
        faults = chromium.look(site.url, look)
    assert faults == [], "\n".join(map(str, faults))


# What each role finds --------------------------------------------------------------------------------


def content_of(client: Client, address: str) -> str | None:
    """What a page has beside what all pages of a role have, without what is new each time it is shown.

    None if the role may not open it, or is led to another page, as from a form that it may not decide about.
    """
    response = client.get(address)
    assert response.status_code in (200, 302, 403), address
    page = response.getvalue().decode()
    return OF_ONE_VISIT.sub("", page[page.index('id="content"') :]) if response.status_code == 200 else None


def found_first_by(client: Client, addresses: Iterable[str], earlier: list[Client]) -> list[str]:
    """The pages that nobody of those before finds as this client does."""
    contents = {address: (content_of(client, address), [content_of(each, address) for each in earlier]) for address in addresses}
    return [address for address, (content, others) in contents.items() if content is not None and content not in others]


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_is_the_first_to_find_is_accessible_by_axe_and_by_keyboard(role: str, chromium: Chromium) -> None:
    everybody = [operator(), *(client_of_role(each) for each in ROLES)]
    place = 1 + list(ROLES).index(role)
    addresses = found_first_by(everybody[place], pages_of(everybody[0]).values(), everybody[:place])

    def look(visit: Visit) -> list[Fault]:
        return [fault for address in addresses for fault in look_at(visit, address, ONE_LOOK)]

    with site_of(everybody[place]) as site:
        faults = chromium.look(site.url, look)
    assert faults == [], "\n".join(map(str, faults))


class Misled(Client):
    """Somebody who may only read, and is shown some pages as those find them who may grant credits."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: set[str] = set()
        self._granter = client_of_role("support")
        self.cookies = client_of_role("read-only").cookies

    def get(self, path: Any, *arguments: Any, **named: Any) -> Any:
        return (self._granter if path in self.pages else super()).get(path, *arguments, **named)


def test_a_page_is_of_the_first_who_finds_it_so_and_of_nobody_who_may_not_open_it() -> None:
    """The control of what the case of a role looks at."""
    services.grant(holder_id="ada", amount=1, idempotency_key="g")
    client, reader, holder = Misled(), Client(), "/admin/ledger/account/holders/ada/"
    client.pages, reader.cookies = {holder}, client.cookies
    addresses = [holder, "/admin/ledger/account/", "/admin/auth/user/"]
    assert found_first_by(client, addresses, [reader]) == [holder]
    assert found_first_by(reader, addresses, []) == addresses[:2]


def test_a_link_and_a_button_that_the_role_may_not_use_are_found() -> None:
    """The control of what test_links.py finds in the walk of each role."""
    services.grant(holder_id="ada", amount=1, idempotency_key="g")
    client, holder = Misled(), "/admin/ledger/account/holders/ada/"
    client.pages = {holder}
    links = Walk(client).begin_at(holder)
    offered = [each.split(",")[0] for each in links.wrong if each.endswith(f"linked from {holder}")]
    assert offered
    assert all(each.startswith("403 /admin/") for each in offered)

    form = offered[0].removeprefix("403 ")
    client.pages = {form}
    buttons = Walk(client)
    assert list(buttons._open(form, holder))
    assert buttons.wrong == []
    assert buttons.send_forms().wrong == [f"403 for the form of {form}"]


@pytest.mark.check
def test_each_role_comes_to_everything_on_its_first_page_by_keyboard_and_by_axe(chromium: Chromium) -> None:
    for role in ROLES:
        client = client_of_role(role)
        with site_of(client) as site:
            assert chromium.look(site.url, lambda visit: look_at(visit, "/admin/", ONE_LOOK)) == [], role

"""The parts that other applications add to the ledger's pages for operators: sections of a holder's page, alerts, search results.

The ledger knows no application. Each registers functions in its `AppConfig.ready`; the pages call them when they are
shown, so nothing of another application's pages is loaded before.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class PageSection:
    """A part of a page: a heading, a table of rows below headers, and a link to more; `empty` is the sentence for no rows."""

    title: str
    table: Mapping[str, Any]
    empty: str = ""
    more_url: str = ""
    more_text: str = ""


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Something that needs a person's attention: a tone ("danger", "warning" or "info"), a text, and the page that shows it.

    Args:
        action: what the button says that leads to the page; empty: the text itself is the link.
    """

    tone: str
    text: str
    url: str = ""
    action: str = ""


@dataclass(frozen=True, kw_only=True)
class Headline:
    """A number of the first page: what it is, the amount in words, and the page behind it; what is bad is red.

    Args:
        more_url, more_text: a second page, and what its link below the note says.
    """

    title: str
    amount: str
    note: str = ""
    url: str = ""
    is_bad: bool = False
    more_url: str = ""
    more_text: str = ""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart of the first page, for unfold's component; `text` says in words what it shows."""

    title: str
    text: str
    data: str
    options: str
    url: str = ""
    url_text: str = ""


@dataclass(frozen=True)
class Overview:
    """What an application shows on the first page above everything else, as far as the operator may see it."""

    headlines: Sequence[Headline] = ()
    charts: Sequence[Chart] = ()


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """One result of the search over everything: its kind, in words, and its page.

    Args:
        rank: results are shown in the order of their ranks: 0 for actions and pages, 1 for rows, 2 for guesses.
    """

    title: str
    description: str
    url: str
    icon: str
    rank: int = 1


@dataclass(frozen=True, kw_only=True)
class AccountForm:
    """A form about one account, and its button on the holder's page.

    Args:
        name, url_path: of the form in the code, and in its address.
        title, icon: of the button.
        permission: of the operators who may use it.
        view: takes the admin of accounts, the request and the account's balance.
        needs_entries: False offers it also for a holder who has had no credits yet, but whom another application knows.
    """

    name: str
    title: str
    icon: str
    permission: str
    url_path: str
    view: Callable[[Any, Any, Any], Any]
    needs_entries: bool = True


Row = tuple[str, str]
"""What is typed in a field, and words that people search by."""


@dataclass(frozen=True)
class ReferenceList:
    """Rows to which fields of forms refer.

    Args:
        list_rows: takes what was typed, and returns some of the rows that fit, by index or among a bounded number; without
            a text, the rows with which a list begins, up to some hundred.
        permission: who may see the rows; None: each operator.
    """

    list_rows: Callable[[str], Sequence[Row]]
    permission: str | None = None


HolderSections = Callable[[Any, str], Sequence[PageSection]]
"""Takes the request and a holder's id; shows what the operator may see."""
AttentionList = Callable[[Any], Sequence[Attention]]
"""Takes the request; names what the operator may see."""
Overviews = Callable[[Any], Overview]
"""Takes the request; shows what the operator may see, from a bounded number of rows."""
HolderGroups = Callable[[Any, Sequence[str]], Mapping[str, str]]
"""Takes the request and ids of holders; names the group of each, such as its plan, or none that the operator may not see."""
Search = Callable[[Any, str], Sequence[SearchResult]]
"""Takes the request and the word; finds by index only, what the operator may see."""

HomePart = Callable[[Any, Any], Any]
"""Takes the request and the present time; returns HTML for the first page, below its charts, or nothing."""
AccountPages = Callable[[Any], Sequence[Any]]
"""Takes the admin of accounts; returns the addresses of further pages beside those of accounts and holders."""
TimeLineParts = Callable[[Any, str, str], Any]
"""Takes the request, a holder and a credit type; returns HTML to stand below what happened on the holder's page."""
Money = Callable[[int, str], str]
"""Takes an amount in minor units and its currency; writes it for people."""

_holder_sections: list[HolderSections] = []
_attention: list[AttentionList] = []
_searches: list[Search] = []
_guesses: list[Search] = []
_account_forms: dict[str, AccountForm] = {}
_account_pages: list[AccountPages] = []
_time_line_parts: list[TimeLineParts] = []
_overviews: list[Overviews] = []
_home_parts: list[HomePart] = []
_groups: dict[str, HolderGroups] = {}
_money: Money = "{} {} minor units".format
_default_currency: Callable[[], str] = str
_references: dict[str, ReferenceList] = {}


def register_holder_sections(given: HolderSections) -> None:
    """Show these sections on a holder's page, behind the ledger's own."""
    if given not in _holder_sections:
        _holder_sections.append(given)


def register_attention(given: AttentionList) -> None:
    """Show these items on the first page, behind the ledger's own."""
    if given not in _attention:
        _attention.append(given)


def register_overview(given: Overviews) -> None:
    """Show these numbers and charts at the top of the first page."""
    if given not in _overviews:
        _overviews.append(given)


def register_home_part(given: HomePart) -> None:
    """Show this on the first page, below its charts."""
    if given not in _home_parts:
        _home_parts.append(given)


def register_holder_groups(title: str, given: HolderGroups) -> None:
    """Have the first page show the use of credits by these groups of holders too, such as by "plan"."""
    _groups[title] = given


def register_search(given: Search) -> None:
    """Search here too, behind the ledger's own search."""
    if given not in _searches:
        _searches.append(given)


def register_account_form(form: AccountForm) -> None:
    """Offer this form on a holder's page, for each of the holder's accounts."""
    _account_forms[form.name] = form


def register_account_pages(given: AccountPages) -> None:
    """Serve these pages beside those of accounts and holders."""
    if given not in _account_pages:
        _account_pages.append(given)


def register_time_line_parts(given: TimeLineParts) -> None:
    """Show this below what happened on a holder's page."""
    if given not in _time_line_parts:
        _time_line_parts.append(given)


def register_guesses(given: Search) -> None:
    """Search here if nothing else is found: for words with one typo."""
    if given not in _guesses:
        _guesses.append(given)


def register_money(given: Money) -> None:
    """Write amounts of money in this form: the ledger does not know the decimals of currencies."""
    global _money
    _money = given


def register_default_currency(find: Callable[[], str]) -> None:
    """Let forms begin with the currency that the function returns; empty for no choice."""
    global _default_currency
    _default_currency = find


def default_currency() -> str:
    """Return the currency with which forms begin; empty if nothing determines it."""
    return _default_currency()


def register_references(name: str, listed: ReferenceList) -> None:
    """Let text fields of this name search in rows; a name that ends in _ and this one counts too, and so does its plural."""
    _references[name] = listed


def references() -> Mapping[str, ReferenceList]:
    """Return the rows to which fields refer, by the name of the fields."""
    return _references


def money(amount_minor: int, currency: str) -> str:
    """Return an amount of money in words."""
    return _money(amount_minor, currency)


def holder_sections(request: Any, holder_id: str) -> list[PageSection]:
    """Return the sections of applications about the holder."""
    return [section for each in _holder_sections for section in each(request, holder_id)]


def account_forms() -> list[AccountForm]:
    """Return the forms of applications about one account."""
    return list(_account_forms.values())


def account_pages(model_admin: Any) -> list[Any]:
    """Return the addresses of applications' pages beside those of accounts and holders."""
    return [url for each in _account_pages for url in each(model_admin)]


def time_line_parts(request: Any, holder_id: str, credit_type: str) -> list[Any]:
    """Return what applications show below what happened on a holder's page."""
    return [each(request, holder_id, credit_type) for each in _time_line_parts]


def attention(request: Any) -> list[Attention]:
    """Return the items of applications that need attention."""
    return [item for each in _attention for item in each(request)]


def overview(request: Any) -> Overview:
    """Return the numbers and charts of applications."""
    parts = [each(request) for each in _overviews]
    return Overview([one for part in parts for one in part.headlines], [one for part in parts for one in part.charts])


def home_parts(request: Any, now: Any) -> list[Any]:
    """Return the HTML of applications for the first page."""
    return [part for each in _home_parts if (part := each(request, now))]


def holder_groups(request: Any, holder_ids: Sequence[str]) -> dict[str, Mapping[str, str]]:
    """Return by each kind of groups, such as "plan", the group of each holder that has one."""
    return {title: given(request, holder_ids) for title, given in _groups.items()} if holder_ids else {}


def search(request: Any, word: str) -> list[SearchResult]:
    """Return the results of applications for that word."""
    return [found for each in _searches for found in each(request, word)]


def guesses(request: Any, word: str) -> list[SearchResult]:
    """Return what applications have for that word with one typo."""
    return [found for each in _guesses for found in each(request, word)]

"""What other applications add to the ledger's pages for operators: parts of a holder's page, alerts, search results.

The ledger knows no billing. An application registers functions from its `AppConfig.ready`; the pages call them when they are
shown, so that nothing of another application's pages is loaded before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a page: a heading, rows below headers, and where to see more.

    `rows` are cells as pages write them. `empty` is the sentence for no rows.
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Any]]
    empty: str = ""
    more_url: str = ""
    more_text: str = ""


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Something that somebody should look at: how bad ("danger", "warning" or "info"), in words, and the page that shows it."""

    tone: str
    text: str
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class Found:
    """One result of the search over everything: what it is, in words, and its page."""

    title: str
    description: str
    url: str
    icon: str


HolderSections = Callable[[Any, str], Sequence[Section]]
"""Takes the request and a holder's id; shows what the operator may see."""
AttentionList = Callable[[Any], Sequence[Attention]]
"""Takes the request; names what the operator may see."""
Search = Callable[[Any, str], Sequence[Found]]
"""Takes the request and the word; finds by index only, what the operator may see."""

Money = Callable[[int, str], str]
"""Takes an amount in minor units and its currency; writes it for people."""

_holder_sections: list[HolderSections] = []
_attention: list[AttentionList] = []
_searches: list[Search] = []
_money: Money = "{} {} minor units".format


def register_holder_sections(given: HolderSections) -> None:
    """Have a holder's page show these sections, behind the ledger's own."""
    _holder_sections.append(given)


def register_attention(given: AttentionList) -> None:
    """Have the first page name these, behind the ledger's own."""
    _attention.append(given)


def register_search(given: Search) -> None:
    """Have the search over everything look here, behind the ledger's own."""
    _searches.append(given)


def register_money(given: Money) -> None:
    """Have the ledger's pages write amounts of money so: only billing knows the decimals of currencies."""
    global _money
    _money = given


def money(amount_minor: int, currency: str) -> str:
    """An amount of money as people write it."""
    return _money(amount_minor, currency)


def holder_sections(request: Any, holder_id: str) -> list[Section]:
    """What applications show about the holder."""
    return [section for each in _holder_sections for section in each(request, holder_id)]


def attention(request: Any) -> list[Attention]:
    """What applications want to be looked at."""
    return [item for each in _attention for item in each(request)]


def search(request: Any, word: str) -> list[Found]:
    """What applications find under that word."""
    return [found for each in _searches for found in each(request, word)]

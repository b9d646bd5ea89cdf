"""The page for people, made from its JSON."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any, Final, NamedTuple

from ledger.portal.content import Content, instant
from ledger.portal.links import Link
from ledger.portal.parts import Cell, PageList
from ledger.portal.texts import TEXTS
from ledger.portal.usage import BY_RATE, GROUPS
from ledger.rules.kinds import KINDS
from ledger.typesetting.languages import Language
from ledger.units import purpose_names

HISTORY, LOTS, BEFORE = "before", "lots_from", "_before"
"""In an address, where a list begins: the history, the lots, and behind its name a list that another application adds."""
BAR, GAP, HEIGHT = 10, 3, 100
LEAST_BAR: Final = 2
"""The least height of the bar of a day with any usage, of HEIGHT."""


class Bar(NamedTuple):
    """A bar of the chart, from its left upper corner."""

    x: int
    y: int
    width: int
    height: int


class Pages(NamedTuple):
    """The links below a list, named by it: to its next page, and from a further one back to the first; "" for none."""

    title: str
    next_text: str
    next_url: str
    first_text: str
    first_url: str


def _pages_of(content: Content, title: str, *, next_url: str, first_url: str, newest_first: bool = True) -> Pages:
    texts = TEXTS[content.language.code]
    following, first = ("older", "newest") if newest_first else ("further", "beginning")
    return Pages(texts["pages"].format(title=title), texts[following], next_url, texts[first], first_url)


def context_of(content: Content, link: Link, *, continued: Collection[str]) -> dict[str, Any]:
    """Return what the template shows.

    Args:
        continued: the parameters of the address that name where lists begin.
    """
    data, texts = content.data, TEXTS[content.language.code]
    by_type = {account["credit_type"]: account for account in data["accounts"]}
    details = data["account"]
    return {
        "texts": texts,
        "language": data["language"],
        "name": data["name"] or data["holder"],
        "hides_amounts": data["hides_amounts"],
        "accounts": [_account(each, details["credit_type"], content, link) for each in data["accounts"]],
        "chosen": details and _details(details, by_type[details["credit_type"]], content, link, continued),
        "sections": [(section, _pages(section, link, content, continued)) for section in content.sections],
        "ends": texts["ends"].format(time=_time(data["link_expires_at"], content), zone=data["time_zone"]),
    }


def _account(account: Mapping[str, Any], chosen: str, content: Content, link: Link) -> dict[str, Any]:
    texts = TEXTS[content.language.code]
    parts = [
        texts[name].format(amount=_number(account[name], account, content.language)) for name in ("held", "owed") if account[name]
    ]
    if account["overage"]:
        used, limit = [
            None if account["overage"][name] is None else _number(account["overage"][name], account, content.language)
            for name in ("used", "limit")
        ]
        words = texts["overage"] if limit is None else texts["overage_limited"]
        parts.append(words.format(used=used, limit=limit, until=_time(account["overage"]["until"], content)))
    parts += [
        texts["for_other_things"].format(
            amount=_number(each["available"], account, content.language), names=purpose_names(each["applies_to"])
        )
        for each in account["for_other_things"]
    ]
    return {
        "name": account["name"],
        "unit": account["unit"],
        "available": None if account["available"] is None else _number(account["available"], account, content.language),
        "besides": parts,
        "url": link.address("page", type=account["credit_type"]),
        "is_chosen": account["credit_type"] == chosen,
    }


def _pages(section: PageList, link: Link, content: Content, continued: Collection[str]) -> Pages:
    parameter, place = section.name + BEFORE, f"#{section.name}"
    return _pages_of(
        content,
        section.title,
        next_url="" if section.older_than is None else link.address("page", **{parameter: section.older_than}) + place,
        first_url=link.address("page") + place if parameter in continued else "",
    )


def _details(
    details: Mapping[str, Any], account: Mapping[str, Any], content: Content, link: Link, continued: Collection[str]
) -> dict[str, Any]:
    texts = TEXTS[content.language.code]

    def pages(parameter: str, name: str, title: str, following: int | None) -> Pages:
        beginning = {"type": details["credit_type"]}
        return _pages_of(
            content,
            texts[title],
            next_url=f"{link.address('page', **beginning, **{parameter: following})}#{name}" if following else "",
            first_url=f"{link.address('page', **beginning)}#{name}" if parameter in continued else "",
            newest_first=parameter == HISTORY,
        )

    shown_lots = details["lots_from"] + len(details["lots"])
    return {
        "lots": _lots(details, account, content),
        "lots_pages": pages(LOTS, "lots", "expiring", shown_lots if details["more_lots"] else None),
        "history_pages": pages(HISTORY, "history", "history", details["older_than"]),
        "more_lots": texts["more_lots"].format(count=details["more_lots"]) if details["more_lots"] else "",
        "usage": None if details["usage"] is None else _usage(details["usage"], account, content.language),
        "usage_groups": [
            group
            for name in (*GROUPS, BY_RATE)
            if (group := _usage_group(name, details[f"usage_by_{name}"], account, content.language)).cells
        ],
        "history": _history(details, account, content),
    }


def _table(name: str, title: str, empty: str, headers: Sequence[Cell | None], rows: Sequence[Sequence[Cell | None]]) -> PageList:
    """Return a list. What is None is left out, such as what would show an amount."""
    head, *cells = [[cell for cell in row if cell is not None] for row in (headers, *rows)]
    return PageList(name=name, title=title, empty=empty, headers=head, cells=cells, rows=())


def _lots(details: Mapping[str, Any], account: Mapping[str, Any], content: Content) -> PageList:
    texts, language = TEXTS[content.language.code], content.language
    hides = content.data["hides_amounts"]
    rows = [
        (
            Cell(_expiry(lot, content)),
            Cell(_source(lot, texts)),
            None if hides else Cell(_number(lot["amount"], account, language), is_number=True),
        )
        for lot in details["lots"]
    ]
    headers = (Cell(texts["expires"]), Cell(texts["source"]), None if hides else Cell(texts["amount"], is_number=True))
    return _table("lots", texts["expiring"], texts["no_lots"], headers, rows)


def _source(lot: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    """Whether the credits were bought, and what they are for if they cannot pay for everything."""
    if not lot["applies_to"]:
        return texts[lot["source"]]
    return f"{texts[lot['source']]}, {texts['only_for'].format(names=purpose_names(lot['applies_to']))}"


def _expiry(lot: Mapping[str, Any], content: Content) -> str:
    texts = TEXTS[content.language.code]
    ends = texts["never"] if lot["expires_at"] is None else _time(lot["expires_at"], content)
    if lot["starts_at"] is None:
        return ends
    return f"{ends}, {texts['from'].format(day=_time(lot['starts_at'], content))}"


def _history(details: Mapping[str, Any], account: Mapping[str, Any], content: Content) -> PageList:
    texts, language = TEXTS[content.language.code], content.language
    hides = content.data["hides_amounts"]
    rows = [
        (
            Cell(_time(entry["at"], content)),
            Cell(KINDS[entry["kind"]].on_statement[language.code]),
            None if hides else Cell(_signed_amount(entry["amount"], account, language), is_number=True),
            None if hides else Cell(_number(entry["balance"], account, language), is_number=True),
        )
        for entry in details["history"]
    ]
    headers = (
        Cell(texts["time"].format(zone=content.zone.key)),
        Cell(texts["what"]),
        None if hides else Cell(texts["amount"], is_number=True),
        None if hides else Cell(texts["balance"], is_number=True),
    )
    return replace(_table("history", texts["history"], texts["no_history"], headers, rows), is_dated=True)


def _usage(days: Sequence[Mapping[str, Any]], account: Mapping[str, Any], language: Language) -> dict[str, Any]:
    """Return the chart, the same in a sentence, and as a table."""
    texts = TEXTS[language.code]
    used = [max(each["used"], 0) for each in days]
    most = max(used)
    first, last = (language.day(date.fromisoformat(days[place]["day"])) for place in (0, -1))
    total, highest = (_number(amount, account, language) for amount in (sum(used), most))
    sentence = texts["usage_sum"].format(sum=total, unit=account["unit"], first=first, last=last, most=highest)
    rows = [
        (Cell(language.day(date.fromisoformat(each["day"]))), Cell(_number(each["used"], account, language), is_number=True))
        for each in reversed(days)
        if each["used"]
    ]
    return {
        "sentence": sentence if most else texts["no_usage"],
        "bars": [_bar(place, amount, most) for place, amount in enumerate(used) if amount],
        "width": len(days) * (BAR + GAP) - GAP,
        "height": HEIGHT,
        "most": highest,
        "first": first,
        "last": last,
        "table": _table("usage", texts["usage"], "", (Cell(texts["day"]), Cell(texts["used"], is_number=True)), rows),
    }


def _usage_group(
    name: str, groups: Sequence[Mapping[str, Any]] | None, account: Mapping[str, Any], language: Language
) -> PageList:
    """Return use by model or by member as a list, or by member and rate."""
    texts, has_rates = TEXTS[language.code], name == BY_RATE
    rows = [
        (
            Cell(each["name"] if each["group"] == "value" else texts[f"usage_{each['group']}"]),
            Cell(_rate(each, texts)) if has_rates else None,
            Cell(_number(each["used"], account, language), is_number=True),
        )
        for each in groups or ()
    ]
    headers = (
        Cell(texts["member" if has_rates else name]),
        Cell(texts["rate"]) if has_rates else None,
        Cell(texts["used"], is_number=True),
    )
    return _table(f"usage-{name}", texts[f"usage_{name}"], "", headers, rows)


def _rate(row: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    """What is said of a row's rate; nothing for all others together."""
    return "" if row["group"] == "others" else row["rate"] or texts["no_rate"]


def _bar(place: int, amount: int, most: int) -> Bar:
    height = max(amount * HEIGHT // most, LEAST_BAR)
    return Bar(place * (BAR + GAP), HEIGHT - height, BAR, height)


def _number(amount: int, account: Mapping[str, Any], language: Language) -> str:
    scale = account["decimals"]
    return language.number(Decimal(amount).scaleb(-scale), decimals=scale)


def _signed_amount(amount: int, account: Mapping[str, Any], language: Language) -> str:
    return ("+" if amount > 0 else "") + _number(amount, account, language)


def _time(text: str, content: Content) -> str:
    return content.language.date_and_time(instant(text), content.zone)

"""The alerts of the monitoring: what each means, and what to do.

The rules are those of deploy/prometheus/alerts.yml, the explanations those of docs/how-to/operations/alerts.md: the page and the
search of the admin read both, so neither is written a second time.
"""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any, Final, NamedTuple

import yaml
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

from ledger.operators.additions import SearchResult
from ledger.operators.permissions import VIEW_LOCKS
from ledger.staff.spelling import begins, resembles, words_of

RULES: Final = "deploy/prometheus/alerts.yml"
TEXTS: Final = "docs/how-to/operations/alerts.md"
MOST: Final = 5
SHORTEST: Final = 3
NAME: Final = "monitoring-alerts"
URGENCIES: Final = {"page": "Act now", "ticket": "On the next working day"}
SECTION: Final = re.compile(r"^## (\w+)$", re.MULTILINE)
CAPITAL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


class MonitoringRule(NamedTuple):
    """A rule of the monitoring: when it fires, how urgent it is, and what it means and what to do, as HTML."""

    name: str
    condition: str
    lasting: str
    urgency: str
    text: SafeString


@cache
def alerts() -> tuple[MonitoringRule, ...]:
    """Return the alerts in the order of their rules; none where the files are not installed."""
    rules_file, texts_file = Path(settings.BASE_DIR, RULES), Path(settings.BASE_DIR, TEXTS)
    if not (rules_file.is_file() and texts_file.is_file()):
        return ()
    _, *parts = SECTION.split(texts_file.read_text("utf-8"))
    texts = dict(zip(parts[::2], parts[1::2], strict=True))
    rules = [rule for group in yaml.safe_load(rules_file.read_text("utf-8"))["groups"] for rule in group["rules"]]
    return tuple(
        MonitoringRule(
            name=rule["alert"],
            condition=" ".join(str(rule["expr"]).split()),
            lasting=str(rule.get("for", "")),
            urgency=URGENCIES[rule["labels"]["severity"]],
            text=_html(texts[rule["alert"]]),
        )
        for rule in rules
    )


def _html(text: str) -> SafeString:
    """Return a section of the docs as HTML: the file is part of the program, and raw HTML in it is escaped."""
    has_docs = Path(settings.DOCS_DIR, "index.html").is_file()
    linked = LINK.sub(lambda found: _link(found[1], found[2], has_docs=has_docs), text)
    return mark_safe(MarkdownIt("commonmark", {"html": False}).enable("table").render(linked))  # noqa: S308


def _link(words: str, target: str, *, has_docs: bool) -> str:
    """Return a link of the docs as one to the site of the docs; its words where they are not served."""
    page, _, anchor = target.partition("#")
    if not has_docs or not page.endswith(".md"):
        return words
    address = PurePosixPath(normpath(PurePosixPath(TEXTS).parent / page)).relative_to("docs").with_suffix("")
    folder = address.parent if address.name == "index" else address
    return f"[{words}](/docs/{folder}/{f'#{anchor}' if anchor else ''})"


def page(request: HttpRequest) -> HttpResponse:
    """Show all alerts; each can be linked by its name."""
    # Imported here, so that a command, which reads this module too, does not load the admin's pages.
    from django.contrib import admin
    from django.core.exceptions import PermissionDenied
    from django.template.response import TemplateResponse

    if not request.user.has_perm(VIEW_LOCKS):
        raise PermissionDenied
    context = {**admin.site.each_context(request), "title": "Monitoring alerts", "alerts": alerts()}
    return TemplateResponse(request, "admin/monitoring_alerts.html", context)


def find(request: Any, word: str) -> list[SearchResult]:
    """Return the alerts whose names begin with what was typed, as one word or as several."""
    typed = word.strip().lower()
    fitting = [alert for alert in alerts() if alert.name.lower().startswith(typed) or _fits(begins, word, alert)]
    return _find(request, fitting, word)


def guess(request: Any, word: str) -> list[SearchResult]:
    """Return the same for words with one typo. A single word resembles the whole name only: nouns of pages find no alerts."""
    typed = words_of(word)
    fitting = [
        alert
        for alert in alerts()
        if (resembles(typed, words_of(alert.name)) if len(typed) == 1 else _fits(resembles, word, alert))
    ]
    return _find(request, fitting, word)


def _fits(compare: Any, word: str, alert: MonitoringRule) -> bool:
    typed = words_of(word)
    return bool(typed) and bool(compare(typed, words_of(f"{CAPITAL.sub(' ', alert.name)} alert {alert.name}")))


def _find(request: Any, found: Sequence[MonitoringRule], word: str) -> list[SearchResult]:
    if len(word.strip()) < SHORTEST or not request.user.has_perm(VIEW_LOCKS):
        return []
    address = reverse(NAME)
    return [
        SearchResult(
            title=each.name,
            description=f"alert: {each.urgency.lower()}",
            url=f"{address}#{each.name}",
            icon="notification_important",
        )
        for each in found[:MOST]
    ]

"""Ctrl+K: find anything by a word: holder, entry, reference, idempotency key, request id, and things of other applications."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from django.contrib import messages
from django.contrib.admin.utils import quote
from django.core.paginator import Paginator
from django.db import connection
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from ledger import reads
from ledger.models import BatchListing, EntryListing, RateListing
from ledger.operators import additions
from ledger.operators.additions import SearchResult
from ledger.operators.permissions import (
    REFUND_SPEND,
    VIEW_ACCOUNT,
    VIEW_BATCHLISTING,
    VIEW_ENTRYLISTING,
    VIEW_RATELISTING,
    VIEW_REFUSALLISTING,
)
from ledger.rules.kinds import KINDS, REFUNDABLE, taken_by
from ledger.staff.entry_search import BY_KEY, BY_REFERENCE, BY_WORD, HISTORY, find, split_entry_id
from ledger.staff.history import Conditions, never_reading_whole_tables
from ledger.staff.kit.cells import instant_words, row_url
from ledger.staff.links import entry_url, holder_url, refusal_url
from ledger.staff.spelling import begins, misspellings, resembles, words_of
from ledger.units import unit_of

MOST = 5
LONGEST = 255
# By the index on the first entries of accounts.
EXISTING = f"SELECT DISTINCT holder_id FROM ledger_entry WHERE sequence = 1 AND holder_id = ANY(%s) LIMIT {MOST}"
BY_REQUEST = "kind = 'refusal' AND refusal ->> 'request_id' = %s"
NAMES_READ = 500
SHORTEST_NAME = 3
HINT = (
    "Page, action, customer (name, e-mail, VAT id), holder, invoice number, payment, plan, pack, coupon, API key, "
    "reference, idempotency key or request id."
)


def find_anything(request: HttpRequest) -> HttpResponse:
    """Respond to the search box of Ctrl+K, as unfold's own view does."""
    began = time.monotonic()
    word = request.GET.get("s", "").strip()
    if not word:
        return HttpResponse()
    findings = search(request, word)
    if "go" in request.GET:
        return _go(request, word, findings)
    pages = Paginator(findings, max(len(findings), 1))
    context = {
        "page_obj": pages,
        "results": pages.page(1),
        "page_counter": 0,
        "execution_time": time.monotonic() - began,
        "word": word[:60],
        "hint": HINT,
    }
    return TemplateResponse(request, "admin/ledger/home/search_results.html", context, headers={"HX-Trigger": "search"})


def _go(request: HttpRequest, word: str, found: list[SearchResult]) -> HttpResponse:
    """Lead to the first result; without one, back to the first page with a message."""
    if not found:
        messages.info(request, f"No results for “{word[:60]}”. Search by: {HINT}")
    return HttpResponseRedirect(found[0].url if found else reverse("admin:index"))


def search(request: HttpRequest, word: str) -> list[SearchResult]:
    """Return what the operator may see for that word, each thing once; by index only, at most MOST of a kind."""
    if len(word) > LONGEST or "\x00" in word:
        return []
    found = [
        *_holders(request, word),
        *_entries(request, word),
        *_batches(request, word),
        *_find_rates(request, word, begins),
        *additions.search(request, word),
    ]
    if not found:
        found = [*_similar_holders(request, word), *_find_rates(request, word, resembles), *additions.guesses(request, word)]
    return list({(each.url, each.title): each for each in sorted(found, key=lambda each: each.rank)}.values())


def _similar_holders(request: HttpRequest, word: str) -> list[SearchResult]:
    """Return holders whose id is the word with one typo."""
    spellings = misspellings(word.lower()) if request.user.has_perm(VIEW_ACCOUNT) else []
    if not spellings:
        return []
    with never_reading_whole_tables(), connection.cursor() as cursor:
        cursor.execute(EXISTING, [spellings])
        return [_holder(holder_id) for (holder_id,) in cursor.fetchall()]


def _find_rates(request: HttpRequest, word: str, fits: Callable[[Iterable[str], Iterable[str]], bool]) -> list[SearchResult]:
    """Return rates by words of their names, among NAMES_READ."""
    typed = words_of(word)
    if not typed or len(word) < SHORTEST_NAME:
        return []
    findings: list[SearchResult] = []
    if request.user.has_perm(VIEW_RATELISTING):
        rates = {(rate.credit_type, rate.code): rate for rate in RateListing.objects.order_by("credit_type", "code")[:NAMES_READ]}
        fitting = [rate for rate in rates.values() if fits(typed, words_of(rate.code))]
        findings += [
            SearchResult(title=rate.code, description="rate", url=row_url(RateListing, rate.pk), icon="price_check")
            for rate in fitting[:MOST]
        ]
    return findings


def _holders(request: HttpRequest, word: str) -> list[SearchResult]:
    if not request.user.has_perm(VIEW_ACCOUNT):
        return []
    accounts = reads.holders(prefix=word, limit=MOST * 4)
    ids = list(dict.fromkeys(account.holder_id for account in accounts))[:MOST]
    return [_holder(each) for each in ids]


def _holder(holder_id: str) -> SearchResult:
    return SearchResult(title=holder_id, description="holder", url=holder_url(holder_id), icon="account_balance_wallet")


def _entries(request: HttpRequest, word: str) -> list[SearchResult]:
    """Return entries by number, reference and key; refusals also by the id of the refused request."""
    rows: list[Any] = []
    if split_entry_id(word):
        rows = [row for row in [find(word)] if row is not None]
    else:
        for each in HISTORY.searched(BY_WORD, (BY_REFERENCE, BY_KEY, BY_REQUEST), word, Conditions()):
            rows += each[:MOST]
    may_see = {
        True: request.user.has_perm(VIEW_REFUSALLISTING),
        False: request.user.has_perm(VIEW_ENTRYLISTING),
    }
    seen = [row for row in rows if may_see[row.kind == "refusal"]]
    may_refund = request.user.has_perm(REFUND_SPEND)
    return [_entry(row, word) for row in seen] + [_refund(row) for row in seen if may_refund and row.kind in REFUNDABLE]


def _entry(row: EntryListing, word: str) -> SearchResult:
    how = "reference" if row.reference == word else "idempotency key" if row.idempotency_key == word else "request"
    description = f"{row.holder_id}, {row.credit_type}: {instant_words(row.recorded_at)}, by {how}"
    if row.kind == "refusal":
        url = refusal_url(row.holder_id, row.credit_type, row.sequence)
        return SearchResult(title=f"Refusal #{row.sequence}", description=description, url=url, icon="do_not_disturb_on")
    title = f"{KINDS[row.kind].title} #{row.sequence}"
    url = entry_url(row.holder_id, row.credit_type, row.sequence)
    return SearchResult(title=title, description=description, url=url, icon="receipt_long")


def _refund(row: EntryListing) -> SearchResult:
    """Return the form that refunds a spend: support looks up references for that."""
    url = reverse("admin:ledger_entrylisting_refund", args=[quote(row.pk)])
    description = f"{row.holder_id}, {row.credit_type}: {unit_of(row.credit_type).amount(taken_by(row))}"
    return SearchResult(title=f"Refund {row.kind} #{row.sequence}", description=description, url=url, icon="undo")


def _batches(request: HttpRequest, word: str) -> list[SearchResult]:
    if not request.user.has_perm(VIEW_BATCHLISTING):
        return []
    rows = [
        *BatchListing.objects.filter(idempotency_key=word)[:MOST],
        *BatchListing.objects.filter(request_id=word).exclude(request_id="")[:MOST],
    ]
    return [
        SearchResult(
            title=f"Batch {row.idempotency_key}",
            description=instant_words(row.recorded_at),
            url=reverse("admin:ledger_batchlisting_change", args=[quote(row.pk)]),
            icon="stacks",
        )
        for row in rows
    ]

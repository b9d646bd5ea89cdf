"""Ctrl+K: find anything by a word: holder, entry, reference, idempotency key, request id, and things of other applications."""

import time
from typing import Any

from django.contrib.admin.utils import quote
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from ledger import reads
from ledger.admin.entries.search import BY_KEY, BY_REFERENCE, BY_WORD, HISTORY, find, split_entry_id
from ledger.admin.history import Conditions
from ledger.admin.kit.cells import instant_words
from ledger.admin.links import entry_url, holder_url, refusal_url
from ledger.models import BatchListing, EntryListing
from ledger.operators import additions
from ledger.operators.additions import Found
from ledger.operators.permissions import REFUND_SPEND, VIEW_ACCOUNT, VIEW_BATCHLISTING, VIEW_ENTRYLISTING, VIEW_REFUSALLISTING
from ledger.rules.kinds import KINDS, REFUNDABLE, taken_by
from ledger.units import unit_of

MOST = 5
LONGEST = 255
BY_REQUEST = "kind = 'refusal' AND refusal ->> 'request_id' = %s"
HINT = "Holder, reference, idempotency key, request id, document number, or the reference or name of a customer or plan."


def find_anything(request: HttpRequest) -> HttpResponse:
    """Respond to the search box of Ctrl+K, as unfold's own view does."""
    began = time.monotonic()
    word = request.GET.get("s", "").strip()
    if not word:
        return HttpResponse()
    found = search(request, word)
    pages = Paginator(found, max(len(found), 1))
    context = {
        "page_obj": pages,
        "results": pages.page(1),
        "page_counter": 0,
        "execution_time": time.monotonic() - began,
        "word": word[:60],
        "hint": HINT,
    }
    return TemplateResponse(request, "admin/ledger/home/search_results.html", context, headers={"HX-Trigger": "search"})


def search(request: HttpRequest, word: str) -> list[Found]:
    """Return what the operator may see for that word, each thing once; by index only, at most MOST of a kind."""
    if len(word) > LONGEST or "\x00" in word:
        return []
    found = [*_holders(request, word), *_entries(request, word), *_batches(request, word), *additions.search(request, word)]
    return list({each.url: each for each in found}.values())


def _holders(request: HttpRequest, word: str) -> list[Found]:
    if not request.user.has_perm(VIEW_ACCOUNT):
        return []
    accounts = reads.holders(prefix=word, limit=MOST * 4)
    ids = list(dict.fromkeys(account.holder_id for account in accounts))[:MOST]
    return [Found(title=each, description="holder", url=holder_url(each), icon="account_balance_wallet") for each in ids]


def _entries(request: HttpRequest, word: str) -> list[Found]:
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


def _entry(row: EntryListing, word: str) -> Found:
    how = "reference" if row.reference == word else "idempotency key" if row.idempotency_key == word else "request"
    description = f"{row.holder_id}, {row.credit_type}: {instant_words(row.recorded_at)}, by {how}"
    if row.kind == "refusal":
        url = refusal_url(row.holder_id, row.credit_type, row.sequence)
        return Found(title=f"Refusal #{row.sequence}", description=description, url=url, icon="do_not_disturb_on")
    title = f"{KINDS[row.kind].title} #{row.sequence}"
    url = entry_url(row.holder_id, row.credit_type, row.sequence)
    return Found(title=title, description=description, url=url, icon="receipt_long")


def _refund(row: EntryListing) -> Found:
    """Return the form that refunds a spend: support looks up references for that."""
    url = reverse("admin:ledger_entrylisting_refund", args=[quote(row.pk)])
    description = f"{row.holder_id}, {row.credit_type}: {unit_of(row.credit_type).amount(taken_by(row))}"
    return Found(title=f"Refund {row.kind} #{row.sequence}", description=description, url=url, icon="undo")


def _batches(request: HttpRequest, word: str) -> list[Found]:
    if not request.user.has_perm(VIEW_BATCHLISTING):
        return []
    rows = [
        *BatchListing.objects.filter(idempotency_key=word)[:MOST],
        *BatchListing.objects.filter(request_id=word).exclude(request_id="")[:MOST],
    ]
    return [
        Found(
            title=f"Batch {row.idempotency_key}",
            description=instant_words(row.recorded_at),
            url=reverse("admin:ledger_batchlisting_change", args=[quote(row.pk)]),
            icon="stacks",
        )
        for row in rows
    ]

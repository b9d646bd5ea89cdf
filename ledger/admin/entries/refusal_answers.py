"""What a refusal's page answers: why, what can be done now, and what became of the same case later."""

from datetime import timedelta
from typing import Any, NamedTuple

from django.contrib.admin.utils import quote
from django.db import connection
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from ledger import reads
from ledger.admin.kit.cells import number_text
from ledger.admin.links import account_id, entry_id, entry_link, refusal_link
from ledger.models import RefusalListing
from ledger.rules import KINDS
from ledger.rules.instants import to_us
from ledger.rules.texts.credit_units import CreditUnit
from ledger.rules.texts.refusal_texts import Remedy, are, refusal_text, remedies

LOOKED_AT_LATER = 1_000
"""How many of the account's next entries are searched for the same reference."""

# By the primary key: the entries right behind the refusal, no more of them than that.
LATER = f"""
SELECT later.sequence, later.kind, later.amount, later.recorded_at, later.refusal
FROM (
    SELECT sequence, kind, amount, recorded_at, reference, refusal
    FROM ledger_entry
    WHERE holder_id = %s AND credit_type = %s AND sequence > %s
    ORDER BY sequence
    LIMIT {LOOKED_AT_LATER}
) AS later
WHERE later.reference = %s AND later.kind <> 'refund'
ORDER BY later.sequence
LIMIT 1
"""


class Way(NamedTuple):
    """Something that can be done, with the address of its form where an operator may do it."""

    text: str
    url: str = ""


def as_recorded(row: RefusalListing) -> dict[str, Any]:
    """The refusal as the rules tell it."""
    return {"operation": row.operation, "code": row.code, "facts": row.facts, "request": row.request}


def answer_of(row: RefusalListing, unit: CreditUnit) -> str:
    """Why it was refused, in sentences."""
    return refusal_text(as_recorded(row), at=timezone.localtime(row.recorded_at), unit=unit)


def context_of(request: HttpRequest, row: RefusalListing, unit: CreditUnit) -> dict[str, Any]:
    """What the page's first part shows."""
    now = reads.balance(row.holder_id, row.credit_type)
    return {
        "answer": answer_of(row, unit),
        "notes": [note for note in (_now(row, now, unit), _later(row, unit)) if note],
        "ways": [way for way in (_way(request, row, remedy, now, unit) for remedy in _remedies(row, unit)) if way is not None],
    }


def _remedies(row: RefusalListing, unit: CreditUnit) -> list[Remedy]:
    return remedies(as_recorded(row), at=timezone.localtime(row.recorded_at), unit=unit)


def _now(row: RefusalListing, now: reads.Balance, unit: CreditUnit) -> str:
    """Whether the same request would go through now; nothing for requests that more credits would not help."""
    requested = row.facts.get("requested")
    if row.code != "insufficient-credits" or row.operation == "capture" or requested is None:
        return ""
    found = f"Now {unit.number(now.available)} {are(now.available, unit)} spendable"
    if now.available >= requested:
        return f"{found}: the same request with a new key would go through."
    return f"{found}: the same request would be short by {unit.number(requested - now.available)}."


def _later(row: RefusalListing, unit: CreditUnit) -> SafeString | str:
    """Whether the same reference was asked again, and with what result."""
    reference = row.request.get("reference")
    if not reference:
        return "The request had no reference, so a later attempt cannot be recognised."
    with connection.cursor() as cursor:
        cursor.execute(LATER, [row.holder_id, row.credit_type, row.sequence, reference])
        found = cursor.fetchone()
    if found is None:
        return f"The reference {reference} was not asked again in the next {number_text(LOOKED_AT_LATER)} entries of the account."
    sequence, kind, amount, recorded_at, refusal = found
    after = _lapse(recorded_at - row.recorded_at)
    if kind == "refusal":
        words = refusal_text(refusal, at=timezone.localtime(recorded_at), unit=unit)
        there = refusal_link(row.holder_id, row.credit_type, sequence, f"#{sequence}")
        return format_html("The reference {} was asked again {} later ({}). {}", reference, after, there, words)
    there = entry_link(row.holder_id, row.credit_type, sequence)
    words = f"{KINDS[kind].words} of {unit.number(abs(amount))}"
    return format_html("The reference {} was asked again {} later and went through: {} {}.", reference, after, words, there)


def _lapse(passed: timedelta) -> str:
    """How long, in the largest unit that fits."""
    seconds = max(int(passed.total_seconds()), 0)
    for name, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            count = seconds // size
            return f"{count} {name}{'' if count == 1 else 's'}"
    return "1 second" if seconds == 1 else f"{seconds} seconds" if seconds else "less than a second"


def _way(request: HttpRequest, row: RefusalListing, remedy: Remedy, now: reads.Balance, unit: CreditUnit) -> Way | None:
    """The remedy with its form, where it still helps and the operator may; without the form, where only somebody else can."""
    if remedy.action == "grant" and request.user.has_perm("ledger.grant_credits"):
        asked = {"amount": unit.typed(remedy.amount or 0), "reference": str(row.request.get("reference") or "")}
        address = reverse("admin:ledger_account_grant", args=[quote(account_id(row.holder_id, row.credit_type))])
        return Way(remedy.text, f"{address}?{urlencode(asked)}")
    if remedy.action == "release":
        is_open = any(hold.sequence == remedy.sequence and not hold.is_expired(to_us(now.as_of)) for hold in now.holds)
        if not is_open:
            return None
        return Way(remedy.text, _of_entry(request, row, remedy, "release", "ledger.release_hold"))
    if remedy.action == "refund":
        return Way(remedy.text, _of_entry(request, row, remedy, "refund", "ledger.refund_spend"))
    if remedy.action == "publish" and request.user.has_perm("ledger.publish_rate"):
        return Way(remedy.text, reverse("admin:ledger_ratelisting_publish"))
    return Way(remedy.text)


def _of_entry(request: HttpRequest, row: RefusalListing, remedy: Remedy, form: str, permission: str) -> str:
    if not request.user.has_perm(permission):
        return ""
    key = entry_id(row.holder_id, row.credit_type, remedy.sequence or 0)
    return reverse(f"admin:ledger_entrylisting_{form}", args=[quote(key)])

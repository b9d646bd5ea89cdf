"""The answer on a refusal's page: the reason, what can be done now, and whether a later request succeeded."""

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
from ledger.models import RefusalListing
from ledger.operators.permissions import GRANT_CREDITS, REFUND_SPEND, RELEASE_HOLD
from ledger.rules.credit_units import CreditUnit
from ledger.rules.instants import to_us
from ledger.rules.kinds import KINDS
from ledger.rules.refusal_texts import Remedy, are, refusal_text, remedies
from ledger.staff.kit.cells import number_text
from ledger.staff.links import account_id, entry_id, entry_link, refusal_link

LOOKED_AT_LATER = 1_000
"""How many of the account's next entries are searched for the same reference."""

# Found by the primary key: only the entries right behind the refusal.
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


class Advice(NamedTuple):
    """A possible action, with the address of its form if the operator may execute it."""

    text: str
    url: str = ""


def as_recorded(row: RefusalListing) -> dict[str, Any]:
    """Return the refusal with the names that the rules use."""
    return {"operation": row.operation, "code": row.code, "facts": row.facts, "request": row.request}


def answer_of(row: RefusalListing, unit: CreditUnit) -> str:
    """Return why it was refused, in sentences."""
    return refusal_text(as_recorded(row), at=timezone.localtime(row.recorded_at), unit=unit)


def context_of(request: HttpRequest, row: RefusalListing, unit: CreditUnit) -> dict[str, Any]:
    """Return the content of the page's first part."""
    now = reads.balance(row.holder_id, row.credit_type)
    return {
        "answer": answer_of(row, unit),
        "notes": [note for note in (_now(row, now, unit), _later(row, unit)) if note],
        "ways": [way for way in (_way(request, row, remedy, now, unit) for remedy in _remedies(row, unit)) if way is not None],
    }


def _remedies(row: RefusalListing, unit: CreditUnit) -> list[Remedy]:
    return remedies(as_recorded(row), at=timezone.localtime(row.recorded_at), unit=unit)


def _now(row: RefusalListing, now: reads.Balance, unit: CreditUnit) -> str:
    """Say whether the same request would succeed now; empty if more credits would not help."""
    requested = row.facts.get("requested")
    if row.code != "insufficient-credits" or row.operation == "capture" or requested is None:
        return ""
    found = f"Now {unit.number(now.available)} {are(now.available, unit)} spendable"
    if now.available >= requested:
        return f"{found}: the same request with a new key would succeed."
    return f"{found}: the same request would be short by {unit.number(requested - now.available)}."


def _later(row: RefusalListing, unit: CreditUnit) -> SafeString | str:
    """Say whether a later request had the same reference, and its result."""
    reference = row.request.get("reference")
    if not reference:
        return "The request had no reference, so a later attempt cannot be recognised."
    with connection.cursor() as cursor:
        cursor.execute(LATER, [row.holder_id, row.credit_type, row.sequence, reference])
        found = cursor.fetchone()
    if found is None:
        return (
            f"No request with the reference {reference} is among the next {number_text(LOOKED_AT_LATER)} entries of the account."
        )
    sequence, kind, amount, recorded_at, refusal = found
    after = _lapse(recorded_at - row.recorded_at)
    if kind == "refusal":
        words = refusal_text(refusal, at=timezone.localtime(recorded_at), unit=unit)
        there = refusal_link(row.holder_id, row.credit_type, sequence, f"#{sequence}")
        return format_html("A request with the reference {} was refused {} later ({}). {}", reference, after, there, words)
    there = entry_link(row.holder_id, row.credit_type, sequence)
    words = f"{KINDS[kind].words} of {unit.number(abs(amount))}"
    return format_html("A request with the reference {} succeeded {} later: {} {}.", reference, after, words, there)


def _lapse(passed: timedelta) -> str:
    """Return a duration in the largest unit that fits."""
    seconds = max(int(passed.total_seconds()), 0)
    for name, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            count = seconds // size
            return f"{count} {name}{'' if count == 1 else 's'}"
    return "1 second" if seconds == 1 else f"{seconds} seconds" if seconds else "less than a second"


def _way(request: HttpRequest, row: RefusalListing, remedy: Remedy, now: reads.Balance, unit: CreditUnit) -> Advice | None:
    """Return the remedy with its form if it still helps and the operator may; without the form if only somebody else can."""
    if remedy.action == "grant" and request.user.has_perm(GRANT_CREDITS):
        typed = {"amount": unit.typed(remedy.amount or 0), "reference": str(row.request.get("reference") or "")}
        address = reverse("admin:ledger_account_grant", args=[quote(account_id(row.holder_id, row.credit_type))])
        return Advice(remedy.text, f"{address}?{urlencode(typed)}")
    if remedy.action == "release":
        is_open = any(hold.sequence == remedy.sequence and not hold.is_expired(to_us(now.as_of)) for hold in now.holds)
        if not is_open:
            return None
        return Advice(remedy.text, _of_entry(request, row, remedy, "release", RELEASE_HOLD))
    if remedy.action == "refund":
        return Advice(remedy.text, _of_entry(request, row, remedy, "refund", REFUND_SPEND))
    return Advice(remedy.text)


def _of_entry(request: HttpRequest, row: RefusalListing, remedy: Remedy, form: str, permission: str) -> str:
    if not request.user.has_perm(permission):
        return ""
    key = entry_id(row.holder_id, row.credit_type, remedy.sequence or 0)
    return reverse(f"admin:ledger_entrylisting_{form}", args=[quote(key)])

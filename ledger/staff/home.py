"""The first page: what needs attention, current refusals, accounts that run dry, and where to begin."""

from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from ledger.operators import additions
from ledger.operators.additions import Attention
from ledger.operators.permissions import GRANT_CREDITS, VIEW_ACCOUNT, VIEW_ENTRYLISTING, VIEW_LOCKS, VIEW_REFUSALLISTING
from ledger.reads.lock_report import current_locks
from ledger.rules.refusal_texts import when
from ledger.staff import approvals, home_reads, use_charts
from ledger.staff.home_reads import Lately, RefusalCounts, Running
from ledger.staff.kit import charts
from ledger.staff.links import entries_url, holder_url, refusals_url
from ledger.staff.permissions import VIEW_APPROVAL
from ledger.units import units_of

SHOWN = 8
LONG_WAIT_S = 1
TONES = ("danger", "warning", "info")


def context(request: HttpRequest, given: dict[str, Any]) -> dict[str, Any]:
    """Return the content of the first page for this operator now; unfold's DASHBOARD_CALLBACK."""
    now = timezone.localtime()
    may = request.user.has_perm
    lately = home_reads.lately(now=now) if may(VIEW_ACCOUNT) else Lately([], None, now)
    overview = additions.overview(request)
    shown: dict[str, Any] = {
        "as_of": now,
        "headlines": overview.headlines,
        "parts": additions.home_parts(request, now),
        "charts": [*overview.charts, *(use_charts.charts(request, lately) if may(VIEW_ENTRYLISTING) else ())],
        "attention": _attention(request, lately),
        "starts": _starts(request),
        "is_new": may(VIEW_ACCOUNT) and lately.since is None,
        "may_see_holders": may(VIEW_ACCOUNT),
        "lately_since": lately.since,
        "looked_at": f"{home_reads.ENTRIES_LOOKED_AT:,}",
        "dry": _running(lately.dry()[:SHOWN], now),
        "expiring": _running(lately.expiring()[:SHOWN], now),
    }
    if may(VIEW_REFUSALLISTING):
        shown |= _chart_refusals(home_reads.refused(now=now))
    return {**given, "title": "Home", **shown}


def _attention(request: HttpRequest, lately: Lately) -> list[Attention]:
    """Return what needs a person's attention, the worst first."""
    items = [*_waits(request), *_to_approve(request), *_list_unbooked(lately), *additions.attention(request)]
    return sorted(items, key=lambda item: TONES.index(item.tone))


def _to_approve(request: HttpRequest) -> list[Attention]:
    if not (request.user.has_perm(VIEW_APPROVAL) and approvals.limits() and (count := approvals.waiting())):
        return []
    text = "1 form waits for a second operator." if count == 1 else f"{count} forms wait for a second operator."
    url = reverse("admin:ledger_staff_approval_changelist")
    return [Attention(tone="info", text=text, url=url, action="Approve or decline")]


def _waits(request: HttpRequest) -> list[Attention]:
    if not request.user.has_perm(VIEW_LOCKS):
        return []
    waits = [lock.seconds or 0 for lock in current_locks() if not lock.granted and (lock.seconds or 0) > LONG_WAIT_S]
    if not waits:
        return []
    noun = "session waits" if len(waits) == 1 else "sessions wait"
    text = f"{len(waits)} {noun} for a lock for more than {LONG_WAIT_S} s, the longest for {max(waits):.0f} s."
    return [Attention(tone="danger", text=text, url=reverse("admin:ledger_locks"), action="See the locks")]


def _list_unbooked(lately: Lately) -> list[Attention]:
    unbooked = lately.unbooked()
    if not unbooked:
        return []
    first = unbooked[0].balance
    noun = "account has" if len(unbooked) == 1 else "accounts have"
    text = f"{len(unbooked)} {noun} expirations that are not booked over an hour after their time, such as {first.holder_id}'s."
    url = holder_url(first.holder_id, type=first.credit_type)
    return [Attention(tone="warning", text=text, url=url, action="Open the account")]


def _starts(request: HttpRequest) -> list[tuple[str, str, str]]:
    """Return the most frequent operations, as far as this operator may execute them: text, icon, address."""
    offered = (
        ("Find a holder", "person_search", reverse("admin:ledger_account_changelist"), VIEW_ACCOUNT),
        ("Grant credits", "add", reverse("admin:ledger_account_grant_to_anyone"), GRANT_CREDITS),
        ("Latest refusals", "do_not_disturb_on", refusals_url(), VIEW_REFUSALLISTING),
        ("Latest entries", "receipt_long", entries_url(), VIEW_ENTRYLISTING),
    )
    return [(text, icon, url) for text, icon, url, permission in offered if request.user.has_perm(permission)]


def _chart_refusals(found: RefusalCounts) -> dict[str, Any]:
    """Return the chart of refusals per hour, and the same in words."""
    labels = [f"{found.since + timedelta(hours=hour):%H:00}" for hour in range(home_reads.HOURS)]
    most = "" if found.is_all else f" (the newest {home_reads.REFUSALS_COUNTED:,})"
    codes = ", ".join(f"{count:,} {code.replace('-', ' ')}" for code, count in found.by_code)
    total = f"{found.total:,} in the last {home_reads.HOURS} hours{most}: {codes}." if found.total else ""
    return {
        "may_see_refusals": True,
        "refused_chart": charts.data(labels, charts.bars("Refusals", found.by_hour)) if found.total else "",
        "refused_options": charts.options(unit="refusals"),
        "refused_text": total or f"None in the last {home_reads.HOURS} hours.",
        "refusals_url": refusals_url(),
    }


def _running(accounts: list[Running], now: datetime) -> list[dict[str, Any]]:
    units = units_of(each.balance.credit_type for each in accounts)
    return [_row(each, units[each.balance.credit_type], now) for each in accounts]


def _row(each: Running, unit: Any, now: datetime) -> dict[str, Any]:
    balance, days = each.balance, each.lasts_days
    return {
        "holder_id": balance.holder_id,
        "url": holder_url(balance.holder_id, type=balance.credit_type),
        "available": unit.amount(balance.available),
        "lasts": _lasts(balance.available, days),
        "a_day": unit.number(round(each.pace.a_day)),
        "expires": "" if balance.next_expiry is None else unit.amount(balance.next_expiry.amount),
        "expires_when": "" if balance.next_expiry is None else when(balance.next_expiry.at, at=now),
    }


def _lasts(available: int, days: int | None) -> str:
    if days is None:
        return ""
    if available == 0:
        return "nothing left"
    return "less than a day" if days < 1 else f"{days} day{'' if days == 1 else 's'}"

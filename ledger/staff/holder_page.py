"""One page per holder: the credits, how long they last, what happened, and who granted them."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ledger import conf, reads
from ledger.models import EntryListing
from ledger.operators import additions
from ledger.operators.permissions import (
    GRANT_CREDITS,
    RELEASE_HOLD,
    SET_BUDGET,
    SET_RECURRING_GRANT,
    VIEW_ACCOUNT,
    VIEW_ENTRYLISTING,
)
from ledger.reads import Balance, BudgetUse, ShownBudget, ShownRecurringGrant
from ledger.rules.budget_states import Budget
from ledger.rules.budget_texts import scope_words, window_words
from ledger.rules.credit_units import CreditUnit, currency_unit
from ledger.rules.entry_texts import REASONS_OF_THE_LEDGER, entry_text
from ledger.rules.instants import from_us, to_us
from ledger.rules.lots import Lot
from ledger.rules.purpose_texts import purpose_words
from ledger.rules.recurring_terms import name_words
from ledger.rules.recurring_texts import amount_words, expiry_words
from ledger.rules.refusal_texts import when
from ledger.rules.usage_rates import BurnRate, stocks_of
from ledger.staff import holder_reads
from ledger.staff.holder_reads import GrantOf, StateAt
from ledger.staff.holder_usage import CSV, FORMAT, usage_file, usage_section
from ledger.staff.kit import charts
from ledger.staff.kit.cells import digits, timestamp
from ledger.staff.kit.charts import FAINT, STAIRCASE, STRONG
from ledger.staff.kit.columns import table_of
from ledger.staff.kit.pages import ReadOnlyAdmin, guarded
from ledger.staff.links import account_id, entries_url, entry_id, entry_url, holder_url, refusal_url, refusals_url
from ledger.units import units_of
from ledger.values import CREDIT_TYPE, HOLDER_ID, MAX_SEQUENCE

TYPES_SHOWN = 50
LOTS_SHOWN = 50
HOLDS_SHOWN = 50
BUDGET_ROWS = 100
ROWS_OF_A_BUDGET = 20
ENDS = ("end_budget", "end_recurring_grant")
TIME_LINE_ROWS = 25
METADATA_SHOWN = 8
CHART_DAYS = (30, 90, 365)
LEAST_PERCENT = 1.5
"""The least width of a part of a bar, so that every part is visible."""


def url(model_admin: ReadOnlyAdmin) -> URLPattern:
    """Return the address of a holder's page."""
    view = partial(page, model_admin)
    return guarded(model_admin, "holders/<path:holder_id>/", view, name="ledger_holder", permission=VIEW_ACCOUNT)


def page(model_admin: ReadOnlyAdmin, request: HttpRequest, holder_id: str) -> HttpResponseBase:
    """Show the holder in one credit type, with the others beside; or say that no such holder ever existed."""
    context = {**model_admin.admin_site.each_context(request), "holder_id": holder_id, "title": f"Holder {holder_id}"}
    can_be = HOLDER_ID.fullmatch(holder_id) is not None
    accounts = _accounts(holder_id) if can_be else []
    sections = additions.holder_sections(request, holder_id) if can_be else []
    context |= {"sections": sections}
    if not accounts:
        return _unknown(model_admin, request, holder_id, context)
    requested = request.GET.get("type", "")
    chosen = next((account for account in accounts if account.credit_type == requested), None)
    if chosen is None:
        chosen = reads.balance(holder_id, requested) if CREDIT_TYPE.fullmatch(requested) else accounts[0]
    if request.GET.get(FORMAT) == CSV:
        return usage_file(request, chosen, _chart_days(request))
    # The holder's time: that of its test clock, if it has one.
    now = timezone.localtime(chosen.as_of)
    units = units_of([*(account.credit_type for account in accounts), chosen.credit_type])
    context |= {
        "title": f"Holder {holder_id}",
        "types": [_type(account, units[account.credit_type], chosen) for account in accounts],
    }
    context |= account_context(request, chosen, units[chosen.credit_type], now=now)
    context |= {"actions": _actions(model_admin, request, chosen)}
    context["sections"] = [
        *usage_section(request, chosen, units[chosen.credit_type], _chart_days(request)),
        *_budgets(request, chosen, units[chosen.credit_type]),
        *_recurring_grants(request, chosen, units[chosen.credit_type]),
        *sections,
    ]
    return TemplateResponse(request, "admin/ledger/holders/holder.html", context)


def _accounts(holder_id: str) -> list[Balance]:
    """Return the holder's accounts: the holder of exactly that id comes before all ids that begin with it."""
    return [account for account in reads.holders(prefix=holder_id, limit=TYPES_SHOWN) if account.holder_id == holder_id]


def _unknown(model_admin: ReadOnlyAdmin, request: HttpRequest, holder_id: str, context: dict[str, Any]) -> HttpResponse:
    """Show an id that never had credits, at most refusals: that differs from a holder without credits.

    An application can know the id, such as the holder of a new customer: then the page is found, with the forms for it.
    """
    key, may = [quote(account_id(holder_id, "credits"))], request.user.has_perm
    is_known = any(section.table.get("rows") for section in context["sections"])
    ways: list[tuple[str, str, str]] = [("Grant the first credits", "grant", GRANT_CREDITS)]
    if is_known:
        ways += [(form.title, form.name, form.permission) for form in additions.account_forms() if not form.needs_entries]
    can_be = HOLDER_ID.fullmatch(holder_id) is not None
    shown = [(words, reverse(f"admin:ledger_account_{name}", args=key)) for words, name, needed in ways if can_be and may(needed)]
    context |= {"is_known": is_known, "ways": shown, "accounts_url": reverse("admin:ledger_account_changelist")}
    if HOLDER_ID.fullmatch(holder_id):
        context |= {"has_refusals": bool(reads.refusals(holder_id, limit=1)), "refusals_url": refusals_url(q=holder_id)}
    return TemplateResponse(request, "admin/ledger/holders/holder_unknown.html", context, status=200 if is_known else 404)


def _type(account: Balance, unit: CreditUnit, chosen: Balance) -> dict[str, Any]:
    return {
        "name": unit.name,
        "available": unit.amount(account.available),
        "url": holder_url(account.holder_id, type=account.credit_type),
        "is_chosen": account.credit_type == chosen.credit_type,
    }


# One account -----------------------------------------------------------------------------------------


def account_context(request: HttpRequest, account: Balance, unit: CreditUnit, *, now: datetime) -> dict[str, Any]:
    """Return the content of the page about one account."""
    seen = reads.seen(account.holder_id)
    pace = holder_reads.pace(account.holder_id, account.credit_type, first_at=seen and seen[0], now=now)
    days = _chart_days(request)
    return {
        "account": account,
        "unit": unit,
        "available": unit.number(account.available),
        "standing": _standing(account, unit, now),
        "lasting": _lasting(account, pace, unit),
        "bar": _bar(account, unit),
        "last_at": seen and seen[1],
        "first_at": seen and seen[0],
        "lots": _lots(account, unit, now),
        "more_lots": max(0, len(account.lots) - LOTS_SHOWN),
        "holds": _holds(request, account, unit, now),
        "more_holds": max(0, len(account.holds) - HOLDS_SHOWN),
        **_chart(_points(account, seen and seen[0], days=days, now=now), unit),
        "chart_links": _chart_links(account, days),
        **_time_line(request, account, unit, now),
        "entries_url": entries_url(q=account.holder_id, credit_type=account.credit_type),
        "refusals_url": refusals_url(q=account.holder_id),
    }


def _standing(account: Balance, unit: CreditUnit, now: datetime) -> str:
    """Return the parts of the balance in a sentence."""
    if account.sequence == 0:
        return f"{account.holder_id} has never had {unit.unit}."
    now_us = to_us(account.as_of)
    open_holds = [hold for hold in account.holds if not hold.is_expired(now_us)]
    parts = [f"{unit.number(account.balance)} in the balance"]
    held = sum(hold.amount for hold in open_holds)
    if held:
        first = min(hold.expires_us for hold in open_holds)
        several = ", the first" if len(open_holds) > 1 else ""
        parts.append(f"{unit.number(held)} held{several} until {when(from_us(first), at=now)}")
    coming = [lot for lot in account.lots if lot.effective_us > now_us]
    if coming:
        first = min(lot.effective_us for lot in coming)
        parts.append(
            f"{unit.number(sum(lot.remaining for lot in coming))} not yet effective, from {when(from_us(first), at=now)}"
        )
    if account.next_expiry is not None:
        verb = "expires" if unit.is_one(account.next_expiry.amount) else "expire"
        parts.append(f"{unit.number(account.next_expiry.amount)} {verb} next, {when(account.next_expiry.at, at=now)}")
    parts.append(f"{unit.number(account.owed)} owed" if account.owed else "nothing owed")
    if account.overdraft:
        parts.append(f"overdraft limit {unit.number(account.overdraft)}")
    if account.overage is not None:
        limit = "" if account.overage.limit is None else f" of {unit.number(account.overage.limit)}"
        until = when(from_us(account.overage.left_until_us), at=now)
        parts.append(f"{unit.number(account.overage.used)}{limit} used on overage, until {until}")
    if reads.freeze(account.holder_id).frozen:
        parts.insert(0, "frozen: nothing can be spent, held or transferred")
    if conf.TEST_CLOCKS.value and (clock := reads.clock(account.holder_id)).now is not None:
        parts.insert(0, f"test clock at {when(clock.now, at=now)}")
    return f"{'; '.join(parts)}."


def _lasting(account: Balance, pace: BurnRate, unit: CreditUnit) -> str:
    """Return how fast credits are used, and how long they last."""
    over = f"over the last {pace.days:.0f} days" if round(pace.days) > 1 else "in the last day"
    if pace.used <= 0:
        return f"Nothing used {over}."
    if not pace.is_known:
        used = f"{unit.number(pace.used)} used {over}"
        return f"{used}; no credits are left." if account.available == 0 else f"{used}: too short to say how long credits last."
    a_day = unit.number(round(pace.a_day)) if pace.a_day >= 1 else "less than 1"
    forecast = pace.forecast(stocks_of(account))
    if account.available == 0 or forecast is None:
        return f"About {a_day} a day {over}; no credits are left."
    ends = "lasts less than a day" if forecast.days < 1 else f"lasts {forecast.days:,} day{'' if forecast.days == 1 else 's'}"
    unused = f", and {unit.number(forecast.unused)} expire unused" if forecast.unused else ""
    return f"About {a_day} a day {over}; {ends}{unused}."


def _bar(account: Balance, unit: CreditUnit) -> list[dict[str, Any]]:
    """Return the parts of the bar, each with its share in percent."""
    now_us = to_us(account.as_of)
    overdraft_left = min(max(account.overdraft - account.owed, 0), account.available)
    parts = [
        ("spendable", "Spendable", account.available - overdraft_left),
        ("restricted", "For some things only", sum(lot.remaining for lot in account.restricted_lots)),
        ("overdraft", "Overdraft left", overdraft_left),
        ("held", "Held", sum(hold.amount for hold in account.holds if not hold.is_expired(now_us))),
        ("later", "Not yet effective", sum(lot.remaining for lot in account.lots if lot.effective_us > now_us)),
        ("owed", "Owed", account.owed),
        ("overage", "Used on overage", 0 if account.overage is None else account.overage.used),
        ("overage-left", "Overage left", 0 if account.overage is None or account.overage.limit is None else account.overage.left),
    ]
    whole = sum(amount for _, _, amount in parts)
    return [
        {"kind": kind, "name": name, "amount": unit.number(amount), "percent": f"{max(100 * amount / whole, LEAST_PERCENT):.2f}"}
        for kind, name, amount in parts
        if amount
    ]


def _actions(model_admin: ReadOnlyAdmin, request: HttpRequest, account: Balance) -> list[tuple[str, str, str]]:
    """Return the operations that the operator may execute on the account."""
    key = quote(account_id(account.holder_id, account.credit_type))
    offered: list[tuple[str, Any]] = [(name, getattr(model_admin, name)) for name in model_admin.actions_detail]
    return [
        (action.short_description, action.icon, reverse(f"admin:ledger_account_{name}", args=[key]))
        for name, action in offered
        # The rows of the budgets and recurring grants lead to their ends; only deployments for tests have clocks.
        if request.user.has_perm(action.permission) and (account.sequence or name == "grant") and name not in ENDS
        if name != "test_clock" or conf.TEST_CLOCKS.value
    ]


def _lots(account: Balance, unit: CreditUnit, now: datetime) -> list[dict[str, Any]]:
    """Return the open lots in burn order, with the rest of each, and who granted it and why."""
    shown = account.lots[:LOTS_SHOWN]
    brought = holder_reads.grants(account.holder_id, account.credit_type, [lot.grant for lot in shown])
    return [_lot(account, lot, brought.get(lot.grant), unit, now) for lot in shown]


def _lot(account: Balance, lot: Lot, grant: GrantOf | None, unit: CreditUnit, now: datetime) -> dict[str, Any]:
    # A received lot grows with each receipt, so its first amount is not the whole.
    cost = next((each for each in account.costs if each.lot == lot.grant), None)
    whole = max(grant.amount if grant and not lot.received else lot.remaining, lot.remaining)
    state = lot.state(to_us(account.as_of))
    times = {
        "spendable": "never expires" if lot.expires_at is None else f"expires {_coming(lot.expires_at, now)}",
        "not_yet_effective": f"starts {_coming(lot.effective_at, now)}",
        "expired": "expired, not booked yet",
    }
    return {
        "number": f"#{lot.grant}",
        "url": entry_url(account.holder_id, account.credit_type, lot.grant),
        "left": unit.number(lot.remaining),
        "whole": unit.number(whole),
        "percent": f"{100 * lot.remaining / whole:.1f}",
        "state": state,
        "when": times[state],
        "at": lot.effective_at if state == "not_yet_effective" else lot.expires_at,
        "cost": None if cost is None else currency_unit(cost.currency).amount(cost.left),
        "source": f"{lot.source}, received" if lot.received else lot.source,
        "priority": lot.priority if lot.priority != 100 else None,
        "purpose": purpose_words(None if lot.applies_to is None else lot.applies_to.shown()),
        "grant": grant,
    }


def _budgets(request: HttpRequest, account: Balance, unit: CreditUnit) -> list[dict[str, Any]]:
    """A section with the budgets of the account, one row for each subject; nothing where there are no budgets."""
    budgets = reads.budgets(account.holder_id, account.credit_type)
    if not budgets:
        return []
    rows = [row for budget in budgets for row in _rows_of_budget(budget)]
    may_change = request.user.has_perm(SET_BUDGET)
    table = table_of(
        rows,
        ("Budget", lambda row: _setting_link(account, "budget", row[0].name, "set_budget") if may_change else row[0].name),
        ("Limit", lambda row: _limit(row[1], unit)),
        *([("In force", lambda row: _in_force(row[1]))] if any(row[1].starts_us or row[1].ends_us for row in rows) else []),
        ("For", lambda row: _whose(*row[1:])),
        ("Used", lambda row: digits(unit.number(row[2].used if row[2] else 0))),
        ("Left", lambda row: digits(unit.number(row[2].remaining if row[2] else row[1].limit))),
        ("Mode", lambda row: f"{row[1].mode}, exceeded" if row[2] and row[2].is_exceeded else row[1].mode),
        ("Set by", lambda row: _set_by(row[0])),
        ("Resets", lambda row: timestamp(row[2].resets_at) if row[2] and row[2].resets_at else ""),
        *([("Action", lambda row: _setting_link(account, "budget", row[0].name, "end_budget", "End"))] if may_change else []),
    )
    more = [f"{budget.name}: {budget.subjects:,}" for budget in budgets if budget.subjects > ROWS_OF_A_BUDGET]
    if more:
        table["note"] = f"Of each budget the {ROWS_OF_A_BUDGET} that have used most. In all, {'; '.join(more)}."
    return [{"title": "Budgets", "table": table, "empty": ""}]


def _rows_of_budget(budget: ShownBudget) -> list[tuple[ShownBudget, Budget, BudgetUse | None]]:
    """Return a row for each subject that has used most, or one without, and one for each of its settings that come."""
    present = (
        [(budget, budget.settings, use) for use in (budget.usage[:ROWS_OF_A_BUDGET] or (None,))] if budget.is_in_force else []
    )
    return [*present, *((budget, settings, None) for settings in budget.coming)]


def _in_force(settings: Budget) -> SafeString:
    """When the budget is in force: "from 1 March until 1 April"."""
    starts = format_html("from {} ", timestamp(settings.starts_at)) if settings.starts_at else ""
    return format_html("{}until {}", starts, timestamp(settings.ends_at)) if settings.ends_at else format_html("{}", starts)


def _limit(settings: Budget, unit: CreditUnit) -> str:
    return f"{unit.number(settings.limit)} {window_words(settings.window, settings.hours, settings.time_zone)}"


def _set_by(budget: ShownBudget) -> str:
    """Who set it last; of a plan's budget the subscription, which is all that the ledger knows of the plan."""
    return f"{budget.set_by}: {budget.reference}" if budget.reference else budget.set_by


def _whose(settings: Budget, use: BudgetUse | None) -> str:
    """Whose row it is; of a budget that nobody has used yet, whose use it would count."""
    whose = scope_words(settings.by, settings.label, settings.subject if use is None else use.subject)
    return whose if use is None or not use.within else f"{whose} of {', '.join(use.within)}"


def _recurring_grants(request: HttpRequest, account: Balance, unit: CreditUnit) -> list[dict[str, Any]]:
    """A section with the recurring grants of the account; nothing where there are none."""
    recurring_grants = reads.recurring_grants(account.holder_id, account.credit_type, upcoming=1)[:BUDGET_ROWS]
    if not recurring_grants:
        return []
    may_change = request.user.has_perm(SET_RECURRING_GRANT)

    def link(row: ShownRecurringGrant, action: str, text: str = "") -> SafeString:
        return _setting_link(account, "recurring_grant", row.name, action, text)

    table = table_of(
        recurring_grants,
        ("Recurring grant", lambda row: link(row, "set_recurring_grant") if may_change else row.name),
        ("Grants", lambda row: f"{name_words(row.terms)} of {amount_words(row.terms, unit.number)}"),
        ("Credits", lambda row: expiry_words(row.terms, unit.number)),
        ("Next", lambda row: timestamp(row.next_at) if row.next_at else "finished"),
        ("Last", _last_of),
        *([("Action", lambda row: link(row, "end_recurring_grant", "End"))] if may_change else []),
    )
    return [{"title": "Recurring grants", "table": table, "empty": ""}]


def _last_of(row: ShownRecurringGrant) -> SafeString | str:
    if row.last_entry is None:
        return ""
    address = entry_url(row.holder_id, row.credit_type, row.last_entry)
    return format_html('<a class="text-link" href="{}">#{}</a>', address, row.last_entry)


def _setting_link(account: Balance, field: str, name: str, action: str, text: str = "") -> SafeString:
    address = reverse(f"admin:ledger_account_{action}", args=[quote(account_id(account.holder_id, account.credit_type))])
    return format_html('<a class="text-link" href="{}?{}">{}</a>', address, urlencode({field: name}), text or name)


def _coming(instant: datetime, now: datetime) -> str:
    """Return the day, and how far away it is."""
    days = (instant - now) / timedelta(days=1)
    far = f", in {days:.0f} days" if 1.5 <= days < 400 else ""
    return f"{when(instant, at=now)}{far}"


def _holds(request: HttpRequest, account: Balance, unit: CreditUnit, now: datetime) -> list[dict[str, Any]]:
    may_release = request.user.has_perm(RELEASE_HOLD)
    now_us = to_us(account.as_of)
    return [
        {
            "number": f"#{hold.sequence}",
            "url": entry_url(account.holder_id, account.credit_type, hold.sequence),
            "amount": unit.amount(hold.amount),
            "until": "expired, not booked yet" if hold.is_expired(now_us) else f"until {when(from_us(hold.expires_us), at=now)}",
            "release_url": reverse(
                "admin:ledger_entrylisting_release",
                args=[quote(entry_id(account.holder_id, account.credit_type, hold.sequence))],
            )
            if may_release and not hold.is_expired(now_us)
            else "",
        }
        for hold in account.holds[:HOLDS_SHOWN]
    ]


# The chart -------------------------------------------------------------------------------------------


def _chart_days(request: HttpRequest) -> int:
    given = request.GET.get("days", "")
    return int(given) if given in {str(each) for each in CHART_DAYS} else CHART_DAYS[0]


def _chart_links(account: Balance, days: int) -> list[tuple[str, str, bool]]:
    return [
        (f"{each} days", holder_url(account.holder_id, type=account.credit_type, days=each), each == days) for each in CHART_DAYS
    ]


def _points(account: Balance, first_at: datetime | None, *, days: int, now: datetime) -> list[StateAt]:
    """Return the chart of the last `days` days, or from the first entry of a newer holder on."""
    since = max(now - timedelta(days=days), first_at or now)
    return holder_reads.available_over_time(account.holder_id, account.credit_type, since=since, now=now)


def _chart(points: Sequence[StateAt], unit: CreditUnit) -> dict[str, Any]:
    """Return the data of unfold's chart, and the same in words."""
    divisor = 10**unit.scale
    span = points[-1].at - points[0].at
    available = charts.line("Available", [point.available / divisor for point in points], look=STRONG, shape=STAIRCASE)
    balance = charts.line("Balance", [point.balance / divisor for point in points], look=FAINT, shape=STAIRCASE)
    amounts, first = [point.available for point in points], timezone.localtime(points[0].at)
    return {
        "chart": charts.data([_label(point.at, span) for point in points], available, balance),
        "chart_options": charts.options(unit=unit.unit, decimals=unit.scale),
        "chart_text": (
            f"{unit.number(amounts[0])} on {first.day} {first:%b %Y}, {unit.number(amounts[-1])} now; "
            f"at least {unit.number(min(amounts))}, at most {unit.number(max(amounts))}."
        ),
    }


def _label(at: datetime, span: timedelta) -> str:
    at = timezone.localtime(at)
    if span <= timedelta(days=2):
        return f"{at:%H:%M}"
    return f"{at.day} {at:%b}" if span <= timedelta(days=92) else f"{at.day} {at:%b %Y}"


# The time line ---------------------------------------------------------------------------------------


def _time_line(request: HttpRequest, account: Balance, unit: CreditUnit, now: datetime) -> dict[str, Any]:
    if not request.user.has_perm(VIEW_ENTRYLISTING):
        return {"time_line": []}
    before = _before(request)
    rows = holder_reads.time_line(account.holder_id, account.credit_type, before=before, limit=TIME_LINE_ROWS + 1)
    shown = rows[:TIME_LINE_ROWS]
    base = {"type": account.credit_type, "days": _chart_days(request)}
    return {
        "time_line": [_line(row, unit) for row in shown],
        "time_line_parts": additions.time_line_parts(request, account.holder_id, account.credit_type),
        "newest_url": holder_url(account.holder_id, **base) if before < MAX_SEQUENCE else "",
        "older_url": holder_url(account.holder_id, **base, before=shown[-1].sequence) if len(rows) > TIME_LINE_ROWS else "",
    }


def _before(request: HttpRequest) -> int:
    given = request.GET.get("before", "")
    return int(given) if given.isascii() and given.isdecimal() and len(given) <= 18 else MAX_SEQUENCE


def _line(row: EntryListing, unit: CreditUnit) -> dict[str, Any]:
    what = entry_text(row, at=timezone.localtime(row.recorded_at), unit=unit)
    url_of = refusal_url if row.kind == "refusal" else entry_url
    return {
        "what": what,
        "number": f"#{row.sequence}",
        "url": url_of(row.holder_id, row.credit_type, row.sequence),
        "at": row.recorded_at,
        "amount": "" if row.amount == 0 else unit.signed(row.amount),
        "is_plus": row.amount > 0,
        "balance": unit.number(row.balance),
        "facts": _facts(row),
    }


def _facts(row: EntryListing) -> SafeString:
    """Return actor, reason, reference and the first metadata."""
    reference = format_html("<code>{}</code>", row.reference) if row.reference else ""
    metadata = [f"{name} {value}" for name, value in list((row.metadata or {}).items())[:METADATA_SHOWN]]
    facts = [row.actor, "" if row.reason in REASONS_OF_THE_LEDGER else row.reason, reference, *metadata]
    return format_html_join(" · ", "{}", ((fact,) for fact in facts if fact))

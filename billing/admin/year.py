"""A year at a glance: the last twelve months with MRR, what was invoiced, what came in, and the income of each plan."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from itertools import chain
from typing import Any, Final

from django.apps import apps
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.html import format_html

from billing.additions import SALES
from billing.admin.cells import list_url, money
from billing.models import Invoice, Plan
from billing.permissions import VIEW_INVOICE, VIEW_INVOICEPAYMENT, VIEW_PLAN, VIEW_SUBSCRIPTION
from billing.rating.money import MINOR_DIGITS
from billing.reads.money_at_a_glance import MOST_INVOICES, MonthMoney, money_since
from billing.reads.revenue_history import monthly_by_plan_until
from ledger.months import month_before
from ledger.staff.kit import charts
from ledger.staff.kit.cells import link, number
from ledger.staff.kit.pages import ReadOnlyAdmin, guarded

MONTHS: Final = 12
PLANS_SHOWN: Final = 8
Recurring = Mapping[tuple[date, str, str], int]
"""By month, plan and currency: minor units."""


def url(model_admin: ReadOnlyAdmin) -> URLPattern:
    """Return the address of the page."""
    return guarded(model_admin, "year/", partial(_page, model_admin), name="billing_year", permission=VIEW_INVOICE)


def last_months(today: date) -> list[date]:
    """Return the first days of the last MONTHS months, the oldest first."""
    found = [today.replace(day=1)]
    while len(found) < MONTHS:
        found.append(month_before(found[-1]))
    return found[::-1]


def _page(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Show the months, a section for each currency, the one with most invoiced first."""
    may = request.user.has_perm
    months = last_months(datetime.now(UTC).date())
    shown = money_since(months[0])
    recurring: Recurring = {}
    if may(VIEW_SUBSCRIPTION) and may(VIEW_PLAN):
        recurring = monthly_by_plan_until(months[-1], months=MONTHS)
    names = dict(Plan.objects.filter(code__in={plan for _, plan, _ in recurring}).order_by("version").values_list("code", "name"))
    context = {
        **model_admin.admin_site.each_context(request),
        "title": "Year",
        "sections": [_section(currency, months, shown, recurring, names, may) for currency in _currencies(shown, recurring)],
        "is_whole": shown.is_whole,
        "most": f"{MOST_INVOICES:,}",
    }
    return TemplateResponse(request, "admin/billing/year.html", context)


def _currencies(shown: MonthMoney, recurring: Recurring) -> list[str]:
    sums: Counter[str] = Counter()
    for row in shown.issued:
        sums[row.currency] += row.total_minor
    for each in (*shown.payments, *chain.from_iterable(shown.sales.values())):
        sums[each.currency] += 0
    for _, _, currency in recurring:
        sums[currency] += 0
    return sorted(sums, key=lambda currency: (-sums[currency], currency))


def _section(
    currency: str, months: Sequence[date], shown: MonthMoney, recurring: Recurring, names: Mapping[str, str], may: Any
) -> dict[str, Any]:
    """Return the table of months, its sums, and the table of plans."""
    mrr = _by_month((month, minor) for (month, _, each), minor in recurring.items() if each == currency)
    invoices = _by_month((row.month, row.invoices) for row in shown.issued if row.currency == currency)
    invoiced = _by_month((row.month, row.total_minor) for row in shown.issued if row.currency == currency)
    unpaid = _by_month((row.month, row.unpaid_minor) for row in shown.issued if row.currency == currency)
    columns: list[tuple[str, Counter[date], bool]] = [("MRR at the end", mrr, False)] if recurring else []
    columns.append(("Invoiced", invoiced, True))
    if may(VIEW_INVOICEPAYMENT):
        paid = _by_month((row.month, row.minor) for row in shown.payments if row.currency == currency)
        columns.append(("Payments received", paid, True))
    for what, rows in shown.sales.items():
        if may(SALES[what].permission):
            sold = _by_month((row.month, row.minor) for row in rows if row.currency == currency)
            columns.append((f"{what.capitalize()} sold", sold, True))
    columns.append(("Still unpaid", unpaid, True))
    scale = 10 ** MINOR_DIGITS.get(currency, 0)
    return {
        "currency": currency,
        "table": {
            "headers": ["Month", "Invoices", *(title for title, _, _ in columns)],
            "rows": [
                *(
                    [_month(month), _invoices(month, invoices[month]), *(money(part[month], currency) for _, part, _ in columns)]
                    for month in reversed(months)
                ),
                ["Sum", number(invoices.total()), *(money(part.total(), currency) if adds else "" for _, part, adds in columns)],
            ],
        },
        "plans": _plans(currency, months, recurring, names),
        "chart": charts.data(
            [f"{month:%b}" for month in months],
            charts.bars(
                "MRR" if recurring else "Invoiced", [(mrr if recurring else invoiced)[month] / scale for month in months]
            ),
        ),
        "chart_title": "MRR at the end of each month" if recurring else "Invoiced",
        "options": charts.options(unit=currency, decimals=MINOR_DIGITS.get(currency, 0)),
    }


def _by_month(rows: Iterable[tuple[date, int]]) -> Counter[date]:
    sums: Counter[date] = Counter()
    for month, minor in rows:
        sums[month] += minor
    return sums


def _month(month: date) -> Any:
    """Return the month, as a link to its page where totals are installed."""
    words = f"{month:%B %Y}"
    if not apps.is_installed("ledger.totals"):
        return words
    return link(f"{reverse('admin:ledger_month_end')}?month={month:%Y-%m}", words)


def _invoices(month: date, count: int) -> Any:
    following = date(month.year + month.month // 12, month.month % 12 + 1, 1)
    return link(list_url(Invoice, since=month.isoformat(), until=following.isoformat()), number(count)) if count else number(0)


def _plans(currency: str, months: Sequence[date], recurring: Recurring, names: Mapping[str, str]) -> dict[str, Any] | None:
    """Return what each plan brought at the end of each month: plans beside each other, the largest now first."""
    own = {(month, plan): minor for (month, plan, each), minor in recurring.items() if each == currency}
    plans = sorted({plan for _, plan in own}, key=lambda plan: (-own.get((months[-1], plan), 0), plan))
    if not plans:
        return None
    shown = plans[:PLANS_SHOWN]
    rows = [
        [
            f"{month:%B %Y}",
            *(money(own.get((month, plan), 0), currency) for plan in shown),
            *([money(sum(own.get((month, plan), 0) for plan in plans[PLANS_SHOWN:]), currency)] if plans[PLANS_SHOWN:] else []),
        ]
        for month in reversed(months)
    ]
    others = [f"{len(plans) - PLANS_SHOWN} more"] if plans[PLANS_SHOWN:] else []
    return {"headers": ["Month", *(format_html("{}", names.get(plan, plan)) for plan in shown), *others], "rows": rows}

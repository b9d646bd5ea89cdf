"""Billing's part of the first page: recurring revenue, what was invoiced and paid, what is unpaid and overdue, with charts.

Each number is added up from a bounded number of rows, by an index; where more rows exist, it says "at least".
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import chain
from typing import Any, Final

from django.urls import reverse

from billing.additions import SALES
from billing.admin.cells import list_url
from billing.admin.year import MONTHS, last_months
from billing.models import Invoice, InvoicePayment
from billing.permissions import VIEW_INVOICE, VIEW_INVOICEPAYMENT, VIEW_PLAN, VIEW_SUBSCRIPTION
from billing.rating.money import MINOR_DIGITS, money_text
from billing.reads.money_at_a_glance import CurrencySums, MonthMoney, Received, money_since, overdue, plan_names, unpaid
from billing.reads.subscriptions import PlanIncome, monthly_by_plan
from ledger.operators.additions import Chart, Headline, Overview
from ledger.staff.kit import charts
from ledger.typesetting.languages import ENGLISH

MOST_SUBSCRIPTIONS: Final = 5_000
PLANS_SHOWN: Final = 8
AT_LEAST: Final = "at least "


def overview(request: Any) -> Overview:
    """Return the numbers and charts that this operator may see."""
    may = request.user.has_perm
    headlines: list[Headline] = []
    shown: list[Chart] = []
    today = datetime.now(UTC).date()
    if may(VIEW_SUBSCRIPTION) and may(VIEW_PLAN):
        plans, is_whole = monthly_by_plan(most=MOST_SUBSCRIPTIONS)
        headlines.append(_recurring(plans, is_whole=is_whole))
        shown += _by_plan(plans)
    if may(VIEW_INVOICE):
        money = money_since(last_months(today)[0])
        sales = {what: rows for what, rows in money.sales.items() if may(SALES[what].permission)}
        received = [*(money.payments if may(VIEW_INVOICEPAYMENT) else ()), *chain.from_iterable(sales.values())]
        late = overdue()
        headlines.append(_invoiced_headline(money, today))
        if may(VIEW_INVOICEPAYMENT):
            headlines.append(_paid_headline(received, today, list(sales)))
        headlines += [_unpaid(unpaid()), _overdue(late)]
        shown = [*_revenue(money, late, today, sales), *shown]
    return Overview(headlines, shown)


def plans_of_holders(request: Any, holder_ids: Sequence[str]) -> Mapping[str, str]:
    """Return the names of the plans of holders, for the use of credits by plan."""
    if not (request.user.has_perm(VIEW_PLAN) and request.user.has_perm(VIEW_SUBSCRIPTION)):
        return {}
    return plan_names(holder_ids)


# Numbers ---------------------------------------------------------------------------------------------


def _recurring(plans: Sequence[PlanIncome], *, is_whole: bool) -> Headline:
    number = sum(plan.subscriptions for plan in plans)
    return Headline(
        title="MRR",
        amount=_amount(_by_currency((plan.currency, plan.minor) for plan in plans), is_whole=is_whole),
        note=f"a month from {_count_text(number, 'subscription')}, without usage and tax",
        url=reverse("admin:billing_subscription_changelist"),
    )


def _invoiced_headline(money: MonthMoney, today: date) -> Headline:
    rows = [row for row in money.issued if row.month == today.replace(day=1)]
    return Headline(
        title="Invoiced",
        amount=_amount(_by_currency((row.currency, row.total_minor) for row in rows), is_whole=money.is_whole),
        note=f"{_count_text(sum(row.invoices for row in rows), 'invoice')} in {today:%B}",
        url=list_url(Invoice, since=f"{today:%Y-%m}-01"),
    )


def _paid_headline(received: Iterable[Received], today: date, sold: Sequence[str]) -> Headline:
    rows = [row for row in received if row.month == today.replace(day=1)]
    what = f"for {' and '.join(('invoices', *sold))}"
    return Headline(
        title="Paid",
        amount=_amount(_by_currency((row.currency, row.minor) for row in rows)),
        note=f"{_count_text(sum(row.payments for row in rows), 'payment')} in {today:%B}, {what}",
        url=list_url(InvoicePayment),
    )


def _unpaid(sums: CurrencySums) -> Headline:
    amount = _amount(sums.minor, is_whole=sums.is_whole)
    return Headline(
        title="Unpaid",
        amount=amount,
        note=_count_text(sums.rows, "open invoice"),
        url=list_url(Invoice, state="open"),
        more_url=reverse("admin:billing_debts") if sums.rows else "",
        more_text="Who owes most",
    )


def _overdue(sums: CurrencySums) -> Headline:
    since = f", the first since {ENGLISH.day(sums.first)}" if sums.first else ""
    return Headline(
        title="Overdue",
        amount=_amount(sums.minor, is_whole=sums.is_whole),
        note=f"{_count_text(sums.rows, 'invoice')}{since}",
        url=list_url(Invoice, overdue="yes"),
        is_bad=sums.rows > 0,
    )


def _by_currency(rows: Iterable[tuple[str, int]]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for currency, minor in rows:
        sums[currency] += minor
    return sums


def _amount(sums: Mapping[str, int], *, is_whole: bool = True) -> str:
    """Return the sum of each currency, the largest first; 0 has no currency."""
    shown = ", ".join(money_text(minor, currency) for currency, minor in _largest(sums))
    return f"{'' if is_whole else AT_LEAST}{shown}" if shown else "0"


def _largest(sums: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the sums that are not 0, the largest first, in major units: minor ones differ in their decimals."""
    largest = [(currency, minor) for currency, minor in sums.items() if minor]
    return sorted(largest, key=lambda pair: (-pair[1] / 10 ** MINOR_DIGITS.get(pair[0], 0), pair[0]))


def _count_text(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# Charts ----------------------------------------------------------------------------------------------


def _revenue(money: MonthMoney, late: CurrencySums, today: date, sales: Mapping[str, Sequence[Received]]) -> list[Chart]:
    """Return what was invoiced and sold month by month, in the currency with most of it; nothing if nothing was."""
    sold = list(chain.from_iterable(sales.values()))
    sums = _by_currency(
        [*((row.currency, row.total_minor) for row in money.issued), *((row.currency, row.minor) for row in sold)]
    )
    if not (largest := _largest(sums)):
        return []
    currency, whole = largest[0]
    months = last_months(today)
    paid, open_ = Counter[date](), Counter[date]()
    for row in money.issued:
        if row.currency == currency:
            paid[row.month] += row.total_minor - row.unpaid_minor
            open_[row.month] += row.unpaid_minor
    sums_sold = {
        what: Counter({row.month: row.minor for row in rows if row.currency == currency}) for what, rows in sales.items()
    }
    scale = 10 ** MINOR_DIGITS.get(currency, 0)
    parts = [
        ("Invoices, settled", paid, charts.BLUE),
        *((what.capitalize(), sums, charts.LIGHT_BLUE) for what, sums in sums_sold.items()),
        ("Invoices, unpaid", open_, charts.AMBER),
    ]
    others = f" Not shown: {', '.join(money_text(minor, other) for other, minor in largest[1:])}." if largest[1:] else ""
    begins = "" if money.is_whole else " Older invoices are left out."
    sold_words = "".join(f"{money_text(sums.total(), currency)} of {what}, " for what, sums in sums_sold.items())
    overdue_words = f", {money_text(late.minor[currency], currency)} overdue" if late.minor.get(currency) else ""
    return [
        Chart(
            title="Revenue by month",
            text=(
                f"{money_text(whole, currency)} in {MONTHS} months, tax included: {money_text(paid.total(), currency)} of "
                f"settled invoices, {sold_words}{money_text(open_.total(), currency)} unpaid"
                f"{overdue_words}.{others}{begins}"
            ),
            data=charts.data(
                [f"{month:%b}" for month in months],
                *(charts.bars(name, [part[month] / scale for month in months], colour) for name, part, colour in parts),
            ),
            options=charts.options(unit=currency, decimals=MINOR_DIGITS.get(currency, 0), is_stacked=True),
            url=reverse("admin:billing_year"),
            url_text="The year",
        )
    ]


def _by_plan(plans: Sequence[PlanIncome]) -> list[Chart]:
    """Return what each plan brings a month, in the currency with most of it."""
    largest = _largest(_by_currency((plan.currency, plan.minor) for plan in plans))
    if not largest:
        return []
    currency, whole = largest[0]
    shown = [plan for plan in plans if plan.currency == currency and plan.minor][:PLANS_SHOWN]
    scale = 10 ** MINOR_DIGITS.get(currency, 0)
    words = "; ".join(
        f"{plan.name} {money_text(plan.minor, currency)} ({plan.minor / whole:.0%}, "
        f"{_count_text(plan.subscriptions, 'subscription')})"
        for plan in shown
    )
    return [
        Chart(
            title="Income by plan",
            text=f"MRR now: {words}.",
            data=charts.data([plan.name for plan in shown], charts.bars("MRR", [plan.minor / scale for plan in shown])),
            options=charts.options(unit=currency, decimals=MINOR_DIGITS.get(currency, 0), is_lying=True),
            url=reverse("admin:billing_plan_changelist"),
            url_text="All plans",
        )
    ]

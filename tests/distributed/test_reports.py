"""Totals and month-ends over the entries of all nodes: a closed month comes to what the accounts came to at its end."""

import json
from datetime import date
from io import StringIO

import pytest
from django.core.management import call_command

from ledger.months import month_after, starts
from ledger.rules.entries import Entry
from ledger.totals.closing import close_months
from ledger.totals.counting import count_entries
from ledger.totals.models import MonthClose
from ledger.totals.report import month_report
from tests.ledger.staff.admin_site import load_history


def last_before(made: list[Entry], month: date) -> list[Entry]:
    """The last entry of each account in or before a month."""
    end = starts(month_after(month))
    return list({entry.holder_id: entry for entry in made if entry.recorded_at < end}.values())


@pytest.mark.django_db
def test_a_month_is_closed_with_the_accounts_of_all_nodes():
    made = load_history(holders=12, entries=240)
    assert not count_entries().is_held_up
    months = close_months()
    assert months[0] == made[0].recorded_at.date().replace(day=1)
    for month in (months[0], months[-1]):
        accounts = last_before(made, month)
        (of_type,) = month_report(month).types
        assert of_type.closing == sum(entry.balance + entry.held for entry in accounts)
        assert sum(each["amount"] for each in of_type.outstanding) == of_type.closing
        assert MonthClose.objects.get(month=month).accounts == len(accounts)
    assert sum(month_report(month).types[0].entries for month in months) == len(made)
    out = StringIO()
    call_command("ledger_report", "--month", f"{months[0]:%Y-%m}", "--format", "json", stdout=out)
    assert json.loads(out.getvalue())["is_closed"]


@pytest.mark.django_db
def test_a_month_that_is_not_over_stays_open():
    load_history(holders=1, entries=1)
    until = count_entries().until
    months = close_months()
    assert months[-1] < until.date().replace(day=1)
    assert not month_report(until.date().replace(day=1)).is_closed
    assert close_months() == []

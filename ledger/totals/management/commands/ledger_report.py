"""`manage.py ledger_report`: a month's credits, from opening to closing."""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError

from ledger.errors import Invalid
from ledger.management import arguments
from ledger.management.examples import CommandWithExamples
from ledger.months import month_before
from ledger.operators.additions import money
from ledger.rules.kinds import LINES
from ledger.totals.report import MonthReport, TypeReport, month_report
from ledger.units import CreditUnit, plain_unit, units_of

WIDTH = 28


class Command(CommandWithExamples):
    """Reads the totals that `update_totals` computes."""

    help = (
        "Report the credits of a month by credit type. In UTC: opening, granted, refunded, spent, expired, revoked, "
        "transferred, closing, held, and for a closed month the outstanding credits by month of expiry. The text has amounts in "
        "the unit and decimals of "
        "their credit type; CSV and JSON have whole numbers of the smallest unit, and a closed month the same bytes every time."
    )
    examples = (
        ("ledger_report", "the last month that has ended"),
        ("ledger_report --month 2026-10 --format csv", "October, for a spreadsheet"),
        ("ledger_report --credit-type sms --format json", "one credit type, for programs"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("--month", type=arguments.month, metavar="YYYY-MM", help="default: the last month that has ended")
        parser.add_argument("--credit-type", metavar="TYPE", help="only this credit type")
        parser.add_argument("--format", choices=("text", "json", "csv"), default="text", help="default: %(default)s")

    def handle(self, **options: Any) -> None:
        """Print the report."""
        month = options["month"] or month_before(datetime.now(UTC).date())
        try:
            report = month_report(month, credit_type=options["credit_type"])
        except Invalid as invalid:
            raise CommandError(
                f"There is no report of {month.isoformat()[:7]}: {invalid.facts['detail']}", returncode=2
            ) from invalid
        formats = {"text": as_text, "json": MonthReport.as_json, "csv": MonthReport.as_csv}
        self.stdout.write(formats[options["format"]](report), ending="")


def as_text(report: MonthReport) -> str:
    """Return the report for people."""
    state = "closed" if report.as_of is None else f"open, as of {report.as_of:%Y-%m-%d %H:%M:%S} UTC"
    units = units_of(one.credit_type for one in report.types)
    parts = [_type_text(one, units[one.credit_type]) for one in report.types]
    return "\n".join([f"Month {report.month:%Y-%m}, {state}", *parts]) + "\n"


def _type_text(one: TypeReport, unit: CreditUnit) -> str:
    lines = [(name, unit.number(amount)) for name, amount in _credits(one)]
    lines += [("paid", money(minor, currency)) for currency, minor in (one.paid or {}).items()]
    lines += [(f"{tie['name']}, by {of}", unit.number(tie[of])) for tie in one.ties or [] for of in ("documents", "entries")]
    lines += [("entries", f"{one.entries:,}"), ("of them refusals", f"{one.refusals:,}")]
    lines += [("late, of closed months", f"{one.late_entries:,}")] if one.late_entries else []
    width = max(WIDTH, *(len(name) for name, _ in lines))
    heading = one.credit_type if unit == plain_unit(one.credit_type) else f"{one.credit_type}: {unit.name}, in {unit.unit}"
    return "\n".join([f"\n{heading}", *(f"  {name.replace('_', ' '):<{width}} {amount:>20}" for name, amount in lines)])


def _credits(one: TypeReport) -> Iterator[tuple[str, int]]:
    yield "opening", one.opening
    for name, line in LINES.items():
        yield name, line.sign * one.movements[name]
    yield "closing", one.closing
    yield "of it held", one.held
    if one.expired_unbooked:
        yield "of it expired, not booked", one.expired_unbooked
    for bucket in one.outstanding or []:
        held = ", held" if bucket["is_held"] else ""
        yield f"expires {bucket['expires'] or 'never'}, {bucket['source']}{held}", bucket["amount"]
    if one.owed:
        yield "owed on overdrafts", one.owed

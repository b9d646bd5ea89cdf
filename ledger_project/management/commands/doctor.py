"""`manage.py doctor`: checks this deployment, and advises what to do about each problem."""

import argparse
import json
import sys
import textwrap
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from django.db import Error

from ledger.management.examples import CommandWithExamples
from ledger.version import VERSION
from ledger_project.monitoring.examination import examine, worst
from ledger_project.monitoring.findings import CheckResult, CheckState
from ledger_project.monitoring.work_checks import tasks_as_json

EXIT_CODES = {CheckState.OK: 0, CheckState.WARNING: 1, CheckState.FAILED: 2}
WIDTH = 118
STATE_WIDTH, CHECK_WIDTH = 9, 13


class Command(CommandWithExamples):
    """Checks the server, the schema, the timetable and the disk, from this machine, with its settings; changes nothing."""

    help = (
        "Check this deployment (isolation, durability, locks, rights, triggers, two-step login, connections, clock, timetable, "
        "audit, anchor, partitions, disk, versions and migrations), and say what to do about each problem. "
        "Exit codes: 0 all checks passed, 1 there are warnings, 2 a check failed (or bad arguments)."
    )
    examples = (
        ("doctor", "examine this deployment"),
        ("doctor --format json", "for programs"),
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, **options: Any) -> None:
        """Show the findings and exit with the code that `help` explains."""
        findings = []
        for finding in examine():
            findings.append(finding)
            if options["format"] == "text":
                self._show(finding)
        code = EXIT_CODES[worst(findings)]
        if options["format"] == "json":
            self.stdout.write(json.dumps(_as_json(findings, code), indent=2, default=str))
        else:
            counts = Counter(finding.state for finding in findings)
            states = ", ".join(f"{counts[state]} {state}" for state in CheckState if counts[state])
            self.stdout.write(f"\nChecks: {states}.")
        if code:
            sys.exit(code)

    def _show(self, finding: CheckResult) -> None:
        styles = {CheckState.OK: self.style.SUCCESS, CheckState.WARNING: self.style.WARNING, CheckState.FAILED: self.style.ERROR}
        indent = " " * (STATE_WIDTH + CHECK_WIDTH)
        text = textwrap.fill(f"{indent}{finding.text}", WIDTH, subsequent_indent=indent)
        state = styles[finding.state](f"{finding.state:<{STATE_WIDTH}}")
        self.stdout.write(f"{state}{finding.check:<{CHECK_WIDTH}}{text.removeprefix(indent)}")
        if finding.advice:
            self.stdout.write(textwrap.fill(f"{indent}→ {finding.advice}", WIDTH, subsequent_indent=f"{indent}  "))


def _as_json(findings: list[CheckResult], code: int) -> dict[str, Any]:
    try:
        tasks = tasks_as_json()
    except Error:
        tasks = []
    return {
        "at": datetime.now(UTC).isoformat(),
        "version": VERSION,
        "exit_code": code,
        "checks": [{"check": each.check, "state": each.state, "text": each.text, "advice": each.advice} for each in findings],
        "tasks": tasks,
    }

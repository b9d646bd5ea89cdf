"""`manage.py generate_invoices`: make the due invoices, together with all other processes that run it."""

import argparse
import json
import logging
import socket
import sys
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import OperationalError, connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from billing.auditing import consistency
from billing.auditing.explanation import explain
from billing.documents.e_invoices import E_INVOICES_OF, count_e_invoices
from billing.errors import NotFound
from billing.generator.options import Options, Scope
from billing.generator.run import outcomes, runs
from billing.generator.run.due import DueWalk, concerned, how_many
from billing.generator.run.generate import check_as_of
from billing.generator.run.outcomes import RunOutcome, RunSummary, SubscriptionResult
from billing.generator.run.workers import Work
from billing.generator.state.unbilled_usage import find_unbilled_usage, sum_by_reason
from billing.management.run_texts import check_text, explanation_text, run_text
from billing.metering.usage import LONGEST_TRANSACTION
from billing.models import Customer, Plan, Run, RunResult, Subscription
from billing.rating.money import MINOR_DIGITS
from ledger.database.locks import sqlstate
from ledger.errors import Invalid
from ledger.management.arguments import instant
from ledger.management.end_signals import SIGNALLED, collect_end_signals
from ledger.management.examples import CommandWithExamples
from ledger.management.progress import progress_of

log = logging.getLogger(__name__)

DONE, ERROR, BAD_ARGUMENTS, SOME_FAILED, ONLY_BUSY_LEFT, LIMIT_REACHED, TIME_IS_UP = 0, 1, 2, 3, 4, 5, 6
OUTCOMES_AT_ONCE = 100
TICK_S = 1.0
LOG_EVERY_S = 10.0
QUERY_CANCELED = "57014"
LONGEST_S = 7 * 24 * 3600
UNSETTLED = "subscriptions_with_usage_never_billed"
"""The member of a run's summary with which the next run continues; None: the next run looks at all usage."""
MOST_UNSETTLED = 10_000
IN_FLIGHT = LONGEST_TRANSACTION
"""Events are looked at again for this long: they are recorded before their COMMIT, and a run sees committed events only."""


class Command(CommandWithExamples):
    """Bill the target less what is billed, for each due subscription in one short transaction."""

    help = (
        "Generate all due invoices. Any number of processes may run this command at once, on any number of machines; they share "
        "the work. Exit codes: 0 done, 1 error or findings, 2 bad arguments or unknown names, 3 some subscriptions failed or "
        "are suspended, 4 only busy, deferred or untaxed subscriptions left, 5 limit reached, 6 --max-runtime reached "
        "with work left, 130 or 143 a signal ended the run after the current subscription."
    )
    examples = (
        ("generate_invoices", "bill everything that is due"),
        ("generate_invoices --dry-run", "show what a run would bill; other processes continue"),
        ("generate_invoices --explain SUB-7", "why a subscription is due or not"),
        ("generate_invoices --subscription SUB-7 --as-of 2026-11-01", "bill one subscription as of an instant"),
        ("generate_invoices --subscription SUB-7 --running-usage", "bill also what it has used of its running periods"),
        ("generate_invoices --list-due", "list what is due and bill nothing"),
        ("generate_invoices --check --format json", "check what was billed, for programs"),
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        what = parser.add_argument_group("what to bill")
        what.add_argument("--as-of", type=instant, help="RFC 3339 time with offset, or a day (00:00 UTC); default: now")
        what.add_argument("--allow-future", action="store_true", help="allow an --as-of in the future")
        what.add_argument(
            "--subscription", action="append", default=[], metavar="REF", help="bill only this subscription; repeatable"
        )
        what.add_argument(
            "--customer", action="append", default=[], metavar="REF", help="bill only subscriptions of this customer; repeatable"
        )
        what.add_argument(
            "--plan", action="append", default=[], metavar="CODE", help="bill only subscriptions of this plan; repeatable"
        )
        what.add_argument(
            "--currency", choices=sorted(MINOR_DIGITS), metavar="CODE", help="bill only plans in this ISO 4217 currency"
        )
        what.add_argument("--only", choices=[scope.value for scope in Scope], help="bill only prices of this kind; default: both")
        what.add_argument("--max-periods", type=_positive, help="bill at most this many due dates per subscription")
        what.add_argument(
            "--late-lookback", type=_whole, metavar="PERIODS",
            help="bill late usage of only this many billed periods, and report older usage; default: all periods",
        )  # fmt: skip
        what.add_argument(
            "--running-usage", action="store_true", help="also bill the usage of running periods so far; needs --subscription"
        )
        what.add_argument("--include-suspended", action="store_true", help="also bill suspended subscriptions")
        how = parser.add_argument_group("how")
        state = how.add_mutually_exclusive_group()
        state.add_argument("--draft", action="store_true", help="leave the invoices as drafts without numbers")
        state.add_argument("--finalize", action="store_true", help="finalize the invoices (default)")
        how.add_argument("--dry-run", action="store_true", help="show what a run would bill, and write nothing")
        how.add_argument("--workers", type=_positive, default=1, metavar="N", help="number of parallel processes (1)")
        how.add_argument("--limit", type=_positive, metavar="N", help="bill at most N subscriptions")
        how.add_argument("--max-runtime", type=_seconds, metavar="SECONDS", help="start no subscription after this time")
        how.add_argument("--retry-busy", type=_whole, default=3, metavar="N", help="retry busy subscriptions N times (3)")
        how.add_argument(
            "--retry-wait", type=_seconds, default=0.2, metavar="SECONDS", help="wait this long before each retry (0.2)"
        )
        how.add_argument("--fail-fast", action="store_true", help="stop at the first failure")
        how.add_argument("--max-failures", type=_whole, metavar="N", help="stop after more than N failures")
        how.add_argument("--run-id", type=uuid.UUID, help="UUID of the run in the records; default: a new one")
        show = parser.add_argument_group("what to show")
        mode = show.add_mutually_exclusive_group()
        mode.add_argument("--list-due", action="store_true", help="list the due subscriptions and bill nothing")
        mode.add_argument(
            "--explain", metavar="REF", help="show why a subscription is due or not, and which process holds its lock"
        )
        mode.add_argument("--check", action="store_true", help="check for overlaps, wrong sums and gaps in the numbering")
        show.add_argument("--format", choices=["text", "json", "jsonl"], default="text", help="default: %(default)s")
        show.add_argument("--no-progress", action="store_true", help="show no progress line and log none")

    def handle(self, *args: Any, **given: Any) -> None:
        """Run, print the summary, and exit with a code of `help`."""
        _ensure_known(given)
        job = self._job(given)
        if given["explain"]:
            return self._explain(given["explain"], job.options, given["format"])
        if given["check"]:
            return self._check(job.options, given)
        if given["list_due"]:
            return self._list_due(job, given["format"])
        code = self._run(job, given)
        if code != DONE:
            sys.exit(code)
        return None

    def _job(self, given: dict[str, Any]) -> Work:
        if given["running_usage"] and not given["subscription"]:
            raise CommandError("--running-usage needs --subscription", returncode=BAD_ARGUMENTS)
        as_of = given["as_of"] or timezone.now()
        only_looks = given["dry_run"] or given["list_due"] or given["explain"] or given["check"]
        try:
            check_as_of(as_of, dry_run=bool(only_looks), refs=given["subscription"], allow_future=given["allow_future"])
        except Invalid as error:
            raise CommandError(f"--as-of {error.facts['detail']}", returncode=BAD_ARGUMENTS) from error
        options = Options(
            as_of=as_of,
            only=Scope(given["only"]) if given["only"] else None,
            finalize=not given["draft"],
            dry_run=given["dry_run"],
            max_periods=given["max_periods"],
            late_lookback=given["late_lookback"],
            running_usage=given["running_usage"],
            include_suspended=given["include_suspended"],
            run_id=given["run_id"] or uuid.uuid4(),
        )
        return runs.job_for(
            options,
            subscriptions=tuple(given["subscription"]),
            customers=tuple(given["customer"]) or None,
            plans=tuple(given["plan"]) or None,
            currency=given["currency"],
            workers=given["workers"],
            limit=given["limit"],
            retry_busy=given["retry_busy"],
            retry_wait_s=given["retry_wait"],
            max_runtime_s=given["max_runtime"],
            fail_fast=given["fail_fast"],
            max_failures=given["max_failures"],
        )

    def _run(self, job: Work, given: dict[str, Any]) -> int:
        record = _Record(job, given)
        progress = _Progress(self.stderr, shown=not given["no_progress"])
        if progress.is_watched:
            progress.expected = len(job.subscriptions) or how_many(job.filter)
        with collect_end_signals() as received:

            def on_done(done: SubscriptionResult) -> None:
                record.add(done)
                if given["format"] == "jsonl":
                    self.stdout.write(json.dumps(_outcome(done)))
                elif done.outcome in outcomes.TROUBLE | outcomes.WAITING:
                    self.stderr.write(f"{done.subscription or done.customer}: {done.outcome}: {done.detail}")

            summary = runs.run(job, on_done=on_done, on_tick=progress.tick, stop=lambda: bool(received))
        progress.end()
        code = SIGNALLED + received[0] if received else _exit_code(summary)
        figures = {"run_id": str(job.options.run_id), "as_of": job.options.as_of.isoformat(), "dry_run": job.options.dry_run}
        figures |= summary.as_dict() | _usage_never_billed(job) | {"exit_code": code}
        record.close(figures, code)
        self._show(figures, given["format"], run_text)
        return code

    def _show(self, figures: dict[str, Any], form: str, as_text: Callable[[dict[str, Any]], str]) -> None:
        if form != "text":
            self.stdout.write(json.dumps(figures, indent=2 if form == "json" else None, default=str))
            return
        self.stdout.write(as_text(figures))

    def _explain(self, ref: str, options: Options, form: str) -> None:
        try:
            explanation = explain(ref, options.as_of, options.late_lookback)
        except NotFound as error:
            raise CommandError(f"--explain: subscription {ref!r} does not exist", returncode=BAD_ARGUMENTS) from error
        self._show(explanation, form, explanation_text)

    def _list_due(self, job: Work, form: str) -> None:
        only = set(job.subscriptions)
        due = (ref for ref in DueWalk(job.filter) if not only or ref in only)
        as_of = job.options.as_of.isoformat()
        if form == "json":
            refs = list(due)
            return self._show({"as_of": as_of, "count": len(refs), "due": refs}, form, str)
        found = 0
        for found, ref in enumerate(due, 1):  # noqa: B007  counted
            self.stdout.write(ref if form == "text" else json.dumps({"subscription": ref}))
        if not found:
            # On standard error: a program that reads the list must not mistake this for a subscription.
            self.stderr.write(f"No subscription is due as of {as_of}.")
        return None

    def _check(self, options: Options, given: dict[str, Any]) -> None:
        with transaction.atomic(), connection.cursor() as cursor, progress_of(self.stderr, given, "Checking", "laws") as progress:
            # A law is one query over all documents.
            cursor.execute("SET LOCAL statement_timeout = 0")
            findings = consistency.check(progress)
            never = [one.as_dict() for one in find_unbilled_usage(lookback=options.late_lookback)]
            e_invoices = count_e_invoices(since=timezone.now().date() - E_INVOICES_OF).as_dict()
        found = {"findings": findings, "count": len(findings), "usage_never_billed": never, "e_invoices": e_invoices}
        self._show(found, given["format"], check_text)
        if findings:
            sys.exit(ERROR)


class _Record:
    """The rows of the run and its results, written in bundles; a dry run writes none."""

    def __init__(self, job: Work, given: dict[str, Any]) -> None:
        self._job = job
        self._rows: list[RunResult] = []
        assert job.options.run_id is not None
        self._run_id = job.options.run_id
        if not job.options.dry_run:
            kept = ("only", "draft", "workers", "limit", "max_periods", "subscription", "currency")
            options = {name: given[name] for name in kept}
            Run.objects.create(
                run_id=job.options.run_id, as_of=job.options.as_of, options=options, host=socket.gethostname()[:255]
            )

    def add(self, done: SubscriptionResult) -> None:
        """Record a result, unless nothing was due."""
        if self._job.options.dry_run or done.outcome == RunOutcome.NOTHING_DUE:
            return
        self._rows.append(
            RunResult(
                run_id=self._run_id,
                subscription_ref=done.subscription[:64],
                outcome=done.outcome.value,
                detail=done.detail[:500],
                traceback=done.traceback,
            )
        )
        if len(self._rows) >= OUTCOMES_AT_ONCE:
            self._write()

    def close(self, figures: dict[str, Any], code: int) -> None:
        """Record the end of the run."""
        if self._job.options.dry_run:
            return
        self._write()
        Run.objects.filter(pk=self._run_id).update(finished_at=Now(), exit_code=code, summary=figures)

    def _write(self) -> None:
        RunResult.objects.bulk_create(self._rows)
        self._rows = []


class _Progress:
    """A line that is overwritten once a second on a terminal; without a terminal, a line of the log every ten seconds."""

    def __init__(self, stream: Any, *, shown: bool) -> None:
        self._stream = stream
        self._on_terminal = shown and stream.isatty()
        self._logs = shown and not stream.isatty()
        self._began = self._last = time.monotonic()
        self.expected: int | None = None
        """How many subscriptions the run has, on a terminal."""

    @property
    def is_watched(self) -> bool:
        """Whether this is a terminal."""
        return self._on_terminal

    def tick(self, summary: RunSummary) -> None:
        """Show the progress of the run, once per interval."""
        now = time.monotonic()
        if now - self._last < (TICK_S if self._on_terminal else LOG_EVERY_S):
            return
        self._last = now
        line = (
            f"{summary.invoices} invoices, {summary.invoices / max(now - self._began, 0.001):.0f}/s, "
            f"{summary.waiting} busy, {summary.failures} failed{self._time_left(summary, now)}"
        )
        if self._on_terminal:
            self._stream.write(f"\r\x1b[K{line}", ending="")
            self._stream.flush()
        elif self._logs:
            log.info(line)

    def _time_left(self, summary: RunSummary, now: float) -> str:
        """Return how long the rest will take at the rate so far; empty if it is unknown."""
        done = sum(summary.outcomes.values())
        if not self.expected or not done:
            return ""
        left_s = round(max(self.expected - done, 0) * (now - self._began) / done)
        return f", {left_s // 3600}:{left_s // 60 % 60:02}:{left_s % 60:02} left"

    def end(self) -> None:
        """Clear the line."""
        if self._on_terminal:
            self._stream.write("\r\x1b[K", ending="")


def _ensure_known(given: dict[str, Any]) -> None:
    """Refuse unknown names: otherwise a run that finds nothing to do would look successful."""
    known = {"subscription": Subscription.objects.filter(ref__in=given["subscription"]).values_list("ref", flat=True),
             "customer": Customer.objects.filter(ref__in=given["customer"]).values_list("ref", flat=True),
             "plan": Plan.objects.filter(code__in=given["plan"]).values_list("code", flat=True)}  # fmt: skip
    for name, names in known.items():
        unknown = sorted(set(given[name]) - set(names))
        if unknown:
            raise CommandError(f"--{name}: unknown {name} {', '.join(unknown)}", returncode=BAD_ARGUMENTS)
    if given["run_id"] is not None and Run.objects.filter(pk=given["run_id"]).exists():
        raise CommandError(f"--run-id: run {given['run_id']} already exists", returncode=BAD_ARGUMENTS)


def _usage_never_billed(job: Work) -> dict[str, Any]:
    """Return the usage of the run's subscriptions that no run will bill, by reason and meter, and the ids of those subscriptions.

    Each run names it until it is settled: it looks at what was recorded since the previous run, and again at all subscriptions
        that the previous run named.
    """
    assert job.options.run_id is not None
    before = Run.objects.filter(finished_at__isnull=False).exclude(pk=job.options.run_id).order_by("-started_at").first()
    look = partial(find_unbilled_usage, lookback=job.options.late_lookback)
    known = before.summary.get(UNSETTLED) if before is not None else None
    try:
        with transaction.atomic():
            if before is None or known is None:
                unbilled = look()
            else:
                refs = {*known, *(one.subscription for one in look(recorded_since=before.started_at - IN_FLIGHT))}
                ids = Subscription.objects.filter(ref__in=refs).values_list("id", flat=True)
                unbilled = look(subscription_ids=list(ids))
            unsettled = sorted({one.subscription for one in unbilled})
            here = concerned(job.filter, unsettled) & (set(job.subscriptions) or set(unsettled))
    except OperationalError as error:
        if sqlstate(error) != QUERY_CANCELED:
            raise
        return {"usage_never_billed": "unknown: the query timed out; --check looks at all usage", UNSETTLED: None}
    shown = sum_by_reason(one for one in unbilled if one.subscription in here)
    return {"usage_never_billed": shown, UNSETTLED: unsettled if len(unsettled) <= MOST_UNSETTLED else None}


def _exit_code(summary: RunSummary) -> int:
    if summary.failures:
        return SOME_FAILED
    if summary.time_is_up:
        return TIME_IS_UP
    if summary.limit_reached:
        return LIMIT_REACHED
    return ONLY_BUSY_LEFT if summary.waiting else DONE


def _outcome(done: SubscriptionResult) -> dict[str, Any]:
    return {
        **({"customer": done.customer} if done.customer else {"subscription": done.subscription}),
        "outcome": done.outcome.value,
        "detail": done.detail,
        "invoices": [
            {"id": one.invoice_id, "number": one.number, "currency": one.currency, "total_minor": one.total_minor}
            for one in done.invoices
        ],
        "milliseconds": round(done.duration_ms, 1),
    }


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 <= seconds <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"must be 0 to {LONGEST_S} seconds")
    return seconds


def _positive(text: str) -> int:
    number = _whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _whole(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return number

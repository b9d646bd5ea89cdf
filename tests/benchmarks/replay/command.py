"""`make replay`: play recorded requests as spends over HTTP, audit the ledger, invoice the usage."""

import argparse
import csv
import json
import os
import secrets
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Final, NoReturn

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connections

from ledger import reads
from ledger.errors import LedgerError
from ledger.keys import api_keys
from tests.benchmarks.replay.play import Accidents, ReplayFailed, Tally, Target, check_balances, grant_all, spend_all
from tests.benchmarks.replay.temporary_ledger import DoesNotStart, temporary_ledger
from tests.benchmarks.replay.traces import TraceInvalid, Use, read_trace
from tests.benchmarks.replay.usage_billing import CURRENCY, invoice_usage

TRACE: Final = settings.BASE_DIR.parent / "shared" / "data" / "AzureLLMInferenceTrace_code.csv"
SOURCE: Final = "https://github.com/Azure/AzurePublicDataset, data/AzureLLMInferenceTrace_code.csv"
DESCRIPTION: Final = """\
Replay recorded LLM requests as parallel spends over HTTP, with repeated requests and lost responses; then check every balance,
audit the ledger and invoice the usage. Without --url, the command starts a temporary ledger."""
EXAMPLES: Final = """examples:
  %(prog)s trace.csv
      play a trace against a temporary ledger
  %(prog)s trace.csv --limit 500 --speed 10 --url http://127.0.0.1:8000
      a part, ten times as fast, on a running ledger
  %(prog)s trace.csv --format json
      the report for programs"""
SCOPES: Final = ("ledger:read", "ledger:spend", "ledger:grant")
INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Play a trace and report; exit with 1 if the ledger returned, stored or billed anything wrong, with 2 for wrong options."""
    options = _options(arguments)
    try:
        with _sigterm_as_interrupt():
            Replay(options).play()
    except CommandError as error:
        _end(str(error), error.returncode)
    except (ReplayFailed, LedgerError) as error:
        _end(str(error), 1)
    except KeyboardInterrupt:
        _end("Interrupted.", INTERRUPTED)


def _end(text: str, code: int) -> NoReturn:
    sys.stderr.write(f"{text}\n")
    sys.exit(code)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options, or exit code 2 and a sentence where one makes no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.replay", description=DESCRIPTION, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("trace", nargs="?", type=Path, default=TRACE, help=f"CSV file (default: {TRACE})")
    parser.add_argument(
        "--speed", type=float, default=0.0, help="speed relative to the recording; 0 (default): as fast as possible"
    )
    parser.add_argument("--limit", type=int, help="replay only the first LIMIT requests")
    parser.add_argument("--concurrency", type=int, default=16, help="number of parallel clients (default: 16)")
    parser.add_argument("--repeat-every", type=int, default=10, help="repeat every N-th request with its key; 0: never")
    parser.add_argument("--drop-every", type=int, default=25, help="drop the response to every N-th request; 0: never")
    parser.add_argument("--url", help="the URL of a running ledger, such as http://127.0.0.1:8000")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument("--api-key", help="API key of that ledger; default: LEDGER_BOOTSTRAP_API_KEY or a temporary key")
    options = parser.parse_args(arguments)
    for name, least in (("concurrency", 1), ("limit", 1), ("speed", 0), ("repeat_every", 0), ("drop_every", 0)):
        value = getattr(options, name)
        # Not `<`: NaN is no speed either.
        if value is not None and not value >= least:
            parser.error(f"--{name.replace('_', '-')} must be {least} or more")
    return options


class Replay:
    """One run of a trace against a ledger, reported as it goes."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Name the run, which its holders, keys and requests are named after."""
        self.options = options
        self.run = f"replay-{secrets.token_hex(4)}"
        self._reported: dict[str, list[str]] = {}

    def play(self) -> None:
        """Play, check, audit, invoice, report.

        Raises:
            CommandError: the file is no trace, the ledger does not start, or a command failed; the message says which.
            ReplayFailed: the ledger returned, stored or billed anything wrong.
        """
        uses = _read(self.options.trace, self.options.limit)
        with _ledger(self.options.url, self.options.api_key, self.run) as target:
            self._play(target, uses)
        if self.options.format == "json":
            sys.stdout.write(json.dumps(self._reported, indent=2) + "\n")

    def _play(self, target: Target, uses: Sequence[Use]) -> None:
        options = self.options
        users = len({use.user for use in uses})
        self._report("Trace", f"{options.trace.name}: {len(uses):,} requests by {users} holders, run {target.run}")
        granted = grant_all(target, uses, options.concurrency)
        accidents = Accidents(repeat_every=options.repeat_every, drop_every=options.drop_every)
        tally = spend_all(target, uses, concurrency=options.concurrency, speed=options.speed, accidents=accidents)
        tally.granted = granted
        self._report_tally(tally, options.concurrency)
        self._report("Balances", f"{check_balances(target, tally)} of {users} holders have the balance of their responses")
        if _is_our_database(target, uses):
            self._audit()
            self._invoice(target, tally)
        else:
            self._report("Audit", "skipped, like the invoices: these settings use another database than that ledger")

    def _report_tally(self, tally: Tally, concurrency: int) -> None:
        rate = tally.responses / tally.took_s
        self._report("Responses", f"{tally.responses:,} in {tally.took_s:.1f} s, {concurrency} parallel clients: {rate:,.0f}/s")
        self._report("Latency", ", ".join(f"p{percent} {tally.latency_ms(percent):.1f} ms" for percent in (50, 90, 99)))
        spent = sum(use.credits for use in tally.accepted)
        self._report("Accepted", f"{len(tally.accepted):,} spends of {spent:,} credits")
        self._report("Refused", f"{tally.refused:,} for lack of credits")
        sent_again = (
            f"{tally.repeated:,} after a response",
            f"{tally.dropped:,} after a lost response",
            f"{tally.retried:,} after a Retry-After",
        )
        self._report("Retries", f"{', '.join(sent_again)}; {tally.replays:,} replayed responses")

    def _audit(self) -> None:
        said = StringIO()
        try:
            call_command("audit_ledger", stdout=said, stderr=said)
        except SystemExit as end:
            raise CommandError(f"The audit ended with {end.code}:\n{said.getvalue()}") from end
        self._report("Audit", *said.getvalue().strip().removeprefix("Audit of ").splitlines())

    def _invoice(self, target: Target, tally: Tally) -> None:
        made = invoice_usage(target, tally.accepted)
        self._report(
            "Invoices",
            f"{made.invoices} from {made.events:,} usage events: {CURRENCY} {made.total_minor / 100:,.2f}; "
            f"expected from the trace: {CURRENCY} {made.expected_minor / 100:,.2f}",
        )

    def _report(self, label: str, *lines: str) -> None:
        """Print text for people at once; JSON for programs follows at the end."""
        if self.options.format == "json":
            self._reported[label.lower()] = [line.strip() for line in lines]
            return
        for number, line in enumerate(lines):
            sys.stdout.write(f"{'' if number else label:<10}{line}".rstrip() + "\n")
        sys.stdout.flush()


def _read(path: Path, limit: int | None) -> list[Use]:
    try:
        return read_trace(path, limit=limit)
    except FileNotFoundError:
        raise CommandError(f"{path} does not exist. Name a CSV file: make replay TRACE=FILE. Download: {SOURCE}") from None
    except (OSError, UnicodeDecodeError, csv.Error, TraceInvalid) as error:
        raise CommandError(str(error)) from error


@contextmanager
def _ledger(url: str | None, api_key: str | None, run: str) -> Iterator[Target]:
    """Yield the running ledger that was named, or a temporary one."""
    if url is None:
        try:
            with temporary_ledger() as own:
                yield Target(own.url, own.api_key, run)
        except DoesNotStart as error:
            raise CommandError(str(error)) from error
        finally:
            connections.close_all()
        return
    with _key_for(run, api_key) as key:
        yield Target(url.rstrip("/"), key, run)


@contextmanager
def _key_for(run: str, api_key: str | None) -> Iterator[str]:
    """Yield the given key, or one that is revoked after the run."""
    given = api_key or os.environ.get("LEDGER_BOOTSTRAP_API_KEY")
    if given:
        yield given
        return
    try:
        stored, made = api_keys.create_api_key(name=run, scopes=SCOPES, actor="replay")
    except DatabaseError as error:
        raise CommandError(f"Give --api-key: the command cannot reach the database to make a key: {error}") from error
    try:
        yield made
    finally:
        api_keys.revoke_api_key(stored)


def _is_our_database(target: Target, uses: Sequence[Use]) -> bool:
    """Return whether the database of these settings contains the played requests."""
    try:
        return reads.balance(target.holder(uses[0].user)).sequence > 0
    except DatabaseError:
        return False


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """For the block, SIGTERM ends it as Ctrl-C does, so that nothing is left running."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

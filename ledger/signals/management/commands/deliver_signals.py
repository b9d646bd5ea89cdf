"""`manage.py deliver_signals`: make signals from new entries, and send due signals to webhooks."""

import json
import logging
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError
from django.db import Error, connections

from ledger import conf
from ledger.errors import LockBusy
from ledger.management.end_signals import SIGNALLED, collect_end_signals
from ledger.management.examples import CommandWithExamples
from ledger.signals.feed import Fed, feed, feed_all_accounts, forget

DONE, BAD_ARGUMENTS, SOME_FAILED = 0, 2, 3
FEED_EVERY_S = 2

log = logging.getLogger(__name__)


class Command(CommandWithExamples):
    """Any number of these commands may run at once, on any machines: one of them makes signals, and they divide the webhooks."""

    help = (
        "Make signals from new entries, and send all due signals to webhooks. The command skips a webhook to which another "
        "process is sending. Exit codes: 0 done, 2 bad arguments, 3 some attempts failed and will be repeated, 130 or 143 a "
        "signal of the system ended the command after its current requests."
    )
    examples = (
        ("deliver_signals", "make signals, and send those that are due"),
        ("deliver_signals --workers 6", "in six parallel sessions, of which slow receivers get at most four"),
        ("deliver_signals --stay --workers 6", "and what becomes due, until a signal ends the command"),
        ("deliver_signals --all-accounts", "check each account, and delete signals older than LEDGER_SIGNAL_KEPT_DAYS"),
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """See `help`."""
        parser.add_argument(
            "--workers", type=int, default=1, metavar="N", help="number of parallel sessions, 1 to 32 (default: %(default)s)"
        )
        parser.add_argument("--stay", action="store_true", help="go on until a signal of the system ends the command")
        parser.add_argument(
            "--all-accounts",
            action="store_true",
            help="instead check every account for entries without a signal, and delete old signals; send nothing",
        )
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def load(self) -> None:
        from ledger.signals import delivery  # noqa: F401 - see `_deliver`

    def handle(self, *, workers: int, all_accounts: bool, stay: bool, **options: Any) -> None:
        """Deliver, print the summary, and exit with the code that `help` explains."""
        if not 1 <= workers <= 32:
            raise CommandError("--workers must be 1 .. 32", returncode=BAD_ARGUMENTS)
        if stay and all_accounts:
            raise CommandError("--stay and --all-accounts exclude each other", returncode=BAD_ARGUMENTS)
        facts, text, code = _tidy() if all_accounts else _deliver(workers, stays=stay)
        self.stdout.write(json.dumps({**facts, "exit_code": code}, indent=2) if options["format"] == "json" else text)
        if code != DONE:
            sys.exit(code)


def _deliver(workers: int, *, stays: bool) -> tuple[dict[str, Any], str, int]:
    # Imported here, because the HTTP client takes a while to load.
    from ledger.signals.delivery import deliver

    with collect_end_signals() as received:
        fed = Fed()
        _feed_into(fed)
        with _feeding(fed) if stays else nullcontext():
            sent = deliver(workers=workers, stop=lambda: bool(received), stays=stays)
    code = SIGNALLED + received[0] if received else SOME_FAILED if sent.failed or sent.broken else DONE
    lines = [
        f"Read {fed.entries:,} new entries of {fed.holders:,} holders.",
        f"{sent.attempts:,} attempts: {sent.delivered:,} delivered, {sent.failed:,} failed.",
    ]
    lines += [f"Given up: {sent.given_up:,}."] if sent.given_up else []
    lines += [f"Webhooks disabled: {sent.disabled:,}."] if sent.disabled else []
    lines += [f"Rounds that ended with an error (see the log): {sent.broken:,}."] if sent.broken else []
    return {"entries": fed.entries, "holders": fed.holders, **asdict(sent)}, "\n".join(lines), code


def _feed_into(fed: Fed) -> None:
    """Make signals of new entries, and count them; nothing while another process does."""
    with suppress(LockBusy):
        new = feed()
        fed.entries, fed.holders = fed.entries + new.entries, fed.holders + new.holders


@contextmanager
def _feeding(fed: Fed) -> Iterator[None]:
    """For the block, a thread makes signals of new entries, so that no receiver delays those of others."""
    has_ended = threading.Event()

    def keep_feeding() -> None:
        try:
            while not has_ended.wait(FEED_EVERY_S):
                _feed_into(fed)
        except Error as error:
            log.error("No signals are made until the command begins again: %s", error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=keep_feeding, name="makes signals")
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()


def _tidy() -> tuple[dict[str, Any], str, int]:
    try:
        fed = feed_all_accounts()
        forgotten = forget(timedelta(days=conf.SIGNAL_KEPT_DAYS.value))
    except LockBusy:
        return {}, "Another command is making signals; the next run looks at all accounts.", DONE
    text = f"Looked at {fed.holders:,} holders, read {fed.entries:,} entries, deleted {forgotten:,} old signals."
    return {"entries": fed.entries, "holders": fed.holders, "forgotten": forgotten}, text, DONE

"""Long histories, made fast: every entry by the rules themselves, stored by COPY with all triggers on.

    python -m tests.benchmarks.histories --dsn postgresql://… --holders 1000 --entries 1000000 --processes 2

The holders' entries are interleaved as they would arrive, so that tables and indexes come out as large as in real use.
"""

import argparse
import os
import random
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import psycopg

from ledger.rules.accounts import AccountState
from ledger.rules.budget_states import encode_budgets, encode_counts
from ledger.rules.claims import encode_claims
from ledger.rules.cost_shares import encode_costs
from ledger.rules.decisions import credit_rules, refunds
from ledger.rules.entries import Entry
from ledger.rules.holds import encode_holds
from ledger.rules.instants import DAY_US, SECOND_US, from_us, to_us
from ledger.rules.lots import Lot, encode, encode_drawn
from ledger.rules.overage import encode_overage
from ledger.rules.requests import GrantRequest, RefundRequest, SpendRequest
from ledger.values import encode_json

ROWS_PER_STATEMENT = 5_000
START_US = to_us(datetime(2025, 1, 1, tzinfo=UTC))
STEP_US = 1_000_003
OPEN_LOTS = 3


@dataclass(frozen=True)
class Plan:
    """Which histories to make: the same plan gives the same entries, keys and digests apart."""

    holders: int
    entries: int
    first_holder: int = 1
    seed: int = 4711
    credit_type: str = "credits"


class History:
    """One account's history so far, and how it goes on: mostly spends out of three open lots, with top-ups and refunds."""

    def __init__(self, holder_id: str, credit_type: str, seed: int) -> None:
        self.random = random.Random(f"{seed}/{holder_id}")
        self.account = AccountState(holder_id, credit_type, START_US)
        self.openings: dict[int, Lot] = {}
        self.last_spend: Entry | None = None

    def next_entries(self, now_us: int) -> Sequence[Entry]:
        """What comes next at `now_us`: one entry, with expiries before it where they are due."""
        self.account = self.account._replace(now_us=now_us)
        entries = self._decide()
        self.account = self.account.after_all(entries)
        for entry in entries:
            if entry.kind == "grant":
                self.openings[entry.sequence] = next(lot for lot in entry.lots if lot.grant == entry.sequence)
            elif entry.kind == "spend":
                self.last_spend = entry
        return entries

    def _decide(self) -> Sequence[Entry]:
        """The entries of the next request: mostly spends, grants where they are needed, a few refunds."""
        amount = self.random.randint(1, 2_000)
        if len(self.account.lots) < OPEN_LOTS or self.account.available < amount:
            return credit_rules.grant(self.account, self._grant())
        if self.last_spend is not None and self.random.random() < 0.01:
            spend, self.last_spend = self.last_spend, None
            request = RefundRequest(**self._common(), spend=spend.sequence, reason="model was unavailable")
            return refunds.refund(
                self.account, request, spend=spend, refunded=0, terms=self.openings, expired_lot_policy="new-lot", new_lot_days=30
            )
        reference = f"req_{self.random.getrandbits(64):016x}"
        request = SpendRequest(**self._common(), amount=amount, reason="chat completion", reference=reference)
        return credit_rules.spend(self.account, request)

    def _grant(self) -> GrantRequest:
        """A grant as a shop would make it."""
        promotional = self.random.random() < 0.3
        return GrantRequest(
            **self._common(),
            amount=self.random.choice((50_000, 100_000, 250_000)),
            source="promotional" if promotional else "purchased",
            # People say in whole seconds when credits expire, mostly a midnight.
            expires_at=from_us(self.account.now_us // SECOND_US * SECOND_US + self.random.choice((30, 90, 365)) * DAY_US),
            reason="welcome credits" if promotional else "top-up",
            reference=f"pay_{self.random.getrandbits(64):016x}",
        )

    def _common(self) -> dict[str, str]:
        """What every request has."""
        return {
            "holder_id": self.account.holder_id,
            "credit_type": self.account.credit_type,
            "idempotency_key": str(uuid.UUID(int=self.random.getrandbits(128), version=4)),
            "actor": "key:backend",
        }


def generate(plan: Plan) -> Iterator[Entry]:
    """The plan's entries in the order in which they are recorded: holder after holder, round after round."""
    last = plan.first_holder + plan.holders
    histories = [History(f"cust-{number:06}", plan.credit_type, plan.seed) for number in range(plan.first_holder, last)]
    now_us, made = START_US, 0
    while True:
        for history in histories:
            now_us += STEP_US
            for entry in history.next_entries(now_us):
                yield entry
                made += 1
                if made == plan.entries:
                    return


def row(entry: Entry) -> tuple[object, ...]:
    """The entry's columns as the driver takes them, for who stores entries past the ledger's own code."""
    return (
        *entry[:7],
        encode(entry.lots),
        encode_drawn(entry.drawn),
        encode_holds(entry.holds) if entry.holds else None,
        *entry[10:15],
        None if entry.effective_us == entry.recorded_us else entry.effective_at,
        entry.recorded_at,
        *entry[17:20],
        *(encode_json(value) if value else None for value in entry[20:24]),
        entry.requested,
        encode_budgets(entry.budgets) if entry.budgets else None,
        None if entry.sale is None else encode_json(entry.sale),
        encode_costs(entry.costs) if entry.costs else None,
        encode_costs(entry.cost_changes) if entry.cost_changes else None,
        None if entry.overage is None else encode_overage(entry.overage),
        entry.postpaid,
        encode_claims(entry.claims) if entry.claims else None,
        encode_counts(entry.counts) if entry.counts else None,
        None if entry.next_grant_us is None else from_us(entry.next_grant_us),
        entry.digest,
    )


def store(connection: psycopg.Connection[Any], entries: Iterable[Entry]) -> None:
    """Store entries by one COPY, in the order given."""
    # Here, because Django's settings are not set when a benchmark starts.
    from ledger.entry_rows import COLUMNS, copy_line

    with connection.cursor() as cursor, cursor.copy(f"COPY ledger_entry ({COLUMNS}) FROM STDIN") as copy:
        copy.write("".join(map(copy_line, entries)))


def load(dsn: str, plan: Plan) -> int:
    """Store the plan's entries, a few thousand a transaction; returns how many."""
    stored = 0
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET statement_timeout = 0")
        connection.execute("SET synchronous_commit = off")
        entries = generate(plan)
        while chunk := list(islice(entries, ROWS_PER_STATEMENT)):
            store(connection, chunk)
            stored += len(chunk)
    return stored


def load_in_parallel(dsn: str, *, holders: int, entries: int, processes: int, first_holder: int = 1, seed: int = 4711) -> int:
    """As `load`, the holders shared among processes."""
    plans = [
        Plan(holders // processes, entries // processes, first_holder + share * (holders // processes), seed)
        for share in range(processes)
    ]
    with ProcessPoolExecutor(processes) as pool:
        return sum(pool.map(load, [dsn] * processes, plans))


def main() -> None:
    """The command line."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ledger_project.settings")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dsn", default=os.environ.get("DATABASE_URL"))
    parser.add_argument("--holders", type=int, default=1_000)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--first-holder", type=int, default=1)
    options = parser.parse_args()
    start = time.monotonic()
    stored = load_in_parallel(
        options.dsn,
        holders=options.holders,
        entries=options.entries,
        processes=options.processes,
        first_holder=options.first_holder,
    )
    seconds = time.monotonic() - start
    sys.stdout.write(f"{stored:,} entries in {seconds:.1f} s, {stored / seconds:,.0f}/s\n")


if __name__ == "__main__":
    main()

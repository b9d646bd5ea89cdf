"""The balance by effective time: that of a simple calculator, which sorts all entries of a history by their effective times."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from django.db import connection

from ledger import reads
from ledger.rules.entries import GENESIS, Entry
from ledger.rules.instants import from_us
from tests.benchmarks.histories import store
from tests.ledger.random_histories import START_US, RandomHistory, RulesLedger
from tests.ledger.rules.credit_model import DAY_US
from tests.parts import spread

pytestmark = pytest.mark.django_db


def imported(entries: Sequence[Entry], *, recorded_us: int) -> list[Entry]:
    """The entries as an import records them that was made at a time: none of them is recorded earlier."""
    found, heads = [], dict[str, bytes]()
    for entry in entries:
        recorded = entry._replace(recorded_us=max(entry.recorded_us, recorded_us)).sealed(heads.get(entry.holder_id, GENESIS))
        heads[entry.holder_id] = recorded.digest
        found.append(recorded)
    return found


@dataclass(frozen=True)
class Change:
    """What an entry changed: credits by lot, of the debt, and in holds."""

    effective_us: int
    lots: Counter[int]
    owed: int
    held: int


def changes(entries: Sequence[Entry]) -> list[Change]:
    """What each entry changed, by effective time; what the ledger takes back counts from when it came back: it was of no use."""
    found, lots, owed, held, came_us = [], Counter[int](), 0, 0, 0
    for entry in entries:
        after = Counter({lot.grant: lot.remaining for lot in entry.lots})
        owed_after = after.total() - entry.balance
        moved = Counter({lot: after[lot] - lots[lot] for lot in {*after, *lots}})
        if entry.kind != "revoke" or entry.idempotency_key is not None:
            came_us = entry.effective_us
        found.append(Change(came_us, moved, owed_after - owed, entry.held - held))
        lots, owed, held = after, owed_after, entry.held
    return sorted(found, key=lambda change: change.effective_us)


def calculate(entries: Sequence[Entry], at_us: int) -> tuple[int, int]:
    """The balance and the held credits at a time: all changes up to then, of lots that count at that time.

    Every expiry up to then has to be among the entries.
    """
    opened = {lot.grant: lot for entry in entries for lot in entry.lots}
    since = {grant: lot.effective_us or entries[grant - 1].effective_us for grant, lot in opened.items()}
    lots, owed, held = Counter[int](), 0, 0
    for change in changes(entries):
        if change.effective_us <= at_us:
            lots.update(change.lots)
            owed, held = owed + change.owed, held + change.held
    counting = [amount for grant, amount in lots.items() if since[grant] <= at_us and not opened[grant].is_expired(at_us)]
    return sum(counting) - owed, held


@pytest.mark.parametrize("seed", spread(range(4), test=[0], check=[3]))
def test_the_balance_by_effective_time_is_the_sum_of_all_entries_by_effective_time(seed):
    ledger, chance = RulesLedger(), random.Random(seed)
    history = RandomHistory(ledger, ("ada", "bob"))
    for _ in range(150):
        history.step(chance)
    decided_until = ledger.now_us
    ledger.now_us += 100 * DAY_US
    imported_us = ledger.now_us
    for _ in range(75):
        history.step(chance)
        if not chance.randrange(5):
            # Recorded now, and effective among the imported entries, the later ones, or in the future.
            back_us = chance.randint(-5 * DAY_US, ledger.now_us - START_US)
            history.grant(chance.choice(history.holders), 20, effective_in_us=-back_us)
    ends_us = ledger.now_us
    ledger.now_us += 30 * DAY_US
    for holder in history.holders:
        history.overdraft(holder, 1)
    connection.ensure_connection()
    store(connection.connection, imported(ledger.in_order, recorded_us=imported_us))
    instants = [
        *(chance.randint(START_US - DAY_US, decided_until + DAY_US) for _ in range(20)),
        *(chance.randint(decided_until, ends_us + 10 * DAY_US) for _ in range(10)),
        *(entry.effective_us for entry in chance.sample(ledger.in_order, 20)),
    ]
    for at_us in instants:
        for holder in history.holders:
            found = reads.balance_by_effective_time(holder, at=from_us(at_us))
            assert (found.balance, found.held) == calculate(ledger.entries[holder], at_us), (holder, from_us(at_us))

"""Names the entries of a statement, so that each is booked once, whatever file it comes in. Pure.

Note [The name of an entry]
    A bank's own reference names an entry alone: texts grow, and pending entries are booked later. Where a bank gives none, the
    name is made of account, booking day, amount, party and the number among equal entries of the file. The value day is no part
    of it, because files are cut by booking day; neither is the text, which banks write differently in their formats.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from billing.statements_in.statements import EntryState, Statement, StatementEntry

NEAR_DAYS: Final = timedelta(days=10)
"""Within how many days an equal amount may be the same receipt in another form."""


@dataclass(frozen=True, slots=True)
class NamedEntry:
    """An entry that the bank has booked, with its account and its name for good."""

    name: str
    account: str
    entry: StatementEntry


def name_entries(statements: Sequence[Statement]) -> list[NamedEntry]:
    """Return the booked entries of all statements with their names; see Note [The name of an entry]."""
    seen = Counter[str]()
    named = []
    for statement in statements:
        for entry in statement.entries:
            if entry.state is not EntryState.BOOKED:
                continue
            facts = _facts(statement.account, entry)
            seen[facts] += 1
            named.append(NamedEntry(_digest(f"{facts}\n{seen[facts]}"), statement.account, entry))
    return named


def other_name(named: NamedEntry) -> str:
    """Return the name of an entry whose name another one has that is not the same."""
    entry = named.entry
    return _digest("\n".join((named.name, entry.booked_on.isoformat(), str(entry.amount_minor), entry.currency, entry.words)))


def _facts(account: str, entry: StatementEntry) -> str:
    if entry.bank_reference:
        return f"reference\n{account}\n{entry.bank_reference}"
    party = " ".join(entry.party.split()).casefold()
    return "\n".join((account, entry.booked_on.isoformat(), str(entry.amount_minor), entry.currency, party))


def _digest(facts: str) -> str:
    return f"bank-{hashlib.sha256(facts.encode()).hexdigest()[:32]}"


def are_texts_alike(text: str, other: str) -> bool:
    """Return whether two texts may be of one entry: one of them has all words of the other."""
    words, other_words = (
        set("".join(sign if sign.isalnum() else " " for sign in each.casefold()).split()) for each in (text, other)
    )
    return words <= other_words or other_words <= words

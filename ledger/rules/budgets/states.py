"""The state of an account's budgets: their settings, what is used of them, and which part of that open holds have."""

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Final, NamedTuple

import orjson

from ledger.rules.budgets.windows import end_of, oldest_of, step_of
from ledger.values import encode_json

MAX_BUDGETS: Final = 20
MAX_COUNTERS: Final = 200
"""How many subjects the budgets of an account count at the same time: the state is on every entry, and stays small so."""
MAX_SUBJECT_CHARACTERS: Final = 200

BY_HOLDER, BY_ACTOR, BY_REFERENCE, BY_LABEL = "holder", "actor", "reference", "label"
SCOPES: Final = (BY_HOLDER, BY_ACTOR, BY_REFERENCE, BY_LABEL)
HARD, SOFT = "hard", "soft"
MODES: Final = (HARD, SOFT)
SETTINGS: Final = ("limit", "window", "hours", "time_zone", "by", "label", "subject", "mode")
"""The members of `counterpart` in an `adjust` entry that sets a budget; an entry that ends a budget has only its name."""

UNCOUNTED_ACTORS: Final = frozenset({"billing"})
"""Whose spends no budget counts: those that pay an invoice, or usage that has happened already."""


class Counter(NamedTuple):
    """What a subject has used: by step of the window, the oldest first, as (start in microseconds, credits > 0)."""

    subject: str
    steps: tuple[tuple[int, int], ...]

    @property
    def used(self) -> int:
        return sum([amount for _, amount in self.steps])


class Share(NamedTuple):
    """How much of what is used an open hold has set aside: a release gives it back to the step in which the hold was made."""

    hold: int
    subject: str
    start_us: int
    amount: int


class Budget(NamedTuple):
    """A budget, and what is used of it.

    `by` says whose use is counted together: everything of the account, or what has the same actor, reference or value of the
    metadata's `label`. With `subject` only that one is counted, otherwise each has the whole limit.
    """

    name: str
    limit: int
    window: str
    hours: int | None = None
    time_zone: str = "UTC"
    by: str = BY_HOLDER
    label: str | None = None
    subject: str | None = None
    is_hard: bool = True
    counters: tuple[Counter, ...] = ()
    shares: tuple[Share, ...] = ()

    @property
    def counts_as(self) -> tuple[Any, ...]:
        """The settings on which a counter depends: with another limit or mode, the budget continues counting."""
        return self[2:8]

    @property
    def mode(self) -> str:
        return HARD if self.is_hard else SOFT

    def used(self, subject: str) -> int:
        """Return what the subject has used, by the steps in the state."""
        return next((counter.used for counter in self.counters if counter.subject == subject), 0)

    def at(self, now_us: int) -> "Budget":
        """Return the budget without the steps that do not count any more at `now_us`."""
        oldest_us = oldest_of(self.window, self.hours, self.time_zone, now_us)
        if all(counter.steps[0][0] >= oldest_us for counter in self.counters):
            return self
        counters = [Counter(each.subject, tuple([step for step in each.steps if step[0] >= oldest_us])) for each in self.counters]
        kept = tuple([each for each in counters if each.steps])
        return self._replace(counters=kept, shares=tuple([each for each in self.shares if each.start_us >= oldest_us]))

    def added(self, subject: str, start_us: int, amount: int) -> "Budget":
        """Return the budget after the subject has used `amount` more in a step; below 0 it is given back.

        A step that does not count any more gets nothing back.
        """
        place = bisect_left(self.counters, subject, key=_subject_of)
        is_known = place < len(self.counters) and self.counters[place].subject == subject
        steps = dict(self.counters[place].steps) if is_known else {}
        if amount > 0 or start_us in steps:
            steps[start_us] = steps.get(start_us, 0) + amount
        left = tuple([(start, used) for start, used in sorted(steps.items()) if used])
        new = (Counter(subject, left),) if left else ()
        return self._replace(counters=(*self.counters[:place], *new, *self.counters[place + is_known :]))

    def step(self, now_us: int) -> int:
        """Return the start of the step in which is counted what is used at `now_us`."""
        return step_of(self.window, self.hours, self.time_zone, now_us)

    def resets_us(self, subject: str, now_us: int, amount: int = 0) -> int | None:
        """Return from when the limit has room for `amount`, if nothing else is used.

        For an amount above the limit: from when nothing is used. None if a rolling window is empty already.
        """
        if self.hours is None:
            return end_of(self.window, None, self.time_zone, now_us)
        used, last = self.used(subject), None
        for start_us, part in self._steps_of(subject):
            used -= part
            last = end_of(self.window, self.hours, self.time_zone, start_us)
            if used + amount <= self.limit:
                break
        return last

    def _steps_of(self, subject: str) -> Iterator[tuple[int, int]]:
        yield from next((counter.steps for counter in self.counters if counter.subject == subject), ())


_subject_of: Final = attrgetter("subject")

Budgets = tuple[Budget, ...]
"""The budgets of an account, by name."""


def counted_subject(budget: Budget, asking: Any) -> str | None:
    """Return under which subject the budget counts a request, or None if it does not.

    Args:
        asking: anything with an actor, a reference and metadata.
    """
    if asking.actor in UNCOUNTED_ACTORS:
        return None
    match budget.by:
        case "holder":
            return ""
        case "actor":
            subject = asking.actor
        case "reference":
            subject = asking.reference
        case _:
            subject = _label(asking.metadata.get(budget.label))
    return subject if budget.subject in (None, subject) else None


def _label(value: Any) -> str:
    """A value of the metadata as the name of a subject; empty for a request that has no such label."""
    return "" if value is None else value if isinstance(value, str) else encode_json(value)


# Holds -----------------------------------------------------------------------------------------------


def given_back(budgets: Budgets, hold: int, amount: int) -> Budgets:
    """Return the budgets after a hold released `amount`: its share shrinks, and what is used in the step of the hold."""
    return tuple([_with_smaller_share(budget, hold, amount, is_given_back=True) for budget in budgets])


def captured(budgets: Budgets, hold: int, amount: int) -> Budgets:
    """Return the budgets after `amount` of a hold was captured: its share shrinks, and what is used stays."""
    return tuple([_with_smaller_share(budget, hold, amount, is_given_back=False) for budget in budgets])


def _with_smaller_share(budget: Budget, hold: int, amount: int, *, is_given_back: bool) -> Budget:
    share = next((each for each in budget.shares if each.hold == hold), None)
    if share is None:  # the budget is younger than the hold, or the hold's step does not count any more
        return budget
    left = share._replace(amount=share.amount - amount)
    shares = tuple([left if each is share else each for each in budget.shares if each is not share or left.amount])
    budget = budget._replace(shares=shares)
    return budget.added(share.subject, share.start_us, -amount) if is_given_back else budget


# As they are stored ----------------------------------------------------------------------------------


def encode_budgets(budgets: Budgets) -> str:
    """Return the stored and digested form: JSON arrays of the fields in their order. An entry without budgets stores null."""
    return orjson.dumps([_encoded(each) for each in budgets]).decode()


def _encoded(budget: Budget) -> list[Any]:
    counters = [(counter.subject, counter.steps) for counter in budget.counters]
    return [*budget[:8], int(budget.is_hard), counters, [tuple(share) for share in budget.shares]]


def decode_budgets(text: str | bytes) -> Budgets:
    """Return the budgets of a stored form: the inverse of `encode_budgets`."""
    return tuple([_decoded(*fields) for fields in orjson.loads(text)])


def _decoded(*fields: Any) -> Budget:
    settings, (is_hard, counters, shares) = fields[:8], fields[8:]
    counted = [Counter(subject, tuple([(start, used) for start, used in steps])) for subject, steps in counters]
    return Budget._make((*settings, is_hard == 1, tuple(counted), tuple([Share(*share) for share in shares])))

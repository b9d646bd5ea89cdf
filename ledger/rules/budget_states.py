"""The state of an account's budgets: their settings. What is used of them stands in counters, one for each subject and step.

An entry names the counters that it changed, with what they say after it; the last entry of an account has no list of subjects. So
the number of subjects is not limited, and costs a spend nothing. See docs/adr/0160.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

import orjson

from ledger.rules.budget_windows import end_of, step_of, window_of
from ledger.rules.instants import from_us
from ledger.rules.purposes import label_text

MAX_BUDGETS: Final = 20
"""At the same time."""
MAX_COMING: Final = 40
"""Settings for later of all budgets of an account: each entry carries them."""
MAX_LEVELS: Final = 5
"""How deep budgets nest: an organisation, a team, a member, an agent, a session."""
MAX_SUBJECT_CHARACTERS: Final = 200
MAX_SUBJECT_BYTES: Final = 2_400
"""Of the subject of a nested budget, which names its parents too: it is part of a key."""

BY_HOLDER, BY_ACTOR, BY_REFERENCE, BY_LABEL = "holder", "actor", "reference", "label"
SCOPES: Final = (BY_HOLDER, BY_ACTOR, BY_REFERENCE, BY_LABEL)
HARD, SOFT = "hard", "soft"
MODES: Final = (HARD, SOFT)
SETTINGS: Final = ("limit", "window", "hours", "time_zone", "by", "label", "subject", "mode")
"""The members of `counterpart` in an `adjust` entry that sets a budget; an entry that ends a budget has only its name."""

ENCODED: Final = 256
"""How many accounts' budgets are kept in memory beside their stored form: each entry of an account repeats it."""

UNCOUNTED_ACTORS: Final = frozenset({"billing"})
"""Whose spends no budget counts: those that pay an invoice, or usage that has happened already."""


class BudgetScope(NamedTuple):
    """Whose use is counted together: everything, or what has the same actor, reference or value of the metadata's `label`.

    With `subject` only that one is counted.
    """

    by: str
    label: str | None
    subject: str | None


class BudgetCount(NamedTuple):
    """What an entry counted in one step of a budget's window; below 0 it gave something back to the step.

    `setting` is the sequence of the entry from which the budget counts. `used` is what the subject has used in the step after the
    entry, `total` in the window; they are the same unless the window rolls.
    """

    setting: int
    subject: str
    start_us: int
    amount: int
    used: int
    total: int

    @property
    def key(self) -> "CounterKey":
        return self.setting, self.subject


Counts = tuple[BudgetCount, ...]
CounterKey = tuple[int, str]
"""A setting and a subject."""
Steps = Mapping[int, int]
"""What a subject has used by step of the window: the start of each in microseconds, and the credits, 0 or more."""
Counters = Mapping[CounterKey, Steps]
NO_STEPS: Final[Steps] = {}


class Budget(NamedTuple):
    """A budget: what it counts, and its limit.

    `by` says whose use is counted together: everything of the account, or what has the same actor, reference or value of the
    metadata's `label`. With `subject` only that one is counted, otherwise each has the whole limit. `setting` is the sequence of
    the entry from which it counts. `parent` names the budget in which it nests, and `within` are the scopes of its parents, the
    outermost first: the same subject in two of them is two.

    It is in force from `starts_us` on, or since it was set, and until `ends_us`, if that is given. `later` are the ones of the
    same name that come after it, in the order of their starts. So a budget for later needs nobody who sets it then.
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
    setting: int = 0
    parent: str | None = None
    within: tuple[BudgetScope, ...] = ()
    starts_us: int | None = None
    ends_us: int | None = None
    later: "Budgets" = ()

    @property
    def starts_at(self) -> datetime | None:
        """As `starts_us`, in UTC."""
        return None if self.starts_us is None else from_us(self.starts_us)

    @property
    def ends_at(self) -> datetime | None:
        """As `ends_us`, in UTC."""
        return None if self.ends_us is None else from_us(self.ends_us)

    @property
    def versions(self) -> "Budgets":
        """All settings of its name, in the order of their starts."""
        return (self._replace(later=()), *self.later)

    def is_in_force(self, at_us: int) -> bool:
        """Return whether this setting, none of `later`, decides at an instant."""
        return (self.starts_us is None or self.starts_us <= at_us) and not self.is_over(at_us)

    def is_over(self, at_us: int) -> bool:
        """Return whether this setting has ended by then."""
        return self.ends_us is not None and self.ends_us <= at_us

    @property
    def counts_as(self) -> tuple[Any, ...]:
        """The settings on which a counter depends: with another limit or mode, the budget continues counting."""
        return (*self[2:8], self.within)

    @property
    def mode(self) -> str:
        return HARD if self.is_hard else SOFT

    @property
    def scope(self) -> BudgetScope:
        return BudgetScope(self.by, self.label, self.subject)

    @property
    def levels(self) -> tuple[BudgetScope, ...]:
        """Its parents' scopes and its own, the outermost first."""
        return (*self.within, self.scope)

    @property
    def kind(self) -> tuple[Any, ...]:
        """What it has in common with the budgets that override it, or that it overrides: whose use, in which window."""
        return self.window, self.hours, tuple([(level.by, level.label) for level in self.levels])

    @property
    def precedence(self) -> tuple[bool, ...]:
        """The higher, the more specific: a budget for one subject before one for all, then one within one parent."""
        return tuple([level.subject is not None for level in reversed(self.levels)])

    def step(self, now_us: int) -> int:
        """Return the start of the step in which is counted what is used at `now_us`."""
        return step_of(self.window, self.hours, self.time_zone, now_us)

    def window_at(self, now_us: int) -> range:
        """Return the starts of the steps that count at `now_us`."""
        return window_of(self.window, self.hours, self.time_zone, now_us)

    def used(self, steps: Steps, now_us: int) -> int:
        """Return what is used in the window of `now_us`."""
        counted = self.window_at(now_us)
        return sum([used for start_us, used in steps.items() if start_us in counted])

    def resets_us(self, steps: Steps, now_us: int, amount: int = 0) -> int | None:
        """Return from when the limit has room for `amount`, if nothing else is used.

        For an amount above the limit: from when nothing is used. None if a rolling window is empty already.
        """
        if self.hours is None:
            return end_of(self.window, None, self.time_zone, now_us)
        counted, last = self.window_at(now_us), None
        current = sorted([(start_us, part) for start_us, part in steps.items() if part and start_us in counted])
        used = sum([part for _, part in current])
        for start_us, part in current:
            used -= part
            last = end_of(self.window, self.hours, self.time_zone, start_us)
            if used + amount <= self.limit:
                break
        return last


Budgets = tuple[Budget, ...]
"""The budgets of an account, by name."""


def in_force(budgets: Budgets, at_us: int) -> Budgets:
    """Return the settings that decide at an instant, by name."""
    present = []
    for budget in budgets:
        if budget.starts_us is None and budget.ends_us is None:
            present.append(budget)
        else:
            present += [version for version in budget.versions if version.is_in_force(at_us)]
    return tuple(present)


def left_of(budgets: Budgets, at_us: int) -> dict[str, list[Budget]]:
    """Return the settings that are in force at an instant or later, by name; a name without any is left out."""
    left = {budget.name: [version for version in budget.versions if not version.is_over(at_us)] for budget in budgets}
    return {name: versions for name, versions in left.items() if versions}


def join_settings(versions: Mapping[str, Sequence[Budget]]) -> Budgets:
    """Return the budgets of an account, of their settings by name: the inverse of `left_of`."""
    return tuple([versions[name][0]._replace(later=tuple(versions[name][1:])) for name in sorted(versions)])


# What is counted --------------------------------------------------------------------------------------


def counting(budgets: Budgets, asking: Any) -> list[tuple[Budget, str]]:
    """Return the budgets that count a request, each with the subject for which it does.

    Of budgets for the same kind of subject in the same window only the most specific ones count it: one for this member before
    one for each member.

    Args:
        asking: anything with an actor, a reference and metadata.
    """
    found = [(budget, subject) for budget in budgets if (subject := counted_subject(budget, asking)) is not None]
    if len(found) < 2:
        return found
    best: dict[tuple[Any, ...], tuple[bool, ...]] = {}
    for budget, _ in found:
        best[budget.kind] = max(best.get(budget.kind, ()), budget.precedence)
    return [(budget, subject) for budget, subject in found if budget.precedence == best[budget.kind]]


def counted_subject(budget: Budget, asking: Any) -> str | None:
    """Return under which subject the budget counts a request, or None if it does not.

    The subject of a nested budget is a JSON array, as PostgreSQL writes it: those of its parents, and its own.
    """
    if asking.actor in UNCOUNTED_ACTORS:
        return None
    path = []
    for level in budget.levels:
        if level.by == BY_HOLDER:
            continue
        subject = _subject_of(level, asking)
        if level.subject not in (None, subject):
            return None
        path.append(subject)
    return f"[{', '.join(map(encode_basestring, path))}]" if len(path) > 1 else path[0] if path else ""


def names_of(asking: Any, budget: Budget) -> Iterator[tuple[BudgetScope, str]]:
    """Yield the scopes by which the budget counts a request, each with its value there."""
    for level in budget.levels:
        if level.by != BY_HOLDER:
            yield level, _subject_of(level, asking)


def _subject_of(level: BudgetScope, asking: Any) -> str:
    match level.by:
        case "actor":
            subject: str = asking.actor
        case "reference":
            subject = asking.reference
        case _:
            subject = label_text(asking.metadata.get(level.label))
    return subject


def path_of(budget: Budget, subject: str) -> list[str]:
    """Return the names in the subject of a counter: those of the parents, the outermost first, and its own."""
    levels = sum(level.by != BY_HOLDER for level in budget.levels)
    if levels > 1:
        path: list[str] = orjson.loads(subject)
        return path
    return [subject] if levels else []


def own_subject(budget: Budget, subject: str) -> str | None:
    """Return the name of the subject in its budget, without those of its parents; None for everything of the account."""
    return None if budget.by == BY_HOLDER else path_of(budget, subject)[-1]


def parents_of(budget: Budget, subject: str) -> list[str]:
    """Return the names of the parents in which the subject is, the outermost first; the account itself has no name."""
    path = path_of(budget, subject)
    return path if budget.by == BY_HOLDER else path[:-1]


def count(budget: Budget, subject: str, start_us: int, amount: int, *, counters: Counters, now_us: int) -> BudgetCount:
    """Return the count of `amount` in a step; below 0 to give it back.

    Args:
        counters: with the steps of the subject that count at `now_us`.
    """
    steps = counters.get((budget.setting, subject), NO_STEPS)
    used = steps.get(start_us, 0) + amount
    total = used if budget.hours is None else budget.used(steps, now_us) + amount
    return BudgetCount(budget.setting, subject, start_us, amount, used, total)


def after(counters: Counters, counts: Iterable[BudgetCount]) -> Counters:
    """Return the counters after an entry's counts."""
    changed = dict(counters)
    for each in counts:
        changed[each.key] = {**changed.get(each.key, NO_STEPS), each.start_us: each.used}
    return changed


def given_back(budgets: Budgets, held: Sequence[BudgetCount], amount: int, *, counters: Counters, at_us: int) -> Counts:
    """Return the counts of a release of `amount`: it gives back to the steps in which its hold was counted.

    A step that does not count any more at that time gets nothing back, nor does a budget that has ended or begun again.

    Args:
        budgets: all of the account; those in force at that time get something back.
        held: the counts of the hold's entry.
        at_us: when the credits come back: for an expired hold its expiry, whenever that is booked.
    """
    if not amount:
        return ()
    known = {budget.setting: budget for budget in in_force(budgets, at_us)}
    return tuple(
        [
            count(known[each.setting], each.subject, each.start_us, -amount, counters=counters, now_us=at_us)
            for each in held
            if each.setting in known and each.start_us in known[each.setting].window_at(at_us)
        ]
    )


# As they are stored ----------------------------------------------------------------------------------


@lru_cache(ENCODED)
def encode_budgets(budgets: Budgets) -> str:
    """Return the stored and digested form: JSON arrays of the fields in their order. An entry without budgets stores null.

    The parent and the scopes of the parents are left out of a budget that does not nest. One with instants has an object in the
    place of the parent; so code of 0.2.1, which knows no instants, carries it from entry to entry as it is.
    """
    return orjson.dumps([_encode_budget(each) for each in budgets]).decode()


def _encode_budget(budget: Budget) -> list[Any]:
    settings = [*budget[:8], int(budget.is_hard), budget.setting]
    within = [tuple(level) for level in budget.within]
    if budget.starts_us is None and budget.ends_us is None:
        return [*settings, budget.parent, within] if budget.parent else settings
    instants: dict[str, Any] = {
        "parent": budget.parent,
        "from": budget.starts_us,
        "until": budget.ends_us,
        "later": [_encode_budget(each) for each in budget.later],
    }
    return [*settings, {name: each for name, each in instants.items() if each not in (None, [])}, within]


@lru_cache(ENCODED)
def decode_budgets(text: str | bytes) -> Budgets:
    """Return the budgets of a stored form: the inverse of `encode_budgets`."""
    return tuple([_decode_budget(*fields) for fields in orjson.loads(text)])


def _decode_budget(*fields: Any) -> Budget:
    settings, is_hard, setting, (parent, within) = fields[:8], fields[8], fields[9], fields[10:] or (None, ())
    instants = parent if isinstance(parent, dict) else {"parent": parent}
    levels = tuple([BudgetScope(*level) for level in within])
    later = tuple([_decode_budget(*each) for each in instants.get("later", ())])
    return Budget._make(
        (
            *settings,
            is_hard == 1,
            setting,
            instants.get("parent"),
            levels,
            instants.get("from"),
            instants.get("until"),
            later,
        )
    )


def encode_counts(counts: Counts) -> str:
    """Return the stored and digested form: JSON arrays of the fields in their order, without a total that is `used` too."""
    return orjson.dumps([each[:5] if each.total == each.used else each[:] for each in counts]).decode()


def decode_counts(text: str | bytes) -> Counts:
    """Return the counts of a stored form: the inverse of `encode_counts`."""
    return tuple([BudgetCount._make((*fields[:5], fields[-1] if fields[5:] else fields[4])) for fields in orjson.loads(text)])

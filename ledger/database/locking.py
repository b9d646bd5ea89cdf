"""Locks for the code of a project: declared on what needs them, so business logic names none. See docs/how-to/embedding.md.

`locked` declares a lock on a function, `LockedHandlers` on the writes of a view; `insert_once` and `unique` insert once under a
lock; by `share`, workers divide a list.
"""

import functools
import inspect
import json
import re
import string
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, ClassVar, Concatenate, Final, NamedTuple, ParamSpec, TypeVar
from uuid import UUID

from django.utils import timezone

from ledger.database.lock_names import UNIQUE, LockName
from ledger.database.locks import Lock
from ledger.database.transactions import locked_transaction
from ledger.errors import LockBusy

P = ParamSpec("P")
R = TypeVar("R")

FIELD: Final = re.compile(r"(?P<argument>\w+)(?:\[\w+\])?")


class LockTemplate(NamedTuple):
    """A kind of lock, and for each field of its name a template that the function's arguments fill."""

    name: LockName
    templates: tuple[str, ...]

    def values(self, arguments: dict[str, Any]) -> list[str]:
        """Return the values of the name's fields for one call of the function."""
        return [_FORMATTER.format(template, **arguments) for template in self.templates]


def on(name: LockName, *templates: str) -> LockTemplate:
    """Say which lock of a kind a call takes: `on(HOLDER, "{holder}")`, or `on(HOLDER, "{body[to]}")` for a member of an argument.

    Args:
        templates: one for each field of the name. In braces it names an argument of the function, or one member of an argument
            that is a mapping. When the function is called, each value must be text, an integer or a UUID.
    """
    if len(templates) != len(name.fields):
        raise ValueError(f"{name!r} takes {len(name.fields)} templates, not {len(templates)}")
    return LockTemplate(name, templates)


def locked(
    *locks: LockTemplate, wait: bool = True, busy: type[LockBusy] = LockBusy
) -> Callable[[Callable[Concatenate[Lock, P], R]], Callable[P, R]]:
    """Run the function in a transaction, under the locks that its arguments name. Its first argument is the `Lock`, the proof.

        @locked(on(INVOICE_GENERATION, "{ref}"), wait=False, busy=InvoiceGenerationBusy)
        def generate(lock: Lock, *, ref: str, body: dict[str, Any]) -> Generated: ...

        generate(ref="SUB-1234", body={...})

    Inside a transaction of the caller the function runs in a savepoint, and the locks are kept until the caller's transaction
    ends. If the function raises, the savepoint is rolled back: its writes are undone and its locks freed.

    Args:
        locks: at least one. They are taken in the order of their numbers, before the function runs.
        wait: True waits for a lock as `advisory_lock` does; False fails at once, as `try_advisory_lock` does.
        busy: with `wait=False`, the error that is raised when another session holds a lock. Its facts are `key` and the fields
            of the first name.

    Raises:
        ValueError: at definition: a template names an argument that the function does not have; or the function is `async` or
            yields, and would run after its lock is free.
        HolderBusy, or `busy`: another session holds a lock; the function has not run.
        TypeError: an argument is neither text, an integer nor a UUID; no lock was taken.
    """
    if not locks:
        raise ValueError("a lock needs a name")

    def decorate(function: Callable[Concatenate[Lock, P], R]) -> Callable[P, R]:
        _ensure_runs_at_once(function)
        signature = _without_the_lock(function)
        _check_templates(locks, set(signature.parameters), function.__qualname__)

        @functools.wraps(function)
        def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            values = [each.values(bound.arguments) for each in locks]
            names = [each.name(*of_each) for each, of_each in zip(locks, values, strict=True)]
            try:
                with locked_transaction(*names, wait=wait) as lock:
                    return function(lock, *args, **kwargs)
            except LockBusy as error:
                if wait or error.facts["key"] not in names:
                    raise
                raise busy(**error.facts, **dict(zip(locks[0].name.fields, values[0], strict=True))) from error

        return under_lock

    return decorate


class _Strict(string.Formatter):
    """Formats only text, integers and UUIDs, so that a missing value (None) never becomes part of a lock's name."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if not isinstance(value, str | UUID) and type(value) is not int:
            raise TypeError(f"a lock cannot be named by {value!r}")
        return str(value)


_FORMATTER: Final = _Strict()


def _ensure_runs_at_once(function: Callable[..., Any]) -> None:
    runs_later = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_such(inspect.unwrap(function)) for is_such in runs_later):
        raise ValueError(f"{function.__qualname__} is async or yields: it would run after its lock is free")


def _without_the_lock(function: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(function)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _check_templates(locks: tuple[LockTemplate, ...], arguments: set[str], owner: str) -> None:
    for template in (template for each in locks for template in each.templates):
        for _, field, form, conversion in string.Formatter().parse(template):
            if field is None:
                continue
            named = FIELD.fullmatch(field)
            if named is None or named["argument"] not in arguments or form or conversion:
                raise ValueError(f"{owner}: lock template {template!r} names {field!r}, which is not among the arguments")


WRITES: Final = ("post", "put", "patch", "delete")


class LockedHandlers:
    """Run the class's `post`, `put`, `patch` and `delete` in a transaction, under the locks that their arguments name.

        class Orders(LockedHandlers, View):
            locks = (on(HOLDER, "team-{team}"),)

            def post(self, request, team): ...      # knows nothing of locks

    The locks are free before the response is sent. A handler that raises writes nothing; one that returns a response, of whatever
    status, commits. Reads, by `get` and `head`, take no lock. For Django's views and for those of DRF. Raises: as `locked`.
    """

    locks: ClassVar[tuple[LockTemplate, ...]] = ()
    lock: Lock
    """The proof, while a handler runs."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Run the class's own handlers under its locks, or raise ValueError if a template names no argument of a handler."""
        super().__init_subclass__(**options)
        for name in WRITES:
            if cls.locks and name in vars(cls):
                setattr(cls, name, _under(cls.locks, vars(cls)[name]))


def _under(locks: tuple[LockTemplate, ...], handler: Callable[..., Any]) -> Callable[..., Any]:
    def act(lock: Lock, view: Any, /, *arguments: Any, **named: Any) -> Any:
        view.lock = lock
        return handler(view, *arguments, **named)

    # `locked` and readers see the handler's own name and its arguments after the lock.
    functools.update_wrapper(act, handler)
    declared = inspect.signature(handler)
    first = inspect.Parameter("lock", inspect.Parameter.POSITIONAL_ONLY)
    rest = [
        each.replace(kind=inspect.Parameter.POSITIONAL_ONLY) if position == 0 else each
        for position, each in enumerate(declared.parameters.values())
    ]
    act.__signature__ = declared.replace(parameters=[first, *rest])  # type: ignore[attr-defined]
    return locked(*locks)(act)


Row = TypeVar("Row")


def insert_once(name: str, *, check: Callable[[], Row | None], insert: Callable[[], Row]) -> tuple[Row, bool]:
    """Return what `check` finds under the lock of this name and False, or else what `insert` returns and True.

    Both run in one transaction; inside a transaction of the caller it is a part of that one.

    Args:
        check: returns the existing row; it sees everything that others committed before the lock was free.
        insert: its writes are rolled back if it raises.

    Raises: as `locked_transaction`.
    """
    with locked_transaction(name):
        known = check()
        return (insert(), True) if known is None else (known, False)


def unique(
    kind: str,
    arguments: Mapping[str, Any],
    period: timedelta | None = None,
    *,
    check: Callable[[datetime | None], Row | None],
    insert: Callable[[], Row],
) -> tuple[Row, bool]:
    """As `insert_once`, for a kind of work with these arguments: once for ever, or once in each period.

        sent, is_new = unique(
            "reminder", {"team": 7}, timedelta(days=1),
            check=lambda since: Reminder.objects.filter(team_id=7, sent_at__gte=since).first(),
            insert=lambda: Reminder.objects.create(team_id=7),
        )

    Args:
        kind: a word without a slash.
        arguments: as JSON; their order counts for nothing.
        period: above 0. Periods are counted from Monday, 1 January of the year 1, in UTC, by this machine's clock.
        check: takes the start of the period, or None without one.

    Raises:
        ValueError: the kind has a slash.
        As `insert_once`.

    Source: River's unique jobs, `internal/dbunique`, until 0.11.
    """
    if "/" in kind:
        raise ValueError(f"the kind {kind!r} has a slash")
    since = None if period is None else datetime.min.replace(tzinfo=UTC) + _whole(timezone.now(), period)
    return insert_once(UNIQUE(kind, _key(arguments, since)), check=lambda: check(since), insert=insert)


def _whole(now: datetime, period: timedelta) -> timedelta:
    return (now - datetime.min.replace(tzinfo=UTC)) // period * period


def _key(arguments: Mapping[str, Any], since: datetime | None) -> str:
    """Return the part of River's key behind the kind: the arguments as JSON without spaces, and the period in RFC 3339."""
    of_period = "" if since is None else f"&period={since:%Y-%m-%dT%H:%M:%SZ}"
    return f"args={json.dumps(arguments, sort_keys=True, separators=(',', ':'), ensure_ascii=False)}{of_period}"


Item = TypeVar("Item")

LOOK_EVERY_S: Final = 0.2


class TurnResult(Enum):
    """The results of a worker's act with a meaning; any other result means that the item is done."""

    BUSY = "busy"
    """Another worker has the item, as with `LockBusy`: retry it later."""
    END = "end"
    """The worker must end, with this item left."""


def share(
    items: Iterable[Item],
    act: Callable[[Item], Any],
    *,
    retries: int = 3,
    wait_s: float = 0.2,
    stop: Callable[[], bool] = lambda: False,
    waiting: Callable[[Collection[Item]], None] = lambda busy: None,
) -> list[Item]:
    """Act on each item that no other worker has, then retry the others; return those that stayed busy to the end.

        @locked(on(MAILING, "{name}"), wait=False)
        def send(lock: Lock, name: str) -> None: ...      # returns at once where there is nothing left to send

        left = share(names, send)

    Any number of workers, on any number of machines, may call it with the same list. Another worker may have done an item before
    its turn here, so the act checks under its lock what is left to do.

    Args:
        items: in the order in which they are tried.
        act: runs in a separate transaction; raises `LockBusy` or returns `Turn.BUSY` if another worker has the item. Any other
            exception ends the worker.
        retries, wait_s: how often to retry, and the seconds to wait before.
        stop: called before each item and during waits; True ends the worker.
        waiting: called with the items to retry, each time they may have changed.
    """
    busy: dict[Item, None] = {}
    for tries_left in range(retries, -1, -1):
        for item in list(busy) or items:
            found = TurnResult.END if stop() else _try(act, item)
            if found is TurnResult.END:
                return list(busy)
            is_known = item in busy
            if found is TurnResult.BUSY:
                busy[item] = None
            else:
                busy.pop(item, None)
            if is_known or item in busy:
                waiting(busy)
        if not (busy and tries_left):
            break
        _pause(wait_s, stop)
    return list(busy)


def _try(act: Callable[[Item], Any], item: Item) -> Any:
    try:
        return act(item)
    except LockBusy:
        return TurnResult.BUSY


def _pause(seconds: float, stop: Callable[[], bool]) -> None:
    """Wait, or stop waiting if the worker must end."""
    ends_at = time.monotonic() + seconds
    while (left_s := ends_at - time.monotonic()) > 0 and not stop():
        time.sleep(min(left_s, LOOK_EVERY_S))

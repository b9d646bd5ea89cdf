"""The decorator `locked`: a lock declared on the function that needs it, outside the function's own code."""

import functools
import inspect
import re
import string
from collections.abc import Callable
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar
from uuid import UUID

from ledger.database.lock_names import LockName
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

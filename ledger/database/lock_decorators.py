"""A lock declared on the function that needs it, outside what the function does."""

import functools
import inspect
import re
import string
from collections.abc import Callable
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from django.db import transaction

from ledger.database.lock_names import LockName
from ledger.database.locks import Lock, advisory_lock, try_advisory_lock
from ledger.errors import LockBusy

P = ParamSpec("P")
R = TypeVar("R")

FIELD: Final = re.compile(r"(?P<argument>\w+)(?:\[\w+\])?")


class Locked(NamedTuple):
    """A kind of lock, and a template of the function's arguments for each of its fields."""

    name: LockName
    templates: tuple[str, ...]

    def values(self, arguments: dict[str, Any]) -> list[str]:
        """Return the values of the name's fields for one call."""
        return [_FORMATTER.format(template, **arguments) for template in self.templates]


def on(name: LockName, *templates: str) -> Locked:
    """Say which lock of a kind: `on(HOLDER, "{holder}")`, or, where the function takes a body, `on(HOLDER, "{body[to]}")`.

    Args:
        templates: one for each field of the name, with arguments of the function in braces, or one member of an argument that is
            a mapping. Each must be text or an integer when the function is called.
    """
    if len(templates) != len(name.fields):
        raise ValueError(f"{name!r} takes {len(name.fields)} templates, not {len(templates)}")
    return Locked(name, templates)


def locked(
    *locks: Locked, wait: bool = True, busy: type[LockBusy] = LockBusy
) -> Callable[[Callable[Concatenate[Lock, P], R]], Callable[P, R]]:
    """Run the function in a transaction, under the locks that its arguments name; it is handed the proof as its first argument.

        @locked(on(INVOICE_GENERATION, "{ref}"), wait=False, busy=InvoiceGenerationBusy)
        def generate(lock: Lock, *, ref: str, body: dict[str, Any]) -> Generated: ...

        generate(ref="SUB-1234", body={...})

    Inside a transaction of the caller the function runs in a savepoint, and the locks are kept until the caller's transaction
    ends; if the function raises, what it wrote and the locks it took are gone.

    Args:
        locks: at least one; taken in the order of their numbers, before the function runs.
        wait: as `advisory_lock` does; else fail at once, as `try_advisory_lock` does.
        busy: what is raised when a lock that is only tried for is held; its facts are `key` and the fields of the first name.

    Raises:
        ValueError: at definition, a template names an argument that the function does not have.
        HolderBusy, or `busy`: the lock was not to be had; the function has not run.
        TypeError: an argument is neither text nor an integer; no lock was taken.
    """
    if not locks:
        raise ValueError("a lock needs a name")

    def decorate(function: Callable[Concatenate[Lock, P], R]) -> Callable[P, R]:
        signature = _without_the_lock(function)
        _check_templates(locks, set(signature.parameters), function.__qualname__)

        @functools.wraps(function)
        def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            values = [each.values(bound.arguments) for each in locks]
            names = [each.name(*of_each) for each, of_each in zip(locks, values, strict=True)]
            take = advisory_lock if wait else try_advisory_lock
            try:
                with transaction.atomic(), take(*names) as lock:
                    return function(lock, *args, **kwargs)
            except LockBusy as error:
                if wait or error.facts["key"] not in names:
                    raise
                raise busy(**error.facts, **dict(zip(locks[0].name.fields, values[0], strict=True))) from error

        return under_lock

    return decorate


class _Strict(string.Formatter):
    """Formats text and integers only, so that an absent value never becomes the name of a lock."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if not isinstance(value, str) and type(value) is not int:
            raise TypeError(f"a lock cannot be named by {value!r}")
        return str(value)


_FORMATTER: Final = _Strict()


def _without_the_lock(function: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(function)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _check_templates(locks: tuple[Locked, ...], arguments: set[str], owner: str) -> None:
    for template in (template for each in locks for template in each.templates):
        for _, field, form, conversion in string.Formatter().parse(template):
            if field is None:
                continue
            named = FIELD.fullmatch(field)
            if named is None or named["argument"] not in arguments or form or conversion:
                raise ValueError(f"{owner}: lock template {template!r} names {field!r}, which is not among the arguments")

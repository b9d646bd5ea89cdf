"""A class-based view whose writes run under locks that the class declares."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Final

from ledger.database.locking.decorators import LockTemplate, locked
from ledger.database.locks import Lock

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

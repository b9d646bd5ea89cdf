"""What is under way for an account that has too few credits: an installed application knows it, such as its top-ups.

The ledger knows no application. Each registers a function in its `AppConfig.ready`.

Note [Refused in two steps]
    A refusal is recorded with its facts, and each retry gets these. So what is under way has to be known before the refusal is
    recorded, but nobody asks an application under the holder's lock. A spend or hold is therefore tried first: if credits are
    missing, nothing is recorded and the lock is released. Then the applications are asked, and the request is executed again,
    which records the refusal with their facts, or takes credits that were added since. A request that succeeds at first asks
    nobody.
"""

import copy
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from ledger.database.transactions import joins
from ledger.errors import InsufficientCredits, InsufficientCreditsTopUp, LedgerError
from ledger.journal import Result
from ledger.rules.requests import PricedRequest, Request

log = logging.getLogger(__name__)

ACCOUNTS_OF_A_BATCH: Final = 10
"""The other accounts wait for the next look of a worker."""

RequestT = TypeVar("RequestT", bound=Request)


class UnderWay(NamedTuple):
    """A top-up of an account, as a refusal names it.

    Args:
        retry_after_seconds: when to spend again; None if nobody knows.
    """

    top_up: InsufficientCreditsTopUp
    retry_after_seconds: int | None = None


class Lack(NamedTuple):
    """An account that has too few credits for a request: what it has available without an overdraft, and whether to start what
    is due."""

    holder_id: str
    credit_type: str
    available: int
    starts: bool


Source = Callable[[Lack], UnderWay | None]
"""It bounds its time, and asks nobody outside the database."""

_sources: Final[list[Source]] = []


def register(source: Source) -> None:
    """Ask this function when a spend or hold lacks credits; the first one that knows a top-up is believed."""
    if source not in _sources:
        _sources.append(source)


def may_be_asked(request: type[Request]) -> bool:
    """Return whether a refusal of such a request names what is under way."""
    return bool(_sources) and issubclass(request, PricedRequest)


def under_way(request: Request, facts: Mapping[str, Any]) -> UnderWay | None:
    """Return what is under way for the request's account, or None; start what is due unless the request is a dry run.

    Call it without a transaction and without a lock. It never raises: the refusal is the same without it.

    Args:
        facts: of the refusal.
    """
    available = max(0, facts["balance"] - facts["expired"] - facts["not_yet_effective"])
    lack = Lack(request.holder_id, request.credit_type, available, starts=not request.dry_run)
    for source in _sources:
        try:
            found = source(lack)
        except Exception:
            log.warning("what is under way for %s is not known", request.holder_id, exc_info=True)
            continue
        if found is not None:
            return found
    return None


def start_what_is_due(refused: Iterable[tuple[Request, LedgerError]]) -> None:
    """Start what is due for the accounts of a batch that lack credits, at most the first ACCOUNTS_OF_A_BATCH of them.

    The batch has recorded its refusals. Inside a transaction of the caller, nobody is asked.
    """
    lacking: dict[tuple[str, str], tuple[Request, Mapping[str, Any]]] = {}
    for request, error in refused:
        if isinstance(error, InsufficientCredits) and may_be_asked(type(request)) and len(lacking) < ACCOUNTS_OF_A_BATCH:
            lacking[request.holder_id, request.credit_type] = request, error.facts
    if not joins():
        for request, facts in lacking.values():
            under_way(request, facts)


# The two steps: see the note -------------------------------------------------------------------------


def tried(request: RequestT) -> RequestT:
    """Return the request as it is tried first, if applications are to be asked."""
    return _with(request, is_tried=True) if may_be_asked(type(request)) and not joins() else request


def decided(request: RequestT, found: UnderWay | None) -> RequestT:
    """Return a request that was tried as it is executed for good."""
    facts = {} if found is None else {name: value for name, value in found._asdict().items() if value is not None}
    return _with(request, is_tried=False, facts_if_short=facts)


def lacks_credits(result: object) -> bool:
    """Return whether a request that was tried lacks credits, so that nothing is recorded."""
    return isinstance(result, Result) and result.refusal is not None and not result.refusal.is_recorded


def _with(request: RequestT, **options: object) -> RequestT:
    changed = copy.copy(request)
    changed.__dict__.update(options)
    return changed

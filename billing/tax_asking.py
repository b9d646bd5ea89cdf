"""Asks the provider of taxes without a transaction: what needs an answer is rolled back, and done again with it.

Note [Asked outside of transactions]
    What is asked, the lines of a document, is known only under the locks under which they are made. So a document is made, and
    if the answer to its lines is not known, that transaction ends without effect. Then the provider is asked, and the document is
    made again. It takes the answer only if it asks the same again; lines that have changed are asked about again. Answers live as
    long as the call: what was used is on the lines, and nothing else is stored. See docs/explanation/billing.md.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from billing.configured_tax_provider import tax_provider
from billing.errors import TaxesRefused, TaxesUnavailable
from billing.rating.tax_sales import LineTaxes, NotUsable, Sale, TaxProvider, ensure_usable
from billing.tax_recording import recorded
from ledger import previews
from ledger.database.transactions import joins
from ledger.errors import LedgerError

log = logging.getLogger(__name__)

MOST_TRIES: Final = 50
"""How often a call is executed: a run that catches up asks for each of its documents."""
PAUSE_S: Final = 10.0
"""How long a process does not ask after the provider did not answer, so that a run does not wait for it at each subscription."""
AT_ONCE: Final = 3
"""How many threads of a process wait for the provider at the same time: the other threads serve others."""
WAIT_S: Final = 1.0
"""How long another one waits for its turn."""

_free: Final = threading.BoundedSemaphore(AT_ONCE)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Answer = tuple[LineTaxes, ...]
PENDING: Final = LineTaxes()
"""In a preview, until the answer is known."""


class TaxesToAsk(Exception):
    """The provider of taxes has to be asked about sales, without a transaction: roll this one back, as `asks_taxes` does."""

    def __init__(self, sales: Sequence[Sale]) -> None:
        super().__init__("The provider of taxes is not asked in a transaction: decorate what opens it with asks_taxes.")
        self.sales = sales


@dataclass(slots=True)
class _Answers:
    """What is known in a call, and what a preview lacks: it goes on without it, to find all that it will ask."""

    known: dict[Sale, Answer] = field(default_factory=dict)
    lacking: list[Sale] = field(default_factory=list)


_current: ContextVar[_Answers | None] = ContextVar("tax_answers", default=None)


def answers_to(sales: Sequence[Sale]) -> list[Answer]:
    """Return the provider's answers to some sales.

    Raises:
        TaxesToAsk: one of them is not known yet. In a preview of `asks_taxes` nothing is raised: its result is thrown away.
    """
    answers, shown = _current.get(), previews.current()
    known = answers.known if answers is not None else {}
    lacking = [sale for sale in sales if sale not in known]
    if lacking:
        if answers is None or shown is None or not shown.is_whole:
            raise TaxesToAsk(lacking)
        answers.lacking += lacking
    return [known.get(sale, (PENDING,) * len(sale.lines)) for sale in sales]


def asks_taxes(act: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Let a function that opens the outermost transaction ask the provider of taxes. See Note [Asked outside of transactions].

    In a transaction of the caller it only passes TaxesToAsk on: the caller's function may be decorated too.

    Raises:
        TaxesUnavailable, TaxesRefused: the provider has no answer; nothing was written.
    """

    @wraps(act)
    def asking(*args: Parameters.args, **options: Parameters.kwargs) -> Result:
        if joins() or _current.get() is not None:
            return act(*args, **options)
        with _asking() as answers:
            for _ in range(MOST_TRIES):
                try:
                    result = act(*args, **options)
                except TaxesToAsk as asked:
                    answers.lacking += asked.sales
                if not answers.lacking:
                    return result
                for sale in dict.fromkeys(answers.lacking):
                    answers.known[sale] = _ask(sale)
                answers.lacking.clear()
        raise TaxesUnavailable(why="what is billed changed each time it was asked for")

    return asking


@contextmanager
def _asking() -> Iterator[_Answers]:
    answers = _Answers()
    token = _current.set(answers)
    try:
        yield answers
    finally:
        _current.reset(token)


class _Pause:
    """Until when this process does not ask, and why."""

    until_s = 0.0
    why = ""


def _ask(sale: Sale) -> Answer:
    provider = tax_provider()
    if time.monotonic() < _Pause.until_s:
        raise TaxesUnavailable(why=_Pause.why)
    if not _free.acquire(timeout=WAIT_S):
        raise TaxesUnavailable(why="others wait for the provider already")
    try:
        return _answer(provider, sale)
    finally:
        _free.release()


def _answer(provider: TaxProvider, sale: Sale) -> Answer:
    try:
        answer = provider.taxes_of(sale)
        ensure_usable(sale, answer)
    except TaxesUnavailable as error:
        _Pause.until_s, _Pause.why = time.monotonic() + PAUSE_S, str(error.facts["why"])
        raise
    except NotUsable as error:
        raise TaxesRefused(why=f"The answer cannot be used: {error}"[:500]) from error
    except LedgerError:
        raise
    except Exception as error:
        log.exception("The provider of taxes failed.")
        raise TaxesUnavailable(why=f"it failed with {type(error).__name__}") from error
    return recorded(provider.name, sale.day, answer)


def ask_again_now() -> None:
    """Let this process ask at once, whatever happened before."""
    _Pause.until_s = 0.0

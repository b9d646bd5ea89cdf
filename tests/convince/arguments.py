"""The arguments that are tried, each with what is left out of it, and the law that then breaks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.convince import billed_up_to
from tests.convince.billed_up_to import Cursor
from tests.convince.decisions import decide, decide_spend
from tests.convince.explore import Explored
from tests.convince.lock_argument import Argument, Request, prove

SPENDS: Final = (Request("a", "spend", 4), Request("b", "spend", 7), Request("a", "spend", 4))
"""Of 10 credits either 4 or 7 can be spent. The third client sends the first one's request again, from another process."""
HOLDS: Final = (Request("h", "hold", 6), Request("c", "capture", 6), Request("s", "spend", 6))
"""Of credits that expire, a hold, which expires as well, and its capture beside a spend."""
ENTRIES: Final = "each entry is what the entries before it allow"
LATER: Final = "a later run finds what is not billed yet"


@dataclass(frozen=True)
class Trial:
    """One exploration.

    Args:
        about: what is tried, in a few words.
        run: explores it.
        breaks: the law that is to break; empty: none.
        is_large: it takes seconds.
    """

    about: str
    run: Callable[[], Explored[Any]]
    breaks: str = ""
    is_large: bool = False

    def verdict(self, explored: Explored[Any]) -> str:
        """Return what came out, in words, with the shortest path if a law is broken."""
        if not explored.broken:
            return f"holds in all {explored.states:,} states"
        path = "".join(f"\n      {number}. {step}" for number, step in enumerate(explored.path, 1))
        return f"broken after {len(explored.path)} steps: {explored.broken}{path}"


def trials() -> Iterator[Trial]:
    """Yield all of them."""
    for name, decides, requests, expected in (
        (
            "spends",
            decide_spend,
            SPENDS,
            {"looks_for_key": "a key has one entry", "keeps_key": "what a client asked once is granted once"},
        ),
        (
            "a hold, its capture and expiries",
            decide,
            HOLDS,
            {"looks_for_key": "a key has one entry", "keeps_key": "what a client asked once is granted once"},
        ),
    ):

        def trial(
            about: str, breaks: str = "", *, is_large: bool = False, _of: Any = (decides, requests), **left_out: bool
        ) -> Trial:
            return Trial(about, lambda: prove(Argument(**left_out), *_of), breaks, is_large)

        yield trial(f"{name}, as it is", is_large=True)
        yield trial(f"{name}, without the lock", ENTRIES, takes_lock=False)
        yield trial(f"{name}, read by the statement that waits for the lock", ENTRIES, reads_after_lock=False)
        yield trial(
            f"{name}, with the clock read before the lock", "entries are in the order of their time", reads_clock_after_lock=False
        )
        yield trial(f"{name}, with the lock freed before COMMIT", ENTRIES, frees_by_commit=False)
        yield trial(f"{name}, without looking for the key", expected["looks_for_key"], looks_for_key=False)
        yield trial(f"{name}, with a new key for each try", expected["keeps_key"], keeps_key=False)
        yield trial(f"{name}, without the lock, but with the primary key", is_large=True, takes_lock=False, has_primary_key=True)
    for about, cursor, breaks in (
        ("as it is", Cursor(), ""),
        ("without the lock of the invoices", Cursor(takes_lock=False), "an event is billed once"),
        ("seen up to the instant of the reading", Cursor(leaves_margin=False), LATER),
        ("with transactions of any length", Cursor(ends_long_transactions=False), LATER),
        ("without comparing with what is billed", Cursor(compares=False), "an event is billed once"),
    ):
        yield Trial(f"late usage, {about}", lambda cursor=cursor: billed_up_to.prove(cursor), breaks)

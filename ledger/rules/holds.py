"""Holds: credits set aside for something whose price is not yet known."""

from typing import NamedTuple

import orjson

from ledger.rules.instants import DAY_US
from ledger.rules.lots import Drawn, Lots, encode, from_json, total

MAX_HOLD_PARTS = 500
"""How many lots the open holds of an account may hold, for the same reason as MAX_OPEN_LOTS; beside it, MAX_RECEIVED_LOTS
received ones."""
DEFAULT_HOLD_US = 3_600 * 1_000_000
MAX_HOLD_US = 31 * DAY_US


class Hold(NamedTuple):
    """The credits that an open hold still sets aside.

    `sequence` is the sequence of its `hold` entry. `parts` are the lots from which it took, in the order of taking, each with its
    credits that are still held. So a release does not read the history.
    """

    sequence: int
    expires_us: int
    parts: Lots

    @property
    def amount(self) -> int:
        return total(self.parts)

    def is_expired(self, now_us: int) -> bool:
        return self.expires_us <= now_us

    def state(self, now_us: int) -> str:
        """One of HOLD_STATES."""
        return "expired" if self.is_expired(now_us) else "open"


Holds = tuple[Hold, ...]
"""Open holds, the oldest first."""


def parts_of(lots_before: Lots, drawn: Drawn) -> Lots:
    """Return the drawn credits as lots, with the terms of the lots that they came from."""
    by_grant = {lot.grant: lot for lot in lots_before}
    return tuple([by_grant[grant]._replace(remaining=amount) for grant, amount in drawn])


def encode_holds(holds: Holds) -> str:
    """Return the stored and digested form: JSON arrays `[hold, expires_us, parts]`. An entry without holds stores null."""
    return "[" + ",".join([f"[{hold.sequence},{hold.expires_us},{encode(hold.parts)}]" for hold in holds]) + "]"


def decode_holds(text: str | bytes) -> Holds:
    """Return the holds of a stored form: the inverse of `encode_holds`."""
    return tuple([Hold(sequence, expires_us, from_json(parts)) for sequence, expires_us, parts in orjson.loads(text)])

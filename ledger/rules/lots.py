"""Lots: the remaining credits of grants, and the order in which they are spent."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from ledger.rules.instants import SECOND_US, from_us
from ledger.rules.purposes import Purpose, Use, encode_purpose, purpose_of

MAX_OPEN_LOTS = 500
"""The room of the account's own lots. It keeps the state on an entry small, and so the cost of a spend."""
MAX_RECEIVED_LOTS = 100
"""The room of the lots that others may open by transfers, beside that of the account's own: docs/explanation/ledger.md."""

PURCHASED = "purchased"
PROMOTIONAL = "promotional"
SOURCES = (PURCHASED, PROMOTIONAL)
"""What a grant may say. The places are the stored form."""
POSTPAID = "postpaid"
"""The source of credits that the ledger grants at the moment of need, within an agreed overage: docs/adr/0148."""
LOT_SOURCES = (*SOURCES, POSTPAID)
DEFAULT_PRIORITY = 100
MAX_PRIORITY = 32_767
POSTPAID_PRIORITY = MAX_PRIORITY + 1
"""Behind every other lot in the burn order."""

SINCE_ITS_GRANT = 0
"""The stored effective time of a lot that could be spent as soon as its entry was recorded; that entry has the real time.

No decision needs the real time, because it has passed, and without it the state on every entry is smaller.
"""

Drawn = tuple[tuple[int, int], ...]
"""The lots that an entry took from or gave back to: (grant's sequence, amount > 0), in the order of taking."""


class Lot(NamedTuple):
    """The remaining credits of one grant.

    `grant` is the sequence of the entry that made the lot, and the lot's name for ever. `remaining` is at least 1: an empty lot
    is no longer listed. The lot can be spent at times in [effective_us, expires_us). `effective_us` is SINCE_ITS_GRANT if the
    lot could be spent as soon as its entry was recorded. `received` marks a lot that a transfer opened: later receipts of equal
    terms join it. `applies_to` says what its credits can pay for; None: for everything.
    """

    grant: int
    remaining: int
    effective_us: int
    expires_us: int | None = None
    priority: int = DEFAULT_PRIORITY
    source: str = PURCHASED
    received: bool = False
    applies_to: Purpose | None = None

    @property
    def effective_at(self) -> datetime:
        """The effective time, for a lot that has its real one: see `in_full`."""
        return from_us(self.effective_us)

    @property
    def expires_at(self) -> datetime | None:
        return None if self.expires_us is None else from_us(self.expires_us)

    def is_expired(self, now_us: int) -> bool:
        return self.expires_us is not None and self.expires_us <= now_us

    def is_spendable(self, now_us: int) -> bool:
        return self.effective_us <= now_us and (self.expires_us is None or now_us < self.expires_us)

    def covers(self, use: Use | None) -> bool:
        """Whether its credits can pay for the use; None is a use for no certain thing."""
        return self.applies_to is None or self.applies_to.covers(use)

    def state(self, now_us: int) -> str:
        """One of LOT_STATES."""
        if self.is_expired(now_us):
            return "expired"
        return "spendable" if self.effective_us <= now_us else "not_yet_effective"

    @property
    def burn_rank(self) -> tuple[int, float, bool, int]:
        """The sort key of the burn order: priority, soonest expiry, promotional before purchased, oldest."""
        expires = float("inf") if self.expires_us is None else self.expires_us
        return self.priority, expires, self.source != PROMOTIONAL, self.grant


Lots = tuple[Lot, ...]
"""Open lots, always in burn order."""

MANY_LOTS_CHARACTERS: Final = 256
"""From this length of their stored form on, lots keep it: shorter ones are decoded and encoded as fast."""


# Note [Many lots]
#     An account may have hundreds of lots, and a spend changes the first ones only. Therefore long lists keep their stored form,
#     and what a spend does not change is not encoded again. What stands behind the first lot is the same from one spend to the
#     next: it is decoded once and remembered by its text.


class StoredLots(tuple[Lot, ...]):
    """Many lots with their stored form. See Note [Many lots]."""

    form: str
    """As `encode` says. It has no strings, so a lot ends with the first bracket."""

    def after(self, first: Sequence[Lot], place: int) -> "StoredLots":
        """Return the lots `first`, and behind them those from this place on."""
        lots = StoredLots((*first, *self[place:]))
        if place == len(self):
            lots.form = _encode_each(first)
            return lots
        start = 1
        for _ in range(place):
            start = self.form.index("],[", start) + 2
        lots.form = "[" + ",".join([*map(_encode_lot, first), self.form[start:]])
        return lots


def effective_from(effective_us: int, now_us: int) -> int:
    """Return the effective time to store for a lot that is granted at `now_us` and counts from `effective_us`."""
    return effective_us if effective_us > now_us else SINCE_ITS_GRANT


def in_full(lots: Iterable[Lot], effective_times: Mapping[int, int]) -> Lots:
    """Return the lots with their real effective times, for showing.

    Args:
        effective_times: by grant, in microseconds, for the lots that do not store theirs.
    """
    # Faster than `_replace`: a balance may show hundreds of lots.
    return tuple(
        [
            Lot(lot[0], lot[1], effective_times[lot[0]], *lot[3:])
            if lot[2] == SINCE_ITS_GRANT and lot[0] in effective_times
            else lot
            for lot in lots
        ]
    )


def in_burn_order(lots: Iterable[Lot]) -> Lots:
    return tuple(sorted(lots, key=lambda lot: lot.burn_rank))


def available(lots: Lots, now_us: int, use: Use | None = None) -> int:
    """Return how many credits can be spent at `now_us`: 0 or more.

    Args:
        use: what for; None: for no certain thing, so that only credits count that can pay for everything.
    """
    # Written out: an account may have hundreds of lots.
    return sum(
        [
            remaining
            for _, remaining, effective_us, expires_us, _, _, _, applies_to in lots
            if effective_us <= now_us
            and (expires_us is None or now_us < expires_us)
            and (applies_to is None or applies_to.covers(use))
        ]
    )


def restricted(lots: Iterable[Lot], now_us: int, use: Use | None = None) -> int:
    """Return how many credits can be spent at `now_us` on certain things only, and on this use: 0 or more."""
    return sum([lot.remaining for lot in lots if lot.applies_to is not None and lot.is_spendable(now_us) and lot.covers(use)])


def take(lots: Lots, amount: int, now_us: int, use: Use | None = None) -> tuple[Lots, Drawn]:
    """Take `amount` from the spendable lots in burn order; take fewer if there are fewer.

    Args:
        amount: 0 or more. use: as for `available`.

    Returns:
        The lots after the taking, and what was drawn from each.
    """
    if not amount:
        return lots, ()
    left: list[Lot] = []
    drawn: list[tuple[int, int]] = []
    missing = amount
    passed = 0
    for lot in lots:
        passed += 1
        if lot.is_spendable(now_us) and (lot.applies_to is None or lot.covers(use)):
            part = min(missing, lot.remaining)
            missing -= part
            drawn.append((lot.grant, part))
            if part < lot.remaining:
                # The same as `_replace` in half the time: every spend passes through here.
                left.append(Lot(lot.grant, lot.remaining - part, *lot[2:]))
            if not missing:
                break
        else:
            left.append(lot)
    rest = lots.after(left, passed) if isinstance(lots, StoredLots) else (*left, *lots[passed:])
    return rest, tuple(drawn)


def split(parts: Lots, amount: int) -> tuple[Lots, Lots]:
    """Return the first `amount` credits of the parts, and the rest."""
    first: list[Lot] = []
    rest: list[Lot] = []
    for part in parts:
        share = min(amount, part.remaining)
        amount -= share
        if share:
            first.append(part._replace(remaining=share))
        if share < part.remaining:
            rest.append(part._replace(remaining=part.remaining - share))
    return tuple(first), tuple(rest)


def as_drawn(parts: Lots) -> Drawn:
    """Return the parts in the form of an entry's `drawn`."""
    return tuple([(part.grant, part.remaining) for part in parts])


def total(lots: Iterable[Lot]) -> int:
    """Return the number of all credits of the lots, spendable or not."""
    return sum([lot.remaining for lot in lots])


def shared_by(lots: Iterable[Lot], received: Lot) -> Lot | None:
    """Return the received lot among `lots` that has the same terms as `received`, which is a received lot too, or None."""
    return next((lot for lot in lots if lot.received and lot[2:] == received[2:]), None)


def put_back(lots: Lots, returned: Iterable[Lot]) -> Lots:
    """Add credits to the lots of the same grants; a lot that is no longer open is opened again."""
    by_grant = {lot.grant: lot for lot in lots}
    for lot in returned:
        open_lot = by_grant.get(lot.grant)
        by_grant[lot.grant] = lot if open_lot is None else open_lot._replace(remaining=open_lot.remaining + lot.remaining)
    return in_burn_order(by_grant.values())


def postpaid(lots: Iterable[Lot]) -> int:
    """Return how many credits of the lots are postpaid."""
    return sum([lot.remaining for lot in lots if lot.source == POSTPAID])


def remove(lots: Lots, grant: int, amount: int) -> Lots:
    """Take `amount` out of the lot of `grant`, spendable or not; `amount` is at most what remains."""
    return tuple(
        lot if lot.grant != grant else lot._replace(remaining=lot.remaining - amount)
        for lot in lots
        if lot.grant != grant or lot.remaining > amount
    )


def encode(lots: Lots) -> str:
    """Return the stored and digested form.

    It has arrays `[grant, remaining, effective_us, expires_us, priority, source, received, applies_to]`. `effective_us` is
    SINCE_ITS_GRANT (0) for most lots; `source` is 1 for promotional, 2 for postpaid, `received` 1 for a lot that a transfer
    opened, `applies_to` an object. Times at whole seconds are written as seconds with the exponent 6. Trailing defaults (no
    expiry, priority 100, purchased, not received, for everything) are left out. So an entry stays small, and each list of lots
    has exactly one form.
    """
    return lots.form if isinstance(lots, StoredLots) else _encode_each(lots)


def _encode_each(lots: Iterable[Lot]) -> str:
    return "[" + ",".join([_encode_lot(lot) for lot in lots]) + "]"


@lru_cache(maxsize=4096)
def _encode_lot(lot: Lot) -> str:
    # Cached: most lots of an entry equal those of the entry before, and each is encoded twice, for the digest and for the row.
    head = f"[{lot.grant},{lot.remaining},{lot.effective_us and _encode_instant(lot.effective_us)}"
    expires = "null" if lot.expires_us is None else _encode_instant(lot.expires_us)
    if lot.applies_to is not None:
        source, received = LOT_SOURCES.index(lot.source), int(lot.received)
        return f"{head},{expires},{lot.priority},{source},{received},{encode_purpose(lot.applies_to)}]"
    if lot.received:
        return f"{head},{expires},{lot.priority},{LOT_SOURCES.index(lot.source)},1]"
    if lot.source != PURCHASED:
        return f"{head},{expires},{lot.priority},{LOT_SOURCES.index(lot.source)}]"
    if lot.priority != DEFAULT_PRIORITY:
        return f"{head},{expires},{lot.priority}]"
    return f"{head}]" if lot.expires_us is None else f"{head},{expires}]"


def _encode_instant(instant_us: int) -> str:
    if instant_us % SECOND_US or instant_us == 0:
        return str(instant_us)
    return f"{instant_us // SECOND_US}e6"


def decode(text: str | bytes) -> Lots:
    """Return the lots of a stored form: the inverse of `encode`. It also accepts whole seconds written in microseconds."""
    if len(text) < MANY_LOTS_CHARACTERS:
        return from_json(orjson.loads(text))
    form = text if isinstance(text, str) else text.decode()
    end = form.find("],[") + 2
    if end == 1 or '"' in form or " " in form:
        return from_json(orjson.loads(text))
    first, rest = from_json(orjson.loads(f"{form[: end - 1]}]")), _decode_rest(form[end:])
    lots = StoredLots((*first, *rest.lots))
    lots.form = form if rest.is_as_encoded and _is_as_encoded(first, form[:end]) else _encode_each(lots)
    return lots


class _Rest(NamedTuple):
    """The lots behind the first one, and whether their form is the one that `encode` makes."""

    lots: Lots
    is_as_encoded: bool


@lru_cache(maxsize=64)
def _decode_rest(form: str) -> _Rest:
    # Some hundred bytes for each lot. Of as many accounts as a process serves at about the same time.
    lots = from_json(orjson.loads(f"[{form}"))
    return _Rest(lots, _is_as_encoded(lots, form))


def _is_as_encoded(lots: Lots, form: str) -> bool:
    """Return whether all instants at whole seconds are written with an exponent: earlier releases wrote microseconds."""
    instants = [instant_us for lot in lots for instant_us in lot[2:4] if instant_us and not instant_us % SECOND_US]
    return form.count("e6") == len(instants)


def from_json(lots: list[list[Any]]) -> Lots:
    """Return the lots from decoded JSON of the stored form; changes the lists."""
    return tuple([_decode_lot(fields) for fields in lots])


def _decode_lot(fields: list[Any]) -> Lot:
    # Seconds with an exponent come as a float. It is exact: a million is a multiple of 64, and the values are below 2^59.
    if type(fields[2]) is float:
        fields[2] = int(fields[2])
    if len(fields) > 3 and type(fields[3]) is float:
        fields[3] = int(fields[3])
    if len(fields) > 5:
        fields[5] = LOT_SOURCES[fields[5]]
        if len(fields) > 6:
            fields[6] = fields[6] == 1
        if len(fields) > 7:
            fields[7] = purpose_of(fields[7])
    return Lot(*fields)


def encode_drawn(drawn: Drawn) -> str:
    """Return JSON arrays `[grant, amount]`."""
    return "[" + ",".join([f"[{grant},{amount}]" for grant, amount in drawn]) + "]"


def decode_drawn(text: str | bytes) -> Drawn:
    """Return the drawn parts of a stored form: the inverse of `encode_drawn`."""
    return tuple([(grant, amount) for grant, amount in orjson.loads(text)])

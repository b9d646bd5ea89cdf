"""Entries: immutable rows that each carry the account's state after them, chained by digest."""

import hashlib
from datetime import datetime
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from ledger.rules.holds import Hold, Holds, encode_holds
from ledger.rules.instants import from_us
from ledger.rules.lots import Drawn, Lots, encode, encode_drawn
from ledger.rules.requests import encode_json

KINDS = (
    "grant",
    "spend",
    "refund",
    "revoke",
    "expire",
    "hold",
    "capture",
    "release",
    "transfer_in",
    "transfer_out",
    "adjust",
    "refusal",
)

GENESIS = bytes(32)
"""What the first entry of an account is chained to, in place of the digest of an entry before it."""


REQUEST_DIGEST_BYTES = 8
"""So much of a request's digest is on its entry: it tells another request under the same key, of one holder's own making."""


class Entry(NamedTuple):
    """One row of the ledger: what happened, and the account's state after it.

    `amount` is signed: what happened to `balance`. `drawn` says which lots it took from or gave back to, `refers_to` which spend,
    hold or grant of the account it refers to, `refunded_total` how much of that has been given back, this entry included.
    `counterpart` names the other side of a transfer, `rating` the rate card that the amount came from, `refusal` what was
    refused and why. Instants are microseconds since the epoch.
    `replayed` is not stored: it is true when the request had been answered before.
    """

    holder_id: str
    credit_type: str
    sequence: int
    kind: str
    amount: int
    balance: int
    held: int
    lots: Lots
    drawn: Drawn
    holds: Holds
    overdraft: int | None
    refers_to: int | None
    refunded_total: int | None
    idempotency_key: str | None
    request_digest: bytes | None
    effective_us: int
    recorded_us: int
    actor: str
    reason: str
    reference: str
    metadata: dict[str, Any]
    counterpart: dict[str, Any] | None
    rating: dict[str, Any] | None
    refusal: dict[str, Any] | None
    digest: bytes = b""
    replayed: bool = False

    @property
    def effective_at(self) -> datetime:
        return from_us(self.effective_us)

    @property
    def recorded_at(self) -> datetime:
        return from_us(self.recorded_us)

    @property
    def decided_us(self) -> int:
        """The server's clock when it was decided: before `recorded_us` where the clock had been set back."""
        return self.recorded_us if self.kind in ("grant", "expire", "release") else self.effective_us

    @property
    def taken(self) -> int:
        """What a spend or capture took for good, 0 for every other kind: at most this can be refunded."""
        if self.kind == "spend":
            return -self.amount
        return sum([amount for _, amount in self.drawn]) if self.kind == "capture" else 0

    @property
    def hold(self) -> Hold | None:
        """The hold that this entry made, extended or captured a part of, as it stands after it; None when it is closed."""
        named = self.sequence if self.refers_to is None else self.refers_to
        return next((hold for hold in self.holds if hold.sequence == named), None)

    def sealed(self, previous_digest: bytes) -> "Entry":
        """The same entry with its digest, chained to the entry before it.

        Args:
            previous_digest: the digest of that entry; GENESIS when this is the account's first.
        """
        # Every entry comes through here; `_replace` would take twice as long.
        return Entry._make((*self[:-2], self.computed_digest(previous_digest), self.replayed))

    def computed_digest(self, previous_digest: bytes) -> bytes:
        """SHA-256 over the digest of the entry before it and the canonical form: 32 bytes. See docs/LEDGER.md."""
        return hashlib.sha256(previous_digest + self.canonical_form().encode()).digest()

    def canonical_form(self) -> str:
        """A JSON array of every stored fact, in one spelling, which `json_build_array` in PostgreSQL gives too."""
        text = encode_basestring
        return (
            f"[{text(self.holder_id)}, {text(self.credit_type)}, {self.sequence}, {text(self.kind)}, {self.amount}, "
            f"{self.balance}, {self.held}, {encode(self.lots)}, {encode_drawn(self.drawn)}, "
            f"{encode_holds(self.holds) or 'null'}, {_number(self.overdraft)}, "
            f"{_number(self.refers_to)}, {_number(self.refunded_total)}, "
            f"{'null' if self.idempotency_key is None else text(self.idempotency_key)}, "
            f"{'null' if self.request_digest is None else text(self.request_digest.hex())}, "
            f"{self.effective_us}, {self.recorded_us}, {text(self.actor)}, {text(self.reason)}, {text(self.reference)}, "
            f"{encode_json(self.metadata) if self.metadata else 'null'}, "
            f"{encode_json(self.counterpart)}, {encode_json(self.rating)}, {encode_json(self.refusal)}]"
        )


def _number(value: int | None) -> str:
    return "null" if value is None else str(value)

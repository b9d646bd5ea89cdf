"""Entries: immutable rows that each carry the account's state after them, chained by digest."""

import hashlib
from datetime import datetime
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from ledger.rules.budget_states import Budgets, Counts, encode_budgets, encode_counts, in_force
from ledger.rules.claims import Claims, encode_claims
from ledger.rules.cost_moves import recognised
from ledger.rules.cost_shares import Cost, CostChanges, LotCosts, encode_costs
from ledger.rules.holds import Hold, Holds, encode_holds
from ledger.rules.instants import from_us, us_of
from ledger.rules.kinds import KINDS, taken_by
from ledger.rules.lots import Drawn, Lots, encode, encode_drawn
from ledger.rules.overage import Overage, encode_overage
from ledger.values import encode_json

GENESIS = bytes(32)
"""The previous digest for the first entry of an account."""


FROZEN, THAWED = "frozen", "thawed"
"""The member of `counterpart` in an `adjust` entry that freezes or unfreezes a holder, besides the number of the change."""

BY_THE_LEDGER = "ledger"
"""The actor of what the ledger does by itself."""
BY_AN_IMPORT = "import:"
"""How the actor of imported history begins. Such an entry was decided as of its `effective_at`, not when it was recorded."""

REQUEST_DIGEST_BYTES = 8
"""How many bytes of a request's digest are stored on its entry. That is enough to notice another request with the same key."""


class Entry(NamedTuple):
    """One row of the ledger: what happened, and the account's state after it.

    `amount` is the change of `balance`, signed. `drawn` lists the lots that the entry took from or gave back to. `refers_to` is
    the spend, hold or grant of the account that it refers to, `refunded_total` how much of that spend has been refunded, this
    entry included. `counterpart` names the other side of a transfer, `rating` the rate that gave the amount, `refusal` the
    refused request and the reason, `requested` how many credits a partial spend asked for. `budgets` are the budgets after it,
    and `counts` what they counted of it. `sale` says what was paid for a grant; `costs` are the costs of lots after it, and
    `cost_changes` what it changed of them. `overage` is the state of the overage after it, and `postpaid` how many of its credits
    were used, returned, granted or taken back on overage; `claims` are those after it. `next_grant_us` is when a recurring grant
    of the account is due next. Times are microseconds since the epoch.
    `replayed` is not stored: it is True if the entry already existed when the request came.
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
    requested: int | None = None
    budgets: Budgets = ()
    sale: dict[str, Any] | None = None
    costs: LotCosts = ()
    cost_changes: CostChanges = ()
    overage: Overage | None = None
    postpaid: int | None = None
    claims: Claims = ()
    counts: Counts = ()
    next_grant_us: int | None = None
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
        """The time of the decision: the server's, before `recorded_us` if that was set back, the test clock's, or history's."""
        has_own_time = KINDS[self.kind].has_own_time and not self.actor.startswith(BY_AN_IMPORT)
        return self.recorded_us if has_own_time else self.effective_us

    @property
    def taken(self) -> int:
        """How many credits a spend or capture took, 0 for every other kind: at most these can be refunded."""
        return taken_by(self)

    @property
    def other_side(self) -> dict[str, Any] | None:
        """Of a transfer: its other side."""
        return None if self.kind == "adjust" else self.counterpart

    @property
    def accepts_transfers(self) -> bool | None:
        """Of an `adjust` that says so: whether the account accepts transfers from others from then on."""
        word = None if self.kind != "adjust" or self.counterpart is None else self.counterpart.get("incoming")
        return None if word is None else word == "accepted"

    @property
    def freezes(self) -> bool | None:
        """Of an `adjust` that says so: whether the holder is frozen from then on."""
        word = None if self.kind != "adjust" or self.counterpart is None else self.counterpart.get("holder")
        return None if word is None else word == FROZEN

    @property
    def clock_us(self) -> int | None:
        """Of an `adjust` that moves the holder's test clock: the time that it shows from then on."""
        shown = None if self.kind != "adjust" or self.counterpart is None else self.counterpart.get("clock")
        return None if shown is None else us_of(shown)

    @property
    def clock(self) -> datetime | None:
        """As `clock_us`, in UTC."""
        return None if self.clock_us is None else from_us(self.clock_us)

    @property
    def recognised(self) -> tuple[Cost, ...]:
        """What it recognised as revenue, one amount for each currency; below 0 what a refund takes back."""
        return recognised(self.kind, self.cost_changes)

    @property
    def budget(self) -> str | None:
        """Of an `adjust` that sets or ends a budget: its name."""
        return self.counterpart.get("budget") if self.kind == "adjust" and self.counterpart else None

    @property
    def present_budgets(self) -> Budgets:
        """The budgets after it that were in force when it was decided."""
        return in_force(self.budgets, self.decided_us)

    @property
    def shown_overage(self) -> Overage | None:
        """The overage after it, of an entry that changes it: sets or ends it, grants on it, or gives something back."""
        changes = "overage" in (self.counterpart or {}) if self.kind == "adjust" else KINDS[self.kind].overage and self.postpaid
        return self.overage if changes else None

    @property
    def recurring_grant(self) -> str | None:
        """Of an `adjust` that sets or ends a recurring grant, or says that a period needed nothing: its name."""
        return self.counterpart.get("recurring_grant") if self.kind == "adjust" and self.counterpart else None

    @property
    def is_recurring_period(self) -> bool:
        """Whether it handles a period of a recurring grant: grants it, or says that it needed nothing."""
        return self.kind != "revoke" and self.actor == BY_THE_LEDGER and "period_start" in self.metadata

    @property
    def hold(self) -> Hold | None:
        """The state after this entry of the hold that it made, extended or captured in part; None if the hold is closed."""
        named = self.sequence if self.refers_to is None else self.refers_to
        return next((hold for hold in self.holds if hold.sequence == named), None)

    @property
    def hold_expires_us(self) -> int | None:
        """The expiry of the hold, on an entry of kind `hold`."""
        hold = self.hold if self.kind == "hold" else None
        return None if hold is None else hold.expires_us

    def sealed(self, previous_digest: bytes) -> "Entry":
        """Return the same entry with its digest.

        Args:
            previous_digest: the digest of the entry before it; GENESIS for the account's first entry.
        """
        # Every entry passes through here; `_replace` would take twice as long.
        return Entry._make((*self[:-2], self.computed_digest(previous_digest), self.replayed))

    def computed_digest(self, previous_digest: bytes) -> bytes:
        """Return SHA-256 over the previous digest and the canonical form: 32 bytes. See docs/explanation/ledger.md."""
        return hashlib.sha256(previous_digest + self.canonical_form().encode()).digest()

    def canonical_form(self) -> str:
        """Return a JSON array of every stored value, in the same form as PostgreSQL's `json_build_array`.

        An entry that has `requested`, `budgets`, `sale`, `costs`, `cost_changes`, `overage`, `postpaid`, `claims`, `counts` or
        `next_grant_us`, which came later, has them behind the array.
        """
        text = encode_basestring
        overdraft, refers_to, refunded_total = [
            "null" if number is None else number for number in (self.overdraft, self.refers_to, self.refunded_total)
        ]
        counterpart, rating, refusal = [
            "null" if facts is None else encode_json(facts) for facts in (self.counterpart, self.rating, self.refusal)
        ]
        return (
            f"[{text(self.holder_id)}, {text(self.credit_type)}, {self.sequence}, {text(self.kind)}, {self.amount}, "
            f"{self.balance}, {self.held}, {encode(self.lots)}, {encode_drawn(self.drawn)}, "
            f"{encode_holds(self.holds) if self.holds else 'null'}, {overdraft}, {refers_to}, {refunded_total}, "
            f"{'null' if self.idempotency_key is None else text(self.idempotency_key)}, "
            f"{'null' if self.request_digest is None else text(self.request_digest.hex())}, "
            f"{self.effective_us}, {self.recorded_us}, {text(self.actor)}, {text(self.reason)}, {text(self.reference)}, "
            f"{encode_json(self.metadata) if self.metadata else 'null'}, "
            f"{counterpart}, {rating}, {refusal}]{'' if self.requested is None else f'[{self.requested}]'}"
            f"{encode_budgets(self.budgets) if self.budgets else ''}"
            f"{'' if self.sale is None else encode_json(self.sale)}"
            f"{encode_costs(self.costs) if self.costs else ''}"
            f"{encode_costs(self.cost_changes) if self.cost_changes else ''}"
            f"{'' if self.overage is None else encode_overage(self.overage)}"
            f"{'' if self.postpaid is None else f'({self.postpaid})'}"
            f"{f'claims{encode_claims(self.claims)}' if self.claims else ''}"
            f"{f'counts{encode_counts(self.counts)}' if self.counts else ''}"
            f"{'' if self.next_grant_us is None else f'next{self.next_grant_us}'}"
        )

"""What another system of balances decided: declared once, for the call, the batch and Python code."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

import orjson

from ledger.errors import Invalid
from ledger.records import Record, declared_fields
from ledger.rules.instants import to_us
from ledger.rules.lots import DEFAULT_PRIORITY, MAX_PRIORITY, PURCHASED, SOURCES
from ledger.values import (
    MAX_ACTOR_CHARACTERS,
    MAX_AMOUNT,
    MAX_REFERENCE_CHARACTERS,
    Amount,
    Boolean,
    Choice,
    CreditType,
    Holder,
    IdempotencyKey,
    Integer,
    Text,
    Time,
)

BALANCE: Final = "balance"
REFERRING: Final = ("refund", "revoke", "capture", "release")
"""What refers to an earlier observation, by its key."""
OPERATIONS: Final = ("grant", "spend", "hold", *REFERRING, "expire", BALANCE)
MAX_OBSERVATIONS: Final = 1_000
"""How many observations one transaction records."""
OPTIONS: Final = frozenset({"actor", "request_id"})


@dataclass(frozen=True, kw_only=True)
class ObservationRequest(Record):
    """What another system of balances decided about a holder's credits, and what can be spent there after it."""

    holder_id: Annotated[str, Holder("Whose credits.", named="holder")]
    idempotency_key: Annotated[str, IdempotencyKey("Each decision has its own; an observation with the key is recorded once.")]
    operation: Annotated[
        str,
        Choice(OPERATIONS, "What was asked for. `balance` states what can be spent, without a decision;"),
    ]
    balance: Annotated[
        int,
        Integer("What the holder can spend there after it; below 0 for a debt.", least=-MAX_AMOUNT, most=MAX_AMOUNT),
    ]
    amount: Annotated[int | None, Amount("How many credits; not for `balance`.", null=True)] = None
    is_allowed: Annotated[bool, Boolean("Whether the other system did it; false if it refused.", named="allowed")] = True
    credit_type: Annotated[str, CreditType()] = "credits"
    occurred_at: Annotated[
        datetime | None, Time("When it was decided there; now by default. The ledger decides as of this time.", null=True)
    ] = None
    of: Annotated[
        str | None,
        IdempotencyKey(
            f"Of {', '.join(REFERRING[:-1])} and {REFERRING[-1]}: the key of the observation that it is about. Without it, or if "
            "it was never observed, the ledger follows and does not compare.",
            null=True,
        ),
    ] = None
    source: Annotated[str, Choice(SOURCES, "Of a grant: as of the call that grants.")] = PURCHASED
    effective_at: Annotated[datetime | None, Time("Of a grant: when the credits can be spent from.", null=True)] = None
    expires_at: Annotated[datetime | None, Time("Of a grant or hold: when it expires.", null=True)] = None
    priority: Annotated[int, Integer("Of a grant: lower is spent first.", least=0, most=MAX_PRIORITY)] = DEFAULT_PRIORITY
    reference: Annotated[str, Text("What it belongs to in your books.", most=MAX_REFERENCE_CHARACTERS)] = ""
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""
    request_id: str = ""

    def check_whole(self) -> None:
        """Refuse fields that do not belong to the operation."""
        if (self.amount is None) != (self.operation == BALANCE):
            rule = "required" if self.amount is None else "not-used"
            raise Invalid(pointer="/amount", rule=rule, detail="every operation except balance needs it, and only those have it")
        if self.operation == BALANCE and not self.is_allowed:
            raise Invalid(pointer="/allowed", rule="not-used", detail="a balance is stated, and cannot be refused")
        if self.of is not None and self.operation not in REFERRING:
            raise Invalid(pointer="/of", rule="not-used", detail=f"only for {', '.join(REFERRING)}")
        if self.operation == "grant":
            return
        unused = {"source": PURCHASED, "effective_at": None, "priority": DEFAULT_PRIORITY}
        unused |= {} if self.operation == "hold" else {"expires_at": None}
        for name, default in unused.items():
            if getattr(self, name) != default:
                raise Invalid(pointer=f"/{name}", rule="not-used", detail="is not for this operation")

    def digest(self) -> bytes:
        """SHA-256 over the content: equal for every spelling of it in JSON."""
        content = [getattr(self, each.name) for each in declared_fields(type(self)) if each.name not in OPTIONS]
        return hashlib.sha256(orjson.dumps([_plain(each) for each in content])).digest()


def _plain(value: Any) -> Any:
    return to_us(value) if isinstance(value, datetime) else value

"""Some weeks of a holder for screenshots: top-ups, many spends and a few refunds at random times."""

import random
from datetime import datetime

from ledger.rules.accounts import AccountState
from ledger.rules.decisions import credit_rules, refunds
from ledger.rules.entries import Entry
from ledger.rules.instants import DAY_US, from_us, to_us
from ledger.rules.lots import Lot
from ledger.rules.requests import GrantRequest, RefundRequest, SpendRequest

HOUR_US = 3_600 * 1_000_000
HOURS_BETWEEN = 3.5


def some_weeks(holder_id: str, *, start: datetime, end: datetime) -> list[Entry]:
    """Return entries of one account between two times, made by the rules. The same arguments give the same entries."""
    dice = random.Random(holder_id)
    account, made = AccountState(holder_id, "credits", to_us(start)), list[Entry]()
    openings: dict[int, Lot] = {}
    refundable: Entry | None = None
    while (now_us := account.now_us + int(dice.expovariate(1 / HOURS_BETWEEN) * HOUR_US) + 1) < to_us(end):
        account = account._replace(now_us=now_us)
        common = {"holder_id": holder_id, "idempotency_key": f"key-{len(made)}", "actor": "key:backend"}
        if account.available < 3_000 or dice.random() < 0.006:
            next_entries = credit_rules.grant(account, _grant(dice, now_us, common))
        elif refundable is not None and dice.random() < 0.03:
            refund = RefundRequest(**common, spend=refundable.sequence, reason="delivery failed", reference=refundable.reference)
            next_entries = refunds.refund(
                account, refund, spend=refundable, refunded=0, terms=openings, expired_lot_policy="new-lot", new_lot_days=30
            )
            refundable = None
        else:
            next_entries = credit_rules.spend(account, _spend(dice, common))
            refundable = next_entries[-1]
        account = account.after_all(next_entries)
        openings |= {entry.sequence: account.lot(entry.sequence) for entry in next_entries if entry.kind == "grant"}
        made += next_entries
    return made


def _grant(dice: random.Random, now_us: int, common: dict[str, str]) -> GrantRequest:
    """A grant of tokens, purchased or promotional."""
    is_promotional = dice.random() < 0.3
    return GrantRequest(
        **common,
        amount=dice.choice((20_000, 50_000)),
        source="promotional" if is_promotional else "purchased",
        expires_at=from_us(now_us + (30 if is_promotional else 90) * DAY_US),
        reason="welcome credits" if is_promotional else "top-up by card",
        reference=f"pay_{dice.getrandbits(40):010x}",
    )


def _spend(dice: random.Random, common: dict[str, str]) -> SpendRequest:
    """A spend of tokens for something that a program did."""
    reason = dice.choice(("chat completion", "batch job", "image"))
    return SpendRequest(**common, amount=dice.randint(50, 900), reason=reason, reference=f"req_{dice.getrandbits(40):010x}")

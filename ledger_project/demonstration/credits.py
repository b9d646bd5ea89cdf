"""The credits of the demo's customers: three months of history at its own times, made by the rules, and what happens now.

The history is appended like any other entries, under the holder's lock and through all triggers; only its times are in the past.
"""

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.apps import apps
from django.db import transaction

from ledger import journal, reads, services
from ledger.database.locks import holder_lock
from ledger.errors import Refused
from ledger.models import CreditType
from ledger.rules.accounts import AccountState
from ledger.rules.decisions import credit_rules, refunds
from ledger.rules.entries import Entry
from ledger.rules.instants import from_us, to_us
from ledger.rules.lots import Lot
from ledger.rules.requests import GrantRequest, RefundRequest, SpendRequest
from ledger_project.demonstration.company import COMPANIES, RATES, TEAM, Company

HISTORY: Final = timedelta(days=92)
DAY_US: Final = 86_400_000_000
MODELS: Final = (("nimbus-large", 5), ("nimbus-small", 3), ("nimbus-embed", 1))
TASKS: Final = ("chat completion", "summary of a document", "nightly batch", "translation", "code completion")
SPENDS_A_DAY: Final = 1.4


def make_history(*, ends_at: datetime) -> None:
    """Append the history of each company that has none."""
    for company in COMPANIES:
        if reads.is_known(company.slug):
            continue
        with transaction.atomic(), holder_lock(company.slug) as lock:
            journal.append(lock, list(_history(company, to_us(ends_at - HISTORY), to_us(ends_at))))


def _history(company: Company, start_us: int, end_us: int) -> Iterator[Entry]:
    """Yield the entries of a company: welcome credits, packs when few credits are left, spends, and a refund now and then."""
    dice = random.Random(company.slug)
    account = AccountState(company.slug, "credits", start_us)
    openings: dict[int, Lot] = {}
    last: Entry | None
    number, last = 0, None
    while account.now_us < end_us:
        common: dict[str, Any] = {"holder_id": company.slug, "idempotency_key": f"demo:{number}", "actor": "key:nimbus-api"}
        if number == 0:
            welcome = GrantRequest(
                **common, amount=2_000, source="promotional", reason="welcome credits",
                expires_at=from_us(start_us + 30 * DAY_US), priority=50,
            )  # fmt: skip
            entries = credit_rules.grant(account, welcome)
        elif account.available < 4 * company.a_day:
            entries = credit_rules.grant(account, _top_up(company, dice, common))
        elif last is not None and last.kind == "spend" and dice.random() < 0.03:
            refund = RefundRequest(**common, spend=last.sequence, reason="the answer was cut off", reference=last.reference)
            entries = refunds.refund(
                account, refund, spend=last, refunded=0, terms=openings, expired_lot_policy="new-lot", new_lot_days=30
            )
        else:
            entries = credit_rules.spend(account, _spend(company, dice, common))
        account = account.after_all(entries)
        openings |= {entry.sequence: lot for entry in entries if entry.kind == "grant" and (lot := account.lot(entry.sequence))}
        last = entries[-1]
        number += 1
        yield from entries
        account = account._replace(now_us=account.now_us + int(dice.expovariate(SPENDS_A_DAY) * DAY_US) + 1)


def _top_up(company: Company, dice: random.Random, common: dict[str, Any]) -> GrantRequest:
    amount = 50_000 if company.a_day > 1_000 else 10_000
    return GrantRequest(**common, amount=amount, reason="package by card", reference=f"pay_{dice.getrandbits(40):010x}")


def _spend(company: Company, dice: random.Random, common: dict[str, Any]) -> SpendRequest:
    """A spend for a call of a model; of a team, with the member who made it."""
    [(model, weight)] = dice.choices(MODELS, weights=[3, 5, 2])
    amount = max(5, int(company.a_day / SPENDS_A_DAY / 3 * weight * dice.uniform(0.4, 1.2)))
    metadata = {"model": model, **({"member": dice.choice(TEAM)} if company.slug == "lumen" else {})}
    reference = f"job-{dice.getrandbits(24):06x}"
    return SpendRequest(**common, amount=amount, reason=dice.choice(TASKS), reference=reference, metadata=metadata)


# Now -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DemoAccount:
    """A holder whose requests have fixed keys, so that making them twice changes nothing."""

    holder_id: str

    def common(self, key: str) -> dict[str, Any]:
        """What all of its requests name."""
        return {"holder_id": self.holder_id, "idempotency_key": f"demo:now:{key}", "actor": "admin:demo"}


def make_present(now: datetime) -> None:
    """Make what is open now: a rate card, holds, a transfer, budgets, refusals, a batch, and credits that expire soon."""
    CreditType.objects.get_or_create(code="usd_cents", defaults={"name": "US dollars", "unit": "USD", "scale": 2})
    published = {rate.code for rate in reads.rates()}
    for code, price in RATES.items():
        if code not in published:
            services.publish_rate(code=code, price=price, per=1_000, actor="admin:demo", reason="rate card")
    lumen, juniper, willow = DemoAccount("lumen"), DemoAccount("juniper"), DemoAccount("willow")
    services.set_budget(**lumen.common("team"), budget="each-member", limit=3_000, window="month", by="label", label="member")
    services.set_budget(**lumen.common("day"), budget="whole-team", limit=20_000, window="day")
    services.spend(
        **lumen.common("rated"), rate="nimbus-large.answer", quantity=12_000, reason="chat completion", reference="job-17",
        metadata={"member": TEAM[0], "model": "nimbus-large"},
    )  # fmt: skip
    with suppress(Refused):
        services.spend(**willow.common("refused"), amount=90_000, reason="fine-tuning", reference="job-19")
    with suppress(Refused):
        services.spend(
            **lumen.common("over-budget"), amount=5_000, reason="batch", reference="job-20", metadata={"member": TEAM[1]}
        )
    cobalt = DemoAccount("cobalt")
    for number, amount in enumerate((18_000, 16_000)):
        with suppress(Refused):
            services.spend(
                **cobalt.common(f"level-{number}"), amount=amount, reason="level textures", reference=f"build-{number}"
            )
    services.hold(**juniper.common("hold"), amount=800, reason="transcription, length unknown", reference="session-3")
    services.grant(
        **willow.common("soon"), amount=400, source="promotional", expires_at=now + timedelta(days=2), reason="autumn promotion"
    )
    services.grant(**juniper.common("cents"), amount=5_000, credit_type="usd_cents", reason="prepaid", reference="order-77")
    services.transfer(**juniper.common("gift"), to="orchid", amount=600, reason="shared project")
    services.batch(
        [GrantRequest(**DemoAccount(company.slug).common("sorry"), amount=100, source="promotional", reason="outage of Monday")
         for company in COMPANIES[:3]],
        mode="each", idempotency_key="demo:outage", actor="admin:demo",
    )  # fmt: skip
    if apps.is_installed("ledger.shadow"):
        _observe_another_system()


def _observe_another_system() -> None:
    """Record what another system of balances decided about a customer that is still there."""
    from ledger.shadow.observing import observe

    for number, (operation, amount, balance) in enumerate((("grant", 1_000, 1_000), ("spend", 300, 700), ("spend", 250, 450))):
        observe(
            holder_id="harbor", idempotency_key=f"demo:old-{number}", operation=operation, amount=amount, balance=balance,
            reference=f"old-{number}", actor="admin:demo",
        )  # fmt: skip

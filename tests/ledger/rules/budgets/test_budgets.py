"""Budgets against an independent model: a list of what was spent, each with its instant, counted again for every request."""

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ledger.errors import BudgetExceeded, BudgetLimit, BudgetNotFound, Invalid
from ledger.rules.budget_states import decode_budgets, decode_counts, encode_budgets, encode_counts
from ledger.rules.entries import Entry
from ledger.rules.explanations import explain
from ledger.rules.instants import from_us, to_text, to_us
from ledger.rules.requests import (
    BudgetRequest,
    CaptureRequest,
    EndBudgetRequest,
    GrantRequest,
    HoldRequest,
    RefundRequest,
    ReissueRequest,
    ReleaseRequest,
    Request,
    ReversalRequest,
    SpendRequest,
    TransferRequest,
)
from tests.ledger.random_histories import HOUR_US, RulesLedger
from tests.parts import spread

MEMBERS = ("ann", "ben", "")
SETTINGS: tuple[dict[str, Any], ...] = (
    {"budget": "day", "limit": 60, "window": "day", "time_zone": "Europe/Berlin"},
    {"budget": "each", "limit": 35, "window": "week", "time_zone": "America/New_York", "by": "label", "label": "member"},
    {"budget": "key", "limit": 45, "window": "rolling", "hours": 24, "by": "actor"},
    {
        "budget": "ann", "limit": 90, "window": "month", "time_zone": "Asia/Kathmandu", "by": "label", "label": "member",
        "subject": "ann",
    },
    {"budget": "project", "limit": 80, "window": "rolling", "hours": 100, "by": "reference", "subject": "p1"},
    {"budget": "soft", "limit": 1, "window": "month", "mode": "soft"},
)  # fmt: skip


@dataclass
class Use:
    """What one request used: `amount` shrinks when its hold gives something back."""

    at_us: int
    actor: str
    reference: str
    member: str
    amount: int


@dataclass
class Model:
    """All that was ever used. It knows nothing of steps, counters and shares."""

    uses: list[Use] = field(default_factory=list)

    def used(self, settings: dict[str, Any], by: Use, now_us: int, since_us: int = 0) -> int:
        """What counts against the use, by the calendar, or at least within the hours and at most within a 24th more."""
        return sum(use.amount for use in self.uses if self.is_counted(settings, use, by, now_us, since_us))

    @staticmethod
    def is_counted(settings: dict[str, Any], use: Use, by: Use, now_us: int, slack_us: int) -> bool:
        match settings.get("by", "holder"):
            case "label":
                same = use.member == by.member and settings.get("subject") in (None, use.member)
            case "actor":
                same = use.actor == by.actor
            case "reference":
                same = use.reference == by.reference == settings["subject"]
            case _:
                same = True
        if settings["window"] == "rolling":
            return same and use.at_us > now_us - settings["hours"] * HOUR_US - slack_us
        zone = ZoneInfo(settings.get("time_zone", "UTC"))
        then, now = (from_us(each).astimezone(zone).date() for each in (use.at_us, now_us))
        if settings["window"] == "week":
            then, now = (each - timedelta(days=each.weekday()) for each in (then, now))
        if settings["window"] == "month":
            then, now = (each.replace(day=1) for each in (then, now))
        return same and then == now

    def may_use(self, settings: dict[str, Any], by: Use, now_us: int, slack_us: int = 0) -> bool:
        if settings.get("mode") == "soft" or not self.is_counted(settings, by, by, now_us, 0):
            return True
        return self.used(settings, by, now_us, slack_us) + by.amount <= settings["limit"]


class BudgetHistory:
    """Random requests of a ledger with budgets, each compared with the model.

    Spends, holds and transfers count; captures and releases close a share; refunds, reversals of transfers and reissues of lots
    give nothing back.
    """

    def __init__(self, seed: int, start: datetime) -> None:
        self.chance = random.Random(seed)
        self.ledger, self.model = RulesLedger(), Model()
        self.ledger.now_us = to_us(start)
        self.holds: dict[int, tuple[Use, int, int]] = {}
        self.returnable: list[tuple[type[Request], int, int]] = []
        """Spends and transfers as (what takes them back, sequence, how much is left of them)."""
        self.keys = self.returned = 0
        self.refused = self.accepted = 0
        self.run(GrantRequest, amount=10**9)
        for settings in SETTINGS:
            self.run(BudgetRequest, **settings)

    def run(self, kind: type[Request], **fields: Any) -> Entry:
        self.keys += 1
        entries = self.ledger.execute(kind(holder_id="ada", idempotency_key=str(self.keys), **fields))
        return next(entry for entry in entries if entry.idempotency_key == str(self.keys))

    def tried(self, kind: type[Request], **fields: Any) -> tuple[Entry | None, Any]:
        try:
            return self.run(kind, **fields), None
        except BudgetExceeded as refusal:
            return None, refusal

    def step(self) -> None:
        chance = self.chance
        self.ledger.now_us += chance.choice((1, HOUR_US // 7, HOUR_US, 5 * HOUR_US, 30 * HOUR_US))
        for sequence in [each for each, (_, _, expires_us) in self.holds.items() if expires_us <= self.ledger.now_us]:
            use, held, _ = self.holds.pop(sequence)
            use.amount -= held
        if self.holds and chance.random() < 0.4:
            self.close(chance.choice(list(self.holds)))
        elif self.returnable and chance.random() < 0.2:
            self.take_back(chance.randrange(len(self.returnable)))
        elif chance.random() < 0.05:
            lot = chance.choice(self.ledger.account("ada").lots)
            self.run(ReissueRequest, lot=lot.grant, priority=lot.priority + 1)
        else:
            self.use(chance.choice((SpendRequest, HoldRequest, TransferRequest)))

    def take_back(self, place: int) -> None:
        """Refund a spend or reverse a transfer, in part or whole: the model forgets none of its use."""
        kind, sequence, left = self.returnable.pop(place)
        amount = self.chance.randint(1, left)
        if kind is RefundRequest:
            self.run(kind, spend=sequence, amount=amount)
        else:
            self.run(kind, transfer=sequence, to="bob", amount=amount)
        self.returned += 1
        if amount < left:
            self.returnable.append((kind, sequence, left - amount))

    def use(self, kind: type[Request]) -> None:
        chance, now_us = self.chance, self.ledger.now_us
        member = chance.choice(MEMBERS)
        use = Use(now_us, chance.choice(("key:a", "key:b")), chance.choice(("p1", "p2")), member, chance.randint(1, 25))
        more: dict[str, Any] = {}
        if kind is HoldRequest:
            more["expires_at"] = from_us(now_us + chance.choice((HOUR_US, 40 * HOUR_US)))
        if kind is TransferRequest:
            more["to"] = "bob"
        asked = {
            "amount": use.amount, "actor": use.actor, "reference": use.reference,
            "metadata": {"member": member} if member else {},
        }  # fmt: skip
        fits = all(self.model.may_use(each, use, now_us) for each in SETTINGS)
        surely_fits = all(self.model.may_use(each, use, now_us, each.get("hours", 0) * HOUR_US // 24) for each in SETTINGS)
        entry, refusal = self.tried(kind, **asked, **more)
        if entry is None:
            assert not surely_fits
            self.refused += 1
            self.check_facts(refusal, use)
            return
        assert fits, (asked, entry)
        self.accepted += 1
        self.model.uses.append(use)
        if kind is HoldRequest:
            self.holds[entry.sequence] = (use, use.amount, to_us(more["expires_at"]))
        else:
            taken_back_by = RefundRequest if kind is SpendRequest else ReversalRequest
            self.returnable.append((taken_back_by, entry.sequence, use.amount))

    def close(self, sequence: int) -> None:
        use, held, expires_us = self.holds.pop(sequence)
        taken = self.chance.randint(0, held)
        if taken == 0:
            self.run(ReleaseRequest, hold=sequence)
            use.amount -= held
        elif taken < held and self.chance.random() < 0.5:
            self.run(CaptureRequest, hold=sequence, amount=taken, final=False)
            self.holds[sequence] = (use, held - taken, expires_us)
        else:
            self.run(CaptureRequest, hold=sequence, amount=taken)
            use.amount -= held - taken

    def check_facts(self, refusal: BudgetExceeded, use: Use) -> None:
        """The facts are those of the model; at `resets_at` there is room, and just before it there is not."""
        settings = next(each for each in SETTINGS if each["budget"] == refusal.budget)
        now_us, facts = self.ledger.now_us, refusal.facts
        least = self.model.used(settings, use, now_us)
        most = self.model.used(settings, use, now_us, settings.get("hours", 0) * HOUR_US // 24)
        assert least <= facts["used"] <= most
        assert facts["remaining"] == settings["limit"] - facts["used"] < use.amount == facts["requested"]
        resets_us = to_us(datetime.fromisoformat(facts["resets_at"]))
        assert now_us < resets_us
        assert self.model.may_use(settings, use, resets_us)


@pytest.mark.parametrize("seed", spread(range(6), test=[0], check=[1, 2]))
def test_random_requests_never_exceed_a_budget_and_are_refused_for_no_other_reason(seed: int) -> None:
    starts = ("2026-03-20", "2026-10-20", "2028-02-20", "2026-12-20", "2027-03-10", "2026-06-01")
    history = BudgetHistory(seed, datetime.fromisoformat(f"{starts[seed]}T05:00:00+00:00"))
    for _ in range(300):
        history.step()
        state = history.ledger.account("ada").budgets
        assert decode_budgets(encode_budgets(state)) == state
    assert history.refused > 30
    assert history.accepted > 100
    assert history.returned > 20


# One by one ------------------------------------------------------------------------------------------


def ledger_with(**settings: Any) -> BudgetHistory:
    """A ledger with 1,000 credits and one budget of 10 a day."""
    history = BudgetHistory.__new__(BudgetHistory)
    history.ledger, history.keys = RulesLedger(), 0
    history.run(GrantRequest, amount=1_000)
    history.run(BudgetRequest, **{"budget": "b", "limit": 10, "window": "day"} | settings)
    return history


def used(history: BudgetHistory, subject: str = "") -> int:
    """What the subject has used of the first budget."""
    account = history.ledger.account("ada")
    budget = account.budgets[0]
    return budget.used(account.counters.get((budget.setting, subject), {}), account.now_us)


def test_a_spend_up_to_the_limit_is_taken_and_one_more_is_refused_until_the_window_ends() -> None:
    history = ledger_with()
    history.run(SpendRequest, amount=10)
    before = history.ledger.account("ada")
    with pytest.raises(BudgetExceeded) as refused:
        history.run(SpendRequest, amount=1)
    assert refused.value.facts == {
        "budget": "b", "subject": None, "requested": 1, "resets_at": "2025-01-02T00:00:00.000000Z", "limit": 10, "used": 10,
        "remaining": 0,
    }  # fmt: skip
    after = history.ledger.account("ada")
    assert (after.budgets, after.balance, after.sequence) == (before.budgets, before.balance, before.sequence + 1)
    history.ledger.now_us += 24 * HOUR_US
    assert history.run(SpendRequest, amount=10).balance == 980


def test_a_partial_spend_takes_what_the_budget_has_left() -> None:
    history = ledger_with()
    entry = history.run(SpendRequest, amount=500, partial=True)
    assert (entry.amount, entry.requested) == (-10, 500)
    with pytest.raises(BudgetExceeded) as refused:
        history.run(SpendRequest, amount=500, partial=True)
    assert (refused.value.requested, refused.value.remaining) == (500, 0)


def test_a_hold_counts_once_and_what_is_released_is_given_back_to_its_day() -> None:
    history = ledger_with()
    expires_at = from_us(history.ledger.now_us + 40 * HOUR_US)
    hold = history.run(HoldRequest, amount=8, expires_at=expires_at).sequence
    with pytest.raises(BudgetExceeded):
        history.run(SpendRequest, amount=3)
    history.run(CaptureRequest, hold=hold, amount=5, final=False)
    assert used(history) == 8
    history.run(ReleaseRequest, hold=hold)
    assert used(history) == 5
    late = history.run(HoldRequest, amount=5, expires_at=expires_at).sequence
    history.ledger.now_us += 24 * HOUR_US
    history.run(SpendRequest, amount=10)
    history.run(ReleaseRequest, hold=late)
    assert used(history) == 10  # the day of the hold is over: its release gives the next day nothing


def test_an_expired_hold_gives_back_without_a_job() -> None:
    history = ledger_with()
    history.run(HoldRequest, amount=10)
    history.ledger.now_us += HOUR_US
    history.run(SpendRequest, amount=10)
    assert used(history) == 10


def test_a_capture_beyond_its_hold_counts_for_the_member_of_the_hold() -> None:
    history = ledger_with(by="label", label="member")
    hold = history.run(HoldRequest, amount=4, metadata={"member": "ann"}).sequence
    with pytest.raises(BudgetExceeded) as refused:
        history.run(CaptureRequest, hold=hold, amount=11, over_capture="if_available")
    assert (refused.value.subject, refused.value.used, refused.value.requested) == ("ann", 4, 7)
    history.run(CaptureRequest, hold=hold, amount=10, over_capture="if_available", metadata={"member": "ben"})
    assert (used(history, "ann"), used(history, "ben")) == (10, 0)


def test_a_transfer_counts_and_a_refund_gives_nothing_back() -> None:
    history = ledger_with()
    spend = history.run(SpendRequest, amount=6).sequence
    history.run(RefundRequest, spend=spend)
    assert used(history) == 6
    with pytest.raises(BudgetExceeded):
        history.run(TransferRequest, to="bob", amount=5)
    history.run(TransferRequest, to="bob", amount=4)
    assert used(history) == 10


def test_what_pays_an_invoice_does_not_count() -> None:
    history = ledger_with()
    assert history.run(SpendRequest, amount=50, actor="billing").counts == ()
    assert history.ledger.account("ada").counters == {}


def test_a_soft_budget_counts_and_refuses_nothing() -> None:
    history = ledger_with(mode="soft")
    history.run(SpendRequest, amount=25)
    assert used(history) == 25


def test_each_member_has_the_whole_limit_and_who_names_no_member_shares_one() -> None:
    history = ledger_with(by="label", label="member")
    for metadata in ({"member": "ann"}, {"member": "ben"}, {"member": 7}, {}):
        history.run(SpendRequest, amount=10, metadata=metadata)
    assert sorted(subject for _, subject in history.ledger.account("ada").counters) == ["", "7", "ann", "ben"]
    with pytest.raises(BudgetExceeded) as refused:
        history.run(SpendRequest, amount=1, metadata={"other": "x"})
    assert refused.value.subject == ""


def test_a_budget_goes_on_counting_with_another_limit_and_begins_again_with_another_window() -> None:
    history = ledger_with()
    history.run(SpendRequest, amount=10)
    history.run(BudgetRequest, budget="b", limit=4, window="day", mode="soft")
    assert used(history) == 10
    history.run(BudgetRequest, budget="b", limit=4, window="week")
    assert used(history) == 0


def test_an_explanation_names_the_budgets_that_an_entry_changed_and_not_those_whose_window_ended_before_it() -> None:
    history = ledger_with(by="label", label="member")
    hold = history.run(HoldRequest, amount=8, metadata={"member": "ann"})
    before = history.ledger.entries["ada"][1]
    shown = explain(hold, before, booked_before=[], booked_after=[], referred=None)["budgets"]
    assert [(each["subject"], each["used_before"], each["used"]) for each in shown] == [("ann", 0, 8)]
    release = history.run(ReleaseRequest, hold=hold.sequence)
    shown = explain(release, hold, booked_before=[], booked_after=[], referred=hold)["budgets"]
    assert [(each["subject"], each["used_before"], each["used"]) for each in shown] == [("ann", 8, 0)]
    spend = history.run(SpendRequest, amount=3, metadata={"member": "ann"})
    history.ledger.now_us += 24 * HOUR_US
    grant = history.run(GrantRequest, amount=1)
    assert explain(grant, spend, booked_before=[], booked_after=[], referred=None)["budgets"] == []


def test_a_budget_ends_and_no_state_is_left() -> None:
    history = ledger_with()
    entry = history.run(EndBudgetRequest, budget="b")
    assert (entry.kind, entry.amount, entry.budgets, entry.budget, entry.accepts_transfers) == ("adjust", 0, (), "b", None)
    with pytest.raises(BudgetNotFound):
        history.run(EndBudgetRequest, budget="b")
    assert history.run(SpendRequest, amount=500).budgets == ()


def test_there_are_at_most_20_budgets() -> None:
    history = ledger_with(by="label", label="member")
    for number in range(19):
        history.run(BudgetRequest, budget=f"n{number}", limit=1_000, window="day")
    with pytest.raises(BudgetLimit) as refused:
        history.run(BudgetRequest, budget="one.more", limit=1, window="day")
    assert refused.value.facts == {"what": "budgets", "limit": 20}


def test_the_number_of_subjects_is_not_limited_and_an_entry_names_only_its_own() -> None:
    history = ledger_with(by="label", label="member")
    sizes = set()
    for number in range(100, 400):
        entry = history.run(SpendRequest, amount=1, metadata={"member": str(number)})
        assert [(each.subject, each.used) for each in entry.counts] == [(str(number), 1)]
        sizes.add(len(encode_budgets(entry.budgets)) + len(encode_counts(entry.counts)))
    assert len(sizes) == 1
    assert decode_counts(encode_counts(entry.counts)) == entry.counts


EACH = {"limit": 10, "window": "day", "by": "label"}


def of(member: str, agent: str = "", **more: str) -> dict[str, Any]:
    return {"amount": 8, "metadata": {"member": member, "agent": agent} | more}


def test_an_individual_budget_overrides_the_common_one_of_its_window() -> None:
    history = ledger_with(by="label", label="member")
    history.run(BudgetRequest, budget="ann", **EACH | {"limit": 50}, label="member", subject="ann")
    history.run(BudgetRequest, budget="cy", **EACH | {"limit": 3}, label="member", subject="cy")
    history.run(BudgetRequest, budget="month", limit=60, window="month", by="label", label="member")
    spend = history.run(SpendRequest, amount=45, metadata={"member": "ann"})
    settings = {each.name: each.setting for each in spend.budgets}
    assert {each.setting for each in spend.counts} == {settings["ann"], settings["month"]}
    for member, amount, budget in (("ben", 11, "b"), ("cy", 4, "cy"), ("ann", 6, "ann")):
        with pytest.raises(BudgetExceeded) as refused:
            history.run(SpendRequest, amount=amount, metadata={"member": member})
        assert (refused.value.budget, refused.value.subject) == (budget, member)


def test_a_nested_budget_counts_each_subject_within_each_of_its_parents() -> None:
    history = ledger_with(limit=20, by="label", label="member")
    history.run(BudgetRequest, budget="agent", **EACH, label="agent", parent="b")
    for member in ("ann", "ben"):
        history.run(SpendRequest, **of(member, "a1"))
        with pytest.raises(BudgetExceeded) as refused:
            history.run(SpendRequest, **of(member, "a1"))
        assert (refused.value.budget, refused.value.subject, refused.value.used) == ("agent", "a1", 8)
    counts = history.run(SpendRequest, **of("ann", "a2")).counts
    assert [(each.subject, each.used) for each in counts] == [('["ann", "a2"]', 8), ("ann", 16)]
    with pytest.raises(BudgetExceeded) as refused:
        history.run(SpendRequest, **of("ann", "a3"))
    assert (refused.value.budget, refused.value.subject) == ("b", "ann")
    state = history.ledger.account("ada").budgets
    assert decode_budgets(encode_budgets(state)) == state


def test_of_nested_budgets_the_more_specific_counts_first_the_own_subject_before_those_of_the_parents() -> None:
    history = ledger_with(limit=1_000, by="label", label="member")
    history.run(BudgetRequest, budget="ann", **EACH | {"limit": 1_000}, label="member", subject="ann")
    for name, limit, parent, subject in (
        ("agents", 10, "b", None), ("of-ann", 20, "ann", None), ("a1", 30, "b", "a1"), ("a1-of-ann", 40, "ann", "a1"),
    ):  # fmt: skip
        history.run(BudgetRequest, budget=name, **EACH | {"limit": limit}, label="agent", parent=parent, subject=subject)
    for member, agent, budget in (
        ("ben", "a2", "agents"),
        ("ann", "a2", "of-ann"),
        ("ben", "a1", "a1"),
        ("ann", "a1", "a1-of-ann"),
    ):
        with pytest.raises(BudgetExceeded) as refused:
            history.run(SpendRequest, amount=41, metadata={"member": member, "agent": agent})
        assert (refused.value.budget, refused.value.subject) == (budget, agent)


def test_a_nested_budget_keeps_its_scope_when_its_parent_ends() -> None:
    history = ledger_with(by="label", label="member")
    history.run(BudgetRequest, budget="agent", **EACH, label="agent", parent="b")
    history.run(SpendRequest, **of("ann", "a1"))
    history.run(EndBudgetRequest, budget="b")
    with pytest.raises(BudgetExceeded):
        history.run(SpendRequest, **of("ann", "a1"))
    assert history.run(SpendRequest, **of("ben", "a1")).counts[0].used == 8


def test_a_parent_exists_counts_by_something_else_and_budgets_nest_five_deep() -> None:
    history = ledger_with(by="label", label="l0")
    with pytest.raises(BudgetNotFound):
        history.run(BudgetRequest, budget="x", **EACH, label="x", parent="none")
    with pytest.raises(Invalid) as invalid:
        history.run(BudgetRequest, budget="x", **EACH, label="l0", parent="b")
    assert (invalid.value.pointer, invalid.value.rule) == ("/parent", "same-scope")
    parent = "b"
    for level in range(1, 5):
        history.run(BudgetRequest, budget=f"n{level}", **EACH, label=f"l{level}", parent=parent)
        parent = f"n{level}"
    with pytest.raises(BudgetLimit) as refused:
        history.run(BudgetRequest, budget="deep", **EACH, label="l5", parent=parent)
    assert refused.value.facts == {"what": "levels of budgets", "limit": 5}
    with pytest.raises(Invalid):
        history.run(SpendRequest, amount=1, metadata={f"l{level}": "\U0001f600" * 200 for level in range(5)})


def test_a_label_that_is_too_long_to_count_by_is_a_wrong_field() -> None:
    history = ledger_with(by="label", label="member")
    with pytest.raises(Invalid) as invalid:
        history.run(SpendRequest, amount=1, metadata={"member": "x" * 201})
    assert (invalid.value.pointer, invalid.value.rule) == ("/metadata/member", "too-long")


def test_of_several_exceeded_budgets_the_one_that_gets_room_last_is_named() -> None:
    history = ledger_with()
    history.run(BudgetRequest, budget="month", limit=10, window="month")
    history.run(SpendRequest, amount=10)
    with pytest.raises(BudgetExceeded) as refused:
        history.run(SpendRequest, amount=1)
    assert (refused.value.budget, refused.value.resets_at) == ("month", "2025-02-01T00:00:00.000000Z")


def test_a_rolling_budget_frees_step_by_step() -> None:
    history = ledger_with(window="rolling", hours=24)
    for _ in range(5):
        history.run(SpendRequest, amount=2)
        history.ledger.now_us += 2 * HOUR_US
    with pytest.raises(BudgetExceeded) as refused:
        history.run(SpendRequest, amount=3)
    assert refused.value.resets_at == to_text(history.ledger.now_us - 8 * HOUR_US + 25 * HOUR_US)
    history.ledger.now_us += 17 * HOUR_US
    entry = history.run(SpendRequest, amount=3)
    assert (used(history), entry.counts[0].used, entry.counts[0].total) == (9, 3, 9)
    assert decode_counts(encode_counts(entry.counts)) == entry.counts


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({"window": "rolling"}, "/hours"),
        ({"window": "day", "hours": 5}, "/hours"),
        ({"window": "day", "by": "label"}, "/label"),
        ({"window": "day", "label": "member"}, "/label"),
        ({"window": "day", "by": "reference"}, "/subject"),
        ({"window": "day", "subject": "x"}, "/subject"),
        ({"window": "day", "time_zone": "Mars/Base"}, "/time_zone"),
        ({"window": "year"}, "/window"),
        ({"window": "rolling", "hours": 745}, "/hours"),
        ({"window": "day", "limit": -1}, "/limit"),
        ({"window": "day", "budget": "A b"}, "/budget"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused_by_field(settings: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid) as invalid:
        BudgetRequest(**{"holder_id": "ada", "idempotency_key": "k", "budget": "b", "limit": 1} | settings)
    assert invalid.value.pointer == pointer

"""What an account used, by label, rate and day, is what its entries say: whatever the database has summed up of it already."""

import random
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from django.db import DatabaseError, connection, transaction

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.reads import AccountUsage, Used, ValueUsed
from ledger.rules.kinds import taken_by
from ledger.rules.requests import GrantRequest, Request, SpendRequest
from ledger.testing import FixedClock, unique
from tests.parts import spread

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(db: None) -> str:
    """A holder with 10^9 credits."""
    services.grant(holder_id="ada", amount=10**9, idempotency_key="g")
    return "ada"


def execute(requests: list[Request]) -> list[Any]:
    outcomes = services.batch(requests, mode="each", idempotency_key=unique("b")).outcomes
    assert all(each.entry for each in outcomes)
    return [each.entry for each in outcomes]


def spends(count: int, amount: int = 1, **labels: str) -> list[Request]:
    return [SpendRequest(holder_id="ada", amount=amount, metadata=labels, idempotency_key=unique("s")) for _ in range(count)]


def span() -> dict[str, datetime]:
    since, until = reads.days_until(datetime.now(UTC), ZoneInfo("UTC"), 2)
    return {"since": since, "until": until}


def by_value(by: str, **options: Any) -> dict[str, int]:
    return {each.value: each.sums.amount for each in reads.usage("ada", by=by, **span(), **options).values}


def summed() -> list[tuple[str, str, int]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT dimension, value, amount::bigint FROM ledger_usage ORDER BY 1, 2")
        return cursor.fetchall()


def test_a_holder_without_entries_used_nothing(db: None) -> None:
    found = reads.usage("nobody", by="label:model", by_day=True, **span())
    assert (found.sums, found.values, found.everything, found.others, found.without) == (Used(), [], {}, {}, {})


def test_use_is_by_label_with_what_has_no_label(ada: str) -> None:
    execute([*spends(2, 5, model="large", member="ann"), *spends(1, 3, model="small", member="ben"), *spends(1, 7)])
    found = reads.usage(ada, by="label:model", **span())
    assert [(each.value, each.sums) for each in found.values] == [("large", Used(10, 0, 2)), ("small", Used(3, 0, 1))]
    assert (found.sums, found.without, found.others, found.values_left_out) == (Used(20, 0, 4), {None: Used(7, 0, 1)}, {}, 0)
    assert by_value("label:member") == {"ann": 10, "ben": 3}
    assert by_value("label:session") == {}
    assert summed() == []


def test_a_refund_has_the_labels_of_its_spend_and_its_own_day(ada: str) -> None:
    [spend] = execute(spends(1, 10, model="large"))
    services.refund(holder_id=ada, spend=spend.sequence, amount=4, metadata={"model": "x"}, idempotency_key="r")
    found = reads.usage(ada, by="label:model", by_day=True, **span())
    [large] = found.values
    today = datetime.now(UTC).date()
    assert (large.value, large.days, found.without) == ("large", {today: Used(6, 0, 2)}, {})
    assert found.everything == {today: Used(6, 0, 2)}


def test_a_capture_has_the_labels_of_its_hold_and_its_own_and_its_refund_both(ada: str) -> None:
    hold = services.hold(holder_id=ada, amount=50, metadata={"member": "ann", "model": "large"}, idempotency_key="h")
    capture = services.capture(
        holder_id=ada, hold=hold.sequence, amount=30, metadata={"model": "small", "tokens": 6120}, idempotency_key="c"
    )
    services.refund(holder_id=ada, spend=capture.sequence, amount=10, idempotency_key="r")
    assert by_value("label:member") == {"ann": 20}
    assert by_value("label:model") == {"small": 20}
    assert by_value("label:tokens") == {"6120": 20}


def test_use_on_overage_counts_and_granted_held_or_transferred_credits_do_not(ada: str) -> None:
    services.set_overage(holder_id="bob", limit=100, interval="month", idempotency_key="o")
    services.grant(holder_id="bob", amount=10, idempotency_key="g")
    spend = services.spend(holder_id="bob", amount=30, metadata={"model": "large"}, idempotency_key="s")
    assert reads.usage("bob", **span()).sums == Used(30, 20, 1)
    services.refund(holder_id="bob", spend=spend.sequence, amount=25, idempotency_key="r")
    assert reads.usage("bob", **span()).sums == Used(5, 0, 2)
    services.hold(holder_id=ada, amount=50, idempotency_key="h")
    services.transfer(holder_id=ada, to="cy", amount=5, idempotency_key="t")
    assert reads.usage(ada, **span()).sums == Used()


def test_a_use_without_a_label_model_counts_by_its_rate(ada: str) -> None:
    services.publish_rate(credit_type="credits", code="chat", price=2, per=1, idempotency_key="p")
    services.spend(holder_id=ada, rate="chat", quantity=5, metadata={"model": "large"}, idempotency_key="1")
    services.spend(holder_id=ada, rate="chat", quantity=3, idempotency_key="2")
    assert by_value("rate") == {"chat": 16}
    assert by_value("label:model") == {"large": 10, "chat": 6}


def test_each_256th_entry_sums_up_and_nothing_is_counted_twice(ada: str) -> None:
    execute(spends(254, 2, model="large"))
    assert summed() == []
    services.spend(holder_id=ada, amount=2, metadata={"model": "large"}, idempotency_key="last")
    assert summed() == [("", "", 510), ("label:model", "large", 510)]
    assert by_value("label:model") == {"large": 510}
    execute(spends(300, 1, model="large"))
    assert summed() == [("", "", 766), ("label:model", "large", 766)]
    assert by_value("label:model") == {"large": 810}
    assert audit([connection.connection], holder_id=ada).findings == []


def test_of_a_label_and_day_200_values_have_a_sum_and_the_rest_is_summed_up(ada: str) -> None:
    execute([request for number in range(240) for request in spends(2, number + 1, member=f"m{number}")])
    found = reads.usage(ada, by="label:member", limit=100, **span())
    rows = [value for dimension, value, _ in summed() if dimension == "label:member"]
    assert len(rows) == 128
    assert found.sums.amount == sum(2 * (number + 1) for number in range(240))
    assert found.sums.amount == sum(each.sums.amount for each in found.values) + found.others[None].amount
    assert (len(found.values), found.values_left_out) == (100, 140)
    execute([request for number in range(240, 500) for request in spends(2, 1, member=f"m{number}")])
    rows = [value for dimension, value, _ in summed() if dimension == "label:member"]
    assert (len(rows), "" in rows) == (201, True)
    more = reads.usage(ada, by="label:member", limit=200, **span())
    assert more.sums.amount == sum(each.sums.amount for each in more.values) + more.others[None].amount
    assert more.without == {}
    assert audit([connection.connection], holder_id=ada).findings == []


def test_a_label_that_never_repeats_is_only_summed_up(ada: str) -> None:
    execute([request for number in range(300) for request in spends(1, 1, request=f"r{number}", model="large")])
    assert summed() == [("", "", 255), ("label:model", "large", 255), ("label:request", "", 255)]
    found = reads.usage(ada, by="label:request", **span())
    assert (found.values, found.others, found.without) == ([], {None: Used(300, 0, 300)}, {})


def test_long_and_odd_values_are_cut_and_empty_ones_are_no_label(ada: str) -> None:
    values: list[Any] = ["x" * 300, {"a": [1]}, True, 5, None, "", "é"]
    execute([
        SpendRequest(holder_id="ada", amount=1, metadata={"model": value}, idempotency_key=unique("s"))
        for value in values for _ in range(40)
    ])  # fmt: skip
    found = reads.usage(ada, by="label:model", **span())
    assert {each.value for each in found.values} == {"x" * 199 + "…", '{"a": [1]}', "true", "5", "é"}
    assert found.without == {None: Used(80, 0, 80)}
    assert audit([connection.connection], holder_id=ada).findings == []


def test_amounts_beyond_a_bigint_add_up(ada: str) -> None:
    most = 2**53 - 1
    for number in range(2):
        services.batch(
            [
                request
                for place in range(600)
                for request in (
                    GrantRequest(holder_id="big", amount=most, idempotency_key=f"g{number}/{place}"),
                    SpendRequest(holder_id="big", amount=most, idempotency_key=f"s{number}/{place}"),
                )
            ][:1_000],
            mode="each", idempotency_key=unique("b"),
        )  # fmt: skip
    assert reads.usage("big", **span()).sums == Used(1_000 * most, 0, 1_000)


def test_use_is_by_label_and_rate_together(ada: str) -> None:
    for code in ("chat", "image"):
        services.publish_rate(credit_type="credits", code=code, price=2, per=1, idempotency_key=code)
    execute([
        SpendRequest(holder_id="ada", rate=rate, quantity=5, metadata=labels, idempotency_key=unique("s"))
        for rate, labels in (("chat", {"member": "ann"}), ("chat", {"member": "ann"}), ("image", {"member": "ann"}), ("chat", {}))
    ])  # fmt: skip
    execute([*spends(1, 3, member="ann"), *spends(1, 1)])
    found = reads.usage(ada, by="label:member", by_rate=True, **span())
    assert [(each.value, each.rate, each.sums) for each in found.values] == [
        ("ann", "chat", Used(20, 0, 2)), ("ann", "image", Used(10, 0, 1)), ("ann", None, Used(3, 0, 1)),
    ]  # fmt: skip
    without = [(each.value, each.rate, each.sums) for each in found.without_by_rate]
    assert without == [(None, None, Used(1, 0, 1)), (None, "chat", Used(10, 0, 1))]
    assert (found.without, found.others, found.values_left_out) == ({None: Used(11, 0, 2)}, {}, 0)
    most = reads.usage(ada, by="label:member", by_rate=True, limit=1, **span())
    assert ([each.rate for each in most.values], most.others, most.values_left_out) == (["chat"], {None: Used(13, 0, 2)}, 2)


@pytest.mark.parametrize("by", ["", "rate"])
def test_only_use_by_label_is_by_rate_too(ada: str, by: str) -> None:
    with pytest.raises(ValueError, match="Only use by label"):
        reads.usage(ada, by=by, by_rate=True, **span())


def test_rates_that_never_repeat_are_only_summed_up(ada: str) -> None:
    for number in range(30):
        services.publish_rate(credit_type="credits", code=f"r{number}", price=1, per=1, idempotency_key=f"r{number}")
    rated: list[Request] = [
        SpendRequest(holder_id="ada", rate=f"r{number % 30}", quantity=1, metadata=labels, idempotency_key=unique("s"))
        for number, labels in enumerate([{"member": "ann"}] * 20 + [{}] * 10)
    ]
    execute([*rated, *spends(225, 1, member="ann"), *rated[:1]][:255])
    assert [value for dimension, value, _ in summed() if dimension == "rate"] == [""]
    services.spend(holder_id=ada, rate="r1", quantity=7, metadata={"member": "ben"}, idempotency_key="after")
    found = reads.usage(ada, by="label:member", by_rate=True, **span())
    assert [(each.value, each.rate, each.sums) for each in found.values] == [("ann", None, Used(225, 0, 225))]
    assert (found.others, found.without) == ({None: Used(37, 0, 31)}, {})
    assert audit([connection.connection], holder_id=ada).findings == []


@pytest.mark.slow
@pytest.mark.check
def test_rates_that_come_later_have_their_own_sums_beside_those_that_a_value_has(ada: str) -> None:
    for code in ("image", "chat"):
        services.publish_rate(credit_type="credits", code=code, price=2, per=1, idempotency_key=code)

    def rated(count: int, code: str, member: str) -> list[Request]:
        return [
            SpendRequest(holder_id="ada", rate=code, quantity=1, metadata={"member": member}, idempotency_key=unique("s"))
            for _ in range(count)
        ]

    execute([*spends(155, 1, member="ann"), *rated(100, "image", "ann")])
    execute([*rated(120, "chat", "ann"), *rated(50, "image", "ann"), *rated(86, "chat", "ben")])
    with connection.cursor() as cursor:
        cursor.execute("SELECT value, rates, rate_entries FROM ledger_usage WHERE dimension = 'label:member' ORDER BY value")
        assert cursor.fetchall() == [("ann", ["image", None, "chat"], [150, 155, 120]), ("ben", ["chat"], [86])]
    found = reads.usage(ada, by="label:member", by_rate=True, **span())
    assert [(each.value, each.rate, each.sums.amount) for each in found.values] == [
        ("ann", "image", 300), ("ann", "chat", 240), ("ben", "chat", 172), ("ann", None, 155),
    ]  # fmt: skip
    assert audit([connection.connection], holder_id=ada).findings == []


def test_of_pairs_with_the_same_amount_those_with_more_entries_come_first_then_the_names(ada: str) -> None:
    sessions = [spend for number in range(30) for spend in spends(1, 5, session=f"s{number}")]
    execute([*sessions, *spends(5, 1, session="z"), *spends(220, 1, member="ann")])
    assert ("label:session", "z", 5) in summed()
    found = reads.usage(ada, by="label:session", by_rate=True, limit=3, **span())
    assert [(each.value, each.sums) for each in found.values] == [
        ("z", Used(5, 0, 5)), ("s0", Used(5, 0, 1)), ("s1", Used(5, 0, 1)),
    ]  # fmt: skip
    assert (found.values_left_out, found.others, found.without) == (28, {None: Used(140, 0, 28)}, {None: Used(220, 0, 220)})
    none = reads.usage(ada, by="label:session", by_rate=True, limit=0, **span())
    assert (none.values, none.values_left_out, none.others) == ([], 31, {None: Used(155, 0, 35)})


COMBINATIONS = [
    {"by": by, "by_rate": by_rate, "by_day": by_day}
    for by in ("", "rate", "label:model", "label:member", "label:session")
    for by_rate in ((False, True) if by.startswith("label:") else (False,))
    for by_day in (False, True)
]


@pytest.mark.parametrize(
    "zone",
    spread(["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns"], test=(), check=["Europe/Berlin"]),
)
def test_random_histories_give_by_each_combination_what_the_entries_say(db: None, zone: str) -> None:
    days, source = ZoneInfo(zone), random.Random(zone)
    uses = random_history(source)
    first, last = (each.at.astimezone(days).date() for each in (uses[0], uses[-1]))
    noon = uses[0].at.replace(hour=11, minute=30)
    spans = [
        (reads.start_of(first, days), reads.start_of(last + timedelta(days=1), days)),
        (reads.start_of(first + timedelta(days=1), days), reads.start_of(last, days)),
        (noon + timedelta(days=1), noon + timedelta(days=1, hours=5, minutes=15)),
        (noon + timedelta(days=1), noon + timedelta(days=3, hours=1)),
    ]
    for combination in COMBINATIONS:
        for since, until in spans:
            found = reads.usage("ada", since=since, until=until, zone=days, limit=400, **combination)
            assert (found.others, found.values_left_out) == ({}, 0)
            assert rows_of(found, **combination) == expected_rows(uses, since, until, days, **combination), (combination, since)
            most = reads.usage("ada", since=since, until=until, zone=days, limit=3, **combination)
            assert (most.values, most.without) == (found.values[:3], found.without), (combination, since)
            assert most.values_left_out == max(0, len(found.values) - 3)
    assert audit([connection.connection], holder_id="ada").findings == []


class Use(NamedTuple):
    """A use or refund, added up in Python: when it counts, its labels, its rate."""

    at: datetime
    labels: dict[str, str]
    rate: str | None
    used: Used


Rows = dict[tuple[str | None, str | None, date | None], Used]


def rows_of(found: AccountUsage, *, by: str, by_rate: bool, by_day: bool) -> Rows:
    """Return what was read by value, rate and day."""
    groups = [*found.values, *found.without_by_rate] if by_rate else [*found.values, ValueUsed(None, found.without)]
    if not by:
        groups = [ValueUsed(None, found.everything)]
    rows = {(each.value, each.rate, day): used for each in groups for day, used in each.days.items()}
    together = Used()
    for used in rows.values():
        together = together.plus(used)
    assert together == found.sums
    return rows


def expected_rows(
    uses: list[Use], since: datetime, until: datetime, zone: ZoneInfo, *, by: str, by_rate: bool, by_day: bool
) -> Rows:
    """Return what the uses say."""
    rows: Rows = defaultdict(Used)
    for each in uses:
        if since <= each.at < until:
            value = each.rate if by == "rate" else each.labels.get(by.removeprefix("label:"))
            if by == "label:model" and value is None:
                value = each.rate
            key = value, each.rate if by_rate else None, each.at.astimezone(zone).date() if by_day else None
            rows[key] = rows[key].plus(each.used)
    return dict(rows)


def random_history(source: random.Random) -> list[Use]:
    """Make a history of several days by a clock, and return its uses."""
    done: list[tuple[Any, dict[str, str], str | None]] = []
    with FixedClock(datetime(2025, 3, 28, 10, tzinfo=UTC)) as clock:
        services.grant(holder_id="ada", amount=10**6, idempotency_key="g")
        for code in ("chat", "image"):
            services.publish_rate(credit_type="credits", code=code, price=1, per=1, idempotency_key=code)
        for number in range(300):
            clock.advance(minutes=source.randrange(0, 40))
            chosen = {"model": source.choice(["large", "small", ""]), "member": source.choice(["ann", "ben", "cy", ""])}
            # Each use has a session: most sessions have uses of one day, of up to three rates.
            chosen["session"] = f"s{number // 4}"
            labels, kind = {label: value for label, value in chosen.items() if value}, source.random()
            rate = source.choice(["chat", "image", None])
            amount = source.randint(50, 90)
            priced: dict[str, Any] = {"rate": rate, "quantity": amount} if rate else {"amount": amount}
            if kind < 0.1 and done:
                use, labels, rate = source.choice([each for each in done if each[0].kind != "refund"])
                entry = services.refund(holder_id="ada", spend=use.sequence, amount=1, idempotency_key=unique("r"))
            elif kind < 0.3:
                hold = services.hold(holder_id="ada", metadata=labels, idempotency_key=unique("h"), **priced)
                entry = services.capture(holder_id="ada", hold=hold.sequence, amount=amount - 5, idempotency_key=unique("c"))
            else:
                entry = services.spend(holder_id="ada", metadata=labels, idempotency_key=unique("s"), **priced)
            done.append((entry, labels, rate))
    return [
        Use(entry.effective_at, labels, rate, Used(-entry.amount if entry.kind == "refund" else taken_by(entry), 0, 1))
        for entry, labels, rate in done
    ]


@pytest.mark.parametrize("statement", ["UPDATE ledger_usage SET amount = amount + 1", "DELETE FROM ledger_usage"])
def test_only_the_trigger_writes_sums(ada: str, statement: str) -> None:
    execute(spends(256, 1, model="large"))
    before = summed()
    with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
        connection.cursor().execute(f"SET LOCAL ROLE ledger_app; {statement}")
    assert summed() == before

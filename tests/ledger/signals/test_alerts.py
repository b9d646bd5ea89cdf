"""An alert gives one signal per crossing, and again only after recovery; by entries, and by time alone."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from pytest_django.fixtures import Settings

from ledger import services
from ledger.database.statements import fetch_rows
from ledger.errors import IdempotencyKeyReused, Invalid
from ledger.rules.accounts import AccountState
from ledger.rules.budget_windows import HOUR_US
from ledger.rules.entries import Entry
from ledger.rules.lots import Lot
from ledger.signals import alert_declarations, alert_watching
from ledger.signals import feed as feeding
from ledger.signals.alert_declarations import AlertRequest, EndAlertRequest, alerts_of, end_alert, set_alert
from ledger.signals.alert_states import DAY_US, AlertState, DeclaredAlert, judge
from ledger.signals.errors import AlertLimit, AlertNotFound
from ledger.signals.feed import feed, feed_all_accounts
from ledger.testing import unique
from tests.nodes import pause

MakeWebhook = Callable[..., dict[str, Any]]
OF_ALERTS = ("balance.low", "balance.recovered", "balance.depleted", "credits.expiring")
START_US = 1_800_000_000_000_000


def told() -> list[tuple[str, str]]:
    """Type and holder of each signal of an alert, in the order in which they are sent."""
    return [(each["type"], each["data"]["holder_id"]) for each in signals()]


def signals() -> list[dict[str, Any]]:
    sql = "SELECT type, stream, data FROM ledger_signal WHERE sequence IS NULL ORDER BY number"
    return fetch_rows(lambda *row: dict(zip(("type", "stream", "data"), row, strict=True)), sql)


def types() -> list[str]:
    return [name for name, _ in told()]


def states() -> dict[tuple[str, str], bool]:
    sql = "SELECT holder_id, alert, is_crossed FROM ledger_alert_state"
    return {(holder, alert): crossed for holder, alert, crossed in fetch_rows(lambda *row: row, sql)}


def grant(holder: str, amount: int, **more: Any) -> Entry:
    return services.grant(holder_id=holder, amount=amount, idempotency_key=unique("k"), **more)


def spend(holder: str, amount: int, **more: Any) -> Entry:
    return services.spend(holder_id=holder, amount=amount, idempotency_key=unique("k"), **more)


def declare(alert: str = "low", **more: Any) -> Any:
    return set_alert(AlertRequest(alert=alert, idempotency_key=unique("a"), **more)).alert


@pytest.fixture
def wanted(db: None, webhook: MakeWebhook) -> None:
    """A webhook that has chosen all types of alerts."""
    webhook(*OF_ALERTS)


# By entries ------------------------------------------------------------------------------------------


def test_a_crossing_gives_one_signal_and_another_one_only_after_recovery(wanted: None) -> None:
    declare(below=10)
    grant("ada", 20)
    feed()
    assert types() == []
    spend("ada", 11)
    spend("ada", 1)
    feed()
    spend("ada", 1)
    for _ in range(3):
        feed()
    feed_all_accounts()
    assert types() == ["balance.low"]
    grant("ada", 20)
    feed()
    assert types() == ["balance.low", "balance.recovered"]
    spend("ada", 20)
    feed()
    assert types() == ["balance.low", "balance.recovered", "balance.low"]
    assert [each["data"]["crossing"] for each in signals()] == [1, 1, 2]


def test_a_signal_says_which_account_is_low_by_which_alert(wanted: None) -> None:
    declare(below=10)
    grant("ada", 20)
    entry = spend("ada", 11)
    feed()
    [made] = signals()
    assert made["stream"] == "ada"
    assert made["data"] == {
        "alert": "low",
        "holder_id": "ada",
        "credit_type": "credits",
        "crossing": 1,
        "available": 9,
        "balance": 9,
        "sequence": 2,
        "as_of": entry.recorded_at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "below": 10,
    }


def test_a_balance_that_is_low_and_recovers_between_two_looks_gives_both_signals(wanted: None) -> None:
    declare(below=10)
    grant("ada", 20)
    feed()
    spend("ada", 15)
    grant("ada", 20)
    feed()
    assert types() == ["balance.low", "balance.recovered"]
    assert [each["data"]["available"] for each in signals()] == [5, 25]


def test_an_account_that_spends_all_is_low_and_depleted_and_depleted_once(wanted: None) -> None:
    declare(below=10)
    grant("ada", 20)
    spend("ada", 20)
    grant("ada", 1)
    spend("ada", 1)
    feed()
    assert types() == ["balance.low", "balance.depleted"], "it has not recovered in between"
    grant("ada", 20)
    spend("ada", 20)
    feed()
    assert types()[2:] == ["balance.recovered", "balance.low", "balance.depleted"]


def test_the_signals_of_an_entry_follow_it_in_its_stream(db: None, webhook: MakeWebhook) -> None:
    webhook("entry.recorded", *OF_ALERTS)
    declare(below=10)
    grant("ada", 20)
    spend("ada", 15)
    grant("ada", 1)
    feed()
    rows = fetch_rows(lambda *row: row, "SELECT type, sequence FROM ledger_signal ORDER BY number")
    assert rows == [("entry.recorded", 1), ("entry.recorded", 2), ("balance.low", None), ("entry.recorded", 3)]


def test_where_no_webhook_wants_them_alerts_have_states_and_no_signals(db: None) -> None:
    declare(below=10)
    grant("ada", 20)
    spend("ada", 15)
    feed()
    assert states() == {("ada", "low"): True}
    assert fetch_rows(int, "SELECT count(*) FROM ledger_signal") == [0]


def test_a_percentage_is_of_the_most_since_the_last_grant(wanted: None) -> None:
    declare(below_percent=20)
    grant("ada", 100)
    spend("ada", 80)
    feed()
    assert types() == [], "20 of 100 is not below 20 percent"
    spend("ada", 1)
    feed()
    assert types() == ["balance.low"]
    assert signals()[0]["data"]["most_since_grant"] == 100
    grant("ada", 1)
    feed()
    assert types() == ["balance.low", "balance.recovered"], "20 of 20"
    spend("ada", 16)
    spend("ada", 1)
    feed()
    assert types() == ["balance.low", "balance.recovered", "balance.low"]


def test_a_percentage_of_an_account_that_was_there_before_is_of_its_last_grant(wanted: None) -> None:
    grant("ada", 100)
    spend("ada", 81)
    grant("bob", 100)
    grant("bob", 10, credit_type="sms")
    declare(below_percent=20)
    feed()
    assert told() == [("balance.low", "ada")]


def test_days_left_are_by_what_was_spent_in_the_days_of_the_rate(wanted: None) -> None:
    declare(days_left=3, rate_days=2)
    grant("ada", 100)
    spend("ada", 39)
    feed()
    assert types() == [], "61 at 19.5 a day last for 3.1 days"
    hold = services.hold(holder_id="ada", amount=1, idempotency_key="h")
    services.capture(holder_id="ada", hold=hold.sequence, idempotency_key="c")
    feed()
    assert types() == [], "60 at 20 a day last for 3 days"
    spend("ada", 1)
    feed()
    [made] = signals()
    assert (made["type"], made["data"]["spent"], made["data"]["rate_days"], made["data"]["days_left"]) == (
        "balance.low",
        41,
        2,
        3,
    )


def test_days_left_of_an_account_that_was_there_before_are_by_its_entries(wanted: None) -> None:
    grant("ada", 100)
    spend("ada", 40)
    hold = services.hold(holder_id="ada", amount=2, idempotency_key="h")
    services.capture(holder_id="ada", hold=hold.sequence, idempotency_key="c")
    grant("bob", 100)
    declare(days_left=3, rate_days=2)
    feed()
    assert told() == [("balance.low", "ada")]
    assert signals()[0]["data"]["spent"] == 42


def test_credits_that_expire_soon_are_reported_once_for_each_lot(wanted: None) -> None:
    declare("soon", expiring_days=7)
    now = datetime.now(UTC)
    near = grant("ada", 20, expires_at=now + timedelta(days=3))
    grant("ada", 5, expires_at=now + timedelta(days=30))
    grant("ada", 5)
    feed()
    spend("ada", 1)
    feed()
    [made] = signals()
    assert made["type"] == "credits.expiring"
    assert (made["data"]["amount"], [lot["grant"] for lot in made["data"]["lots"]]) == (20, [near.sequence])
    assert made["data"]["expires_at"] == made["data"]["lots"][0]["expires_at"]
    other = grant("ada", 7, expires_at=now + timedelta(days=2))
    feed()
    assert [lot["grant"] for lot in signals()[1]["data"]["lots"]] == [other.sequence]
    assert (len(signals()), signals()[1]["data"]["crossing"]) == (2, 2)


# Own alerts, types and defaults ----------------------------------------------------------------------


def test_a_holders_own_alert_replaces_the_default_of_its_name(wanted: None) -> None:
    declare(below=10)
    declare(below=50, holder_id="ada")
    declare("empty", below=1)
    for holder in ("ada", "bob"):
        grant(holder, 60)
        spend(holder, 20)
    feed()
    assert told() == [("balance.low", "ada")]
    spend("bob", 31)
    spend("ada", 31)
    feed()
    assert told() == [("balance.low", "ada"), ("balance.low", "bob")]


def test_an_alert_of_a_credit_type_replaces_that_of_all_types_and_a_holders_own_replaces_both(wanted: None) -> None:
    declare(below=10)
    declare(below=30, credit_type="sms")
    declare(below=5, holder_id="ada")
    for holder in ("ada", "bob"):
        for credit_type in ("sms", "credits"):
            grant(holder, 40, credit_type=credit_type)
            spend(holder, 20, credit_type=credit_type)
    feed()
    assert [(each["data"]["holder_id"], each["data"]["credit_type"]) for each in signals()] == [("bob", "sms")]


def test_an_account_that_is_low_when_the_alert_is_declared_is_reported_once(wanted: None) -> None:
    grant("ada", 5)
    grant("bob", 50)
    feed()
    declare(below=10)
    feed()
    feed()
    assert told() == [("balance.low", "ada")]


def test_an_account_that_is_low_by_another_limit_too_is_not_reported_again(wanted: None) -> None:
    declare(below=10)
    grant("ada", 5)
    feed()
    declare(below=20)
    declare(below=30, holder_id="ada")
    feed()
    assert types() == ["balance.low"]
    end_alert(EndAlertRequest(alert="low", holder_id="ada"))
    declare(below=3)
    feed()
    assert types() == ["balance.low", "balance.recovered"]


def test_an_alert_that_ends_is_forgotten_without_a_signal(wanted: None) -> None:
    declare(below=10)
    grant("ada", 5)
    feed()
    end_alert(EndAlertRequest(alert="low"))
    feed()
    grant("ada", 50)
    feed()
    assert (types(), states()) == (["balance.low"], {})
    spend("ada", 50)
    declare(below=10)
    feed()
    assert types() == ["balance.low", "balance.low"]


def test_after_the_last_alert_has_ended_no_entry_is_read_for_alerts(db: None, django_assert_num_queries: Any) -> None:
    declare(below=10)
    declare("other", below=10, holder_id="ada")
    grant("ada", 5)
    assert feed().entries == 1
    end_alert(EndAlertRequest(alert="low"))
    grant("ada", 1)
    assert feed().entries == 1, "one alert is left"
    end_alert(EndAlertRequest(alert="other", holder_id="ada"))
    grant("ada", 1)
    feed()
    assert states() == {}
    grant("bob", 1)
    with django_assert_num_queries(1):
        assert feed().entries == 0
    declare(below=10)
    grant("cyd", 5)
    feed()
    assert states() == {("ada", "low"): True, ("bob", "low"): True, ("cyd", "low"): True}


def test_a_changed_alert_looks_at_all_holders_page_by_page(wanted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_watching, "HOLDERS_AT_ONCE", 2)
    holders = [unique("h") for _ in range(5)]
    for holder in holders:
        grant(holder, 5)
    declare(below=10)
    feed()
    assert sorted(told()) == sorted(("balance.low", holder) for holder in holders)
    assert fetch_rows(int, "SELECT count(*) FROM ledger_alert_look") == [0]


# By time alone ---------------------------------------------------------------------------------------


def account(available: int = 0, *, lots: tuple[Lot, ...] = (), now_us: int = START_US) -> AccountState:
    lots = lots or ((Lot(1, available, 0),) if available else ())
    return AccountState("ada", "credits", now_us, 1, sum(lot.remaining for lot in lots), lots=lots)


def an_alert(**limits: int) -> DeclaredAlert:
    settings = dict.fromkeys(("below", "below_percent", "days_left", "rate_days", "expiring_days")) | limits
    return DeclaredAlert(1, "low", None, None, **settings, recorded_us=0)


def test_the_rate_falls_while_nothing_is_spent_until_the_account_has_recovered() -> None:
    alert = an_alert(days_left=10, rate_days=1)
    state = AlertState("days_left", facts={"spent": [[START_US - START_US % HOUR_US, 24]]})
    state, made = judge(alert, state, account(200))
    assert [each.type for each in made] == ["balance.low"]
    assert state.look_us == START_US + HOUR_US
    looks = 0
    while state.look_us is not None:
        looks += 1
        state, made = judge(alert, state, account(200, now_us=state.look_us))
    assert [each.type for each in made] == ["balance.recovered"]
    assert 24 <= looks <= 26
    assert state.facts == {"spent": []}


def test_a_lot_is_reported_when_its_expiry_comes_near_and_not_before() -> None:
    alert = an_alert(expiring_days=7)
    lot = Lot(3, 20, 0, START_US + 30 * DAY_US)
    state, made = judge(alert, AlertState("expiring_days"), account(lots=(lot,)))
    assert (made, state.is_crossed, state.look_us) == ([], False, START_US + 23 * DAY_US)
    assert state.look_us is not None
    state, made = judge(alert, state, account(lots=(lot,), now_us=state.look_us))
    assert [(each.type, each.data["amount"]) for each in made] == [("credits.expiring", 20)]
    assert (state.is_crossed, state.look_us) == (True, lot.expires_us)
    assert state.look_us is not None
    state, made = judge(alert, state, account(lots=(lot,), now_us=state.look_us))
    assert (made, state.is_crossed, state.look_us) == ([], False, None)


def test_a_lot_that_becomes_effective_recovers_the_account_without_an_entry() -> None:
    alert = an_alert(below=10)
    later = Lot(2, 50, START_US + DAY_US)
    state, made = judge(alert, AlertState("below"), account(lots=(Lot(1, 5, 0), later)))
    assert ([each.type for each in made], state.look_us) == (["balance.low"], START_US + DAY_US)
    state, made = judge(alert, state, account(lots=(Lot(1, 5, 0), later), now_us=START_US + DAY_US))
    assert [(each.type, each.data["available"]) for each in made] == [("balance.recovered", 55)]


@pytest.mark.slow
@pytest.mark.check
def test_a_worker_looks_again_when_the_state_says_so(wanted: None) -> None:
    declare(below=10)
    grant("ada", 5)
    grant("ada", 50, effective_at=datetime.now(UTC) + timedelta(seconds=1))
    feed()
    while types() == ["balance.low"]:
        feed()
        pause()
    assert types() == ["balance.low", "balance.recovered"]
    assert fetch_rows(lambda at: at, "SELECT look_at FROM ledger_alert_state") == [None]


def test_a_holder_with_a_test_clock_is_looked_at_when_the_clock_moves(wanted: None, settings: Settings) -> None:
    settings.LEDGER = {**settings.LEDGER, "TEST_CLOCKS": True}
    declare("soon", expiring_days=7)
    declare(below=10)
    now = datetime.now(UTC)
    grant("ada", 20, expires_at=now + timedelta(days=30))
    feed()
    assert types() == []
    for days in (1, 25, 31):
        services.set_clock(holder_id="ada", now=now + timedelta(days=days), idempotency_key=unique("c"))
        feed()
        feed()
    assert types() == ["credits.expiring", "balance.low", "balance.depleted"]


# Neither lost nor doubled ----------------------------------------------------------------------------


@pytest.mark.parametrize("breaks", ["_store", "_spread_all"])
def test_a_worker_that_ends_before_commit_has_neither_lost_nor_doubled_a_crossing(
    wanted: None, monkeypatch: pytest.MonkeyPatch, breaks: str
) -> None:
    declare(below=10)
    grant("ada", 20)
    feed()
    spend("ada", 15)
    whole = getattr(feeding, breaks)

    def broken(*arguments: Any) -> None:
        whole(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(feeding, breaks, broken)
    with pytest.raises(KeyboardInterrupt):
        feed()
    assert (types(), states()) == ([], {})
    monkeypatch.setattr(feeding, breaks, whole)
    feed()
    feed()
    assert (types(), states()) == (["balance.low"], {("ada", "low"): True})


# Declarations ----------------------------------------------------------------------------------------


def rows() -> int:
    return fetch_rows(int, "SELECT count(*) FROM ledger_alert")[0] + fetch_rows(int, "SELECT count(*) FROM ledger_alert_look")[0]


@pytest.mark.parametrize(
    ("sql", "holder", "condition"),
    [
        (alert_declarations.CURRENT_OF_HOLDER, ["ada"], "Index Cond: (holder_id = 'ada'"),
        (alert_declarations.CURRENT_OF_ALL, None, "Index Cond: (holder_id IS NULL)"),
        (feeding.SUBSCRIBED, None, "Index Cond: ((COALESCE(holder_id, ''::text) = COALESCE(a.holder_id, ''::text))"),
    ],
)
def test_what_the_workers_read_of_alerts_does_not_grow_with_those_of_other_holders(
    db: None, sql: str, holder: list[str] | None, condition: str
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
    assert condition in "\n".join(fetch_rows(str, f"EXPLAIN (COSTS OFF) {sql}", holder))


def test_alerts_count_from_the_oldest_one_that_has_not_ended_since(db: None) -> None:
    def since() -> datetime | None:
        return fetch_rows(lambda _, at: at, feeding.SUBSCRIBED)[0]

    assert since() is None
    for_all, own = declare(below=1), declare(below=2, holder_id="ada")
    typed = declare(below=3, holder_id="ada", credit_type="sms")
    assert since() == for_all.recorded_at
    end_alert(EndAlertRequest(alert="low", idempotency_key=unique("e")))
    assert since() == own.recorded_at
    end_alert(EndAlertRequest(alert="low", holder_id="ada", idempotency_key=unique("e")))
    assert since() == typed.recorded_at
    again = declare(below=4)
    assert since() == typed.recorded_at
    end_alert(EndAlertRequest(alert="low", holder_id="ada", credit_type="sms", idempotency_key=unique("e")))
    assert since() == again.recorded_at


def test_a_repeated_request_writes_once_and_the_key_belongs_to_it(db: None) -> None:
    request = AlertRequest(alert="low", below=10, idempotency_key="a-1")
    first, again = set_alert(request), set_alert(request)
    assert (first.alert.pk, first.replayed, again.alert.pk, again.replayed) == (again.alert.pk, False, first.alert.pk, True)
    for other in (
        AlertRequest(alert="low", below=11, idempotency_key="a-1"),
        EndAlertRequest(alert="low", idempotency_key="a-1"),
    ):
        with pytest.raises(IdempotencyKeyReused):
            alert_declarations._once(other)
    assert rows() == 2


def test_a_dry_run_decides_and_writes_nothing(db: None) -> None:
    assert set_alert(AlertRequest(alert="low", below=10, dry_run=True)).alert.below == 10
    with pytest.raises(AlertNotFound):
        end_alert(EndAlertRequest(alert="low", dry_run=True))
    assert rows() == 0


def test_an_alert_that_is_not_there_cannot_end(db: None) -> None:
    declare(below=10)
    for scope in ({"holder_id": "ada"}, {"credit_type": "sms"}):
        with pytest.raises(AlertNotFound):
            end_alert(EndAlertRequest(alert="low", **scope))
    end_alert(EndAlertRequest(alert="low"))
    with pytest.raises(AlertNotFound):
        end_alert(EndAlertRequest(alert="low"))
    assert fetch_rows(int, "SELECT count(*) FROM ledger_alert") == [2]


def test_there_are_only_so_many_alerts_for_a_holder_and_for_all(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_declarations, "MAX_ALERTS", 2)
    for holder in (None, "ada"):
        for name in ("a", "b", "b"):
            declare(name, below=10, holder_id=holder)
        with pytest.raises(AlertLimit):
            declare("c", below=10, holder_id=holder)
        assert [alert.name for alert in alerts_of(holder)] == ["a", "b"]


@pytest.mark.parametrize(
    ("settings", "pointer"),
    [
        ({}, "/below"),
        ({"below": 1, "below_percent": 1}, "/below_percent"),
        ({"below": 0}, "/below"),
        ({"below_percent": 101}, "/below_percent"),
        ({"days_left": 0}, "/days_left"),
        ({"days_left": 1, "rate_days": 32}, "/rate_days"),
        ({"below": 1, "rate_days": 7}, "/rate_days"),
        ({"expiring_days": 367}, "/expiring_days"),
        ({"below": 1, "holder_id": "a b"}, "/holder_id"),
        ({"below": 1, "credit_type": "A"}, "/credit_type"),
        ({"below": 1, "alert": "Low"}, "/alert"),
    ],
)
def test_what_is_wrong_with_an_alert_is_said_by_its_field(db: None, settings: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        set_alert(AlertRequest(**{"alert": "low", **settings}))
    assert refused.value.pointer == pointer
    assert rows() == 0

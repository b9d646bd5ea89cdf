"""Counts of the last hour: what they grew by, from which instant, and what is forgotten."""

from datetime import UTC, datetime, timedelta

from ledger.telemetry.count_history import CountHistory, Counts, read_counts
from ledger.telemetry.metrics import PROBLEMS, REFUSALS

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SPENDS = ("calls", frozenset({("route", "/v1/spends")}))
GRANTS = ("calls", frozenset({("route", "/v1/grants")}))


class Counting:
    """Counts that a test sets, and their history."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        self.history = CountHistory(started_at=START, read=self.read)

    def read(self) -> Counts:
        return dict(self.counts)

    def note(self, minute: float, **counts: float) -> None:
        self.counts |= {{"spends": SPENDS, "grants": GRANTS}[name]: count for name, count in counts.items()}
        self.history.note(START + timedelta(minutes=minute))


def test_a_window_grows_from_the_last_reading_that_is_old_enough() -> None:
    counting = Counting()
    counting.note(1, spends=10)
    counting.note(2, spends=25, grants=3)
    counting.note(3, spends=25, grants=5)
    counting.counts[SPENDS] = 31
    growth = counting.history.growth(START + timedelta(minutes=3, seconds=30), timedelta(minutes=1, seconds=30))
    assert (growth.since, growth.until) == (START + timedelta(minutes=2), START + timedelta(minutes=3, seconds=30))
    assert growth.counts == {SPENDS: 6, GRANTS: 2}
    assert growth.seconds == 90


def test_a_window_longer_than_the_history_begins_at_the_start() -> None:
    counting = Counting()
    counting.note(1, spends=10)
    for within in (timedelta(hours=1), None):
        growth = counting.history.growth(START + timedelta(minutes=2), within)
        assert (growth.since, growth.counts) == (START, {SPENDS: 10})


def test_readings_within_a_minute_are_one() -> None:
    counting = Counting()
    for minute in (1, 1.3, 1.9, 2):
        counting.note(minute, spends=minute)
    steps = counting.history.steps(START + timedelta(minutes=2), timedelta(hours=1))
    assert [(step.until - START).total_seconds() for step in steps] == [60, 120]
    assert [step.counts for step in steps] == [{SPENDS: 1}, {SPENDS: 1}]


def test_what_is_older_than_an_hour_is_forgotten_except_the_reading_with_which_the_hour_begins() -> None:
    counting = Counting()
    for minute in range(1, 200):
        counting.note(minute, spends=minute)
    growth = counting.history.growth(START + timedelta(minutes=199), timedelta(hours=1))
    assert (growth.since, growth.counts) == (START + timedelta(minutes=139), {SPENDS: 60})
    steps = counting.history.steps(START + timedelta(minutes=199), timedelta(hours=1))
    assert (len(steps), len(counting.history._readings)) == (60, 61)
    assert {tuple(step.counts.values()) for step in steps} == {(1,)}


def test_the_counts_of_the_process_are_read_and_only_those_of_requests() -> None:
    before = read_counts().get(("ledger_http_problems_total", frozenset({("status", "418"), ("code", "teapot")})), 0)
    PROBLEMS.labels("418", "teapot").inc(2)
    REFUSALS.labels("teapot").inc()
    counts = read_counts()
    assert counts["ledger_http_problems_total", frozenset({("status", "418"), ("code", "teapot")})] == before + 2
    assert {name for name, _ in counts} <= {
        "ledger_http_problems_total",
        "ledger_http_key_calls_total",
        *(f"ledger_http_request_duration_seconds_{part}" for part in ("bucket", "count", "sum")),
    }

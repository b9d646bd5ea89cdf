"""The picture of a balance over time."""

import itertools
import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.admin.balance_line import Point, balance_line, instants, ticks

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def hours(count):
    return NOON + timedelta(hours=count)


def test_the_balance_stays_from_each_entry_to_the_next_and_until_now():
    svg = balance_line([Point(hours(0), 100), Point(hours(5), 50), Point(hours(8), 75)], now=hours(10), title="ada")
    # 0 .. 100 on y = 216 .. 16, 0 .. 10 h on x = 84 .. 944.
    assert re.search(r'class="line" d="([^"]+)"', svg)[1] == "M84.0 16.0H514.0V116.0H772.0V66.0H944.0"
    assert re.search(r'class="area" d="([^"]+)"', svg)[1].endswith("V216.0H84.0Z")


def test_it_is_told_in_words_too_and_asks_for_nothing_outside():
    svg = balance_line([Point(hours(0), 100), Point(hours(5), -50)], now=hours(10), title='<a> & "b"', note="all")
    root = ET.fromstring(svg)
    assert root.get("role") == "img"
    assert root.findtext("title") == '<a> & "b"'
    assert root.findtext("desc") == (
        "From 2026-01-01 to 2026-01-01: the balance began at 100, is -50 now, was at least -50 and at most 100."
    )
    assert [root.get("aria-labelledby")] == [" ".join(each.get("id") for each in root if each.get("id"))]
    labels = [each.text for each in root.iter("text")]
    assert labels[-2:] == ["balance", "time (UTC); all"]
    assert "-50" in labels
    assert "100" in labels
    assert "01 Jan 18:00" in labels
    assert not re.search(r"https?:|href|url\(|<script|<image", svg)


def test_one_entry_is_a_level_line_and_none_is_no_picture():
    assert 'class="line" d="M84.0 16.0H944.0"' in balance_line([Point(NOON, 4)], now=hours(1), title="ada")
    assert balance_line([], now=NOON, title="ada") == ""


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 0, [0, 1]),
        (0, 1, [0, 1]),
        (0, 4, [0, 1, 2, 3, 4]),
        (0, 100, [0, 50, 100]),
        (0, 7_300, [0, 2_000, 4_000, 6_000, 8_000]),
        (-30, 90, [-50, 0, 50, 100]),
        (0, 2**63 - 1, [0, 5 * 10**18, 10**19]),
    ],
)
def test_rows_are_round(low, high, expected):
    assert ticks(low, high) == expected


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**63))
def test_rows_hold_everything_between_them_and_are_few(low, span):
    found = ticks(low, low + span)
    assert found[0] <= low
    assert low + span <= found[-1]
    assert 2 <= len(found) <= 7
    assert len({after - before for before, after in itertools.pairwise(found)}) == 1


@given(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)), st.integers(0, 100 * 365 * 86_400))
def test_columns_lie_inside_and_are_few(first, seconds):
    last = first + timedelta(seconds=seconds)
    found = [at for at, _ in instants(first, last)]
    assert all(first <= at <= last for at in found)
    assert len(found) <= 9

"""The feed: every entry of all holders once, in one order, behind a position that can be kept, and may be lost or wrong."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from ledger import reads, services
from ledger.errors import FeedPositionLost, FeedUnavailable, InsufficientCredits
from ledger.reads import EntryFilter, FeedPosition, feed
from ledger.reads.entry_feed import LATEST_US, NOT_A_POSITION, POSITION_DIGEST_BYTES
from ledger.testing import FixedClock, GrantFactory, SpendFactory, reset_server_clock, set_server_clock

pytestmark = [pytest.mark.django_db, pytest.mark.one_node("a cluster has no feed")]

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def ids(page):
    """Which entries a page has: holder, credit type, sequence."""
    return [(each.entry.holder_id, each.entry.credit_type, each.entry.sequence) for each in page.entries]


def all_pages(limit, *wanted):
    """What a reader gets page after page, to the end of the feed."""
    position, found = reads.START, []
    while (page := feed(position, *wanted, limit=limit)).entries:
        found += ids(page)
        position = page.next
    return found


def history():
    """Entries of three holders and two credit types, one after the other; the refusal is bob's second."""
    made = [
        services.grant(holder_id="bob", amount=5, idempotency_key="1"),
        services.grant(holder_id="ada", amount=5, idempotency_key="1"),
        services.grant(holder_id="Zoe", amount=5, credit_type="sms", idempotency_key="1"),
        services.spend(holder_id="ada", amount=1, idempotency_key="2"),
    ]
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="bob", amount=6, idempotency_key="2")
    made.append(services.spend(holder_id="bob", amount=2, idempotency_key="3"))
    order = [(entry.holder_id, entry.credit_type, entry.sequence) for entry in made]
    return [*order[:4], ("bob", "credits", 2), order[4]]


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7])
def test_pages_of_any_size_have_every_entry_once_in_the_order_of_recording(limit):
    expected = history()
    assert all_pages(limit) == expected
    assert all_pages(limit, EntryFilter()) == [each for each in expected if each != ("bob", "credits", 2)]


def test_a_refusal_has_its_request_and_facts_and_a_movement_has_none():
    history()
    refusals = [each.refusal for each in feed().entries]
    assert [refusal["code"] for refusal in refusals if refusal] == ["insufficient-credits"]
    assert refusals.count(None) == 5
    assert refusals[4]["request"]["amount"] == 6


def test_entries_of_one_instant_are_in_the_order_of_their_ids_and_no_page_ends_between_them_with_a_gap():
    with FixedClock(NOON):
        for holder in ("b", "B", "a.1", "a", "a:2"):
            for key in "xyz":
                services.grant(holder_id=holder, amount=1, idempotency_key=key)
            services.grant(holder_id=holder, amount=1, credit_type="sms", idempotency_key="s")
        reset_server_clock()
        expected = sorted(all_pages(100))
        assert len(expected) == 20
        assert [all_pages(limit) for limit in (1, 3, 7, 20)] == [expected] * 4


def test_an_instant_is_a_position_before_what_was_recorded_then():
    with FixedClock(NOON) as clock:
        GrantFactory(holder_id="early")
        clock.advance(microseconds=1)
        GrantFactory(holder_id="late")
    assert ids(feed(FeedPosition.at(NOON))) == [("early", "credits", 1), ("late", "credits", 1)]
    assert ids(feed(FeedPosition.at(NOON + timedelta(microseconds=1)))) == [("late", "credits", 1)]
    assert ids(feed(FeedPosition.at(NOON + timedelta(microseconds=2)))) == []


def test_the_end_of_the_feed_is_behind_what_is_there_and_before_what_comes():
    GrantFactory()
    end = reads.feed_end()
    assert feed(end).entries == []
    GrantFactory(holder_id="later")
    assert ids(feed(end)) == [("later", "credits", 1)]


def test_an_empty_page_keeps_the_position_and_says_how_far_the_feed_is_complete():
    GrantFactory()
    first = feed()
    empty = feed(first.next)
    assert (empty.entries, empty.next) == ([], first.next)
    assert empty.until_us >= first.entries[-1].entry.recorded_us


def test_an_entry_that_is_recorded_ahead_of_the_clock_comes_when_the_clock_has_passed_it():
    """The clock was set back: an account's times go on from its last entry."""
    ahead = datetime.now(UTC) + timedelta(hours=1)
    with FixedClock(ahead):
        services.grant(holder_id="ada", amount=5, idempotency_key="1")
    services.spend(holder_id="ada", amount=1, idempotency_key="2")
    assert feed().entries == []
    set_server_clock(f"timestamptz '{(ahead + timedelta(microseconds=1)).isoformat()}'")
    assert ids(feed()) == [("ada", "credits", 1), ("ada", "credits", 2)]


# A clock that was set back --------------------------------------------------------------------------


def test_after_the_clock_was_set_back_a_reader_gets_what_came_behind_it_and_ends():
    with FixedClock(NOON) as clock:
        GrantFactory(holder_id="before")
        clock.advance(seconds=30)
        ahead = GrantFactory(holder_id="ahead")
        clock.advance(microseconds=1)
        position = feed().next
        clock.move_to(NOON + timedelta(seconds=10))
        GrantFactory(holder_id="behind")
        clock.advance(seconds=1)
        page = feed(position)
        assert ids(page) == [("before", "credits", 1), ("behind", "credits", 1)]
        assert feed(page.next).entries == []
        clock.advance(seconds=60)
        last = feed(page.next)
        assert ids(last) == [(ahead.holder_id, "credits", 1)]
        assert feed(last.next).entries == []


def test_without_that_rule_it_would_be_skipped(monkeypatch):
    """The control."""
    monkeypatch.setattr("ledger.reads.entry_feed.REPEATED_US", 0)
    with FixedClock(NOON) as clock:
        clock.advance(seconds=30)
        GrantFactory(holder_id="ahead")
        clock.advance(microseconds=1)
        position = feed().next
        clock.move_to(NOON + timedelta(seconds=10))
        GrantFactory(holder_id="behind")
        clock.advance(seconds=1)
        page = feed(position)
        assert page.entries == []
        clock.advance(seconds=60)
        assert ids(feed(page.next)) == [("ahead", "credits", 1)]


# Positions -------------------------------------------------------------------------------------------


def test_a_position_is_kept_as_text():
    GrantFactory(holder_id="ada")
    position = feed().next
    assert FeedPosition.read(position.text) == position
    assert (position.sequence, len(position.digest)) == (1, POSITION_DIGEST_BYTES)
    assert FeedPosition.read(reads.START.text) == reads.START


positions = st.one_of(
    st.integers(0, LATEST_US).map(FeedPosition),
    st.tuples(
        st.integers(0, LATEST_US),
        st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}", fullmatch=True),
        st.from_regex(r"[a-z0-9_]{1,32}", fullmatch=True),
        st.integers(1, 2**63 - 1),
        st.binary(min_size=POSITION_DIGEST_BYTES, max_size=POSITION_DIGEST_BYTES),
    ).map(FeedPosition._make),
)


@given(positions)
def test_every_position_comes_back_from_its_text_which_fits_into_a_url(position):
    assert FeedPosition.read(position.text) == position
    assert len(position.text) <= 240
    assert re.fullmatch(r"[A-Za-z0-9_-]+", position.text)


@given(st.one_of(st.text(max_size=60), positions.map(lambda position: position.text[1:]), st.binary().map(bytes.hex)))
def test_no_other_text_is_a_position(text):
    with pytest.raises(ValueError, match=NOT_A_POSITION):
        FeedPosition.read(text)


@pytest.mark.parametrize(
    "position",
    [
        FeedPosition(-1),
        FeedPosition(LATEST_US + 1),
        FeedPosition(0, "ada"),
        FeedPosition(0, "", "", 0, b"12345678"),
        FeedPosition(0, "ada", "credits", 1, b"1234567"),
        FeedPosition(0, "ada\x00", "credits", 1, b"12345678"),
        FeedPosition(0, "ada", "Credits", 1, b"12345678"),
        FeedPosition(0, "ada", "credits", 2**63, b"12345678"),
        FeedPosition(True),
    ],
)
def test_what_no_place_can_be_is_refused(position):
    with pytest.raises(ValueError, match=NOT_A_POSITION):
        FeedPosition.read(position.text)


def test_a_position_behind_an_entry_that_the_ledger_does_not_have_is_lost():
    """As after a restore from a backup: the entry is gone, or another one has its number."""
    entry = SpendFactory(holder_id=GrantFactory().holder_id)
    position = feed().next
    assert position.sequence == entry.sequence
    for lost in (position._replace(sequence=3), position._replace(digest=b"other..."), position._replace(credit_type="sms")):
        with pytest.raises(FeedPositionLost) as raised:
            feed(lost)
        assert raised.value.facts["sequence"] == lost.sequence
        assert raised.value.facts["holder_id"] == entry.holder_id


def test_a_standby_has_no_feed(monkeypatch):
    """It sees no locks of the primary."""
    set_server_clock("pg_catalog.{clock}()")
    with connection.cursor() as cursor:
        cursor.execute("CREATE FUNCTION ledger_test_clock.pg_is_in_recovery() RETURNS boolean LANGUAGE sql RETURN true")
    with pytest.raises(FeedUnavailable) as raised:
        feed()
    assert raised.value.facts == {"reason": "standby"}

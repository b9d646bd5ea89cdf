"""What sold credits cost by month: it ties from opening to closing, a closed month never changes, and late rows say so."""

from datetime import UTC, datetime, timedelta

import pytest

from ledger.errors import Invalid
from ledger.months import month_after, starts
from ledger.rules.kinds import COST_LINES
from ledger.totals.closing import TotalsDisagree, _ensure_costs_tie, close_months
from ledger.totals.costs import CLOSING, OPENING, CostKey, CostRow, costs_at, costs_by_holder, month_costs, untied
from ledger.totals.counting import count_entries
from tests.ledger.totals.test_totals import NOW, ONE, THREE, TWO, TYPE, at_noon_of, use_case

__all__ = ["at_noon_of"]

NEVER = CostKey(TYPE, "EUR", "")
EXPIRING = CostKey(TYPE, "JPY", f"{TWO:%Y-%m}")
pytestmark = pytest.mark.django_db


def write_history(at_noon_of):
    """A sale of 1,000 for 50.00 EUR, used, refunded and held; and one in JPY that expires in the second month."""
    at_noon_of(THREE, 2)
    use_case("grant", "ada", "a1", amount=1_000, paid_minor=5_000, currency="EUR")
    use_case("grant", "ada", "a2", amount=10, paid_minor=700, currency="JPY", expires_at=starts(TWO) + timedelta(days=9))
    spend = use_case("spend", "ada", "a3", amount=410)
    use_case("refund", "ada", "a4", spend=spend.sequence, amount=50)
    at_noon_of(TWO, 3)
    use_case("hold", "ada", "a5", amount=100, expires_at=starts(TWO) + timedelta(days=20))
    use_case("grant", "bob", "b1", amount=10, paid_minor=100, currency="JPY", expires_at=starts(TWO) + timedelta(days=9))
    use_case("transfer", "ada", "a6", to="bob", amount=40)
    at_noon_of(TWO, 25)
    use_case("revoke", "ada", "a7", grant=1, amount=100)
    use_case("spend", "bob", "b2", amount=1)


def lines(month, key):
    return {("late " if row.is_late else "") + row.line: row.minor for row in month_costs(month).rows if row.key == key}


def test_a_month_ties_from_opening_to_closing_and_closed_months_give_the_same(at_noon_of):
    write_history(at_noon_of)
    count_entries()
    live = [month_costs(month) for month in (THREE, TWO, ONE)]
    assert lines(THREE, NEVER) == {"sold": 5_000, "recognised": -2_000, "refunded": 250, CLOSING: 3_250}
    assert lines(THREE, EXPIRING) == {"sold": 700, "recognised": -700}
    assert lines(TWO, NEVER) == {
        OPENING: 3_250, "revoked": -500, "recognised": -5, "transferred_in": 200, "transferred_out": -200, CLOSING: 2_745,
    }  # fmt: skip
    assert lines(TWO, EXPIRING) == {"sold": 100, "breakage": -100}
    assert all(month.as_of is not None and untied(month.rows) == {} for month in live)
    assert close_months()[-1] == ONE
    closed = [month_costs(month) for month in (THREE, TWO, ONE)]
    assert [month.rows for month in closed] == [month.rows for month in live]
    assert [month.is_closed for month in closed] == [True] * 3
    assert {row.line for month in closed for row in month.rows} <= {OPENING, CLOSING, *COST_LINES}


def test_an_instant_has_what_was_recorded_before_it(at_noon_of):
    write_history(at_noon_of)
    assert costs_at(starts(THREE)) == {}
    assert costs_at(starts(TWO)) == {NEVER: 3_250}
    assert costs_at(starts(TWO) + timedelta(days=3)) == {NEVER: 3_250, EXPIRING: 100}
    assert costs_at(NOW) == {NEVER: 2_745}


def test_credits_that_are_all_held_expire_with_their_lot(new_holder):
    holder, expires_at = new_holder(), NOW + timedelta(days=400)
    use_case("grant", holder, "g", amount=10, paid_minor=700, currency="USD", expires_at=expires_at)
    use_case("hold", holder, "h", amount=10)
    key = CostKey(TYPE, "USD", f"{expires_at:%Y-%m}")
    at = datetime.now(UTC) + timedelta(seconds=1)
    assert costs_at(at)[key] == 700
    assert costs_by_holder(at, key) == {holder: 700}
    assert costs_by_holder(at, key._replace(expires="")) == {}


def test_what_comes_late_is_in_the_open_month_on_rows_that_say_so(at_noon_of):
    write_history(at_noon_of)
    count_entries()
    close_months()
    before = [month_costs(month) for month in (THREE, TWO)]
    at_noon_of(TWO, 26)
    use_case("grant", "late", "l1", amount=9, paid_minor=900, currency="EUR")
    use_case("spend", "late", "l2", amount=2)
    count_entries()
    assert [month_costs(month) for month in (THREE, TWO)] == before
    this_month = NOW.date().replace(day=1)
    assert lines(this_month, NEVER) == {OPENING: 2_745, "late sold": 900, "late recognised": -200, CLOSING: 3_445}
    assert untied(month_costs(this_month).rows) == {}


def test_a_month_that_does_not_tie_is_not_closed():
    with pytest.raises(TotalsDisagree, match="1 EUR"):
        _ensure_costs_tie(TWO, [CostRow(NEVER, OPENING, 11), CostRow(NEVER, CLOSING, 10)])


def test_a_month_that_has_not_begun_is_refused():
    count_entries()
    with pytest.raises(Invalid) as refused:
        month_costs(month_after(month_after(NOW.date().replace(day=1))))
    assert refused.value.rule == "in-the-future"

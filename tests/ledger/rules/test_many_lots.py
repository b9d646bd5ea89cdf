"""Many lots keep their stored form: what comes of them is the same as without one, and a spend handles only what it changes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import services
from ledger.rules import lots as lot_rules
from ledger.rules.lots import (
    MAX_OPEN_LOTS,
    PROMOTIONAL,
    PURCHASED,
    Lot,
    StoredLots,
    available,
    decode,
    encode,
    in_burn_order,
    take,
)
from ledger.rules.purposes import Purpose

NOW_US = 1_767_225_600_000_000
INSTANTS = st.integers(NOW_US - 10, NOW_US + 10) | st.sampled_from([NOW_US - 86_400_000_000, NOW_US + 86_400_000_000])
TERMS = st.tuples(
    st.integers(1_000_000, 3_000_000),
    st.just(0) | INSTANTS,
    st.none() | INSTANTS,
    st.sampled_from([50, 100]),
    st.sampled_from([PURCHASED, PROMOTIONAL]),
    st.booleans(),
)


@st.composite
def many_lots(draw):
    return in_burn_order([Lot(grant, *terms) for grant, terms in enumerate(draw(st.lists(TERMS, min_size=20, max_size=24)), 1)])


@settings(max_examples=settings().max_examples // 2)
@given(lots=many_lots(), amounts=st.lists(st.integers(0, 9_000_000), min_size=1, max_size=4))
def test_what_is_taken_from_stored_lots_is_what_is_taken_from_others(lots, amounts):
    stored = decode(encode(lots))
    assert isinstance(stored, StoredLots)
    for amount in amounts:
        lots, drawn = take(tuple(lots), amount, NOW_US)
        stored, drawn_from_stored = take(stored, amount, NOW_US)
        assert (stored, drawn_from_stored) == (lots, drawn)
        assert encode(stored) == encode(tuple(stored))
        assert decode(encode(stored)) == lots
        assert available(stored, NOW_US) == sum(lot.remaining for lot in lots if lot.is_spendable(NOW_US))


def test_many_lots_in_the_earlier_form_are_written_in_the_shorter_one():
    for earlier, instant in [(f"{NOW_US}", "1767225600e6"), (f"{NOW_US + 1}", f"{NOW_US + 1}")]:
        for first in (earlier, instant):
            for rest in (earlier, instant):
                text = "[" + ",".join([f"[1,1000000,0,{first}]"] + [f"[{grant},5,{rest},{rest}]" for grant in range(2, 30)]) + "]"
                assert encode(decode(text)) == text.replace(earlier, instant)
                assert encode(take(decode(text), 1, 0)[0]) == text.replace(earlier, instant).replace("1000000", "999999")


def test_lots_with_texts_in_them_have_no_stored_form():
    lots = (*[Lot(grant, 5, 0) for grant in range(1, 30)], Lot(30, 5, 0, applies_to=Purpose(rates=("],[",))))
    assert decode(encode(lots)) == lots
    assert not isinstance(decode(encode(lots)), StoredLots)


def test_a_spend_decodes_and_encodes_only_what_it_changes_of_many_lots(monkeypatch):
    lots = tuple(Lot(grant, 1_000, 0) for grant in range(1, MAX_OPEN_LOTS))
    form = encode(take(decode(encode(lots)), 1, NOW_US)[0])
    touched = []
    for name in ("_decode_lot", "_encode_lot"):
        function = getattr(lot_rules, name)
        monkeypatch.setattr(lot_rules, name, lambda lot, function=function: touched.append(lot) or function(lot))
    left, _ = take(decode(form), 1, NOW_US)
    assert encode(left) == encode(left) == f"[[1,998,0],{form.partition('],')[2]}"
    assert [lot[0] for lot in touched] == [1, 1]


@pytest.mark.django_db
def test_the_server_takes_each_spend_from_many_lots():
    holder = "many-lots"
    for number in range(40):
        services.grant(holder_id=holder, amount=10, idempotency_key=f"grant-{number}")
    for number in range(9):
        entry = services.spend(holder_id=holder, amount=7, idempotency_key=f"spend-{number}")
    assert entry.lots[:2] == (Lot(7, 7, 0), Lot(8, 10, 0))
    assert entry.balance == 337

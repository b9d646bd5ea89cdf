"""The digest: golden values, and the same bytes from Python and from the server whatever is in the texts."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.entry_rows import COLUMNS
from ledger.rules.budget_states import Budget, BudgetCount, BudgetScope
from ledger.rules.claims import LotClaim
from ledger.rules.cost_shares import CostChange, LotCost
from ledger.rules.entries import GENESIS, Entry
from ledger.rules.holds import Hold
from ledger.rules.lots import LOT_SOURCES, SINCE_ITS_GRANT, Lot, decode, encode
from ledger.rules.overage import Overage
from ledger.rules.purposes import Purpose
from tests.benchmarks.histories import row

# docs/explanation/ledger.md shows how this is computed again with psql and with python.
GOLDEN = Entry(
    holder_id="cust-004711",
    credit_type="credits",
    sequence=1,
    kind="grant",
    amount=100,
    balance=100,
    held=0,
    lots=(Lot(1, 100, SINCE_ITS_GRANT, 1769904000000000, 100, "promotional"),),
    drawn=(),
    holds=(),
    overdraft=None,
    refers_to=None,
    refunded_total=None,
    idempotency_key="welcome-004711",
    request_digest=bytes.fromhex("0001020304050607"),
    effective_us=1767225600000000,
    recorded_us=1767225600123456,
    actor="key:backend",
    reason='welcome "credits" \u2713',
    reference="signup/4711",
    metadata={"campaign": "new-year"},
    counterpart=None,
    rating=None,
    refusal=None,
)
GOLDEN_FORM = (
    '["cust-004711", "credits", 1, "grant", 100, 100, 0, [[1,100,0,1769904000e6,100,1]], [], null, '
    'null, null, null, "welcome-004711", "0001020304050607", 1767225600000000, 1767225600123456, "key:backend", '
    '"welcome \\"credits\\" \u2713", "signup/4711", {"campaign":"new-year"}, null, null, null]'
)
GOLDEN_DIGEST = "fee6d02825e4fafd9849e7f6e66385784f74ba9416045c5db4578224dee015a1"

NASTY = st.one_of(
    st.sampled_from(
        ['"', "\\", "\\\\u0041", "\b\f\n\r\t", "\x01\x1f", "\x7f", "\x80\x9f", "\u2028\u2029", "\ufeff", "\U0001f600",
         "\U0010ffff", "שלום", "\u202e\u202d", "e\u0301", "é", "/", "</script>", "%s", "'", "''", "\ufffe\uffff", ""]
    ),
    st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)), max_size=30),
)  # fmt: skip
BIGINTS = st.integers(-(2**63) + 1, 2**63 - 1)
AMOUNTS = st.integers(1, 2**53 - 1)
INSTANTS = st.integers(-62_135_596_800_000_000 + 10**15, 250_000_000_000_000_000)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | NASTY,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(NASTY, values, max_size=3),
    max_leaves=8,
)
PURPOSES = (
    Purpose(rates=("a", "b")),
    Purpose(labels=(("member", ("\\", "é")),)),
    Purpose(rates=("model-1",), labels=(("member", ("ada",)),)),
)
LOTS = st.lists(
    st.builds(
        Lot,
        AMOUNTS,
        AMOUNTS,
        INSTANTS,
        st.none() | INSTANTS,
        st.integers(0, 32_767),
        st.sampled_from(LOT_SOURCES),
        st.booleans(),
        st.none() | st.sampled_from(PURPOSES),
    ),
    max_size=4,
).map(tuple)
SCOPES = st.lists(st.builds(BudgetScope, NASTY, st.none() | NASTY, st.none() | NASTY), min_size=1, max_size=2).map(tuple)
COUNTS = st.lists(st.builds(BudgetCount, AMOUNTS, NASTY, INSTANTS, INSTANTS, AMOUNTS, AMOUNTS), max_size=2).map(tuple)
SETTINGS = st.builds(
    Budget,
    NASTY,
    AMOUNTS,
    st.sampled_from(("day", "rolling")),
    st.none() | st.integers(1, 744),
    NASTY,
    NASTY,
    st.none() | NASTY,
    st.none() | NASTY,
    st.booleans(),
    AMOUNTS,
    st.none() | NASTY.filter(bool),
    SCOPES,
    st.none() | INSTANTS,
    st.none() | INSTANTS,
    st.just(()),
).map(lambda budget: budget if budget.parent else budget._replace(within=()))  # no levels without a parent
# Others of the same name come after one that ends.
BUDGETS = st.lists(
    st.builds(
        lambda budget, later: budget if budget.ends_us is None else budget._replace(later=tuple(later)),
        SETTINGS,
        st.lists(SETTINGS, max_size=2),
    ),
    max_size=2,
).map(tuple)
ENTRIES = st.builds(
    Entry,
    holder_id=NASTY,
    credit_type=NASTY,
    sequence=AMOUNTS,
    kind=NASTY,
    amount=BIGINTS,
    balance=BIGINTS,
    held=BIGINTS,
    lots=LOTS,
    drawn=st.lists(st.tuples(AMOUNTS, AMOUNTS), max_size=4).map(tuple),
    holds=st.lists(st.builds(Hold, AMOUNTS, INSTANTS, LOTS), max_size=2).map(tuple),
    overdraft=st.none() | BIGINTS,
    refers_to=st.none() | BIGINTS,
    refunded_total=st.none() | BIGINTS,
    idempotency_key=st.none() | NASTY,
    request_digest=st.none() | st.binary(max_size=40),
    effective_us=INSTANTS,
    recorded_us=INSTANTS,
    actor=NASTY,
    reason=NASTY,
    reference=NASTY,
    metadata=st.dictionaries(NASTY, JSON, max_size=4),
    counterpart=st.none() | st.dictionaries(NASTY, JSON, min_size=1, max_size=2),
    rating=st.none() | st.dictionaries(NASTY, JSON, min_size=1, max_size=2),
    refusal=st.none() | st.dictionaries(NASTY, JSON, min_size=1, max_size=2),
    requested=st.none() | BIGINTS,
    budgets=BUDGETS,
    counts=COUNTS,
    sale=st.none() | st.dictionaries(NASTY, JSON, min_size=1, max_size=2),
    costs=st.lists(st.builds(LotCost, AMOUNTS, AMOUNTS, st.just("EUR"), AMOUNTS, AMOUNTS, st.integers(0, 999_999))).map(tuple),
    cost_changes=st.lists(st.builds(CostChange, AMOUNTS, BIGINTS, st.just("JPY"))).map(tuple),
    overage=st.none()
    | st.builds(
        Overage,
        st.none() | AMOUNTS,
        AMOUNTS,
        AMOUNTS,
        INSTANTS,
        AMOUNTS,
        st.sampled_from(("month", "quarter")),
        AMOUNTS,
        INSTANTS,
        NASTY,
        st.none() | INSTANTS,
        NASTY,
    ),
    postpaid=st.none() | AMOUNTS,
    claims=st.lists(st.builds(LotClaim, AMOUNTS, AMOUNTS, st.lists(AMOUNTS, min_size=1, max_size=3).map(tuple))).map(tuple),
    next_grant_us=st.none() | INSTANTS,
    digest=st.just(b""),
)
DIGESTS = st.binary(min_size=32, max_size=32)


COLUMN_TYPES = """
SELECT attname, format_type(atttypid, NULL)
FROM pg_attribute
WHERE attrelid = 'ledger_entry'::regclass AND attnum > 0 AND NOT attisdropped
ORDER BY attnum
"""


def digest_in_server(entry: Entry, previous_digest: bytes = GENESIS) -> bytes:
    """What the server makes of the row that would be stored; stores nothing, so that no constraint is in the way."""
    names = [name.strip() for name in COLUMNS.split(",")]
    with connection.cursor() as cursor:
        cursor.execute(COLUMN_TYPES)
        types = cursor.fetchall()
        values = dict(zip(names, row(entry), strict=True))
        fields = ", ".join(f"%s::{kind}" for _, kind in types)
        cursor.execute(
            f"SELECT ledger_entry_digest(%s, ROW({fields})::ledger_entry)",
            [previous_digest, *(values[name] for name, _ in types)],
        )
        (digest,) = cursor.fetchone()
        return bytes(digest)


def test_the_golden_entry_has_its_canonical_form_and_digest():
    assert GOLDEN.canonical_form() == GOLDEN_FORM
    assert hashlib.sha256(bytes(32) + GOLDEN_FORM.encode()).hexdigest() == GOLDEN_DIGEST
    assert GOLDEN.computed_digest(GENESIS).hex() == GOLDEN_DIGEST
    json.loads(GOLDEN_FORM)


@pytest.mark.django_db
def test_the_server_gives_the_golden_digest_too():
    assert digest_in_server(GOLDEN).hex() == GOLDEN_DIGEST


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.django_db
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(entry=ENTRIES, previous_digest=DIGESTS)
def test_python_and_the_server_agree_on_every_digest(entry, previous_digest):
    assert digest_in_server(entry, previous_digest) == entry.computed_digest(previous_digest)


@pytest.mark.slow
@pytest.mark.check
@given(first=ENTRIES, second=ENTRIES)
def test_two_entries_have_one_form_only_when_they_are_the_same(first, second):
    assert (first.canonical_form() == second.canonical_form()) == (first._replace(replayed=second.replayed) == second)


EARLIER_FORMS = {
    "[[1,100,1767225600000000,1769904000000000,100,1]]": "[[1,100,1767225600e6,1769904000e6,100,1]]",
    "[[1,100,1767225600123456]]": "[[1,100,1767225600123456]]",
    "[[1,100,0]]": "[[1,100,0]]",
    "[[7,1,0,253402300799e6]]": "[[7,1,0,253402300799e6]]",
    "[[7,1,0,253402300799999999,7]]": "[[7,1,0,253402300799999999,7]]",
    "[[7,1,-5000000]]": "[[7,1,-5e6]]",
}
"""Lots as they are or were stored: as they are written from here on."""


@pytest.mark.parametrize("stored", EARLIER_FORMS)
def test_lots_are_read_in_the_earlier_form_too_and_written_in_the_shorter_one(stored):
    lots = decode(stored)
    assert encode(lots) == EARLIER_FORMS[stored]
    assert decode(encode(lots)) == lots
    assert decode(json.dumps(json.loads(stored))) == lots
    assert all(type(lot.effective_us) is int and isinstance(lot.expires_us, int | None) for lot in lots)


def test_every_stored_fact_is_in_the_digest():
    others = {
        "holder_id": "x", "credit_type": "x", "sequence": 2, "kind": "spend", "amount": 1, "balance": 1, "held": 1, "lots": (),
        "drawn": ((1, 1),), "holds": (Hold(1, 1, (Lot(1, 1, 1),)),), "overdraft": 0, "refers_to": 1, "refunded_total": 1,
        "idempotency_key": None, "request_digest": None, "effective_us": 1, "recorded_us": 1, "actor": "x", "reason": "x",
        "reference": "x", "metadata": {}, "counterpart": {"holder_id": "x"}, "rating": {"rate": "x"},
        "refusal": {"code": "x"}, "requested": 1,
        "budgets": (Budget("b", 1, "day"),), "sale": {"currency": "EUR"}, "costs": (LotCost(1, 1, "EUR", 1, 1),),
        "cost_changes": (CostChange(1, 1, "EUR"),),
        "overage": Overage(None, 0, 1, 1, 1, "month", 1, 0, "UTC", None, ""), "postpaid": 1, "claims": (LotClaim(1, 1, (1,)),),
        "counts": (BudgetCount(1, "", 1, 1, 1, 1),), "next_grant_us": 1,
    }  # fmt: skip
    assert others.keys() == set(Entry._fields) - {"digest", "replayed"}
    assert set(re.sub(r"(effective|recorded|next_grant)_at", r"\1_us", COLUMNS).split(", ")) == {
        *others, "digest",
    }  # fmt: skip
    for name, value in others.items():
        assert GOLDEN._replace(**{name: value}).computed_digest(GENESIS).hex() != GOLDEN_DIGEST, name
    another_digest_before = bytes(31) + b"\x01"
    assert GOLDEN.computed_digest(another_digest_before).hex() != GOLDEN_DIGEST


GOLDEN_SALE = GOLDEN._replace(
    lots=(Lot(1, 100, SINCE_ITS_GRANT, 1769904000000000),),
    sale={"currency": "EUR", "document": "INV-7", "paid_minor": 2500},
    costs=(LotCost(1, 2500, "EUR", 2500, 100),),
    cost_changes=(CostChange(1, 2500, "EUR"),),
)
GOLDEN_SALE_TAIL = (
    ', null, null, null]{"currency":"EUR","document":"INV-7","paid_minor":2500}[[1,2500,"EUR",2500,100]][[1,2500,"EUR"]]'
)
GOLDEN_SALE_DIGEST = "74139ccfd2912882aff5d505fd2b4208176e8ee8bcf66ec7d1b01db17a569fed"


def test_the_golden_sale_has_its_canonical_form_and_digest():
    head = GOLDEN_FORM.removesuffix(", null, null, null]").replace("769904000e6,100,1]", "769904000e6]")
    assert GOLDEN_SALE.canonical_form() == head + GOLDEN_SALE_TAIL
    assert GOLDEN_SALE.computed_digest(GENESIS).hex() == GOLDEN_SALE_DIGEST


@pytest.mark.django_db
def test_the_server_gives_the_golden_digest_of_the_sale_too():
    assert digest_in_server(GOLDEN_SALE).hex() == GOLDEN_SALE_DIGEST


def test_the_documents_example_is_the_golden_one():
    text = (Path(__file__).parents[2] / "docs" / "explanation" / "ledger.md").read_text()
    assert f"\n{GOLDEN_FORM}\n" in text
    assert f"\n{GOLDEN_DIGEST}\n" in text
    assert f"\n…{GOLDEN_SALE_TAIL}\n" in text
    assert f"\n{GOLDEN_SALE_DIGEST}\n" in text

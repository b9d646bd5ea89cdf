"""The audit finds what breaks a law, names the law, and finds nothing where none is broken.

Whoever can tamper is a superuser who switches the triggers off; so is the test, in a transaction that is rolled back.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from psycopg import Connection

from ledger import rules
from ledger.audit import LAWS, audit
from ledger.errors import InsufficientCredits
from ledger.rules import Account, Entry, Hold, Lot
from ledger.rules.entries import GENESIS
from ledger.rules.instants import from_us
from ledger.rules.lots import SINCE_ITS_GRANT
from tests.benchmarks.histories import store
from tests.ledger.credit_model import DAY_US
from tests.ledger.walks import HOUR_US, START_US, RulesLedger, Walk


@pytest.fixture
def empty_ledger(raw_connection: Callable[..., Connection]) -> Iterator[Connection]:
    """A superuser's session on an empty ledger without triggers; rolled back at the end."""
    session = raw_connection("superuser")
    session.execute("ALTER TABLE ledger_entry DISABLE TRIGGER ALL")
    session.execute("TRUNCATE ledger_entry")
    yield session
    session.rollback()


def laws_broken(session: Connection, **options) -> dict[str, set[int | None]]:
    """The numbers at which each broken law was found."""
    found: dict[str, set[int | None]] = {}
    for finding in audit([session], **options).findings:
        found.setdefault(finding.law, set()).add(finding.sequence)
    return found


def sealed_anew(entries: Sequence[Entry]) -> list[Entry]:
    """The same entries as one chain with digests that fit."""
    chain: list[Entry] = []
    for entry in entries:
        chain.append(entry.sealed(chain[-1].digest if chain else GENESIS))
    return chain


# What is in order ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["new-lot", "gone"])
def test_histories_of_every_kind_of_entry_break_no_law(empty_ledger, policy):
    walk = Walk(RulesLedger(policy), ("ada", "bob", "cy", "dee"), opens_new_lots=policy == "new-lot")
    chance = random.Random(policy)
    for _ in range(1_500):
        walk.step(chance)
    store(empty_ledger, walk.ledger.in_order)
    report = audit([empty_ledger], slice_entries=100)
    assert report.findings == []
    refusals = sum(entry.kind == "refusal" for entry in walk.ledger.in_order)
    assert refusals > 100
    assert (report.holders, report.entries, report.refusals) == (4, len(walk.ledger.in_order), refusals)
    identity = report.identities["credits"]
    flows = [model.flows for model in walk.models.values()]
    for name in ("granted", "spent", "refunded", "expired", "revoked"):
        assert getattr(identity, name) == sum(flow[name] for flow in flows)
    assert identity.transferred_in == identity.transferred_out == sum(flow["arrived"] for flow in flows)
    assert identity.balance == sum(model.balance for model in walk.models.values())
    assert identity.held == sum(model.held for model in walk.models.values())


def test_an_empty_ledger_breaks_no_law(empty_ledger):
    report = audit([empty_ledger])
    assert (report.is_clean, report.holders, report.accounts, report.entries) == (True, 0, 0, 0)


# One history that has all of it ----------------------------------------------------------------------


def ask(ledger: RulesLedger, kind: type[rules.Request], key: str, **what) -> Entry:
    what.setdefault("holder_id", "ada")
    return next(e for e in ledger.answer(kind(idempotency_key=key, **what)) if e.idempotency_key == key)


@pytest.fixture(scope="module")
def history() -> RulesLedger:
    """Ada's entries as ADA_KINDS says: 3 spends from both lots, 7 captures a part, 13 leaves for bob, 17 repays the overdraft."""
    ledger = RulesLedger()
    ask(ledger, rules.GrantRequest, "1", amount=100)
    expires_at = from_us(START_US + 10 * DAY_US)
    ask(ledger, rules.GrantRequest, "2", amount=50, source="promotional", expires_at=expires_at, priority=50)
    ledger.now_us += HOUR_US
    ask(ledger, rules.SpendRequest, "3", amount=60)
    ask(ledger, rules.RefundRequest, "4", spend=3, amount=15)
    ask(ledger, rules.HoldRequest, "5", amount=20, expires_at=from_us(START_US + 20 * DAY_US))
    ask(ledger, rules.HoldRequest, "6", amount=5, expires_at=from_us(START_US + 20 * DAY_US))
    ask(ledger, rules.CaptureRequest, "7", hold=5, amount=8, final=False)
    ask(ledger, rules.ReleaseRequest, "8", hold=6)
    ask(ledger, rules.GrantRequest, "9", amount=7, expires_at=from_us(START_US + 2 * DAY_US))
    ask(ledger, rules.RevokeRequest, "10", grant=1, amount=10)
    ledger.now_us += 3 * DAY_US
    ask(ledger, rules.SpendRequest, "12", amount=5)
    ask(ledger, rules.TransferRequest, "13", to="bob", amount=10)
    ask(ledger, rules.OverdraftRequest, "14", limit=40)
    ask(ledger, rules.SpendRequest, "15", amount=80)
    ask(ledger, rules.GrantRequest, "16", amount=50)
    return ledger


ADA_KINDS = [
    "grant", "grant", "spend", "refund", "hold", "hold", "capture", "release", "grant",
    "revoke", "expire", "spend", "transfer_out", "adjust", "spend", "grant", "adjust",
]  # fmt: skip


def test_the_history_to_tamper_with_has_all_kinds_and_is_clean(empty_ledger, history):
    assert [entry.kind for entry in history.entries["ada"]] == ADA_KINDS
    store(empty_ledger, history.in_order)
    assert laws_broken(empty_ledger) == {}
    assert laws_broken(empty_ledger, holder_id="ada") == {}
    assert audit([empty_ledger], holder_id="ada").entries == 17
    assert audit([empty_ledger], holder_id="nobody").entries == 0


# One tampering per law, with all digests of the chain made anew: what the digests cannot tell -----------


def changed(number: int, **values) -> Callable[[list[Entry]], list[Entry]]:
    """A tampering: entry `number` says something else."""
    return lambda entries: [entry._replace(**values) if entry.sequence == number else entry for entry in entries]


LOT_1 = Lot(1, 100, SINCE_ITS_GRANT)
LOT_2 = Lot(2, 50, SINCE_ITS_GRANT, START_US + 10 * DAY_US, 50, "promotional")
EARLIER = START_US - DAY_US
LATER = START_US + 200 * 365 * DAY_US

HELD_ELSEWHERE = (Hold(5, START_US + 20 * DAY_US, (LOT_2._replace(remaining=20),)),)

TAMPERINGS = {
    "a spend of another amount": (
        changed(12, amount=-4),
        {"balance": {12}, "drawn": {12}, "burn-order": {12}, "identity": {None}},
    ),
    "a balance that is not the sum": (changed(9, balance=999), {"balance": {9, 10}, "lots-sum": {9}}),
    "a clock that went back": (changed(5, recorded_us=EARLIER, effective_us=EARLIER), {"time": {5}}),
    "a time beyond the clock": (changed(17, recorded_us=LATER, effective_us=LATER), {"future": {17}}),
    "an effective time that is another": (changed(3, effective_us=EARLIER), {"time": {3}}),
    "an expiry before its instant": (changed(11, effective_us=START_US + DAY_US), {"time": {11}}),
    "a lot that was never granted": (
        changed(2, lots=(LOT_2, LOT_1._replace(remaining=99), Lot(77, 1, START_US))),
        {"lots": {2, 3}, "terms": {2}},
    ),
    "a lot that could not be spent from the first": (
        changed(2, lots=(LOT_2._replace(effective_us=START_US + 1), LOT_1)),
        {"terms": {2, 4}},
    ),
    "a lot to come that bears no effective time": (changed(9, effective_us=START_US + DAY_US), {"terms": {9}}),
    "a lot with a later expiry": (
        changed(3, lots=(LOT_1._replace(remaining=90, expires_us=START_US + 30 * DAY_US),)),
        {"terms": {3, 4}},
    ),
    "lots out of burn order": (changed(2, lots=(LOT_1, LOT_2)), {"lots-order": {2}, "burn-order": {3}}),
    "a lot listed twice": (changed(3, lots=(LOT_1._replace(remaining=45),) * 2), {"lots": {3}}),
    "a spend from the wrong lot": (
        changed(3, drawn=((1, 60),), lots=(LOT_2, LOT_1._replace(remaining=40))),
        {"burn-order": {3}, "lots": {4}, "refunds": {4}},
    ),
    "drawn parts that are too few": (
        changed(3, drawn=((2, 50),)),
        {"drawn": {3}, "burn-order": {3}, "lots": {3}, "refunds": {4}},
    ),
    "a refund to the wrong lot": (
        changed(4, drawn=((1, 15),), lots=(LOT_1._replace(remaining=105),)),
        {"refunds": {4}, "lots": {5}, "holds": {5}, "burn-order": {5}},
    ),
    "a refund of another entry": (changed(4, refers_to=2), {"refers-to": {4}}),
    "a refund of nothing": (changed(4, refers_to=None), {"refers-to": {4}}),
    "a refund that counts wrong": (changed(4, refunded_total=14), {"refunds": {4}}),
    "a spend that refers to something": (changed(12, refers_to=1), {"refers-to": {12}}),
    "a capture of a grant": (changed(7, refers_to=1), {"refers-to": {7}, "holds": {7}}),
    "held that nothing holds": (changed(9, held=99), {"held": {9, 10}}),
    "another hold that changed": (changed(8, holds=HELD_ELSEWHERE), {"held": {8}, "holds": {8, 9}, "lots": {8, 9}}),
    "an overdraft that nobody agreed": (changed(13, overdraft=5), {"overdraft": {13}}),
    "an entry without its key": (changed(12, idempotency_key=None, request_digest=None), {"keys": {12}}),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_chain_made_anew_over_a_broken_law_is_found(empty_ledger, history, name):
    tamper, expected = TAMPERINGS[name]
    store(empty_ledger, sealed_anew(tamper(history.entries["ada"])) + history.entries["bob"])
    assert laws_broken(empty_ledger) == expected


def test_an_arrival_that_never_left_is_found_at_its_account(empty_ledger, history):
    arrival = history.entries["bob"][0]._replace(counterpart={"holder_id": "ada", "sequence": 12, "grant": 1})
    store(empty_ledger, history.entries["ada"] + sealed_anew([arrival]))
    assert laws_broken(empty_ledger) == {"transfers": {1}}


def test_a_departure_that_never_arrived_is_found_in_the_sums(empty_ledger, history):
    store(empty_ledger, history.entries["ada"])
    report = audit([empty_ledger])
    assert [(f.law, f.found, f.expected) for f in report.findings] == [("identity", "0 arrived", "10 left")]


# What only an UPDATE of the table can bring about --------------------------------------------------------

SEAL_LAST = """
UPDATE ledger_entry e SET digest = ledger_entry_digest(p.digest, e)
FROM ledger_entry p
WHERE e.holder_id = 'ada' AND e.sequence = (SELECT max(sequence) FROM ledger_entry WHERE holder_id = 'ada')
    AND p.holder_id = 'ada' AND p.sequence = e.sequence - 1
"""

DROP = "ALTER TABLE ledger_entry DROP CONSTRAINT ledger_entry_"

STATEMENTS = {
    "spaces in the lots": (
        "UPDATE ledger_entry SET lots = replace(lots::text, ',', ', ')::json WHERE sequence = 17",
        "form",
        {17},
    ),
    "lots that are no lots": ("UPDATE ledger_entry SET lots = '{}' WHERE sequence = 17", "form", {17}),
    "a lot too large for a bigint": (
        "UPDATE ledger_entry SET lots = '[[16,99999999999999999999,1]]' WHERE sequence = 17",
        "lots",
        {17},
    ),
    "a reference to what is not there": ("UPDATE ledger_entry SET refers_to = -3 WHERE sequence = 17", "orphans", {17}),
    "a key without its request": (
        f"{DROP}key_has_its_request; UPDATE ledger_entry SET idempotency_key = 'x' WHERE sequence = 17",
        "keys",
        {17},
    ),
    "a key twice": (
        "DROP INDEX ledger_entry_key; UPDATE ledger_entry SET idempotency_key = '1' WHERE sequence = 16 AND holder_id = 'ada'",
        "keys",
        {1},
    ),
    "an overspent balance": (
        f"{DROP}never_overspent; UPDATE ledger_entry SET balance = -1, overdraft = NULL WHERE sequence = 17",
        "overspent",
        {17},
    ),
    "a name that is none": ("UPDATE ledger_entry SET holder_id = ' ' WHERE holder_id = 'bob'", "form", {None}),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_what_the_constraints_would_not_let_in_is_found(empty_ledger, history, name):
    statement, law, numbers = STATEMENTS[name]
    store(empty_ledger, history.in_order)
    empty_ledger.execute(statement)
    empty_ledger.execute(SEAL_LAST)
    assert laws_broken(empty_ledger)[law] == numbers


# Refusals ------------------------------------------------------------------------------------------------

ASKED = rules.SpendRequest(holder_id="ada", idempotency_key="s", amount=5, actor="key:test", request_id="req_1")
NO = InsufficientCredits(available=0, requested=5, shortfall=5)


def told(refusal: Entry, **members) -> Entry:
    return refusal._replace(refusal=refusal.refusal | members)


WRONG_REFUSALS: dict[str, Callable[[Entry], Entry]] = {
    "no such code": lambda refusal: told(refusal, code="no-mood"),
    "no such operation": lambda refusal: told(refusal, operation="dance"),
    "another holder's": lambda refusal: told(refusal, request=ASKED.asked() | {"holder_id": "bob"}),
    "another request": lambda refusal: told(refusal, request=ASKED.asked() | {"amount": 6}),
    "another digest": lambda refusal: refusal._replace(request_digest=bytes(8)),
    "enough": lambda refusal: told(refusal, facts={"available": 9, "requested": 5, "shortfall": -4}),
    "no facts": lambda refusal: told(refusal, facts={}),
    "behind another entry": lambda refusal: told(refusal, after=1),
    "without a word why": lambda refusal: refusal._replace(refusal=None),
}


@pytest.mark.parametrize("wrong", WRONG_REFUSALS)
@pytest.mark.parametrize("first", [True, False])
def test_refusals_that_are_none_are_found_though_their_digests_fit(empty_ledger, history, wrong, first):
    """As an account's first entry, and behind a movement and another refusal."""
    account = Account("ada", "credits", START_US)
    before: list[Entry] = []
    if not first:
        before = history.entries["ada"][:2]
        account = account.after_all(before)._replace(now_us=before[-1].recorded_us)
        before.append(account.refused(replace(ASKED, idempotency_key="r"), NO))
        account = account.after_all(before)
    refusal = account.refused(ASKED, NO)
    store(empty_ledger, [*before, refusal])
    assert laws_broken(empty_ledger) == {}

    empty_ledger.execute("DELETE FROM ledger_entry")
    empty_ledger.execute(f"{DROP}refusal_says_why")
    store(empty_ledger, sealed_anew([*before, WRONG_REFUSALS[wrong](refusal)]))
    assert laws_broken(empty_ledger) == {"refusals": {refusal.sequence}}


def test_a_refusal_on_an_entry_of_another_kind_is_found(empty_ledger, history):
    entries = history.entries["ada"][:3]
    empty_ledger.execute(f"{DROP}refusal_says_why")
    account = Account("ada", "credits", START_US).after_all(entries)
    spend = entries[2]._replace(refusal=account.refused(ASKED, NO).refusal)
    store(empty_ledger, sealed_anew([*entries[:2], spend]))
    assert laws_broken(empty_ledger) == {"refusals": {3}}


def test_a_refusal_that_changes_the_account_is_found(empty_ledger, history):
    entries = history.entries["ada"][:3]
    account = Account("ada", "credits", START_US).after_all(entries)._replace(now_us=entries[-1].recorded_us)
    refusal = account.refused(ASKED, NO)
    for changed_lots, laws in (
        (refusal._replace(balance=refusal.balance + 1), {"balance": {4}, "lots-sum": {4}, "identity": {None}}),
        (refusal._replace(lots=refusal.lots[1:]), {"lots": {4}, "lots-sum": {4}}),
        (refusal._replace(drawn=((1, 1),)), {"lots": {4}, "drawn": {4}}),
        (refusal._replace(held=1), {"held": {4}, "identity": {None}}),
        (refusal._replace(refers_to=3), {"refers-to": {4}}),
        (refusal._replace(overdraft=1), {"overdraft": {4}}),
    ):
        empty_ledger.execute("DELETE FROM ledger_entry")
        empty_ledger.execute("ALTER TABLE ledger_entry DROP CONSTRAINT IF EXISTS ledger_entry_held_by_holds")
        store(empty_ledger, sealed_anew([*entries, changed_lots]))
        assert laws_broken(empty_ledger) == laws


def test_a_key_that_an_entry_and_a_refusal_bear_is_found(empty_ledger, history):
    entries = history.entries["ada"]
    account = Account("ada", "credits", START_US).after_all(entries)._replace(now_us=entries[-1].recorded_us)
    empty_ledger.execute("DROP INDEX ledger_entry_key")
    store(empty_ledger, [*history.in_order, account.refused(replace(ASKED, idempotency_key="3"), NO)])
    assert laws_broken(empty_ledger) == {"keys": {3}}


REFUSED = "WHERE holder_id = 'ada' AND kind = 'refusal'"
TAMPERED_REFUSALS = {
    "deleted": ("DELETE FROM ledger_entry WHERE holder_id = 'ada' AND sequence = 18", {"numbers": {19}, "digest": {19}}),
    "its key": (f"UPDATE ledger_entry SET idempotency_key = 'x' {REFUSED} AND sequence = 18", {"digest": {18}}),
    "its code": (
        f"UPDATE ledger_entry SET refusal = replace(refusal::text, 'insufficient-credits', 'lot-limit')::json {REFUSED}",
        {"digest": {18, 20}},
    ),
    "its facts": (
        rf"""
        UPDATE ledger_entry SET refusal = regexp_replace(refusal::text, '"shortfall":\d+', '"shortfall":4')::json {REFUSED}
        """,
        {"digest": {18, 20}, "refusals": {18, 20}},
    ),
    "its actor": (f"UPDATE ledger_entry SET actor = 'key:other' {REFUSED} AND sequence = 18", {"digest": {18}}),
    "its time": (
        f"UPDATE ledger_entry SET recorded_at = recorded_at + interval '1 microsecond' {REFUSED} AND sequence = 20",
        {"digest": {20}},
    ),
    "one forged": (
        """
        INSERT INTO ledger_entry
        SELECT (json_populate_record(e, '{"sequence": 21, "idempotency_key": "forged"}')).* FROM ledger_entry e
        WHERE holder_id = 'ada' AND sequence = 20
        """,
        {"digest": {21}},
    ),
}


@pytest.fixture
def refused(empty_ledger, history) -> Connection:
    """Ada's history, then a refusal, a grant, and another refusal at its end."""
    ledger = deepcopy(history)
    for key in ("18", "20"):
        with pytest.raises(InsufficientCredits):
            ask(ledger, rules.SpendRequest, key, amount=5_000)
        if key == "18":
            ask(ledger, rules.GrantRequest, "19", amount=1)
    store(empty_ledger, ledger.in_order)
    assert [entry.kind for entry in ledger.entries["ada"][17:]] == ["refusal", "grant", "refusal"]
    return empty_ledger


@pytest.mark.parametrize("tampering", TAMPERED_REFUSALS)
def test_a_refusal_that_was_tampered_with_is_found_by_the_chain(refused, tampering):
    assert laws_broken(refused) == {}
    statement, laws = TAMPERED_REFUSALS[tampering]
    assert refused.execute(statement).rowcount > 0
    assert laws_broken(refused) == laws


def test_a_refusal_that_was_deleted_at_the_end_is_found_by_the_anchor_alone(refused, tmp_path):
    assert audit([refused], anchor_to_write=tmp_path / "anchor").is_clean
    refused.execute("DELETE FROM ledger_entry WHERE holder_id = 'ada' AND sequence = 20")
    assert laws_broken(refused) == {}
    assert laws_broken(refused, anchor_to_check=tmp_path / "anchor") == {"anchor": {20}}


# Six tamperings, and which of them need the anchor -------------------------------------------------------


def amount_changed(session: Connection, entries: list[Entry]) -> None:
    session.execute("UPDATE ledger_entry SET amount = -50 WHERE holder_id = 'ada' AND sequence = 3")


def middle_deleted(session: Connection, entries: list[Entry]) -> None:
    session.execute("DELETE FROM ledger_entry WHERE holder_id = 'ada' AND sequence = 9")


def tail_deleted(session: Connection, entries: list[Entry]) -> None:
    session.execute("DELETE FROM ledger_entry WHERE holder_id = 'ada' AND sequence > 14")


def chain_rewritten(session: Connection, entries: list[Entry]) -> None:
    session.execute("DELETE FROM ledger_entry WHERE holder_id = 'ada'")
    store(session, sealed_anew([entry._replace(reason="a gift") if entry.sequence == 1 else entry for entry in entries]))


def two_swapped(session: Connection, entries: list[Entry]) -> None:
    for number, becomes in ((11, 99), (12, 11), (99, 12)):
        session.execute("UPDATE ledger_entry SET sequence = %s WHERE holder_id = 'ada' AND sequence = %s", [becomes, number])


def one_inserted(session: Connection, entries: list[Entry]) -> None:
    session.execute("DELETE FROM ledger_entry WHERE holder_id = 'ada' AND sequence > 11")
    grant = entries[10]._replace(sequence=12, kind="grant", amount=0, refers_to=None).sealed(entries[10].digest)
    session.execute("ALTER TABLE ledger_entry DROP CONSTRAINT ledger_entry_sign_fits_kind")
    store(session, [grant, *(entry._replace(sequence=entry.sequence + 1) for entry in entries[11:])])


SIX: dict[Callable[[Connection, list[Entry]], None], set[str]] = {
    amount_changed: {"digest"},
    middle_deleted: {"digest"},
    tail_deleted: set(),
    chain_rewritten: set(),
    two_swapped: {"digest"},
    one_inserted: {"digest"},
}
"""By what of the chain each is found."""


@pytest.mark.parametrize("tamper", SIX, ids=lambda tamper: tamper.__name__)
def test_the_chain_misses_two_of_six_tamperings_and_the_anchor_none(empty_ledger, history, tamper, tmp_path):
    store(empty_ledger, history.in_order)
    assert audit([empty_ledger], anchor_to_write=tmp_path / "anchor").is_clean
    assert laws_broken(empty_ledger, anchor_to_check=tmp_path / "anchor") == {}
    tamper(empty_ledger, history.entries["ada"])
    found = laws_broken(empty_ledger)
    assert found.keys() & {"digest"} == SIX[tamper]
    with_anchor = laws_broken(empty_ledger, anchor_to_check=tmp_path / "anchor")
    assert with_anchor != {}
    if not SIX[tamper]:
        assert found == {}
        assert with_anchor == {"anchor": {17}}


def test_every_law_has_a_test_that_breaks_it():
    broken = {law for _, laws in TAMPERINGS.values() for law in laws} | {law for _, law, _ in STATEMENTS.values()}
    broken |= {"numbers", "digest", "anchor", "transfers", "refusals"}
    assert broken == LAWS.keys()


# How much is told ------------------------------------------------------------------------------------------


def test_findings_are_listed_up_to_a_bound_and_all_counted(empty_ledger, history):
    store(empty_ledger, history.in_order)
    empty_ledger.execute("UPDATE ledger_entry SET actor = 'somebody else'")
    report = audit([empty_ledger], findings_kept=5)
    assert report.totals == {"digest": 18}
    assert len(report.findings) == 5
    first = report.findings[0]
    assert (first.law, first.holder_id, first.credit_type, first.sequence) == ("digest", "ada", "credits", 1)
    assert first.found == history.entries["ada"][0].digest.hex()
    assert first.expected == history.entries["ada"][0]._replace(actor="somebody else").computed_digest(GENESIS).hex()
    assert report.as_json()["findings"]["by_law"] == {"digest": 18}
    assert "… and 13 more" in report.as_text()


def test_slices_of_any_size_find_the_same(empty_ledger, history):
    store(empty_ledger, sealed_anew(TAMPERINGS["a refund to the wrong lot"][0](history.entries["ada"])) + history.entries["bob"])
    expected = laws_broken(empty_ledger)
    for size in (1, 2, 3, 5, 17):
        assert laws_broken(empty_ledger, slice_entries=size) == expected


def test_the_document_names_every_law():
    text = (Path(__file__).parents[2] / "docs" / "LEDGER.md").read_text()
    for law, sentence in LAWS.items():
        assert f"| `{law}` | {sentence} |\n" in text

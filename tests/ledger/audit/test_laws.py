"""The audit finds every violation of a law, names the law, and finds nothing in a clean ledger.

Only a superuser who disables the triggers can tamper. The tests do so in a transaction that is rolled back. The fixture `history`
(conftest.py) lists the entries that they change: 17 of ada and one of bob.
"""

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from psycopg import Connection

from ledger.audit.auditing import audit
from ledger.audit.laws import all_laws
from ledger.errors import InsufficientCredits
from ledger.rules.accounts import AccountState
from ledger.rules.entries import GENESIS, Entry
from ledger.rules.holds import Hold
from ledger.rules.instants import from_us
from ledger.rules.lots import SINCE_ITS_GRANT, Lot
from ledger.rules.requests import GrantRequest, SpendRequest
from tests.benchmarks.histories import store
from tests.ledger.audit.tampering import Tampering, changed, execute, laws_broken, rechained
from tests.ledger.random_histories import START_US, RandomHistory, RulesLedger
from tests.ledger.rules.credit_model import DAY_US
from tests.parts import spread

# A clean ledger ----------------------------------------------------------------------------------------


@pytest.mark.one_node("a session would read all shards, slice by slice; tests/distributed audits a cluster")
@pytest.mark.parametrize("policy", spread(["new-lot", "gone"], test=(), check=["new-lot"]))
def test_histories_of_every_kind_of_entry_break_no_law(empty_ledger, policy):
    random_history = RandomHistory(RulesLedger(policy), ("ada", "bob", "cy", "dee"), opens_new_lots=policy == "new-lot")
    chance = random.Random(policy)
    for _ in range(1_500):
        random_history.step(chance)
    store(empty_ledger, random_history.ledger.in_order)
    report = audit([empty_ledger], slice_entries=100)
    assert report.findings == []
    refusals = sum(entry.kind == "refusal" for entry in random_history.ledger.in_order)
    assert refusals > 100
    assert (report.holders, report.entries, report.refusals) == (4, len(random_history.ledger.in_order), refusals)
    identity = report.identities["credits"]
    flows = [model.flows for model in random_history.models.values()]
    for name in ("granted", "spent", "refunded", "expired", "revoked"):
        assert identity.totals[name] == sum(flow[name] for flow in flows)
    assert identity.totals["transferred_in"] == identity.totals["transferred_out"] == sum(flow["arrived"] for flow in flows)
    assert identity.balance == sum(model.balance for model in random_history.models.values())
    assert identity.held == sum(model.held for model in random_history.models.values())


def test_slices_cover_each_entry_once_in_whatever_order_the_server_finds_the_accounts(empty_ledger):
    """A new database has no statistics, and the server may read the table in its own order."""
    ledger = RulesLedger()
    for holder in ("dee", "ada", "cy", "bob"):
        for number in range(3):
            execute(ledger, GrantRequest, f"{holder}-{number}", holder_id=holder, amount=10)
    store(empty_ledger, ledger.in_order)
    for plan in ("indexscan", "indexonlyscan", "bitmapscan"):
        empty_ledger.execute(f"SET LOCAL enable_{plan} = off")
    report = audit([empty_ledger], slice_entries=3)
    assert (report.findings, report.entries) == ([], 12)


def test_an_empty_ledger_breaks_no_law(empty_ledger):
    report = audit([empty_ledger])
    assert (report.is_clean, report.holders, report.accounts, report.entries) == (True, 0, 0, 0)


def test_the_history_to_tamper_with_has_every_kind_of_entry_and_is_clean(empty_ledger, history):
    assert [entry.kind for entry in history.entries["ada"]] == [
        "grant", "grant", "spend", "refund", "hold", "hold", "capture", "release", "grant",
        "revoke", "expire", "spend", "transfer_out", "adjust", "spend", "grant", "adjust",
    ]  # fmt: skip
    store(empty_ledger, history.in_order)
    assert laws_broken(empty_ledger) == {}
    assert laws_broken(empty_ledger, holder_id="ada") == {}
    assert audit([empty_ledger], holder_id="ada").entries == 17
    assert audit([empty_ledger], holder_id="nobody").entries == 0


# Tamperings whose digests form an unbroken chain: only the other laws can find them ---------------------

LOT_1 = Lot(1, 100, SINCE_ITS_GRANT)
LOT_2 = Lot(2, 50, SINCE_ITS_GRANT, START_US + 10 * DAY_US, 50, "promotional")
EARLIER = START_US - DAY_US
LATER = START_US + 200 * 365 * DAY_US

HELD_ELSEWHERE = (Hold(5, START_US + 20 * DAY_US, (LOT_2._replace(remaining=20),)),)

TAMPERINGS: dict[str, tuple[Tampering, dict[str, set[int | None]]]] = {
    "spend 12 has another amount": (
        changed(12, amount=-4),
        {"balance": {12}, "drawn": {12}, "burn-order": {12}, "identity": {None}},
    ),
    "the balance of grant 9 is not the sum of the amounts": (changed(9, balance=999), {"balance": {9, 10}, "lots-sum": {9}}),
    "hold 5 was recorded before the entry before it": (changed(5, recorded_us=EARLIER, effective_us=EARLIER), {"time": {5}}),
    "adjustment 17 was recorded in the future": (changed(17, recorded_us=LATER, effective_us=LATER), {"future": {17}}),
    "spend 3 counts from before it was recorded": (changed(3, effective_us=EARLIER), {"time": {3}}),
    "expiry 11 counts from before the lot expired": (changed(11, effective_us=START_US + DAY_US), {"time": {11}}),
    "grant 2 opens a lot of an entry that does not exist": (
        changed(2, lots=(LOT_2, LOT_1._replace(remaining=99), Lot(77, 1, START_US))),
        {"lots": {2, 3}, "terms": {2}},
    ),
    "lot 2 becomes effective 1 µs after its grant": (
        changed(2, lots=(LOT_2._replace(effective_us=START_US + 1), LOT_1)),
        {"terms": {2, 4}},
    ),
    "grant 9 counts from later than its lot": (changed(9, effective_us=START_US + DAY_US), {"terms": {9}}),
    "lot 1 gets an expiry at spend 3": (
        changed(3, lots=(LOT_1._replace(remaining=90, expires_us=START_US + 30 * DAY_US),)),
        {"terms": {3, 4}},
    ),
    "the lots after grant 2 are not in burn order": (changed(2, lots=(LOT_1, LOT_2)), {"lots-order": {2}, "burn-order": {3}}),
    "lot 1 is listed twice after spend 3": (changed(3, lots=(LOT_1._replace(remaining=45),) * 2), {"lots": {3}}),
    "spend 3 takes from lot 1 before lot 2": (
        changed(3, drawn=((1, 60),), lots=(LOT_2, LOT_1._replace(remaining=40))),
        {"burn-order": {3}, "lots": {4}, "refunds": {4}},
    ),
    "the drawn parts of spend 3 do not add up to its amount": (
        changed(3, drawn=((2, 50),)),
        {"drawn": {3}, "burn-order": {3}, "lots": {3}, "refunds": {4}},
    ),
    "refund 4 gives back to lot 1 instead of lot 2": (
        changed(4, drawn=((1, 15),), lots=(LOT_1._replace(remaining=105),)),
        {"refunds": {4}, "lots": {5}, "holds": {5}, "burn-order": {5}},
    ),
    "refund 4 refers to a grant": (changed(4, refers_to=2), {"refers-to": {4}}),
    "refund 4 refers to no entry": (changed(4, refers_to=None), {"refers-to": {4}}),
    "refund 4 has a wrong refunded_total": (changed(4, refunded_total=14), {"refunds": {4}}),
    "spend 12 refers to an entry": (changed(12, refers_to=1), {"refers-to": {12}}),
    "capture 7 refers to a grant": (changed(7, refers_to=1), {"refers-to": {7}, "holds": {7}}),
    "grant 9 has held credits without a hold": (changed(9, held=99), {"held": {9, 10}}),
    "release 8, of hold 6, changes hold 5": (changed(8, holds=HELD_ELSEWHERE), {"held": {8}, "holds": {8, 9}, "lots": {8, 9}}),
    "transfer 13 sets an overdraft": (changed(13, overdraft=5), {"overdraft": {13}}),
    "spend 12 has no idempotency key": (changed(12, idempotency_key=None, request_digest=None), {"keys": {12}}),
}


@pytest.mark.products(most=8)
@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_broken_law_is_found_even_if_the_chain_of_digests_is_unbroken(empty_ledger, history, name):
    tamper, expected = TAMPERINGS[name]
    store(empty_ledger, rechained(tamper(history.entries["ada"])) + history.entries["bob"])
    assert laws_broken(empty_ledger) == expected


def test_a_transfer_in_without_its_transfer_out_is_found_at_its_account(empty_ledger, history):
    arrival = history.entries["bob"][0]._replace(counterpart={"holder_id": "ada", "sequence": 12, "grant": 1})
    store(empty_ledger, history.entries["ada"] + rechained([arrival]))
    assert laws_broken(empty_ledger) == {"transfers": {1}}


def test_a_transfer_out_without_its_transfer_in_is_found_in_the_sums(empty_ledger, history):
    store(empty_ledger, history.entries["ada"])
    report = audit([empty_ledger])
    assert [(f.law, f.found, f.expected) for f in report.findings] == [("identity", "0 arrived", "10 left")]


# Values that the constraints of the table would refuse ---------------------------------------------------

RECHAIN_LAST_ENTRY_OF_ADA = """
UPDATE ledger_entry e SET digest = ledger_entry_digest(p.digest, e)
FROM ledger_entry p
WHERE e.holder_id = 'ada' AND e.sequence = (SELECT max(sequence) FROM ledger_entry WHERE holder_id = 'ada')
    AND p.holder_id = 'ada' AND p.sequence = e.sequence - 1
"""

DROP_CONSTRAINT = "ALTER TABLE ledger_entry DROP CONSTRAINT ledger_entry_"

STATEMENTS = {
    "the lots have spaces": (
        "UPDATE ledger_entry SET lots = replace(lots::text, ',', ', ')::json WHERE sequence = 17",
        "form",
        {17},
    ),
    "the lots are not a list": ("UPDATE ledger_entry SET lots = '{}' WHERE sequence = 17", "form", {17}),
    "a lot is too large for a bigint": (
        "UPDATE ledger_entry SET lots = '[[16,99999999999999999999,1]]' WHERE sequence = 17",
        "lots",
        {17},
    ),
    "it refers to an entry that does not exist": ("UPDATE ledger_entry SET refers_to = -3 WHERE sequence = 17", "orphans", {17}),
    "it has a key without a digest of its request": (
        f"{DROP_CONSTRAINT}key_has_its_request; UPDATE ledger_entry SET idempotency_key = 'x' WHERE sequence = 17",
        "keys",
        {17},
    ),
    "two entries have the same key": (
        "DROP INDEX ledger_entry_key; UPDATE ledger_entry SET idempotency_key = '1' WHERE sequence = 16 AND holder_id = 'ada'",
        "keys",
        {1},
    ),
    "the balance is below 0 without an overdraft": (
        f"{DROP_CONSTRAINT}never_overspent; UPDATE ledger_entry SET balance = -1, overdraft = NULL WHERE sequence = 17",
        "overspent",
        {17},
    ),
    "its kind is none of the ledger's": (
        f"{DROP_CONSTRAINT}sign_fits_kind; UPDATE ledger_entry SET kind = 'gift' WHERE sequence = 17",
        "drawn",
        {17},
    ),
    "the holder's id is a space": ("UPDATE ledger_entry SET holder_id = ' ' WHERE holder_id = 'bob'", "form", {None}),
}


@pytest.mark.products(most=4)
@pytest.mark.one_node("a cluster does not run these changes, neither for a tamperer")
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_value_that_the_constraints_would_refuse_is_found(empty_ledger, history, name):
    statement, law, numbers = STATEMENTS[name]
    store(empty_ledger, history.in_order)
    empty_ledger.execute(statement)
    empty_ledger.execute(RECHAIN_LAST_ENTRY_OF_ADA)
    assert laws_broken(empty_ledger)[law] == numbers


# Refusals ------------------------------------------------------------------------------------------------

REQUEST = SpendRequest(holder_id="ada", idempotency_key="s", amount=5, actor="key:test", request_id="req_1")
REFUSAL = InsufficientCredits(available=0, requested=5, shortfall=5)


def with_members(refusal: Entry, **members) -> Entry:
    """Return the entry with other members in its column `refusal`."""
    return refusal._replace(refusal=refusal.refusal | members)


WRONG_REFUSALS: dict[str, Callable[[Entry], Entry]] = {
    "an unknown code": lambda refusal: with_members(refusal, code="no-mood"),
    "an unknown operation": lambda refusal: with_members(refusal, operation="dance"),
    "a request of another holder": lambda refusal: with_members(refusal, request=REQUEST.content() | {"holder_id": "bob"}),
    "a request that is not the digest's": lambda refusal: with_members(refusal, request=REQUEST.content() | {"amount": 6}),
    "a digest that is not the request's": lambda refusal: refusal._replace(request_digest=bytes(8)),
    "facts with enough credits": lambda refusal: with_members(refusal, facts={"requested": 5, "available": 9, "shortfall": -4}),
    "no facts": lambda refusal: with_members(refusal, facts={}),
    "the wrong last entry that is not a refusal": lambda refusal: with_members(refusal, after=1),
    "no code, request and facts at all": lambda refusal: refusal._replace(refusal=None),
}


@pytest.mark.products(most=6)
@pytest.mark.parametrize("wrong", WRONG_REFUSALS)
@pytest.mark.parametrize("first", [True, False], ids=["first entry of the account", "after two grants and a refusal"])
def test_a_wrong_refusal_is_found_even_if_the_chain_of_digests_is_unbroken(empty_ledger, history, wrong, first):
    account = AccountState("ada", "credits", START_US)
    before: list[Entry] = []
    if not first:
        before = history.entries["ada"][:2]
        account = account.after_all(before)._replace(now_us=before[-1].recorded_us)
        before.append(account.refused(replace(REQUEST, idempotency_key="r"), REFUSAL))
        account = account.after_all(before)
    refusal = account.refused(REQUEST, REFUSAL)
    store(empty_ledger, [*before, refusal])
    assert laws_broken(empty_ledger) == {}

    empty_ledger.execute("DELETE FROM ledger_entry")
    empty_ledger.execute(f"{DROP_CONSTRAINT}refusal_says_why")
    store(empty_ledger, rechained([*before, WRONG_REFUSALS[wrong](refusal)]))
    assert laws_broken(empty_ledger) == {"refusals": {refusal.sequence}}


def test_a_refusal_on_an_entry_of_another_kind_is_found(empty_ledger, history):
    entries = history.entries["ada"][:3]
    empty_ledger.execute(f"{DROP_CONSTRAINT}refusal_says_why")
    account = AccountState("ada", "credits", START_US).after_all(entries)
    spend = entries[2]._replace(refusal=account.refused(REQUEST, REFUSAL).refusal)
    store(empty_ledger, rechained([*entries[:2], spend]))
    assert laws_broken(empty_ledger) == {"refusals": {3}}


@pytest.mark.slow
@pytest.mark.check
def test_a_refusal_that_changes_the_account_is_found(empty_ledger, history):
    entries = history.entries["ada"][:3]
    account = AccountState("ada", "credits", START_US).after_all(entries)._replace(now_us=entries[-1].recorded_us)
    refusal = account.refused(REQUEST, REFUSAL)
    for wrong_refusal, laws in (
        (refusal._replace(balance=refusal.balance + 1), {"balance": {4}, "lots-sum": {4}, "identity": {None}}),
        (refusal._replace(lots=refusal.lots[1:]), {"lots": {4}, "lots-sum": {4}}),
        (refusal._replace(drawn=((1, 1),)), {"lots": {4}, "drawn": {4}}),
        (refusal._replace(held=1), {"held": {4}, "identity": {None}}),
        (refusal._replace(refers_to=3), {"refers-to": {4}}),
        (refusal._replace(overdraft=1), {"overdraft": {4}}),
    ):
        empty_ledger.execute("DELETE FROM ledger_entry")
        empty_ledger.execute("ALTER TABLE ledger_entry DROP CONSTRAINT IF EXISTS ledger_entry_held_by_holds")
        store(empty_ledger, rechained([*entries, wrong_refusal]))
        assert laws_broken(empty_ledger) == laws


def test_an_idempotency_key_on_an_entry_and_on_a_refusal_is_found(empty_ledger, history):
    entries = history.entries["ada"]
    account = AccountState("ada", "credits", START_US).after_all(entries)._replace(now_us=entries[-1].recorded_us)
    empty_ledger.execute("DROP INDEX ledger_entry_key")
    store(empty_ledger, [*history.in_order, account.refused(replace(REQUEST, idempotency_key="3"), REFUSAL)])
    assert laws_broken(empty_ledger) == {"keys": {3}}


OF_REFUSALS = "WHERE holder_id = 'ada' AND kind = 'refusal'"
TAMPERED_REFUSALS = {
    "it is deleted": ("DELETE FROM ledger_entry WHERE holder_id = 'ada' AND sequence = 18", {"numbers": {19}, "digest": {19}}),
    "its key is changed": (
        f"UPDATE ledger_entry SET idempotency_key = 'x' {OF_REFUSALS} AND sequence = 18",
        {"digest": {18}},
    ),
    "its code is changed": (
        f"UPDATE ledger_entry SET refusal = replace(refusal::text, 'insufficient-credits', 'amount-limit')::json {OF_REFUSALS}",
        {"digest": {18, 20}},
    ),
    "its facts are changed": (
        rf"""
        UPDATE ledger_entry SET refusal = regexp_replace(refusal::text, '"shortfall":\d+', '"shortfall":4')::json {OF_REFUSALS}
        """,
        {"digest": {18, 20}, "refusals": {18, 20}},
    ),
    "its actor is changed": (
        f"UPDATE ledger_entry SET actor = 'key:other' {OF_REFUSALS} AND sequence = 18",
        {"digest": {18}},
    ),
    "its time is changed": (
        f"UPDATE ledger_entry SET recorded_at = recorded_at + interval '1 microsecond' {OF_REFUSALS} AND sequence = 20",
        {"digest": {20}},
    ),
    "another refusal is forged after it": (
        """
        INSERT INTO ledger_entry
        SELECT (json_populate_record(e, '{"sequence": 21, "idempotency_key": "forged"}')).* FROM ledger_entry e
        WHERE holder_id = 'ada' AND sequence = 20
        """,
        {"digest": {21}},
    ),
}


@pytest.fixture
def ledger_with_refusals(empty_ledger, history) -> Connection:
    """Ada's history, then a refusal (18), a grant (19), and a refusal (20)."""
    ledger = deepcopy(history)
    for key in ("18", "20"):
        with pytest.raises(InsufficientCredits):
            execute(ledger, SpendRequest, key, amount=5_000)
        if key == "18":
            execute(ledger, GrantRequest, "19", amount=1)
    store(empty_ledger, ledger.in_order)
    assert [entry.kind for entry in ledger.entries["ada"][17:]] == ["refusal", "grant", "refusal"]
    return empty_ledger


@pytest.mark.products(most=3)
@pytest.mark.parametrize(
    "tampering",
    [
        pytest.param(each, marks=pytest.mark.one_node("a cluster does not run this change") if "time" in each else [])
        for each in TAMPERED_REFUSALS
    ],
)
def test_a_tampered_refusal_is_found_by_the_chain(ledger_with_refusals, tampering):
    assert laws_broken(ledger_with_refusals) == {}
    statement, laws = TAMPERED_REFUSALS[tampering]
    assert ledger_with_refusals.execute(statement).rowcount > 0
    assert laws_broken(ledger_with_refusals) == laws


def test_the_deletion_of_the_last_refusal_is_found_by_the_anchor_only(ledger_with_refusals, tmp_path):
    assert audit([ledger_with_refusals], anchor_to_write=tmp_path / "anchor").is_clean
    ledger_with_refusals.execute("DELETE FROM ledger_entry WHERE holder_id = 'ada' AND sequence = 20")
    assert laws_broken(ledger_with_refusals) == {}
    assert laws_broken(ledger_with_refusals, anchor_to_check=tmp_path / "anchor") == {"anchor": {20}}


# Partial spends ----------------------------------------------------------------------------------------


def test_a_partial_spend_that_left_something_is_found(empty_ledger):
    ledger = RulesLedger()
    execute(ledger, GrantRequest, "1", amount=100)
    execute(ledger, GrantRequest, "2", amount=5, effective_at=from_us(START_US + DAY_US))
    execute(ledger, SpendRequest, "3", amount=40, partial=True)
    execute(ledger, SpendRequest, "4", amount=200, partial=True)
    entries = ledger.entries["ada"]
    assert [(entry.amount, entry.requested) for entry in entries[2:]] == [(-40, 40), (-60, 200)]
    for tampering, found in (
        (changed(3, requested=None), {}),
        (changed(3, requested=41), {"requested": {3}}),
        (changed(3, requested=39), {"requested": {3}}),
        (changed(1, requested=100), {"requested": {1}}),
        (changed(4, requested=60), {}),
    ):
        empty_ledger.execute("DELETE FROM ledger_entry")
        empty_ledger.execute("ALTER TABLE ledger_entry DROP CONSTRAINT IF EXISTS ledger_entry_at_most_as_requested")
        store(empty_ledger, rechained(tampering(entries)))
        assert laws_broken(empty_ledger) == found


# Six tamperings, and which of them need the anchor -------------------------------------------------------


def amount_changed(session: Connection, entries: list[Entry]) -> None:
    """Change the amount of a spend."""
    session.execute("UPDATE ledger_entry SET amount = -50 WHERE holder_id = 'ada' AND sequence = 3")


def middle_deleted(session: Connection, entries: list[Entry]) -> None:
    """Delete an entry in the middle of the chain."""
    session.execute("DELETE FROM ledger_entry WHERE holder_id = 'ada' AND sequence = 9")


def tail_deleted(session: Connection, entries: list[Entry]) -> None:
    """Delete the newest entries."""
    session.execute("DELETE FROM ledger_entry WHERE holder_id = 'ada' AND sequence > 14")


def chain_rewritten(session: Connection, entries: list[Entry]) -> None:
    """Change an entry and write a new chain with valid digests."""
    session.execute("DELETE FROM ledger_entry WHERE holder_id = 'ada'")
    store(session, rechained([entry._replace(reason="a gift") if entry.sequence == 1 else entry for entry in entries]))


def two_swapped(session: Connection, entries: list[Entry]) -> None:
    """Swap the numbers of two entries."""
    for number, becomes in ((11, 99), (12, 11), (99, 12)):
        session.execute("UPDATE ledger_entry SET sequence = %s WHERE holder_id = 'ada' AND sequence = %s", [becomes, number])


def one_inserted(session: Connection, entries: list[Entry]) -> None:
    """Replace the newest entries by an entry that was never made."""
    session.execute("DELETE FROM ledger_entry WHERE holder_id = 'ada' AND sequence > 11")
    grant = entries[10]._replace(sequence=12, kind="grant", amount=0, refers_to=None).sealed(entries[10].digest)
    session.execute("ALTER TABLE ledger_entry DROP CONSTRAINT ledger_entry_sign_fits_kind")
    store(session, [grant, *(entry._replace(sequence=entry.sequence + 1) for entry in entries[11:])])


FINDINGS_OF_THE_CHAIN: dict[Callable[[Connection, list[Entry]], None], set[str]] = {
    amount_changed: {"digest"},
    middle_deleted: {"digest"},
    tail_deleted: set(),
    chain_rewritten: set(),
    two_swapped: {"digest"},
    one_inserted: {"digest"},
}
"""The law by which the chain alone finds each tampering; no law where it cannot."""


@pytest.mark.products(most=3)
@pytest.mark.parametrize("tamper", FINDINGS_OF_THE_CHAIN, ids=lambda tamper: tamper.__name__)
def test_the_chain_finds_four_of_six_tamperings_and_the_anchor_finds_all(empty_ledger, history, tamper, tmp_path):
    store(empty_ledger, history.in_order)
    assert audit([empty_ledger], anchor_to_write=tmp_path / "anchor").is_clean
    assert laws_broken(empty_ledger, anchor_to_check=tmp_path / "anchor") == {}
    tamper(empty_ledger, history.entries["ada"])
    found = laws_broken(empty_ledger)
    assert found.keys() & {"digest"} == FINDINGS_OF_THE_CHAIN[tamper]
    with_anchor = laws_broken(empty_ledger, anchor_to_check=tmp_path / "anchor")
    assert with_anchor != {}
    if not FINDINGS_OF_THE_CHAIN[tamper]:
        assert found == {}
        assert with_anchor == {"anchor": {17}}


def test_every_law_has_a_test_that_breaks_it():
    broken = {law for _, laws in TAMPERINGS.values() for law in laws} | {law for _, law, _ in STATEMENTS.values()}
    broken |= {
        "numbers",
        "digest",
        "anchor",
        "transfers",
        "refusals",
        "shared",
        "incoming",
        "frozen",
        "clocks",
        "recurring",
    }  # see the tests of each
    # In test_register.py, test_budgets.py, test_usage.py, test_costs.py and so on, and below.
    broken |= {"purpose", "budgets", "counters", "usage", "cost", "overage", "claims", "requested", "rates", "totals", "register"}
    assert broken == all_laws().keys()


# The report ----------------------------------------------------------------------------------------------


def test_the_report_lists_findings_up_to_a_limit_and_counts_all(empty_ledger, history):
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


@pytest.mark.slow
@pytest.mark.check
def test_slices_of_any_size_give_the_same_findings(empty_ledger, history):
    store(
        empty_ledger,
        rechained(TAMPERINGS["refund 4 gives back to lot 1 instead of lot 2"][0](history.entries["ada"]))
        + history.entries["bob"],
    )
    expected = laws_broken(empty_ledger)
    for size in (1, 2, 3, 5, 17):
        assert laws_broken(empty_ledger, slice_entries=size) == expected


def test_the_document_names_every_law():
    text = (Path(__file__).parents[3] / "docs" / "explanation" / "ledger.md").read_text()
    for law, sentence in all_laws().items():
        assert f"| `{law}` | {sentence} |\n" in text

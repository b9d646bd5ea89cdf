"""Each kind of entry has one row, and what names kinds beside the rows agrees with them: rules, schema, audit, documentation."""

import operator
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ledger.rules.credit_units import plain_unit
from ledger.rules.entries import Entry
from ledger.rules.entry_texts import entry_text
from ledger.rules.explanations import DECISIONS, explain
from ledger.rules.kinds import KINDS, TOTALS
from ledger.rules.requests import GrantRequest, TransferRequest
from ledger.statements.statements import TEXTS
from ledger.totals.counting import COLUMNS
from ledger.totals.models import DailyTotal
from tests.ledger.audit.tampering import execute
from tests.ledger.random_histories import RandomHistory, RulesLedger

ROOT = Path(__file__).parents[3]
SCHEMA = ROOT / "ledger/migrations/schema.sql"
SQL_FILES = [SCHEMA, ROOT / "ledger/cluster/distributed.sql", *sorted((ROOT / "ledger/audit/sql").glob("*.sql"))]
SIGNS = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "=": operator.eq}
KIND_LIST = re.compile(r"""\bkind (?:not )?in \((("|'+)[a-z_]+\2(?:, \2[a-z_]+\2)+)\)""", re.IGNORECASE)


def histories() -> Iterator[RulesLedger]:
    """Every kind of entry, by the rules alone."""
    for seed, steps in enumerate([50] * 60 + [1_500]):
        made = RandomHistory(RulesLedger(), ("ada", "bob", "cy", "dee"))
        chance = random.Random(seed)
        for _ in range(steps):
            made.step(chance)
        yield made.ledger
    first_receives = RulesLedger()
    execute(first_receives, GrantRequest, "1", amount=5)
    execute(first_receives, TransferRequest, "2", to="bob", amount=5)
    yield first_receives


@cache
def entries() -> list[tuple[Entry | None, Entry]]:
    """Each entry of the histories, and the one before it."""
    return [pair for made in histories() for account in made.entries.values() for pair in pairwise([None, *account])]


def kinds_with(does: Any) -> set[str]:
    return {name for name, kind in KINDS.items() if does(kind)}


# The rows are what the rules do ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.parametrize(
    ("does", "says"),
    [
        (lambda before, entry: True, lambda kind: True),
        (lambda before, entry: any(lot.grant == entry.sequence for lot in entry.lots), lambda kind: kind.opens_lots),
        (lambda before, entry: entry.held != (before.held if before else 0), lambda kind: kind.changes_held),
        (lambda before, entry: entry.idempotency_key is None, lambda kind: not kind.has_key),
        (lambda before, entry: entry.idempotency_key is None and entry.actor == "ledger", lambda kind: kind.booked),
        (
            lambda before, entry: entry.kind != "adjust" and entry.effective_us != entry.recorded_us,
            lambda kind: kind.has_own_time,
        ),
        (lambda before, entry: entry.refers_to is not None, lambda kind: kind.refers_to),
        (lambda before, entry: entry.taken > 0, lambda kind: kind.name in KINDS["refund"].refers_to),
    ],
    ids=["exists", "opens_lots", "changes_held", "has_key", "booked", "has_own_time", "refers_to", "taken"],
)
def test_exactly_the_kinds_whose_rows_say_so_do_it(does, says):
    assert {entry.kind for before, entry in entries() if does(before, entry)} == kinds_with(says)


def test_amounts_references_and_credits_are_as_the_rows_say():
    for before, entry in entries():
        kind = KINDS[entry.kind]
        assert {
            ">": entry.amount > 0,
            "<": entry.amount < 0,
            ">=": entry.amount >= 0,
            "<=": entry.amount <= 0,
            "=": entry.amount == 0,
        }[kind.sign]
        had = before.balance + before.held if before else 0
        assert entry.balance + entry.held - had == kind.moved(entry.amount, sum(part for _, part in entry.drawn))
        assert (kind.total is None) == (kind.moves == "nothing")


def test_each_entry_has_texts_and_each_lot_that_it_names_a_decision():
    for before, entry in entries():
        text = entry_text(entry, at=datetime.now(UTC), unit=plain_unit("credits"))
        explained = explain(entry, before, booked_before=[], booked_after=[], referred=None)
        assert "" not in (text.verb, text.text, explained["text"])
        assert {lot["decision"] for lot in explained["lots"]} <= set(DECISIONS)
        explained_lots = {lot["grant"]: lot["decision"] for lot in explained["lots"]}
        assert {lot for lot, _ in entry.drawn} <= explained_lots.keys()
        opened = [lot.grant for lot in entry.lots if lot.grant == entry.sequence]
        assert opened == [] or explained_lots[entry.sequence] in ("opened", "returned")


def test_each_total_has_its_lines_and_columns_and_each_name_its_languages():
    assert {kind.total for kind in KINDS.values()} - {None} == set(TOTALS)
    assert set(KINDS["expire"].refers_to) == kinds_with(lambda kind: kind.opens_lots)
    columns = {field.name for field in DailyTotal._meta.fields} - {"pk", "day", "credit_type", "late_entries"}
    assert set(COLUMNS) == columns
    assert [set(kind.on_statement) for kind in KINDS.values()] == [set(TEXTS) if name != "refusal" else set() for name in KINDS]


def test_a_kind_that_may_take_and_may_open_a_lot_explains_what_an_entry_did(monkeypatch):
    found = {kind: next(pair for pair in entries() if pair[1].kind == kind and pair[0]) for kind in ("grant", "spend")}
    both = replace(KINDS["grant"], takes=True)
    for kind in found:
        monkeypatch.setitem(KINDS, kind, both)
    decisions = {
        kind: {lot["decision"] for lot in explain(entry, before, booked_before=[], booked_after=[], referred=None)["lots"]}
        for kind, (before, entry) in found.items()
    }
    assert decisions["grant"] == {"opened"}
    assert "drawn" in decisions["spend"]


# What names kinds beside the rows ----------------------------------------------------------------------


def cases(sql: str) -> Iterator[tuple[str, list[str], str | None]]:
    """Each CASE of the SQL: what stands behind the word, its conditions, and what its ELSE gives; CASEs inside those left out."""
    open_cases: list[dict[str, Any]] = []
    for token in re.split(r"(?<![\w'])(CASE|WHEN|THEN|ELSE|END)(?![\w'])", re.sub(r"--.*", "", sql)):
        if token == "CASE":
            open_cases.append({"": "CASE", "CASE": "", "WHEN": [], "ELSE": None})
        elif token == "END" and open_cases:
            done = open_cases.pop()
            yield done["CASE"].strip(), [condition.strip() for condition in done["WHEN"]], done["ELSE"]
        elif not open_cases:
            continue
        elif token in ("WHEN", "THEN", "ELSE"):
            open_cases[-1][""] = token
            if token == "WHEN":
                open_cases[-1]["WHEN"].append("")
            if token == "ELSE":
                open_cases[-1]["ELSE"] = ""
        elif (place := open_cases[-1][""]) == "WHEN":
            open_cases[-1]["WHEN"][-1] += token
        elif place != "THEN":
            open_cases[-1][place] += token


def kinds_of(subject: str, condition: str) -> list[str] | None:
    """The kinds that a condition names; None if it asks for something else too."""
    if re.fullmatch(r"(\w+\.)?kind", subject):
        return re.findall(r"'(\w+)'", condition)
    if re.fullmatch(r"(\w+\.)?kind (= '\w+'|IN \([^()]*\))", condition):
        return re.findall(r"'(\w+)'", condition)
    return None


def by_kind() -> Iterator[tuple[str, list[str], str | None]]:
    """Each CASE of the ledger's SQL that asks for the kind of an entry alone."""
    for path in SQL_FILES:
        for subject, conditions, otherwise in cases(path.read_text()):
            named = [kinds_of(subject, condition) for condition in conditions]
            if all(named):
                yield f"{path.name}: CASE {subject} {conditions}", [kind for each in named for kind in each or ()], otherwise


def sets_of_kinds() -> list[set[str]]:
    """The sets that the rows make, and those that are named for their own reasons."""
    rows = KINDS.values()
    return [
        *(kinds_with(lambda kind, each=each: getattr(kind, each)) for each in ("opens_lots", "takes", "changes_held", "budgets")),
        *(set(kind.refers_to) for kind in rows),
        kinds_with(lambda kind: kind.budgets == "uses"),
        kinds_with(lambda kind: kind.budgets in ("uses", "gives back")),
        kinds_with(lambda kind: not kind.has_key),
        kinds_with(lambda kind: kind.of_lot is not None and kind.of_lot[0] in ("returned", "joined")),
        kinds_with(lambda kind: kind.changes_held and kind.moves == "nothing"),
        kinds_with(lambda kind: kind.changes_held and not kind.takes),
        # What takes no cost out of the lots that it names.
        kinds_with(lambda kind: kind.brings or (kind.changes_held and kind.moves == "nothing")),
        kinds_with(lambda kind: "{rated}" in kind.text.past),
        kinds_with(lambda kind: (kind.total or "").startswith("transferred_")),
        # What may use overage, and what else moves postpaid credits.
        {"spend", "hold", "capture"},
        {"spend", "hold", "capture", "release", "refund", "revoke"},
        kinds_with(lambda kind: kind.overage in ("uses", "gives back")),
        # What changes how much a period used on overage.
        {"grant", "revoke", "capture"},
        {"refund", "release"},
        # What uses credits, and gives a use back; of these, what changes an earlier one.
        {"spend", "capture", "refund"},
        {"capture", "refund"},
        {"spend", "capture"},
        # What is decided quickly; the audit parses all others.
        {"spend", "refusal"},
        # What changes an overdraft that is used.
        {"adjust", "refund"},
        # What a recurring grant writes when something is due.
        {"grant", "adjust", "revoke"},
    ]


def test_a_case_by_kind_names_every_kind_once_and_has_no_else():
    complete = 0
    for where, named, otherwise in by_kind():
        assert len(named) == len(set(named)), where
        if set(named) != set(KINDS):
            assert len(named) == 1 or set(named) in sets_of_kinds(), where
            # Either a refusal, or a movement of whichever kind.
            assert otherwise is None or named == ["refusal"], where
        else:
            assert otherwise is None, where
            complete += 1
    assert complete == 9, "signs, costs and overage in the schema; lots, burn-order, drawn, held, time and refers-to in the audit"


def test_every_list_of_kinds_is_one_that_the_rows_make():
    for path in [*SQL_FILES, *sorted((ROOT / "ledger").rglob("*.py"))]:
        text = path.read_text()
        inside = {condition for _, conditions, _ in cases(text) for condition in conditions} if path.suffix == ".sql" else set()
        for found in KIND_LIST.finditer(text):
            if not any(found.group().split(" ", 1)[1] in condition and kinds_of("", condition) for condition in inside):
                assert set(re.findall(r"\w+", found.group(1))) in sets_of_kinds(), (path, found.group())


def test_the_schema_names_every_kind_with_its_sign_and_every_column_of_totals():
    schema = SCHEMA.read_text()
    signs = re.search(r"ledger_entry_sign_fits_kind +CHECK \((.*?)\) IS TRUE", schema, re.DOTALL)
    assert signs
    found = {
        kind: sign
        for condition, sign in re.findall(r"WHEN kind (.*?) +THEN amount (\S+) 0", signs.group(1))
        for kind in re.findall(r"'(\w+)'", condition)
    }
    assert found == {name: kind.sign for name, kind in KINDS.items()}
    comment = re.search(r"COLUMN ledger_entry.kind +IS '(.*?)\.'", schema)
    assert comment
    assert re.findall(r"\w+", comment.group(1).replace(" or ", " ")) == list(KINDS)
    of_totals = (ROOT / "ledger/totals/migrations/schema.sql").read_text()
    registered = re.search(r"ledger_have_registered\('ledger_daily_total'.*?\n +'\{(.*?)\}'", of_totals)
    assert registered
    assert set(registered.group(1).split(",")) == {*COLUMNS, "late_entries"}


def test_the_documentation_lists_every_kind_with_its_sign():
    lines = (ROOT / "docs/explanation/ledger.md").read_text().split("| kind | amount |")[1].split("\n\n")[0]
    listed = dict(re.findall(r"^\| `(\w+)` \| (\S+(?: or \S+)?) \|", lines, re.MULTILINE))
    signs = {">": "+", "<": "−", ">=": "+", "<=": "0 or −", "=": "0"}
    assert {name: sign for name, sign in listed.items() if name != "hold"} == {
        name: signs[kind.sign] for name, kind in KINDS.items() if name != "hold"
    }
    assert "hold" in listed

"""The command of the mutants: what it changes, that loaded functions get it, which tests run first, and when it is content."""

import builtins
import functools
import importlib
import json
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutation import mutants, order, report, sql_changes
from tests.mutation.mutants import Change, Mutant, Place

SCHEMA = """\
-- A comment; with a < b.
CREATE TABLE box (
    size  integer NOT NULL,
    lid   text,
    CONSTRAINT box_fits CHECK (size BETWEEN 1 AND 9),
    CONSTRAINT box_closed CHECK (size < 5 OR lid IS NOT NULL)
);
CREATE FUNCTION box_kept() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.size > OLD.size THEN
        RAISE EXCEPTION 'a box; too large';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER kept BEFORE UPDATE ON box FOR EACH ROW EXECUTE FUNCTION box_kept();
ALTER TABLE box ENABLE ALWAYS TRIGGER kept;
CREATE INDEX box_size ON box (size) WHERE size > 3;
COMMENT ON TABLE box IS 'x = y';
"""

TRIGGER = SCHEMA[SCHEMA.index("CREATE TRIGGER") : SCHEMA.index("\nCREATE INDEX")]

SOURCE = '''\
"""A module."""


def doubled(function):
    def both(amount):
        return 2 * function(amount)

    return both


@doubled
def price(amount, least=1):
    """A text = no mutant."""
    if amount < least:
        return least
    return amount + 1
'''


@pytest.fixture
def python_changes() -> ModuleType:
    """The module of the mutants of Python, loaded only here: mutmut would take its time of each worker's collection."""
    return importlib.import_module("tests.mutation.python_changes")


def test_the_mutants_of_a_schema_are_small_changes_and_comments_texts_and_plain_indexes_have_none() -> None:
    found = [
        (change.lineno, change.place.function, change.place.operator, change.place.before, change.place.after)
        for change in sql_changes.changes_of("schema.sql", SCHEMA)
    ]

    assert sorted(found) == [
        (3, "TABLE box", "not_null", "NOT NULL", ""),
        (5, "TABLE box", "dropped_constraint", ",\n    CONSTRAINT box_fits CHECK (size BETWEEN 1 AND 9)", ""),
        (5, "TABLE box", "number", "1", "2"),
        (5, "TABLE box", "number", "9", "10"),
        (6, "TABLE box", "comparison", "<", "<="),
        (6, "TABLE box", "dropped_constraint", ",\n    CONSTRAINT box_closed CHECK (size < 5 OR lid IS NOT NULL)", ""),
        (6, "TABLE box", "logic", "OR", "AND"),
        (6, "TABLE box", "null", "IS NOT NULL", "IS NULL"),
        (6, "TABLE box", "number", "5", "6"),
        (11, "FUNCTION box_kept", "comparison", ">", ">="),
        (12, "FUNCTION box_kept", "refusal", "RAISE EXCEPTION", "RAISE NOTICE"),
        (16, "TRIGGER kept ON box", "dropped_statement", TRIGGER, ""),
        (17, "TABLE box ENABLE ALWAYS TRIGGER kept", "dropped_statement", "ALTER TABLE box ENABLE ALWAYS TRIGGER kept;", ""),
    ]


def test_a_mutant_of_a_schema_changes_nothing_else() -> None:
    (change,) = [each for each in sql_changes.changes_of("schema.sql", SCHEMA) if each.place.operator == "refusal"]

    assert change.mutate() == SCHEMA.replace("RAISE EXCEPTION", "RAISE NOTICE")


def test_a_triggers_function_is_reached_by_its_table() -> None:
    assert sql_changes.names_of(SCHEMA, "FUNCTION box_kept") == {"box_kept": 0, "box": 1}


def test_the_mutants_of_python_are_those_of_bodies_not_of_defaults_and_docstrings(python_changes: ModuleType) -> None:
    places = [(change.lineno, change.place) for change in python_changes.changes_of("a.py", SOURCE)]
    found = {(line, place.function, place.before, place.after) for line, place in places}

    assert found >= {
        (14, "price", "< least", "<= least"),
        (16, "price", "amount + 1", "amount - 1"),
        (16, "price", "1", "2"),
    }
    assert {line for line, *_ in found} == {6, 14, 16}


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    """SOURCE as a loaded module."""
    path = tmp_path / "priced.py"
    path.write_text(SOURCE)
    spec = spec_from_file_location("priced", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_a_loaded_function_gets_the_mutant_behind_its_decorator_and_no_other_function_does(
    module: ModuleType, python_changes: ModuleType
) -> None:
    file = str(module.__file__)
    (change,) = [each for each in python_changes.changes_of("a.py", SOURCE) if each.place.after == "amount - 1"]
    assert module.price(10) == 22

    functions = python_changes.loaded_functions([file])
    assert python_changes.replace_code(functions, file, SOURCE, compile(change.mutate(), file, "exec"), "price")

    assert module.price(10) == 18


def test_a_probe_is_called_where_the_mutant_is_and_only_there(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, python_changes: ModuleType
) -> None:
    file = str(module.__file__)
    reached: set[int] = set()
    monkeypatch.setattr(builtins, python_changes.PROBE, reached.add, raising=False)
    probed = python_changes.probed_code(file, SOURCE, [(7, 15), (8, 16)])
    python_changes.replace_code(python_changes.loaded_functions([file]), file, SOURCE, probed)

    assert (module.price(10), reached) == (22, {8})
    assert (module.price(0), reached) == (2, {7, 8})


def test_the_quick_tests_of_the_same_noun_come_first_and_the_known_one_before_all() -> None:
    change = Change(Place("billing/rating/tiers.py", "Tier.rate", "number", "1", "2", "x = 1"), 1, str)
    reach = [
        order.Reach("tests/billing/api/test_invoices.py::test_quick", 0.01, frozenset({7}), frozenset()),
        order.Reach("tests/billing/rating/test_tiers.py::test_slow", 3, frozenset({7}), frozenset()),
        order.Reach("tests/billing/rating/test_tiers.py::test_quick", 0.1, frozenset({7}), frozenset()),
        order.Reach("tests/billing/rating/test_tiers.py::test_namesake", 0.2, frozenset({8}), frozenset()),
        order.Reach("tests/billing/rating/test_beside.py::test_other", 0.1, frozenset({8}), frozenset()),
    ]
    near, other = "tests/billing/rating/test_tiers.py::test_", "tests/billing/api/test_invoices.py::test_quick"
    tests = functools.partial(order.ordered, Path(), 7, change, reach)

    assert tests(None, 60) == [near + "quick", other, near + "namesake", near + "slow"]
    assert tests(near + "slow", 60) == [near + "slow", near + "quick", other, near + "namesake"]
    assert tests(None, 1) == [near + "quick", other, near + "namesake"]


def test_a_mutant_is_found_again_in_changed_code_and_in_another_file_but_not_when_its_line_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "ledger/rules/lots.py"
    path.parent.mkdir(parents=True)
    path.write_text(SOURCE)
    (place,) = [each.place for each in mutants.changes_of(tmp_path, "ledger/rules/lots.py") if each.place.after == "amount - 1"]
    mutant = Mutant(1, place)

    path.write_text("import sys\n\n" + SOURCE)
    assert mutants.locate(tmp_path, [mutant])[1].lineno == 18
    path.rename(path.with_name("parts.py"))
    assert mutants.locate(tmp_path, [mutant])[1].place.path == "ledger/rules/parts.py"
    # Packages move too.
    (tmp_path / "billing/parts").mkdir(parents=True)
    (tmp_path / "ledger/rules/parts.py").rename(tmp_path / "billing/parts/rules.py")
    assert mutants.locate(tmp_path, [mutant])[1].place.path == "billing/parts/rules.py"
    (tmp_path / "billing/parts/rules.py").rename(tmp_path / "ledger/rules/parts.py")
    path.with_name("parts.py").write_text(SOURCE.replace("amount + 1", "amount + 3"))
    assert mutants.locate(tmp_path, [mutant]) == {}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """`run([("killed", True), …])`: the report on mutants with these outcomes, and whether each was killed before."""
    reasons = tmp_path / "equivalent.toml"
    reasons.write_text('3 = "equivalent: the order of a set"\n')
    monkeypatch.setattr(mutants, "REASONS", reasons)

    def run(outcomes: list[tuple[str, bool]]) -> tuple[int, str]:
        place = Place("ledger/rules/lots.py", "take", "number", "1", "2", "x = 1")
        path = tmp_path / "mutants.jsonl"
        killers = ["tests/a.py::b" if before else None for _, before in outcomes]
        mutants.write_list([Mutant(number, place, killer) for number, killer in enumerate(killers, 1)], path)
        rows = [json.dumps({"number": number, "outcome": outcome}) for number, (outcome, _) in enumerate(outcomes, 1)]
        (tmp_path / "results-0.jsonl").write_text("\n".join(rows))
        return report.report(path, tmp_path), capsys.readouterr().out

    return run


def test_the_report_is_content_with_all_killed_but_the_equivalent(run: Callable[..., tuple[int, str]]) -> None:
    code, text = run([("killed", True), ("killed", False), ("survived", False), ("gone", True)])

    assert code == 0
    assert text.endswith("killed: 2, 100.0% of those that are not equivalent; before: 1\n")


def test_the_report_names_a_survivor_and_is_not_content_with_less_than_before(run: Callable[..., tuple[int, str]]) -> None:
    code, text = run([("killed", True), ("survived", True)])

    assert code == 1
    assert "2: ledger/rules/lots.py, take, number: x = 1" in text
    assert text.endswith("killed: 1, 50.0% of those that are not equivalent; before: 2\n")

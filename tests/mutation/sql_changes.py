"""Mutants of SQL, for which no tool is kept: small changes of the text of schema.sql, outside comments and texts."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from tests.mutation.mutants import Change, Place


class Statement(NamedTuple):
    """A statement of the file: where it begins and ends, and what it makes."""

    start: int
    end: int
    head: str


Edit = tuple[int, int, str]
"""Characters from, up to, and what stands there instead."""

_COMMENT_OR_TEXT: Final = re.compile(r"--[^\n]*|'(?:[^']|'')*'")
_TOKENS: Final = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\$\$.*?\$\$|;", re.DOTALL)
_HEADS: Final = (
    re.compile(r"CREATE (?:CONSTRAINT )?(TRIGGER \w+) .*?(ON \w+)", re.DOTALL),
    re.compile(r"CREATE (UNIQUE INDEX \w+) (ON \w+)"),
    re.compile(r"CREATE (TABLE|VIEW|FUNCTION|PROCEDURE|SEQUENCE) (\w+)"),
    re.compile(r"ALTER (TABLE \w+) (ENABLE ALWAYS TRIGGER \w+)"),
    re.compile(r"(ALTER TABLE|INSERT INTO|REVOKE ALL ON FUNCTION) (\w+)"),
    re.compile(r"(CALL \w+)\('(\w+)'"),
)
# An index that is not unique changes no answer, only its time.
_UNCHANGED: Final = re.compile(r"COMMENT ON|CREATE INDEX|ALTER TABLE \w+ SET\b")

# Operators of texts: what is looked for in a statement, and what stands there instead.
_WORDS: Final = {
    "comparison": {"<=": "<", ">=": ">", "<": "<=", ">": ">=", "=": "<>", "<>": "="},
    "null": {"IS NOT NULL": "IS NULL", "IS NULL": "IS NOT NULL"},
    "distinct": {"IS NOT DISTINCT FROM": "IS DISTINCT FROM", "IS DISTINCT FROM": "IS NOT DISTINCT FROM"},
    "exists": {"NOT EXISTS": "EXISTS", "EXISTS": "NOT EXISTS"},
    "boolean": {"true": "false", "false": "true"},
    "extreme": {"LEAST": "GREATEST", "GREATEST": "LEAST", "min(": "max(", "max(": "min("},
    "sign": {" + ": " - ", " - ": " + ", " * ": " / "},
    "refusal": {"RAISE EXCEPTION": "RAISE NOTICE"},
    "order": {" DESC": ""},
    "not_null": {" NOT NULL": ""},
    "unique": {"CREATE UNIQUE INDEX": "CREATE INDEX"},
    "rights": {" SECURITY DEFINER": ""},
}
_PATTERNS: Final = {
    "comparison": r"(?<![<>:!=\-|@&#?~])(?:<=|>=|<>|=|<|>)(?![<>=|@&#?])",
    "null": r"IS (?:NOT )?NULL",
    "distinct": r"IS (?:NOT )?DISTINCT FROM",
    "exists": r"(?<!IF )(?:NOT )?\bEXISTS",
    "boolean": r"\b(?:true|false)\b",
    "extreme": r"\b(?:LEAST|GREATEST|min\(|max\()",
    # Not the minus that takes keys out of an object.
    "sign": r"(?<=[\w)])(?<!\((?:NEW|OLD)\)) [-+*] (?=[\w(])",
    "not_null": r"(?<!IS) NOT NULL",
}
_ASSIGNMENT: Final = re.compile(r"(?:\bSET|\bWITH \(|,) *\w+ *$|\b(?:ERRCODE|TABLE) $")
_NUMBER: Final = re.compile(r"(?<![\w$.(])\d+\b(?! (?:seconds|days|month))|(?<=\()\d+(?=\))")
_LOGIC: Final = re.compile(r"\b(?:AND|OR)\b")
_EVENT: Final = re.compile(r"\b(?:CREATE|INSERT|UPDATE|DELETE|TRUNCATE|OF \w+) $")
_BRANCH: Final = re.compile(r"\n *AND [^\n]*(?=\n)")
_CONSTRAINT: Final = re.compile(r",?\s*(?:ADD )?CONSTRAINT \w+\s+(?:CHECK|EXCLUDE|UNIQUE)\b")
_ELEMENT: Final = re.compile(r"(?<=IN \()'[^']*', ")


def changes_of(path: str, source: str) -> Iterator[Change]:
    """Yield the mutants of a schema."""
    code = _COMMENT_OR_TEXT.sub(lambda found: "\0" * len(found[0]), source)
    statements = list(_statements(source))
    for statement in statements:
        for operator, edit in _edits(source, code, statement, statements):
            start, end, new = edit
            place = start + len(source[start:end]) - len(source[start:end].lstrip("\n ,"))
            yield Change(
                Place(
                    path=path,
                    function=statement.head,
                    operator=operator,
                    before=source[start:end].strip(),
                    after=new.strip(),
                    line=source[source.rfind("\n", 0, place) + 1 : source.find("\n", place)].strip(),
                ),
                source.count("\n", 0, place) + 1,
                partial(_edited, source, edit),
            )


def _edited(source: str, edit: Edit) -> str:
    start, end, new = edit
    return source[:start] + new + source[end:]


def _statements(source: str) -> Iterator[Statement]:
    """Split a file into its statements, with the functions' bodies whole."""
    start = 0
    for token in _TOKENS.finditer(source):
        if token[0] != ";":
            continue
        text = _COMMENT_OR_TEXT.sub(lambda found: found[0] if found[0][0] == "'" else "", source[start : token.end()]).strip()
        head = next((" ".join(found.groups()) for pattern in _HEADS if (found := pattern.match(text))), None)
        if head and not _UNCHANGED.match(text):
            yield Statement(start, token.end(), head)
        start = token.end()


def _edits(source: str, code: str, statement: Statement, statements: list[Statement]) -> Iterator[tuple[str, Edit]]:
    start, end, head = statement
    if head.startswith(("CALL", "REVOKE")) or "ENABLE ALWAYS" in head:
        yield "dropped_statement", (start, end, "")
        return
    if head.startswith("TRIGGER"):
        _, name, _, table = head.split()
        rest = next((each.end for each in statements if each.head == f"TABLE {table} ENABLE ALWAYS TRIGGER {name}"), end)
        if source[end:rest].count(";") <= 1:
            yield "dropped_statement", (start, rest, "")
    for operator, words in _WORDS.items():
        pattern = _PATTERNS.get(operator) or "|".join(map(re.escape, words))
        for found in re.compile(pattern).finditer(code, start, end):
            if operator != "comparison" or not _ASSIGNMENT.search(code[max(start, found.start() - 60) : found.start()]):
                yield operator, (*found.span(), words[found[0]])
    finders: tuple[Callable[..., Iterator[tuple[str, Edit]]], ...] = (_logic, _numbers, _branches, _constraints, _elements)
    for finder in finders:
        yield from finder(source, code, start, end)


def _logic(source: str, code: str, start: int, end: int) -> Iterator[tuple[str, Edit]]:
    for found in _LOGIC.finditer(code, start, end):
        before = code[start : found.start()]
        if not _EVENT.search(before) and not re.search(r"BETWEEN (?:(?!\bAND\b).)*$", before, re.DOTALL):
            yield "logic", (*found.span(), {"AND": "OR", "OR": "AND"}[found[0]])


def _numbers(source: str, code: str, start: int, end: int) -> Iterator[tuple[str, Edit]]:
    for found in _NUMBER.finditer(code, start, end):
        before = code[max(start, found.start() - 12) : found.start()]
        if not re.search(r"(?:LIMIT |varchar\(|numeric\(|char\(|numeric\(\d+, ?)$", before):
            yield "number", (*found.span(), str(int(found[0]) + 1))


def _branches(source: str, code: str, start: int, end: int) -> Iterator[tuple[str, Edit]]:
    """A condition on a line of its own is left out."""
    for found in _BRANCH.finditer(code, start, end):
        if (
            found[0].count("(") == found[0].count(")")
            and not found[0].rstrip().endswith((",", ";"))
            and "BETWEEN" not in code[found.start() - 60 : found.start()]
        ):
            yield "dropped_branch", (*found.span(), "")


def _constraints(source: str, code: str, start: int, end: int) -> Iterator[tuple[str, Edit]]:
    """A constraint is left out, with the comma before it or after it."""
    for found in _CONSTRAINT.finditer(code, start, end):
        close = _closing(code, code.index("(", found.end() - 1 if code[found.end() - 1] == "(" else found.end()))
        if code[close:].startswith(" WHERE ("):
            close = _closing(code, close + 7)
        has_comma = found[0].startswith(",")
        if not has_comma and code[close] == ",":
            close += 1
        elif not has_comma:
            continue
        yield "dropped_constraint", (found.start(), close, "")


def _closing(code: str, opening: int) -> int:
    """Return the place after the parenthesis that closes the one at a place."""
    depth = 0
    for place in range(opening, len(code)):
        depth += {"(": 1, ")": -1}.get(code[place], 0)
        if not depth:
            return place + 1
    raise ValueError(f"a parenthesis is not closed: {code[opening : opening + 40]}")


def _elements(source: str, code: str, start: int, end: int) -> Iterator[tuple[str, Edit]]:
    """The first of the texts of an IN is left out."""
    for found in _ELEMENT.finditer(source, start, end):
        yield "dropped_element", (*found.span(), "")


# What reaches a statement ----------------------------------------------------------------------------


def names_of(source: str, head: str) -> dict[str, int]:
    """Return the tables, views and functions by whose use a statement is reached, with the number of steps to each.

    A function is reached by what calls it, and a trigger's function by the trigger's table.
    """
    statements = [(each.head, source[each.start : each.end]) for each in _statements(source)]
    found = {_subject(head): 0}
    for steps in (1, 2, 3):
        for other, text in statements:
            if any(
                re.search(rf"\b{name}\b", text)
                for name, at in found.items()
                if at == steps - 1 and _is_function(statements, name)
            ):
                found.setdefault(_subject(other), steps)
    return found


def _subject(head: str) -> str:
    words = head.split()
    if "ON" in words[2:]:
        return words[-1]
    if words[0] == "TABLE":
        return words[1]
    return words[-1]


def _is_function(statements: list[tuple[str, str]], name: str) -> bool:
    return any(head == f"FUNCTION {name}" for head, _ in statements)

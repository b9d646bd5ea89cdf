"""The limits of every declared field, as released: `declared_limits.txt` has them, by limit; a star marks what is required.

The other tests take a limit from its declaration, so they would follow a changed one. A limit that changes on purpose changes in
that file too. The limits of columns are held to the declarations by `tests/schema/test_limits.py`.
"""

import re
from collections import defaultdict
from pathlib import Path
from textwrap import TextWrapper
from typing import Any

from billing.rating.names import Names
from ledger.records import Nested
from ledger.values import ListOf, MapOf, Value
from tests.ledger.test_declarations import FIELDS

NAMES = ("least", "most", "max_keys", "choices", "only", "languages")


def limits(value: Value) -> str:
    """The limits of a type of values, and of what is in it."""
    found = [type(value).__name__]
    found += [f"{name}={getattr(value, name)!s}" for name in NAMES if getattr(value, name, None) is not None]
    pattern: Any = getattr(value, "pattern", None)
    found += [f"pattern={getattr(pattern, 'pattern', pattern)}"] if pattern else []
    found += ["null"] if value.null else []
    if isinstance(value, ListOf | MapOf | Names):
        found.append(f"of ({limits(value.child)})")
    if isinstance(value, Nested):
        found.append(f"of {value.shape.name}")
    return " ".join(found)


def table() -> str:
    by_limits: defaultdict[str, list[str]] = defaultdict(list)
    for shape, field in FIELDS:
        by_limits[limits(field.value)].append(f"{shape.name}.{field.name}{'*' if field.required else ''}")
    indented = TextWrapper(width=130, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False).fill
    return "".join(f"{each}\n{indented(' '.join(by_limits[each]))}\n" for each in sorted(by_limits))


def test_no_limit_of_a_declared_field_has_changed():
    assert table() == (Path(__file__).parent / "declared_limits.txt").read_text()


def test_the_table_says_what_may_differ():
    assert len(re.findall(r"^\S", table(), re.MULTILINE)) > 40
    assert "\nAmount least=1 most=9007199254740991\n" in f"\n{table()}"

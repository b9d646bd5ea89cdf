"""The parser, by property: whatever comes in, it gives an object or refuses, and nothing hostile takes it long."""

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.rest.kit.parsing import BEYOND_ANY_LIMIT, DEPTH_LIMIT, parse_object
from ledger.rest.kit.request_errors import MalformedRequest

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
SCALARS = st.none() | st.booleans() | st.integers(-(10**38), 10**39) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=20
)


def depth(value: Any) -> int:
    """How many objects and lists are inside each other at most."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if children is None else 1 + max(map(depth, children), default=0)


@given(st.dictionaries(TEXT, VALUES, max_size=5), st.booleans())
def test_plain_json_comes_through_as_it_is(value: dict[str, Any], ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    if depth(value) <= DEPTH_LIMIT:
        assert parse_object(body) == value


@given(st.binary(max_size=200) | st.text('{}[]",:\\u0d81 e1.-ntf', max_size=200).map(str.encode))
def test_any_bytes_are_an_object_or_refused(body: bytes) -> None:
    try:
        value = parse_object(body)
    except MalformedRequest as error:
        refused = error
    else:
        assert value == json.loads(body)
        assert depth(value) <= DEPTH_LIMIT
        return
    assert refused.field_errors


@given(st.lists(st.sampled_from("[{"), min_size=1, max_size=40))
def test_nesting_is_counted_exactly(opening: list[str]) -> None:
    inner: Any = 1
    for bracket in reversed(opening):
        inner = [inner] if bracket == "[" else {"]}[{": inner}
    body = json.dumps({'\\"[[[[[[[[[[[[[[[[[[[[[[[[[[': inner}).encode()
    if len(opening) < DEPTH_LIMIT:
        assert depth(parse_object(body)) == len(opening) + 1
    else:
        with pytest.raises(MalformedRequest) as refused:
            parse_object(body)
        assert refused.value.field_errors[0].code == "too-deep"


def test_integers_of_40_characters_are_read_and_longer_ones_become_one_that_is_beyond_any_limit() -> None:
    longest, longest_below_0 = b"9" * 40, b"-" + b"9" * 39
    body = b'{"a": ' + longest + b', "b": ' + longest_below_0 + b"}"
    assert parse_object(body) == {"a": int(longest), "b": int(longest_below_0)}

    too_long, far_too_long_below_0 = b"1" * 41, b"-" + b"1" * 60_000
    body = b'{"a": ' + too_long + b', "b": ' + far_too_long_below_0 + b"}"
    assert parse_object(body) == {"a": BEYOND_ANY_LIMIT, "b": -BEYOND_ANY_LIMIT}


LONGEST_CPU_S = 0.25
HOSTILE = [
    b'{"a": "' + b'\\"' * 32_000,
    b'{"a": "' + b"\\" * 65_001,
    b'"' * 65_000 + b"[" * 30,
    b"[" * 65_000,
    b"{" * 65_000,
    b'{"a":' * 13_000,
    b'["\\' + b"u0000" * 13_000,
    b'{"a": ' + b"1" * 65_000 + b"}",
    b'{"a": 1' + b"e" * 65_000 + b"}",
    b'{"a": 0.' + b"1" * 65_000 + b"}",
    b'{"a": "' + b"\\ud800" * 10_000 + b'"}',
    b"{" + b",".join(b'"%d": 0' % number for number in range(6000)) + b', "0": 1}',
]


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_bodies_of_64_kib_are_read_or_refused_quickly(body: bytes) -> None:
    started = time.process_time()
    with contextlib.suppress(MalformedRequest):
        parse_object(body)
    assert time.process_time() - started < LONGEST_CPU_S

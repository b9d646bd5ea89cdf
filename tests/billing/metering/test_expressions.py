"""Expressions over the properties of an event: the grammar, exact arithmetic against Python's `Fraction`, and every refusal."""

import contextlib
import re
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.metering.expressions import MAX_CHARACTERS, MAX_DEPTH, ExpressionWrong, NotComputable, parse_expression

TOKENS = {"input_tokens": 8, "output_tokens": "15.5", "gpu-hours": 0.25, "zero": 0, "text": "many", "yes": True, "list": [1]}


@pytest.mark.parametrize(
    ("text", "quantity"),
    [
        ("round(properties.input_tokens * 1.5 + properties.output_tokens, 2)", "27.5"),
        ("properties.input_tokens", "8"),
        ('properties["gpu-hours"] * 4', "1"),
        ("1 + 2 * 3 - 4 / 8", "6.5"),
        ("(1 + 2) * -3", "-9"),
        ("--2", "2"),
        ("8 / 4 / 2", "1"),
        ("7 - 4 - 2", "1"),
        # A third is exact until the end: three of them are one.
        ("properties.input_tokens / 3 * 3", "8"),
        ("1 / 3", "0.333333333333"),
        ("2 / 3", "0.666666666667"),
        ("round(2.5) + round(-2.5)", "0"),
        ("round(0.125, 2)", "0.13"),
        ("round(-0.125, 2)", "-0.13"),
        ("ceil(1.1) + floor(-1.1)", "0"),
        ("min(3, 1, 2) + max(1, properties.output_tokens)", "16.5"),
        ("  max( 1 ,\n2 )  ", "2"),
        ("0.1 + 0.2", "0.3"),
        ("(" * 19 + "1" + ")" * 19, "1"),
        ("1000000000 * 1000000000", "1000000000000000000"),
    ],
)
def test_the_quantity_of_an_expression(text: str, quantity: str) -> None:
    assert parse_expression(text).quantity_of(TOKENS) == Decimal(quantity)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "syntax"),
        ("1 +", "syntax"),
        ("1 2", "syntax"),
        ("(1", "syntax"),
        ("1)", "syntax"),
        ("1e5", "syntax"),
        (".5", "syntax"),
        ("1_000", "syntax"),
        ("tokens", "syntax"),
        ("properties", "syntax"),
        ("properties.", "syntax"),
        ("properties.a.b", "syntax"),
        ('properties["a\\"b"]', "syntax"),
        (f'properties["{"x" * 65}"]', "syntax"),
        ("properties.a ** 2", "syntax"),
        ("properties.a % 2", "syntax"),
        ("__import__('os')", "syntax"),
        ("abs(1)", "syntax"),
        ("round", "syntax"),
        ("round()", "syntax"),
        ("round(1, 13)", "syntax"),
        ("round(1, -1)", "syntax"),
        ("round(1, properties.a)", "syntax"),
        ("round(1, 999999999999999999999999)", "syntax"),
        ("round(1, 00000000000000000000000)", "syntax"),
        ("round(1, 0000000009999999999999)", "syntax"),
        ("round(1, 2, 3)", "arguments"),
        ("min(1)", "arguments"),
        ("ceil(1, 2)", "arguments"),
        ("٣", "syntax"),
        ("9" * 31, "too-many-digits"),
        ("(" * 20 + "1" + ")" * 20, "too-deep"),
        ("-" * 21 + "1", "too-deep"),
        ("1+" * 250 + "1", "too-long"),
    ],
)
def test_a_text_that_is_no_expression_is_refused_by_its_rule(text: str, rule: str) -> None:
    with pytest.raises(ExpressionWrong) as refused:
        parse_expression(text)
    assert refused.value.rule == rule


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("ceil(1, 2)", "ceil has 1 arguments, not 2"),
        ("round(1, 2, 3)", "round has 1 to 2 arguments, not 3"),
    ],
)
def test_a_function_says_how_many_arguments_it_has(text: str, detail: str) -> None:
    with pytest.raises(ExpressionWrong) as refused:
        parse_expression(text)
    assert refused.value.detail == detail


@pytest.mark.parametrize(
    ("text", "pointer", "rule"),
    [
        ("properties.other", "/properties/other", "required"),
        ('properties["a/b~c"]', "/properties/a~1b~0c", "required"),
        ("properties.text", "/properties/text", "not-a-number"),
        ("properties.yes", "/properties/yes", "not-a-number"),
        ("properties.list", "/properties/list", "not-a-number"),
        ("1 / properties.zero", "/properties", "division-by-zero"),
        ("1 / (properties.input_tokens - 8)", "/properties", "division-by-zero"),
        ("1000000000 * 1000000001", "/properties", "too-large"),
    ],
)
def test_properties_without_a_quantity_are_refused_by_name_and_rule(text: str, pointer: str, rule: str) -> None:
    with pytest.raises(NotComputable) as refused:
        parse_expression(text).quantity_of(TOKENS)
    assert (refused.value.pointer, refused.value.rule) == (pointer, rule)


@pytest.mark.parametrize("number", ["1e31", "-1e31", "9.9e-31", "1e-40", "9" * 31, "0." + "1" * 31])
def test_numbers_of_too_many_digits_are_refused(number: str) -> None:
    with pytest.raises(NotComputable) as refused:
        parse_expression("properties.n").quantity_of({"n": number})
    assert refused.value.rule == "too-many-digits"


def test_the_longest_and_the_deepest_expressions_are_computed() -> None:
    long = "+".join(["1"] * (MAX_CHARACTERS // 2))
    assert parse_expression(long).quantity_of({}) == MAX_CHARACTERS // 2
    assert parse_expression("(" * 19 + "7" + ")" * 19).quantity_of({}) == 7
    product = "*".join(["properties.a"] * 38) + "/9"
    with pytest.raises(NotComputable, match="beyond"):
        parse_expression(product).quantity_of({"a": "9" * 30})


def test_a_result_of_thirty_digits_is_exact() -> None:
    number = "123456789012345678.123456789012"
    assert f"{parse_expression('properties.n').quantity_of({'n': number}):f}" == number
    assert f"{parse_expression('-properties.n / 3').quantity_of({'n': number}):f}" == "-41152263004115226.041152263004"
    assert parse_expression("properties.n").quantity_of({"n": "1e18"}) == 10**18
    assert parse_expression("properties.n * properties.m").quantity_of({"n": "1e30", "m": "1e-30"}) == 1


# Against Fraction ------------------------------------------------------------------------------------

NAMES = ("a", "b", "c d")
numbers = st.decimals(min_value=0, max_value=1000, places=3).map(lambda number: f"{number:f}")


def rounded(number: Fraction, decimals: int = 0) -> Fraction:
    """Half away from zero, by the whole part of twice the number: not as the product does it."""
    scaled = abs(number) * 10**decimals
    whole = floor(scaled * 2)
    sign = -1 if number < 0 else 1
    return sign * Fraction((whole + 1) // 2, 10**decimals)


def binary(sign: str) -> Any:
    """Two operands in parentheses, as text and as a function."""
    operations: dict[str, Any] = {
        "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y, "/": lambda x, y: x / y,
    }  # fmt: skip
    return lambda pair: (f"({pair[0][0]} {sign} {pair[1][0]})", lambda p: operations[sign](pair[0][1](p), pair[1][1](p)))


leaves = st.one_of(
    numbers.map(lambda text: (text, lambda p: Fraction(text))),
    st.sampled_from(NAMES).map(lambda name: (f'properties["{name}"]', lambda p: Fraction(p[name]))),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        *(st.tuples(inner, inner).map(binary(sign)) for sign in "+-*/"),
        inner.map(lambda one: (f"-{one[0]}", lambda p: -one[1](p))),
        inner.map(lambda one: (f"ceil({one[0]})", lambda p: Fraction(ceil(one[1](p))))),
        inner.map(lambda one: (f"floor({one[0]})", lambda p: Fraction(floor(one[1](p))))),
        st.tuples(inner, st.integers(0, 12)).map(
            lambda one: (f"round({one[0][0]}, {one[1]})", lambda p: rounded(one[0][1](p), one[1]))
        ),
        st.tuples(inner, inner).map(lambda one: (f"min({one[0][0]}, {one[1][0]})", lambda p: min(one[0][1](p), one[1][1](p)))),
        st.tuples(inner, inner).map(lambda one: (f"max({one[0][0]}, {one[1][0]})", lambda p: max(one[0][1](p), one[1][1](p)))),
    ),
    max_leaves=8,
)


def assert_computes(text: str, compute: Any, properties: dict[str, str]) -> None:
    """Compare an expression with a function of its properties."""
    try:
        expression = parse_expression(text)
    except ExpressionWrong:
        assert len(text) > MAX_CHARACTERS or text.count("(") + text.count("-") > MAX_DEPTH
        return
    try:
        expected = rounded(compute(properties), 12)
    except ZeroDivisionError:
        with pytest.raises(NotComputable, match="divides by zero"):
            expression.quantity_of(properties)
        return
    if abs(expected) > 10**18:
        with pytest.raises(NotComputable, match="beyond"):
            expression.quantity_of(properties)
        return
    assert Fraction(expression.quantity_of(properties)) == expected


@given(trees, st.fixed_dictionaries(dict.fromkeys(NAMES, numbers)))
def test_an_expression_is_what_fractions_come_to(tree: Any, properties: dict[str, str]) -> None:
    assert_computes(*tree, properties)


def chained(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Operands with signs between them, without the parentheses that would say what comes first."""
    operand = st.one_of(inner, inner.map("-{}".format), inner.map("({})".format))
    return st.tuples(operand, st.lists(st.tuples(st.sampled_from("+-*/"), operand), max_size=4)).map(
        lambda chain: chain[0] + "".join(f" {sign} {item}" for sign, item in chain[1])
    )


@given(st.recursive(numbers | st.just("properties.a"), chained, max_leaves=12), numbers)
def test_signs_bind_as_they_do_in_python(text: str, a: str) -> None:
    in_python = re.sub(r"[0-9]+(\.[0-9]+)?", lambda number: f"Fraction('{number[0]}')", text)
    names = {"Fraction": Fraction, "properties": SimpleNamespace(a=Fraction(a))}
    assert_computes(text, lambda properties: eval(in_python, names), {"a": a})


@given(st.text(max_size=60) | st.text(alphabet='()+-*/,.0123 properties[]"roundmixcelf', max_size=60))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    with contextlib.suppress(ExpressionWrong, NotComputable):
        parse_expression(text).quantity_of({})

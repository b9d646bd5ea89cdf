"""Faults at the fields of forms: in the words of the form, never the names of the API or of Python."""

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.urls import get_resolver

from billing.admin.order_forms import prices
from billing.admin.run_sentences import SUSPENDED, why_not_billed
from billing.rating.prices.price import MODELS, PriceKind
from billing.rating.prices.reading import FIELDS, PriceInvalid, parse_price
from ledger.records import Shape, shape_of
from ledger.staff.kit.fault_words import say_labels
from ledger.staff.kit.form_fields import Display
from ledger.staff.kit.idempotent_forms import RequestForm, names_of, sentence

PROGRAMMED = re.compile(r"[a-z0-9]_[a-z0-9]|`|\b(None|True|False|Decimal|null|JSON)\b|[a-z]+Error\b|\[[A-Za-z0-9]+-")
"""What a sentence for people does not have: names with underscores, backticks, values of Python and JSON, patterns."""
FOLDERS = (
    *(f"ledger/{folder}" for folder in ("rules", "services", "signals")),
    *(f"billing/{folder}" for folder in ("documents", "orders", "payments", "rating")),
)
TEXT_OF_A_FIELD = {"unit_amount": "-1", "tiers": [{"rate": "1", "unit_amount": "2"}, {"up_to": 3}], "kind": "nix", "model": "nix"}
"""Values that have faults of their own; the others are of a wrong type."""


def subclasses_of(form: type[Any]) -> Iterator[type[Any]]:
    for each in form.__subclasses__():
        yield each
        yield from subclasses_of(each)


def words_of_all_forms() -> dict[str, str]:
    """What some form calls each name."""
    assert get_resolver().reverse_dict  # imports the pages, and with them their forms
    words = dict(prices.WORDS)
    for form in subclasses_of(RequestForm):
        if hasattr(form, "declared") and hasattr(form, "shows"):
            shape = form.declared if isinstance(form.declared, Shape) else shape_of(form.declared)
            words |= dict.fromkeys(names_of(shape), "a label")
            for name, shown in form.shows.items():
                words[name] = "a label"
                words |= {str(each): "a word" for each in (shown.words if isinstance(shown, Display) else ())}
    return words


def details() -> Iterator[tuple[str, str]]:
    """Each sentence about a fault in the sources, with where it is; `…` stands for what is put in."""
    for folder in FOLDERS:
        for file in (settings.BASE_DIR / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                yield from ((f"{file.relative_to(settings.BASE_DIR)}:{node.lineno}", text) for text in texts_of(node))


def texts_of(node: ast.AST) -> Iterator[str]:
    """The sentences that a call, an assignment to `detail` or a misfit that is yielded has."""
    match node:
        case ast.Call(func=ast.Name(id="Invalid"), keywords=keywords):
            yield from (text_of(each.value) for each in keywords if each.arg == "detail")
        case ast.Call(func=ast.Name(id="FieldError" | "InvalidValue"), args=[*_, last]):
            yield text_of(last)
        case ast.Assign(targets=[ast.Name(id="detail")], value=value):
            yield text_of(value)
        case ast.Yield(value=ast.Tuple(elts=[_, _, text])):
            yield text_of(text)


def text_of(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=values):
            return "".join(each.value if isinstance(each, ast.Constant) else "…" for each in values)
        case ast.IfExp(body=body, orelse=orelse):
            return f"{text_of(body)} {text_of(orelse)}"
        case ast.BinOp(left=left, right=right):
            return text_of(left) + text_of(right)
    return ""


def test_each_sentence_about_a_fault_is_said_with_labels_where_a_form_shows_it():
    words = words_of_all_forms()
    found = list(details())
    assert len(found) > 150
    told = {where: text for where, text in found if PROGRAMMED.search(say_labels(text.replace("`…`", "…"), words))}
    assert told == {}


def test_no_price_that_fits_badly_is_refused_in_names_of_the_api():
    said = set()
    for model in MODELS:
        for kind in PriceKind:
            for name in FIELDS:
                given = {"key": "a", "kind": kind.value, "model": model, name: TEXT_OF_A_FIELD.get(name, {"nix": 1})}
                with pytest.raises(PriceInvalid) as invalid:
                    parse_price(given)
                said |= {sentence(say_labels(error.detail, prices.WORDS)) for error in invalid.value.errors}
    assert {each for each in said if PROGRAMMED.search(each)} == set()
    assert len(said) > 60
    assert "A price of model “per unit” has no “Free events”." in said
    assert "A price of kind “every period” has no “Meter”." in said


def test_each_reason_to_suspend_billing_is_said_in_words():
    limits = ast.parse((settings.BASE_DIR / "billing/generator/difference/run_limits.py").read_text())
    calls = [node for node in ast.walk(limits) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    reasons = {text_of(call.args[0]) for call in calls if call.func.id == "OutOfBounds"}  # type: ignore[attr-defined]
    assert reasons == SUSPENDED.keys()
    assert why_not_billed("unusual-amount") == "the amount is far above the usual one"
    assert why_not_billed("ValueError: too long") == "too long"


def test_names_that_the_form_does_not_know_stay_as_they_were_typed():
    assert (
        say_labels("There is no seller my_seller; give `seller`.", {"seller": "Seller"})
        == "There is no seller my_seller; give “Seller”."
    )
    assert say_labels("the key 'free_units' is taken", {"free_units": "Free units"}) == "the key 'free_units' is taken"

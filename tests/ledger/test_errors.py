"""Errors go through pickle and copy with their facts, as task queues and pools of processes send them."""

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import billing.errors  # noqa: F401 - defines billing's classes of errors
from credit_ledger import problems  # noqa: F401 - defines the classes of problems
from credit_ledger.problem import CreditLedgerError, Problem, facts_of
from ledger import services
from ledger.errors import InsufficientCredits, LedgerError
from ledger.rest.kit import request_errors  # noqa: F401
from ledger.values import FieldError

COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),
    "oldest pickle": lambda error: pickle.loads(pickle.dumps(error, protocol=2)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def all_below(base: type[Any]) -> list[type[Any]]:
    """The class and its subclasses, each once."""
    found = {base: None}
    for each in base.__subclasses__():
        found |= dict.fromkeys(all_below(each))
    return list(found)


def of_server(error_class: type[LedgerError]) -> LedgerError:
    """An error with some fact under each name that the class declares."""
    if error_class.__init__ is LedgerError.__init__:
        names = {
            name
            for base in error_class.__mro__
            for name, text in vars(base).get("__annotations__", {}).items()
            if "ClassVar" not in str(text)
        }
        return error_class(**{name: [name] for name in names})
    arguments = inspect.signature(error_class).parameters.values()
    fault = FieldError("/amount", "type", "Must be a number.")
    if any(each.kind is each.KEYWORD_ONLY for each in arguments):
        return error_class(**{each.name: each.name for each in arguments})
    return error_class(*([fault] if any(each.kind is each.VAR_POSITIONAL for each in arguments) else [[fault]] * len(arguments)))


def of_client(error_class: type[CreditLedgerError]) -> CreditLedgerError:
    """An error as the client makes it."""
    if issubclass(error_class, Problem):
        body = {name: [name] for name in facts_of(error_class)} | {"type": "…/some-problem", "title": "Some", "request_id": "r"}
        return error_class(409, body)
    if error_class.__init__ is Exception.__init__:
        return error_class("because")
    named = [each for each in inspect.signature(error_class).parameters.values() if each.kind is each.KEYWORD_ONLY]
    return error_class(**{each.name: each.name for each in named})


@pytest.mark.parametrize("how", COPIES)
def test_every_error_of_server_and_client_is_copied_with_all_that_it_has(how: str) -> None:
    made = [*map(of_server, all_below(LedgerError)), *map(of_client, all_below(CreditLedgerError))]
    assert len(made) > 200
    for error in made:
        copied = COPIES[how](error)
        assert type(copied) is type(error)
        assert (str(copied), copied.args, repr(vars(copied))) == (str(error), error.args, repr(vars(error)))


@pytest.mark.parametrize("how", COPIES)
def test_a_refusal_keeps_its_facts(how: str, db: None) -> None:
    with pytest.raises(InsufficientCredits) as refused:
        services.spend(holder_id="ada", amount=10, idempotency_key="s", actor="test")
    copied = COPIES[how](refused.value)
    assert (copied.shortfall, copied.facts["available"], copied.replayed) == (10, 0, False)
    assert copied.facts == refused.value.facts

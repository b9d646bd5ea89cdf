"""Operators who decide about one form at once: there is one decision."""

from collections.abc import Callable
from threading import Barrier
from typing import Any

import pytest
from django.db import connection, transaction

from ledger.database.lock_names import OPERATOR_STAKES
from ledger.database.transactions import locked_transaction
from ledger.staff import approvals
from ledger.staff.approvals import APPROVED, DECLINED
from ledger.testing import unique

OPERATORS = 8


@pytest.fixture
def asked(committed_db: None) -> int:
    """A form that waits."""
    return approvals.ask(
        key=unique("form"),
        title="Grant",
        path="/",
        query="",
        form={},
        totals={"credits": 1},
        reason="",
        requested_by="admin:mara",
    )


def test_of_operators_who_decide_at_once_one_decides(asked: int, run_threads: Callable[..., list[Any]]) -> None:
    def decide(number: int) -> bool:
        return approvals.decide(asked, decision=(APPROVED, DECLINED)[number % 2], decided_by=f"admin:{number}")

    assert sorted(run_threads(decide, OPERATORS)) == [False] * (OPERATORS - 1) + [True]


def test_control_without_the_key_each_of_them_decides(asked: int, run_threads: Callable[..., list[Any]]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA IF NOT EXISTS control")
        cursor.execute("CREATE TABLE IF NOT EXISTS control.decisions (approval_id bigint, decided_by text)")

    def decide(number: int) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO control.decisions VALUES (%s, %s)", [asked, f"admin:{number}"])
            return bool(cursor.rowcount == 1)

    assert run_threads(decide, OPERATORS) == [True] * OPERATORS


def admit(key: str, operator: str) -> bool:
    """Let a form of 60 of 100 credits through."""
    return approvals.admit(key=key, form_digest=bytes(32), totals={"credits": 60}, operator=operator)


def test_of_forms_that_one_operator_sends_at_once_those_up_to_the_limit_are_let_through(
    committed_db: None, run_threads: Callable[..., list[Any]], settings: Any
) -> None:
    settings.LEDGER = {**settings.LEDGER, "SECOND_OPERATOR_ABOVE": ["credits=100"]}
    operator = unique("admin")

    def send(number: int) -> bool:
        with locked_transaction(OPERATOR_STAKES(operator)):
            return admit(f"{operator}-{number}", operator)

    assert sorted(run_threads(send, OPERATORS)) == [False] * (OPERATORS - 1) + [True]


def test_control_without_the_lock_they_pass_each_other(
    committed_db: None, run_threads: Callable[..., list[Any]], settings: Any
) -> None:
    settings.LEDGER = {**settings.LEDGER, "SECOND_OPERATOR_ABOVE": ["credits=100"]}
    operator, both_have_written = unique("admin"), Barrier(2)

    def send(number: int) -> bool:
        with transaction.atomic():
            is_let_through = admit(f"{operator}-{number}", operator)
            both_have_written.wait()
            return is_let_through

    assert run_threads(send, 2) == [True, True]

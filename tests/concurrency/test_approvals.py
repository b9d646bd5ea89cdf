"""Operators who decide about one form at once: there is one decision."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from ledger.operators import approvals
from ledger.operators.approvals import APPROVED, DECLINED, Stake
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
        stake=Stake("credits", 1),
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

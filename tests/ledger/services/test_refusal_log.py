"""A refusal outside an API call has a line of the log, with the facts that find it again."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.db import transaction

from ledger import services
from ledger.database.locks import holder_lock
from ledger.errors import InsufficientCredits
from ledger.rules.requests import GrantRequest, SpendRequest
from tests.ledger.staff.admin_site import hidden_key, operator

pytestmark = pytest.mark.django_db
Lines = Callable[[], list[tuple[str, dict[str, Any]]]]


@pytest.fixture
def lines(
    caplog: pytest.LogCaptureFixture, django_capture_on_commit_callbacks: Callable[..., AbstractContextManager[list[Any]]]
) -> Lines:
    """Ada has 5 credits. What the log has of refusals, once all that was committed is committed."""
    caplog.set_level(logging.INFO, logger="ledger.refusals")
    services.grant(holder_id="ada", amount=5, idempotency_key="grant")
    committing = django_capture_on_commit_callbacks(execute=True)
    committing.__enter__()

    def committed() -> list[tuple[str, dict[str, Any]]]:
        committing.__exit__(None, None, None)
        return [(record.getMessage(), record.facts) for record in caplog.records if record.name == "ledger.refusals"]  # type: ignore[attr-defined]

    return committed


def test_a_spend_that_is_refused_has_a_line_and_one_that_is_not_has_none(lines: Lines) -> None:
    services.spend(holder_id="ada", amount=1, idempotency_key="job-0")
    for _ in range(2):
        with pytest.raises(InsufficientCredits):
            services.spend(holder_id="ada", amount=9, idempotency_key="job-1", actor="command:demo", request_id="r-1")
    facts = {
        "problem": "insufficient-credits", "holder": "ada", "credit_type": "credits", "idempotency_key": "job-1",
        "actor": "command:demo", "request_id": "r-1",
    }  # fmt: skip
    assert lines() == [("spend refused", facts), ("spend refused", facts | {"replayed": True})]


def test_each_refused_operation_of_a_batch_has_a_line_once(lines: Lines) -> None:
    asked = [
        GrantRequest(holder_id="ben", amount=1, idempotency_key="b-1"),
        SpendRequest(holder_id="ada", amount=9, idempotency_key="b-2"),
        SpendRequest(holder_id="ben", amount=9, idempotency_key="b-3"),
    ]
    for _ in range(2):
        services.batch(asked, mode="each", idempotency_key="night")
    assert [(facts["idempotency_key"], facts["batch"], facts["problem"]) for _, facts in lines()] == [
        ("b-2", "night", "insufficient-credits"),
        ("b-3", "night", "insufficient-credits"),
    ]


def test_of_an_atomic_batch_the_operation_that_ended_it_has_a_line(lines: Lines) -> None:
    asked = [SpendRequest(holder_id="ada", amount=amount, idempotency_key=f"a-{amount}") for amount in (1, 9, 2)]
    services.batch(asked, mode="atomic", idempotency_key="night")
    assert [facts["idempotency_key"] for _, facts in lines()] == ["a-9"]


def test_a_dry_run_has_no_line(lines: Lines) -> None:
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=9, idempotency_key="job-1", dry_run=True)
    services.batch([SpendRequest(holder_id="ada", amount=9, idempotency_key="b")], mode="each", idempotency_key="n", dry_run=True)
    assert lines() == []


def test_what_is_rolled_back_has_no_line_and_what_is_committed_has_one(lines: Lines) -> None:
    def refused(*, key: str, is_kept: bool) -> None:
        with transaction.atomic(), holder_lock("ada") as lock:
            with pytest.raises(InsufficientCredits):
                services.spend_under(lock, holder_id="ada", amount=9, idempotency_key=key)
            transaction.set_rollback(not is_kept)

    refused(key="undone", is_kept=False)
    refused(key="kept", is_kept=True)
    assert [facts["idempotency_key"] for _, facts in lines()] == ["kept"]


def test_an_operators_refusal_has_a_line_with_the_operators_name(lines: Lines) -> None:
    services.spend(holder_id="ada", amount=3, idempotency_key="job")
    client, address = operator(name="olga"), f"/admin/ledger/entrylisting/{quote('ada/credits/2')}/refund/"
    key = hidden_key(client.get(address).content.decode())
    assert (
        client.post(address, {"idempotency_key": key, "confirmed": "yes", "amount": "9", "reason": "a mistake"}).status_code
        == 422
    )
    ((message, facts),) = lines()
    assert (message, facts["problem"], facts["actor"]) == ("refund refused", "refund-exceeds-spend", "admin:olga")

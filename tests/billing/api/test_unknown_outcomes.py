"""A billing write whose COMMIT loses its connection has an unknown outcome, until the same key tells it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from billing.errors import NotFound
from billing.generator.options import Options
from billing.generator.run import outcomes
from billing.orders import customers
from ledger.errors import OutcomeUnknown
from tests.asgi_client import AsgiClient
from tests.billing.factories import recurring, unique
from tests.ledger.database.test_transactions import END_DURING_COMMIT, END_OF_SESSION
from tests.ledger.rest.conftest import ApiClient


@pytest.fixture
def committing_api(committed_db: None, make_api: Callable[..., ApiClient]) -> Iterator[ApiClient]:
    """A client whose requests commit, all on this thread's connection."""
    api = make_api("billing:read", "billing:write", name=unique("shop"))
    api.client = AsgiClient(on_this_connection=True)
    yield api
    connection.close()


def loses_its_session(sql: str, at: str) -> Callable[..., Any]:
    """Return a wrapper that executes SQL, by which the server ends the session, after a statement that has this text."""

    def execute_both(execute: Any, statement: str, *rest: Any) -> Any:
        result = execute(statement, *rest)
        if at in statement:
            with connection.cursor() as cursor:
                cursor.execute(sql)
        return result

    return execute_both


def interval() -> dict[str, Any]:
    return {"unit": "month", "count": 1}


WRITES = {
    "customers": lambda: ("/v1/customers", {"ref": unique("CUST"), "name": "Ada", "currency": "EUR"}),
    "plans": lambda: (
        "/v1/plans",
        {"ref": unique("plan"), "name": "Basic", "currency": "EUR", "interval": interval(), "prices": [recurring()]},
    ),
    "usage events": lambda: (
        "/v1/usage-events",
        {
            "events": [
                {
                    "idempotency_key": unique("event"),
                    "subscription": "SUB-of-nobody",
                    "meter": "calls",
                    "value": 1,
                    "occurred_at": "2026-01-10T00:00:00Z",
                }
            ]
        },
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_billing_write_whose_connection_is_lost_during_commit_is_unknown_until_it_is_repeated(committing_api, name):
    path, body = WRITES[name]()
    key = unique("key")
    with connection.execute_wrapper(loses_its_session(END_DURING_COMMIT, 'INSERT INTO "billing_requestkey"')):
        lost = committing_api.post(path, body, key=key)
    problem = lost.json()
    assert (lost.status_code, problem["type"].rsplit("/", 1)[1], problem["outcome"]) == (503, "outcome-unknown", "unknown")
    assert lost["Retry-After"] == "1"
    connection.close()
    again = committing_api.post(path, body, key=key)
    assert again.status_code in (200, 201), again.content
    assert committing_api.post(path, body, key=key)["Idempotency-Replayed"] == "true"


def test_control_a_billing_write_whose_connection_is_lost_before_commit_was_not_executed(committing_api):
    path, body = WRITES["customers"]()
    with connection.execute_wrapper(loses_its_session(END_OF_SESSION, 'INSERT INTO "billing_requestkey"')):
        lost = committing_api.post(path, body)
    problem = lost.json()
    assert (lost.status_code, problem["outcome"]) == (503, "not_executed")
    assert problem["type"].endswith("/database-unavailable")
    connection.close()
    with pytest.raises(NotFound):
        customers.customer_of(body["ref"])


def test_a_service_that_commits_by_itself_says_that_its_outcome_is_unknown(committing_api):
    """Commands and Python callers have no key: they learn it by reading."""
    with (
        connection.execute_wrapper(loses_its_session(END_DURING_COMMIT, 'INSERT INTO "billing_customer"')),
        pytest.raises(OutcomeUnknown),
    ):
        customers.create_customer(ref=unique("CUST"), name="Ada", currency="EUR")


def test_a_subscription_whose_billing_is_unknown_is_tried_again_by_the_run(committed_db):
    def lose(**_: Any) -> Any:
        raise OutcomeUnknown(subscription="SUB-7")

    done = outcomes.bill_one("SUB-7", Options(as_of=None), lose)  # type: ignore[arg-type]
    assert done.outcome in outcomes.RETRY
    assert "outcome is unknown" in done.detail

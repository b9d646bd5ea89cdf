"""VAT ids that are looked up while others write: no lock and no transaction waits for VIES, and nothing is asked twice."""

import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test import Client
from django.utils import timezone

from billing.models import Customer, VatCheck, VatLookup
from billing.orders import customers
from billing.tax_services import checking
from billing.tax_services import vies as vies_client
from ledger.testing import unique
from tests.billing.api.test_unknown_outcomes import committing_api, loses_its_session
from tests.billing.factories import CustomerFactory
from tests.billing.tax_services.conftest import vies
from tests.billing.tax_services.vies_double import ViesDouble, valid
from tests.concurrency.meetings import LOCKED
from tests.concurrency.race_harness import no_lock
from tests.ledger.database.test_transactions import END_DURING_COMMIT
from tests.ledger.rest.conftest import ApiClient, make_api, way
from tests.nodes import Session

__all__ = ["committing_api", "make_api", "vies", "way"]

FR, FR_2 = "FR40303265045", "FR23334175221"
# Without the thread that notes when keys were used.
BUSY = """
    SELECT (SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND state LIKE 'idle in transaction%' AND query NOT LIKE '%ledger_api_key%'
                AND pid <> pg_backend_pid()),
        (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
"""
WAITING = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "within"])
def test_while_vies_is_asked_no_transaction_is_open_and_no_lock_is_held(
    committed_db: None,
    make_api: Any,
    vies: ViesDouble,
    raw_connection: Callable[..., Session],
    monkeypatch: pytest.MonkeyPatch,
    is_before: bool,
) -> None:
    """The control asks within the transaction of the write, and then both are there."""
    observer = raw_connection(autocommit=True)
    seen: list[Any] = []

    def observed(asked: dict[str, Any]) -> Any:
        seen.append(observer.execute(BUSY).fetchone())
        return valid(asked)

    vies.answers = observed
    if not is_before:
        create = customers.create
        monkeypatch.setattr(customers, "look_up_before", lambda request: None)
        monkeypatch.setattr(customers, "create", lambda request, lookup: create(request, vies_client.look_up(request.vat_id)))
    ref = unique("CUST")
    api = make_api("billing:read", "billing:write")
    assert api.post("/v1/customers", {"ref": ref, "name": "ACME", "currency": "EUR", "vat_id": FR}, key=ref).status_code == 201
    [(transactions, locks)] = seen
    assert (transactions == 0, locks == 0) == (is_before, is_before)
    assert VatLookup.objects.get(customer__ref=ref).outcome == "valid"


@LOCKED
def test_two_commands_never_take_the_same_id(
    committed_db: None,
    vies: ViesDouble,
    raw_connection: Callable[..., Session],
    run_threads: Any,
    monkeypatch: pytest.MonkeyPatch,
    is_locked: bool,
) -> None:
    """The first one commits when the second one waits: for the lock, or without it for the row that the first has taken."""
    for _ in range(2):
        CustomerFactory(vat_id=FR)
    if not is_locked:
        monkeypatch.setattr(checking, "locked_transaction", without_lock)
    observer = raw_connection(autocommit=True)
    fetch_rows, is_first = checking.fetch_rows, threading.Lock()

    def until_the_other_waits(*arguments: Any) -> Any:
        rows = fetch_rows(*arguments)
        if is_first.acquire(blocking=False):
            deadline = time.monotonic() + 60
            while not observer.execute(WAITING).fetchone()[0]:
                assert time.monotonic() < deadline
        return rows

    monkeypatch.setattr(checking, "fetch_rows", until_the_other_waits)
    taken = run_threads(lambda _: checking._take(), 2)
    assert all(isinstance(one, tuple) for one in taken), taken
    assert (taken[0] != taken[1]) is is_locked


@contextmanager
def without_lock(*names: str) -> Any:
    """The transaction without its lock."""
    with transaction.atomic(), no_lock(*names) as lock:
        yield lock


def test_of_two_calls_with_one_key_at_once_both_ask_and_one_writes(vies: ViesDouble, make_api: Any, run_threads: Any) -> None:
    both_ask = threading.Barrier(2)
    ref = unique("CUST")
    secret = make_api("billing:read", "billing:write").secret

    def answer(asked: dict[str, Any]) -> Any:
        both_ask.wait(60)
        return valid(asked)

    def call(_: int) -> Any:
        body = {"ref": ref, "name": "ACME", "currency": "EUR", "vat_id": FR}
        return ApiClient(secret, Client()).post("/v1/customers", body, key=ref)

    vies.answers = answer
    made = run_threads(call, 2)
    assert [response.status_code for response in made] == [201, 201]
    assert sorted(response.get("Idempotency-Replayed", "false") for response in made) == ["false", "true"]
    assert (len(vies.asked), VatLookup.objects.filter(customer__ref=ref).count()) == (2, 1)


def test_a_lost_commit_is_repeated_and_leaves_one_lookup(committing_api: Any, vies: ViesDouble) -> None:
    ref = unique("CUST")
    body = {"ref": ref, "name": "ACME", "currency": "EUR", "vat_id": FR}
    with connection.execute_wrapper(loses_its_session(END_DURING_COMMIT, 'INSERT INTO "billing_requestkey"')):
        lost = committing_api.post("/v1/customers", body, key=ref)
    assert (lost.status_code, lost.json()["outcome"]) == (503, "unknown")
    connection.close()
    assert committing_api.post("/v1/customers", body, key=ref).status_code == 201
    assert committing_api.post("/v1/customers", body, key=ref)["Idempotency-Replayed"] == "true"
    assert VatLookup.objects.filter(customer__ref=ref).count() == VatCheck.objects.filter(customer__ref=ref).count() == 1


def test_of_two_changes_at_once_each_keeps_what_was_said_about_its_own_id(committed_db: None, vies: ViesDouble) -> None:
    """While VIES is asked about the first id, another call stores the second one; then the first is stored."""
    customer = CustomerFactory()

    def change_the_customer(asked: dict[str, Any]) -> Any:
        if asked["vatNumber"] == FR[2:]:
            change(FR_2)
            connections.close_all()
        return valid(asked)

    def change(vat_id: str) -> Customer:
        request = customers.CustomerChange(ref=customer.ref, vat_id=vat_id)
        return customers.change(request, customers.look_up_before(request))

    vies.answers = change_the_customer
    assert change(FR).vat_id == FR
    rows = VatLookup.objects.filter(customer=customer).order_by("pk")
    assert list(rows.values_list("vat_id", "outcome")) == [(FR_2, "valid"), (FR, "valid")]
    assert VatCheck.objects.values_list("outcome", "tries").get(customer=customer) == ("valid", 0)


def test_an_id_that_seemed_to_stay_and_did_not_is_looked_up_afterwards(committed_db: None, vies: ViesDouble) -> None:
    """A call that stores the id as it is asks nobody; another call changes the id before it takes the lock."""
    customer = CustomerFactory()
    for vat_id in (FR, FR_2):
        request = customers.CustomerChange(ref=customer.ref, vat_id=vat_id)
        if vat_id == FR:
            customers.change(request, customers.look_up_before(request))
        else:
            stays = customers.CustomerChange(ref=customer.ref, vat_id=FR)
            found = customers.look_up_before(stays)
            customers.change(request, customers.look_up_before(request))
            customers.change(stays, found)
    assert (found, Customer.objects.get(pk=customer.pk).vat_id) == (None, FR)
    check = VatCheck.objects.get(customer=customer)
    assert (check.outcome, check.tries, check.due_at <= timezone.now()) == ("", 0, True)

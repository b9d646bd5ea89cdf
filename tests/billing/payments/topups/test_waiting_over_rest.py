"""A spend or hold that waits for a top-up over REST, both ways in: with committed data, because its threads have connections."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections

from ledger import services
from ledger.models import Entry
from ledger.rest.kit import endpoint
from ledger.rest.kit.front import news
from tests.billing.payments.topups.test_waiting import TOP_UP, comes
from tests.ledger.rest.conftest import ALL_SCOPES, ApiClient

pytestmark = pytest.mark.usefixtures("committed_db")


def grant(holder: str, key: str) -> None:
    services.grant(holder_id=holder, amount=60, idempotency_key=key)


def refusals(holder: str) -> int:
    return Entry.objects.filter(kind="refusal", holder_id=holder).count()


def test_a_spend_and_a_hold_wait(monkeypatch: pytest.MonkeyPatch, make_api: Any, new_holder: Any) -> None:
    api: ApiClient = make_api(*ALL_SCOPES)
    holder = new_holder()
    comes(monkeypatch, does=lambda: grant(holder, "g"))
    assert api.post(f"/v1/holders/{holder}/spends?wait=4", {"amount": 50}, key="1").status_code == 201
    assert refusals(holder) == 0
    comes(monkeypatch, does=lambda: grant(holder, "h"))
    assert api.post(f"/v1/holders/{holder}/holds?wait=4", {"amount": 50}, key="2").status_code == 201
    assert api.post(f"/v1/holders/{holder}/spends?wait=4", {"amount": 50}, key="1")["Idempotency-Replayed"] == "true"


def test_a_spend_that_waits_is_woken_by_the_grant(monkeypatch: pytest.MonkeyPatch, make_api: Any, new_holder: Any) -> None:
    api: ApiClient = make_api(*ALL_SCOPES)
    holder, is_asked = new_holder(), threading.Event()
    comes(monkeypatch, does=is_asked.set)

    def wait() -> Any:
        try:
            return api.post(f"/v1/holders/{holder}/spends?wait=4", {"amount": 50}, key="1")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        assert is_asked.wait(30)
        grant(holder, "g")
        response = waiting.result()
    assert (response.status_code, response.json()["balance"], refusals(holder)) == (201, 10, 0)


def test_the_time_ends_with_the_refusal(monkeypatch: pytest.MonkeyPatch, make_api: Any, new_holder: Any) -> None:
    api: ApiClient = make_api(*ALL_SCOPES)
    holder = new_holder()
    comes(monkeypatch)
    first = api.post(f"/v1/holders/{holder}/spends?wait=1", {"amount": 50}, key="1")
    assert (first.status_code, first["Retry-After"], first.json()["top_up"], refusals(holder)) == (402, "5", TOP_UP, 1)
    assert api.post(f"/v1/holders/{holder}/spends?wait=4", {"amount": 50}, key="1").content == first.content


def test_one_more_than_may_wait_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, make_api: Any, new_holder: Any) -> None:
    class Taken:
        def acquire(self, *, blocking: bool) -> bool:
            return blocking

    def never(self: Any, seconds: float) -> None:
        raise AssertionError("it waits")

    api: ApiClient = make_api(*ALL_SCOPES)
    holder = new_holder()
    comes(monkeypatch)
    monkeypatch.setattr(endpoint, "_waiting_threads", Taken())
    monkeypatch.setattr(news, "WAITING_LIMIT", 0)
    monkeypatch.setattr(news.Waiter, "sleep", never)
    response = api.post(f"/v1/holders/{holder}/spends?wait=4", {"amount": 50}, key="1")
    assert (response.status_code, response.json()["top_up"], refusals(holder)) == (402, TOP_UP, 1)


@pytest.mark.parametrize("query", ["wait=5", "wait=-1", "wait=x", "wait=1&wait=2", "Wait=1"])
def test_a_wait_out_of_bounds_is_refused_and_nothing_is_written(make_api: Any, new_holder: Any, query: str) -> None:
    api: ApiClient = make_api(*ALL_SCOPES)
    holder = new_holder()
    assert api.post(f"/v1/holders/{holder}/spends?{query}", {"amount": 50}).status_code == 400
    assert api.post(f"/v1/holders/{holder}/grants?wait=1", {"amount": 50}).status_code == 400
    assert not Entry.objects.filter(holder_id=holder).exists()

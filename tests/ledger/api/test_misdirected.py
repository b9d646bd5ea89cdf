"""At a worker of a cluster, the calls that document 421 get it, and no others."""

import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from django.http import HttpResponse

from ledger import services
from ledger.api.kit import front
from ledger.api.kit.problems import MEDIA_TYPE
from ledger.models import SCOPES
from tests.asgi_client import AsgiClient
from tests.ledger.api.test_scopes import DocumentedCall, documented_calls


def ask(call: DocumentedCall, secret: str, *, on_this_connection: bool = False) -> HttpResponse:
    """Send a call with a key that has all scopes; no body, no Idempotency-Key."""
    client = AsgiClient(on_this_connection=on_this_connection)
    return client.generic(call.method, call.path, headers={"Authorization": f"Bearer {secret}"})


def without_id(problem: dict[str, Any]) -> dict[str, Any]:
    """A problem without what differs from request to request."""
    return {name: value for name, value in problem.items() if name != "request_id"}


@pytest.mark.parametrize("is_on_worker", [True, False], ids=["at a worker", "control: at the coordinator"])
def test_a_call_gets_421_at_a_worker_if_it_documents_that(db: None, monkeypatch: pytest.MonkeyPatch, is_on_worker: bool) -> None:
    # Only for the front: the database is one server, or the coordinator.
    monkeypatch.setattr(front, "settings", SimpleNamespace(LEDGER={"DISTRIBUTED": True}))
    monkeypatch.setattr(front, "is_on_worker", lambda: is_on_worker)
    _, secret = services.create_api_key(name="at a worker", scopes=SCOPES)
    seen: Counter[bool] = Counter()
    for call in documented_calls():
        response = ask(call, secret)
        is_misdirected = response.status_code == 421
        assert is_misdirected == (is_on_worker and "421" in call.responses), f"{call.method} {call.path}: {response.content!r}"
        if is_misdirected:
            documented = call.responses["421"]["content"][MEDIA_TYPE]["examples"]["misdirected"]["value"]
            assert without_id(json.loads(response.content)) == without_id(documented)
        seen[is_misdirected] += 1
    assert seen[True] >= 35 * is_on_worker
    assert seen[False] > 20

"""A client of the API: a key, JSON in and out, and a way to see that nothing was written. Each test runs over both ways in."""

import itertools
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client

from ledger.rest.kit import authentication
from ledger.testing import api_key, holder_with_credits
from tests.asgi_client import AsgiClient

ALL_SCOPES = ("ledger:read", "ledger:spend", "ledger:refund", "ledger:hold", "ledger:transfer", "ledger:grant")

_numbers = itertools.count(1)


TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
DIGEST = re.compile(r"[0-9a-f]{64}")

ENTRY_FIELDS = [
    "id",
    "holder_id",
    "credit_type",
    "sequence",
    "kind",
    "amount",
    "balance",
    "held",
    "drawn",
    "refers_to",
    "effective_at",
    "recorded_at",
    "actor",
    "reason",
    "reference",
    "metadata",
    "idempotency_key",
    "digest",
]


def entry_of_201(response: HttpResponse, *more: str, status: int = 201) -> dict[str, Any]:
    """The entry of a 201, without what differs from run to run, which is checked here."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/json"
    entry: dict[str, Any] = json.loads(response.content)
    assert list(entry) == [*ENTRY_FIELDS, *more]
    assert entry.pop("id") == "{holder_id}/{credit_type}/{sequence}".format_map(entry)
    assert TIME.fullmatch(entry.pop("recorded_at"))
    assert DIGEST.fullmatch(entry.pop("digest"))
    return entry


def rows_of(holder: str) -> tuple[int, int]:
    """How many entries and refusals the holder has."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FILTER (WHERE kind <> 'refusal'), count(*) FILTER (WHERE kind = 'refusal') "
            "FROM ledger_entry WHERE holder_id = %s",
            [holder],
        )
        return cursor.fetchone()


@contextmanager
def nothing_written(holder: str) -> Iterator[None]:
    """Fail if the block leaves an entry or a refusal of the holder."""
    before = rows_of(holder)
    yield
    assert rows_of(holder) == before


def problem_of_refusal(response: Any, status: int, *field_errors: tuple[str, str]) -> dict[str, Any]:
    """The problem of a response with this status that says that nothing was executed and names these (pointer, code)."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    problem: dict[str, Any] = json.loads(response.content)
    assert problem["outcome"] == "not_executed"
    assert [(error["pointer"], error["code"]) for error in problem.get("errors", [])] == list(field_errors)
    assert all(error["detail"] for error in problem.get("errors", []))
    assert response["X-Request-Id"] == problem["request_id"]
    return problem


@dataclass
class ApiClient:
    """Sends requests with one key; answers carry `.json()`."""

    secret: str
    client: Client = field(default_factory=AsgiClient)

    def get(self, path: str, **headers: str) -> HttpResponse:
        """GET a path."""
        return self.client.get(path, headers=self._headers(headers))

    def post(
        self, path: str, body: Any = None, *, key: str | None = "", raw: bytes | None = None, **headers: str
    ) -> HttpResponse:
        """POST a JSON body, or raw bytes; with a fresh Idempotency-Key, a given one, or (None) without."""
        return self._send("POST", path, body, key=key, raw=raw, **headers)

    def patch(self, path: str, body: Any, *, key: str | None = "", **headers: str) -> HttpResponse:
        """PATCH with a JSON body; the key as in `post`."""
        return self._send("PATCH", path, body, key=key, raw=None, **headers)

    def put(self, path: str, body: Any, *, key: str | None = "", **headers: str) -> HttpResponse:
        """PUT a JSON body; the key as in `post`."""
        return self._send("PUT", path, body, key=key, raw=None, **headers)

    def _send(self, method: str, path: str, body: Any, *, key: str | None, raw: bytes | None, **headers: str) -> HttpResponse:
        sent = self._headers(headers)
        if key is not None:
            sent["Idempotency-Key"] = key or f"test-{next(_numbers)}"
        content_type = sent.pop("Content-Type", "application/json")
        data = json.dumps(body).encode() if raw is None else raw
        return self.client.generic(method, path, data, content_type=content_type, headers=sent)

    def delete(self, path: str, *, key: str | None = "", raw: bytes = b"", **headers: str) -> HttpResponse:
        """DELETE a path; with a fresh Idempotency-Key, a given one, or (None) without."""
        sent = self._headers(headers)
        if key is not None:
            sent["Idempotency-Key"] = key or f"test-{next(_numbers)}"
        return self.client.generic("DELETE", path, raw, content_type="application/json" if raw else "", headers=sent)

    def _headers(self, headers: dict[str, str]) -> dict[str, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return {"Authorization": f"Bearer {self.secret}", **named}


@pytest.fixture(autouse=True)
def _forget_keys() -> Iterator[None]:
    """Keys of a rolled-back test must not be remembered by the next."""
    authentication.forget_keys()
    yield
    authentication.forget_keys()


@pytest.fixture(params=[AsgiClient, Client], ids=["front", "django"])
def way(request: pytest.FixtureRequest) -> type[Client]:
    """The client of one way in: through the front, or through Django with the project's middleware."""
    client: type[Client] = request.param
    return client


@pytest.fixture
def make_api(way: type[Client]) -> Callable[..., ApiClient]:
    """Makes a client with a new key: `make_api("ledger:read", holder_id=None)`; all the ledger's scopes by default."""
    # Loading it sets logging up once more, which would take `caplog` away from a test that has begun.
    import ledger_project.serving.application  # noqa: F401

    def make(*scopes: str, name: str = "", **more: Any) -> ApiClient:
        number = next(_numbers)
        return ApiClient(api_key(*(scopes or ALL_SCOPES), name=name or f"test-{number}", **more), way())

    return make


@pytest.fixture
def api(db: None, make_api: Callable[..., ApiClient]) -> ApiClient:
    """A client with the key `shop`, of all the ledger's scopes."""
    return make_api(name="shop")


@pytest.fixture
def holder(api: ApiClient) -> str:
    """A holder with 100 credits (entry 1)."""
    return holder_with_credits(100, holder_id="customer-42", idempotency_key="first")

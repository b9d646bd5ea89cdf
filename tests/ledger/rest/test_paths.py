"""What is where, and what every answer carries."""

import json
import re
from typing import Any

import pytest
from django.test import Client

from ledger.telemetry.request_origins import new_request_id
from tests.asgi_client import AsgiClient
from tests.ledger.rest.conftest import ApiClient, problem_of_refusal

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@pytest.mark.parametrize(
    "path", ["/healthz", "/v1/holders", "/v1/nothing", "/nothing", "/docs", "/", "/v1/schema", "/problems/not-found"]
)
def test_every_response_of_the_front_names_its_request(db: None, path: str) -> None:
    assert UUID7.fullmatch(AsgiClient().get(path)["X-Request-Id"])


@pytest.mark.parametrize("path", ["/healthz", "/v1/holders", "/v1/nothing", "/nothing", "/v1/schema", "/problems/not-found"])
def test_every_response_of_a_call_names_its_request(db: None, path: str) -> None:
    assert UUID7.fullmatch(Client().get(path)["X-Request-Id"])


@pytest.mark.parametrize("sent", ["r", "0198c0de-7a1e-7b00-8000-000000000001", "a" * 64, "svc:1/2+3=@x._-"])
def test_a_callers_request_id_is_kept(api: ApiClient, sent: str) -> None:
    response = api.get("/v1/holders/!/balance", X_Request_Id=sent)
    assert (response["X-Request-Id"], json.loads(response.content)["request_id"]) == (sent, sent)


@pytest.mark.parametrize("sent", ["", "a" * 65, "a b", "a\tb", "<script>", "é", 'a"b', "a,b"])
def test_an_unsafe_request_id_is_replaced(api: ApiClient, sent: str) -> None:
    response = api.get("/v1/holders/!/balance", X_Request_Id=sent)
    assert UUID7.fullmatch(response["X-Request-Id"])
    assert json.loads(response.content)["request_id"] == response["X-Request-Id"]


def test_request_ids_differ_and_begin_with_the_time() -> None:
    ids = [new_request_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert [each[:8] for each in ids] == sorted(each[:8] for each in ids)
    assert all(UUID7.fullmatch(each) for each in ids)


def test_responses_are_not_cached_and_not_sniffed(api: ApiClient) -> None:
    for response in (api.get("/v1/holders"), api.get("/v1/holders?limit=0")):
        assert (response["Cache-Control"], response["X-Content-Type-Options"]) == ("no-store", "nosniff")
        assert int(response["Content-Length"]) == len(response.content)


def test_api_requests_meet_no_sessions_and_no_cookies(api: ApiClient) -> None:
    response = api.get("/v1/holders")
    assert not response.cookies
    assert "Vary" not in response


@pytest.mark.parametrize("path", ["/v1/holders", "/v1/holders?limit=0", "/v1/nothing", "/v1/schema", "/healthz"])
def test_the_front_gives_the_same_headers_past_all_middleware(db: None, path: str) -> None:
    front, django = (
        {name.lower(): value for name, value in client.get(path, headers={"X-Request-Id": "r"}).headers.items()}
        for client in (AsgiClient(), Client())
    )
    assert front.items() < django.items()
    assert django.keys() - front.keys() == {
        "content-security-policy", "cross-origin-opener-policy", "referrer-policy", "x-frame-options",
    }  # fmt: skip


def test_pages_for_people_still_go_through_all_middleware(db: None) -> None:
    response = AsgiClient().get("/admin/login/")
    assert response.status_code == 200
    assert "csrftoken" in response.cookies
    assert response["X-Frame-Options"] == "DENY"


def test_the_root_leads_to_the_documentation(db: None) -> None:
    response = AsgiClient().get("/")
    assert (response.status_code, response["Location"]) == (302, "/docs")


@pytest.mark.parametrize(("method", "accept", "status"), [("POST", "*/*", 405), ("GET", "application/json", 406)])
def test_what_the_page_of_the_documentation_does_not_do_is_a_problem(db: None, method: str, accept: str, status: int) -> None:
    problem_of_refusal(AsgiClient().generic(method, "/docs/api", headers={"Accept": accept}), status)


def test_the_documentation_asks_nothing_of_other_hosts(db: None) -> None:
    response = AsgiClient().get("/docs/api", headers={"Accept": "text/html"})
    page = response.content.decode()
    assert response.status_code == 200
    assert "/docs/api.json" in AsgiClient().get("/docs/api?script=").content.decode()
    loaded = re.findall(r"""(?:src|href)=["']([^"']+)["']""", page)
    assert loaded
    own = ("/static/drf_spectacular_sidecar/", "/static/ledger/docs.", "/docs/api?")
    assert all(address.startswith(own) for address in loaded), loaded
    assert '<html lang="en">' in page
    assert "://" not in re.sub(r"https?://(?:www\.w3\.org|127\.0\.0\.1)[^\"' ]*", "", page)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "a b"])
def test_a_host_that_is_not_served_here_gets_no_links_to_it(api: ApiClient, holder: str, host: str) -> None:
    api.post(f"/v1/holders/{holder}/spends", {"amount": 1})
    response = api.client.get(
        f"/v1/holders/{holder}/entries?limit=1", headers={"Authorization": f"Bearer {api.secret}", "Host": host}
    )
    assert response.status_code == 400
    assert [error["code"] for error in json.loads(response.content)["errors"]] == ["host"]


def test_the_page_of_the_documentation_reads_the_same_document_in_the_form_that_it_resolves_quickly(db: None) -> None:
    document = json.loads(AsgiClient().get("/v1/schema").content)
    response = AsgiClient().get("/docs/api.json")
    reference = json.loads(response.content)
    assert (response.status_code, response["Content-Type"]) == (200, "application/json")
    assert (document["openapi"][:3], reference["openapi"][:3]) == ("3.1", "3.0")
    for name in ("info", "tags", "servers"):
        assert reference[name] == document[name]
    assert reference["components"]["examples"] == document["components"]["examples"]
    assert set(reference["components"]["schemas"]) == set(document["components"]["schemas"])
    calls, same = operations(document), operations(reference)
    assert {name: list(call["responses"]) for name, call in calls.items()} == {
        name: list(call["responses"]) for name, call in same.items()
    }
    written = json.dumps(reference["components"]["schemas"])
    assert '"type": [' not in written
    assert '"const"' not in written
    assert '"nullable": true' in written


def operations(document: dict[str, Any]) -> dict[str, Any]:
    """The calls of a document by their ids."""
    return {
        call["operationId"]: call
        for methods in document["paths"].values()
        for call in methods.values()
        if isinstance(call, dict) and "operationId" in call
    }

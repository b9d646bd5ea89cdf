"""Media types, methods, sizes and lengths that are not taken: 415, 406, 405, 413 or 400, and nothing written."""

from io import BytesIO
from typing import Any

import pytest

from tests.ledger.rest.conftest import ApiClient, nothing_written, problem_of_refusal

# Of the holder that the fixture `holder` makes, with 100 credits.
SPENDS = "/v1/holders/customer-42/spends"
ONE = b'{"amount": 1}'


def spend(api: ApiClient, body: bytes = b"", *, key: str = "k", **environment: Any) -> Any:
    """POST a body to SPENDS in another WSGI environment than `api.post` makes."""
    headers = {"Authorization": f"Bearer {api.secret}", "Idempotency-Key": key}
    return api.client.generic("POST", SPENDS, body, content_type="application/json", headers=headers, **environment)


@pytest.mark.parametrize(
    "content_type",
    [
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain",
        "text/json",
        "application/json; charset=latin-1",
        "application/json; charset=utf-16",
        "application/jsonp",
        "application/merge-patch+json",
        "",
    ],
)
def test_another_media_type_is_a_415(api: ApiClient, holder: str, content_type: str) -> None:
    with nothing_written(holder):
        response = api.post(SPENDS, {"amount": 1}, Content_Type=content_type)
        problem_of_refusal(response, 415)
    assert response["Accept"] == "application/json"


def test_a_compressed_body_is_a_415(api: ApiClient, holder: str) -> None:
    with nothing_written(holder):
        problem_of_refusal(api.post(SPENDS, {"amount": 1}, Content_Encoding="gzip"), 415)


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "Application/JSON", 'application/json;charset="UTF-8"']
)
def test_every_spelling_of_json_in_utf_8_is_accepted(api: ApiClient, holder: str, content_type: str) -> None:
    assert api.post(SPENDS, {"amount": 1}, Content_Type=content_type).status_code == 201


@pytest.mark.parametrize(
    "accept", ["text/html", "application/xml, text/*", "application/json;q=0", "application/json;q=0, */*", "garbage"]
)
def test_an_unacceptable_accept_is_a_406(api: ApiClient, holder: str, accept: str) -> None:
    with nothing_written(holder):
        problem_of_refusal(api.post(SPENDS, {"amount": 1}, Accept=accept), 406)
    problem_of_refusal(api.get(f"/v1/holders/{holder}/balance", Accept=accept), 406)


@pytest.mark.parametrize(
    "accept",
    ["*/*", "application/*", "text/html, */*;q=0.1", "application/json; charset=utf-8", "text/html;q=0.9, APPLICATION/JSON"],
)
def test_an_acceptable_accept_is_served(api: ApiClient, holder: str, accept: str) -> None:
    assert api.get(f"/v1/holders/{holder}/balance", Accept=accept).status_code == 200


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "HEAD"])
def test_a_wrong_method_is_a_405_that_names_the_right_one(api: ApiClient, holder: str, method: str) -> None:
    with nothing_written(holder):
        response = api.client.generic(
            method, SPENDS, ONE, content_type="application/json", headers={"Authorization": f"Bearer {api.secret}"}
        )
    assert (response.status_code, response["Allow"]) == (405, "POST")
    if method != "HEAD":
        problem_of_refusal(response, 405)


def test_a_body_above_its_limit_is_a_413(api: ApiClient, holder: str) -> None:
    body = ONE + b" " * (64 * 1024 - len(ONE))
    assert api.post(SPENDS, raw=body).status_code == 201
    with nothing_written(holder):
        problem = problem_of_refusal(api.post(SPENDS, raw=body + b" "), 413)
    assert problem["limit_bytes"] == 65536


@pytest.mark.parametrize("length", ["65537", "99999999999999999999999999"])
def test_an_announced_length_above_the_limit_is_a_413_without_reading(api: ApiClient, holder: str, length: str) -> None:
    with nothing_written(holder):
        problem_of_refusal(spend(api, ONE, CONTENT_LENGTH=length), 413)


@pytest.mark.parametrize(
    ("length", "code"), [("14", "truncated"), ("-1", "content-length"), ("1e1", "content-length"), ("x", "content-length")]
)
def test_a_content_length_that_lies_is_a_400(api: ApiClient, holder: str, length: str, code: str) -> None:
    with nothing_written(holder):
        response = spend(api, ONE, CONTENT_LENGTH=length, **{"wsgi.input": BytesIO(ONE)})
        problem_of_refusal(response, 400, ("", code))


def test_a_body_without_a_length_is_read_where_the_server_ends_it(api: ApiClient, holder: str) -> None:
    def chunked(body: bytes, key: str) -> Any:
        stream = {"wsgi.input": BytesIO(body), "wsgi.input_terminated": True}
        described = {"HTTP_TRANSFER_ENCODING": "chunked", "CONTENT_TYPE": "application/json", "CONTENT_LENGTH": ""}
        return spend(api, key=key, **described, **stream)

    assert chunked(ONE, "k1").status_code == 201
    with nothing_written(holder):
        problem_of_refusal(chunked(ONE + b" " * 65536, "k2"), 413)
        problem_of_refusal(chunked(b"", "k3"), 400, ("", "empty-body"))


def test_no_body_at_all_is_a_400(api: ApiClient, holder: str) -> None:
    with nothing_written(holder):
        problem_of_refusal(spend(api), 400, ("", "empty-body"))

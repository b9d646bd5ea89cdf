"""Every line of the contract's table of bad input: its status, the field and the rule by name, and nothing written."""

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest

from ledger import services
from tests.asgi_client import AsgiClient
from tests.ledger.api.conftest import ApiClient, nothing_written, rows_of

# Of the holder that the fixture `holder` makes, with 100 credits.
SPENDS = "/v1/holders/customer-42/spends"
GRANTS = "/v1/holders/customer-42/grants"
LONGEST_KEY = 255


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


# Bodies ----------------------------------------------------------------------------------------------

MALFORMED: list[tuple[str, bytes, str, str]] = [
    ("truncated", b'{"amount": 1', "", "malformed-json"),
    ("garbage", b"amount=1", "", "malformed-json"),
    ("two documents", b'{"amount": 1} {"amount": 1}', "", "malformed-json"),
    ("comment", b'{"amount": 1} // one', "", "malformed-json"),
    ("trailing comma", b'{"amount": 1,}', "", "malformed-json"),
    ("control character", b'{"amount": 1, "reason": "a\nb"}', "", "malformed-json"),
    ("bad UTF-8", b'{"amount": 1, "reason": "\xff"}', "", "not-utf-8"),
    ("UTF-8 of a surrogate", b'{"amount": 1, "reason": "\xed\xa0\x80"}', "", "not-utf-8"),
    ("UTF-16", '{"amount": 1}'.encode("utf-16-le"), "", "malformed-json"),
    ("BOM", b'\xef\xbb\xbf{"amount": 1}', "", "byte-order-mark"),
    ("empty", b"", "", "empty-body"),
    ("blank", b"  ", "", "malformed-json"),
    ("list", b'[{"amount": 1}]', "", "not-an-object"),
    ("string", b'"amount"', "", "not-an-object"),
    ("null", b"null", "", "not-an-object"),
    ("number", b"1", "", "not-an-object"),
    ("duplicate key", b'{"amount": 1, "amount": 1}', "/amount", "duplicate-key"),
    ("duplicate key by escape", b'{"amount": 1, "\\u0061mount": 2}', "/amount", "duplicate-key"),
    ("duplicate key inside", b'{"amount": 1, "metadata": {"a": {"b": 1, "b": 2}}}', "/b", "duplicate-key"),
    ("nesting of 21", b'{"amount": 1, "metadata": ' + b'{"a":' * 20 + b"1" + b"}" * 21, "", "too-deep"),
    ("nesting of 30,000", b'{"amount": 1, "metadata": ' + b"[" * 30_000, "", "too-deep"),
    ("nesting behind a quote", b'{"amount": 1, "reason": "\\"", "metadata": ' + b"[" * 30_000, "", "too-deep"),
    ("NaN", b'{"amount": NaN}', "", "malformed-json"),
    ("Infinity", b'{"amount": Infinity}', "", "malformed-json"),
    ("-Infinity in metadata", b'{"amount": 1, "metadata": {"a": -Infinity}}', "", "malformed-json"),
    ("NUL in a string", b'{"amount": 1, "reason": "a\\u0000b"}', "/reason", "forbidden-character"),
    ("NUL in metadata", b'{"amount": 1, "metadata": {"a": ["x", {"b": "\\u0000"}]}}', "/metadata/a/1/b", "forbidden-character"),
    ("NUL in a key of metadata", b'{"amount": 1, "metadata": {"a\\u0000": 1}}', "/metadata/a?", "forbidden-character"),
    ("lone high surrogate", b'{"amount": 1, "reference": "\\ud800"}', "/reference", "forbidden-character"),
    ("lone low surrogate", b'{"amount": 1, "metadata": {"a": "\\udc00x"}}', "/metadata/a", "forbidden-character"),
]


@pytest.mark.parametrize(("body", "pointer", "code"), [case[1:] for case in MALFORMED], ids=[case[0] for case in MALFORMED])
def test_a_body_that_is_not_one_strict_json_object_is_a_400(
    api: ApiClient, holder: str, body: bytes, pointer: str, code: str
) -> None:
    with nothing_written(holder):
        problem = problem_of_refusal(api.post(SPENDS, raw=body), 400, (pointer, code))
    assert problem["type"].endswith("/malformed-request")


AMOUNTS: list[tuple[str, str]] = [
    ("1e400", "not-an-integer"),
    ("-1e400", "not-an-integer"),
    ("1.0", "not-an-integer"),
    ("1.9", "not-an-integer"),
    ("1e2", "not-an-integer"),
    ("-0.0", "not-an-integer"),
    ("true", "not-an-integer"),
    ("false", "not-an-integer"),
    ("null", "null"),
    ("[]", "not-an-integer"),
    ("[1]", "not-an-integer"),
    ("{}", "not-an-integer"),
    ('"1"', "not-an-integer"),
    ('"1_000"', "not-an-integer"),
    ('""', "not-an-integer"),
    ("9" * 5000, "too-large"),
    ("-" + "9" * 5000, "too-small"),
    ("9" * 60_000, "too-large"),
    ("0", "too-small"),
    ("-0", "too-small"),
    ("-1", "too-small"),
    ("9007199254740992", "too-large"),
    ("9223372036854775808", "too-large"),
]


WITH_AMOUNTS = ("spends", "grants", "refunds", "revocations", "holds", "holds/1/captures", "transfers", "overdraft")
WRONG_AMOUNTS = [
    pytest.param(path, amount, code, id=f"{path}-{amount[:20]} ({len(amount)})")
    for path in WITH_AMOUNTS
    for amount, code in AMOUNTS
    if path != "overdraft" or amount not in ("0", "-0")  # an overdraft may have the limit 0
]


@pytest.mark.parametrize(("path", "amount", "code"), WRONG_AMOUNTS)
def test_an_amount_that_is_not_an_integer_within_bounds_is_a_400(
    api: ApiClient, make_api: Callable[..., ApiClient], holder: str, path: str, amount: str, code: str
) -> None:
    if path == "overdraft":
        api = make_api("ledger:admin")
    beside = {"refunds": b'"spend": 1, ', "revocations": b'"grant": 1, ', "transfers": b'"to": "team-7", '}.get(path, b"")
    name = "limit" if path == "overdraft" else "amount"
    with nothing_written(holder):
        body = b"{" + beside + f'"{name}": {amount}'.encode() + b"}"
        problem_of_refusal(api.post(f"/v1/holders/{holder}/{path}", raw=body), 400, (f"/{name}", code))


@pytest.mark.parametrize("amount", ["1_000", "01", "+1", "0x10", ".5", "1.", "--1", "1e", "\uff11"])
def test_what_json_has_no_number_for_is_a_400(api: ApiClient, holder: str, amount: str) -> None:
    with nothing_written(holder):
        problem_of_refusal(api.post(SPENDS, raw=b'{"amount": ' + amount.encode() + b"}"), 400, ("", "malformed-json"))


def test_amounts_up_to_the_bounds_are_taken(api: ApiClient, holder: str) -> None:
    assert api.post(GRANTS, {"amount": 9007199254740991}).status_code == 201
    assert api.post(SPENDS, {"amount": 1}).status_code == 201
    assert api.post(SPENDS, {"amount": 9007199254740991}).status_code == 201


@pytest.mark.parametrize("name", ["balance", "sequence", "id", "kind", "Amount", "amount ", "", "holder_id", "é" * 300, "a/b~c"])
def test_an_unknown_or_server_owned_field_is_a_400(api: ApiClient, holder: str, name: str) -> None:
    pointer = "/a~1b~0c" if name == "a/b~c" else "/" + name[:200]
    with nothing_written(holder):
        problem_of_refusal(api.post(SPENDS, {"amount": 1, name: 1}), 400, (pointer, "unknown-field"))


def test_all_that_is_wrong_is_named_at_once(api: ApiClient, holder: str) -> None:
    body = {
        "credit_type": "SMS",
        "reason": 5,
        "reference": "x" * 201,
        "metadata": [],
        "priority": -1,
        "surprise": 1,
        "source": "free",
    }
    with nothing_written(holder):
        problem_of_refusal(
            api.post(GRANTS, body),
            400,
            ("/credit_type", "pattern"),
            ("/reason", "not-a-string"),
            ("/reference", "too-long"),
            ("/metadata", "not-an-object"),
            ("/amount", "required"),
            ("/source", "not-a-choice"),
            ("/priority", "too-small"),
            ("/surprise", "unknown-field"),
        )


TEXTS: list[tuple[str, Any, str, str]] = [
    ("reason", "x" * 501, "/reason", "too-long"),
    ("reason", None, "/reason", "null"),
    ("reason", 1, "/reason", "not-a-string"),
    ("reference", "x" * 201, "/reference", "too-long"),
    ("reference", True, "/reference", "not-a-string"),
    ("credit_type", "", "/credit_type", "too-short"),
    ("credit_type", "x" * 33, "/credit_type", "too-long"),
    ("credit_type", "sms ", "/credit_type", "pattern"),
    ("credit_type", "sms\n", "/credit_type", "pattern"),
    ("credit_type", 7, "/credit_type", "not-a-string"),
    ("metadata", {"x": "y" * 8192}, "/metadata", "too-large"),
    ("metadata", {f"k{number}": 1 for number in range(51)}, "/metadata", "too-many-keys"),
    ("metadata", {"k" * 65: 1}, "/metadata/" + "k" * 65, "too-long"),
    ("metadata", {"a": {"k" * 65: 1}}, "/metadata/a/" + "k" * 65, "too-long"),
    ("metadata", {"a": [2**53]}, "/metadata/a/0", "too-large"),
    ("metadata", {"a": 10**50}, "/metadata/a", "too-large"),
    ("metadata", None, "/metadata", "null"),
    ("metadata", "{}", "/metadata", "not-an-object"),
]


@pytest.mark.parametrize(("field", "value", "pointer", "code"), TEXTS)
def test_texts_and_metadata_beyond_their_limits_are_a_400(
    api: ApiClient, holder: str, field: str, value: Any, pointer: str, code: str
) -> None:
    with nothing_written(holder):
        problem_of_refusal(api.post(SPENDS, {"amount": 1, field: value}), 400, (pointer, code))


def test_texts_and_metadata_up_to_their_limits_are_taken(api: ApiClient, holder: str) -> None:
    metadata = {f"{number:064d}": "ü\u2028😀" for number in range(50)}
    response = api.post(SPENDS, {"amount": 1, "reason": "é" * 500, "reference": "😀" * 200, "metadata": metadata})
    assert response.status_code == 201, response.content
    entry = json.loads(response.content)
    assert (entry["reason"], entry["reference"], entry["metadata"]) == ("é" * 500, "😀" * 200, metadata)


TIMES: list[tuple[str, Any, str]] = [
    ("without offset", "2090-01-01T00:00:00", "no-offset"),
    ("year 0", "0000-01-01T00:00:00Z", "not-a-time"),
    ("year 1, before it in UTC", "0001-01-01T00:00:00+01:00", "not-a-time"),
    ("year 9999, behind it in UTC", "9999-12-31T23:59:59-01:00", "not-a-time"),
    ("year 1", "0001-01-01T00:00:00Z", "out-of-range"),
    ("year 1999 in UTC", "2000-01-01T00:00:00+01:00", "out-of-range"),
    ("year 2201 in UTC", "2200-12-31T23:59:59-01:00", "out-of-range"),
    ("year 9999", "9999-12-31T23:59:59Z", "out-of-range"),
    ("leap second", "2016-12-31T23:59:60Z", "not-a-time"),
    ("hour 24", "2090-01-01T24:00:00Z", "not-a-time"),
    ("31 February", "2090-02-31T00:00:00Z", "not-a-time"),
    ("date", "2090-01-01", "not-a-time"),
    ("space instead of T", "2090-01-01 00:00:00Z", "not-a-time"),
    ("without seconds", "2090-01-01T00:00Z", "not-a-time"),
    ("basic form", "20900101T000000Z", "not-a-time"),
    ("week", "2090-W01-1T00:00:00Z", "not-a-time"),
    ("nanoseconds", "2090-01-01T00:00:00.000000001Z", "too-precise"),
    ("other digits", "\u0662\u0660\u0669\u0660-01-01T00:00:00Z", "not-a-time"),
    ("number", 3786912000, "not-a-string"),
    ("empty", "", "not-a-time"),
    ("long", "2090-01-01T00:00:00." + "0" * 5000 + "Z", "not-a-time"),
    ("offset beyond a day", "2090-01-01T00:00:00+24:00", "not-a-time"),
    ("newline", "2090-01-01T00:00:00Z\n", "not-a-time"),
]


@pytest.mark.parametrize("field", ["effective_at", "expires_at"])
@pytest.mark.parametrize(("value", "code"), [case[1:] for case in TIMES], ids=[case[0] for case in TIMES])
def test_a_time_that_is_not_one_moment_is_a_400(api: ApiClient, holder: str, field: str, value: Any, code: str) -> None:
    with nothing_written(holder):
        problem_of_refusal(api.post(GRANTS, {"amount": 1, field: value}), 400, (f"/{field}", code))


@pytest.mark.parametrize(
    ("effective_at", "expires_at"),
    [
        ("2090-01-02T00:00:00Z", "2090-01-01T00:00:00Z"),
        ("2090-01-01T00:00:00Z", "2090-01-01T01:00:00+01:00"),
        ("2020-01-01T00:00:00Z", "2020-02-01T00:00:00Z"),
    ],
    ids=["before effective", "at the instant of effective", "in the past"],
)
def test_an_expiry_before_effective_or_in_the_past_is_a_400(
    api: ApiClient, holder: str, effective_at: str, expires_at: str
) -> None:
    with nothing_written(holder):
        response = api.post(GRANTS, {"amount": 1, "effective_at": effective_at, "expires_at": expires_at})
        problem = problem_of_refusal(response, 400, ("/expires_at", json.loads(response.content)["errors"][0]["code"]))
    assert problem["type"].endswith("/invalid-request")


@pytest.mark.parametrize("path", ["refunds", "revocations"])
@pytest.mark.parametrize(
    ("sequence", "code"), [(0, "too-small"), (-1, "too-small"), ("1", "not-an-integer"), (True, "not-an-integer")]
)
def test_a_sequence_that_is_not_a_positive_integer_is_a_400(
    api: ApiClient, holder: str, path: str, sequence: Any, code: str
) -> None:
    name = {"refunds": "spend", "revocations": "grant"}[path]
    with nothing_written(holder):
        problem_of_refusal(api.post(f"/v1/holders/{holder}/{path}", {name: sequence}), 400, (f"/{name}", code))


@pytest.mark.parametrize("path", ["refunds", "revocations"])
@pytest.mark.parametrize("sequence", [2**63, 2**64, 10**100])
def test_a_sequence_that_no_entry_can_have_is_a_404(api: ApiClient, holder: str, path: str, sequence: int) -> None:
    name = {"refunds": "spend", "revocations": "grant"}[path]
    with nothing_written(holder):
        problem_of_refusal(api.post(f"/v1/holders/{holder}/{path}", {name: sequence}), 404)


OTHER_WRITES: list[tuple[str, dict[str, Any], tuple[str, str]]] = [
    ("holds", {"amount": 1, "expires_at": "2090-01-01T00:00:00"}, ("/expires_at", "no-offset")),
    ("holds", {"amount": 1, "hold": 1}, ("/hold", "unknown-field")),
    ("holds/1/captures", {"final": 1}, ("/final", "not-a-boolean")),
    ("holds/1/captures", {"final": None}, ("/final", "null")),
    ("holds/1/captures", {"over_capture": "always"}, ("/over_capture", "not-a-choice")),
    ("holds/1/captures", {"over_capture": True}, ("/over_capture", "not-a-string")),
    ("holds/1/captures", {"hold": 1}, ("/hold", "unknown-field")),
    ("holds/1/release", {"amount": 1}, ("/amount", "unknown-field")),
    ("holds/1/release", {"reason": "x" * 501}, ("/reason", "too-long")),
    ("holds/1/extend", {}, ("/expires_at", "required")),
    ("holds/1/extend", {"expires_at": None}, ("/expires_at", "null")),
    ("holds/1/extend", {"expires_at": "2016-12-31T23:59:60Z"}, ("/expires_at", "not-a-time")),
    ("transfers", {"amount": 1}, ("/to", "required")),
    ("transfers", {"amount": 1, "to": "a b"}, ("/to", "pattern")),
    ("transfers", {"amount": 1, "to": " a"}, ("/to", "pattern")),
    ("transfers", {"amount": 1, "to": "a\u200b"}, ("/to", "pattern")),
    ("transfers", {"amount": 1, "to": "a" * 65}, ("/to", "too-long")),
    ("transfers", {"amount": 1, "to": ""}, ("/to", "too-short")),
    ("transfers", {"amount": 1, "to": 7}, ("/to", "not-a-string")),
    ("transfers", {"amount": 1, "to": "team-7", "from": "x"}, ("/from", "unknown-field")),
]


@pytest.mark.parametrize(("path", "body", "error"), OTHER_WRITES)
def test_what_the_other_writes_do_not_take_is_a_400(
    api: ApiClient, holder: str, path: str, body: dict[str, Any], error: tuple[str, str]
) -> None:
    with nothing_written(holder), nothing_written("team-7"):
        problem_of_refusal(api.post(f"/v1/holders/{holder}/{path}", body), 400, error)


# Media types, sizes, methods -------------------------------------------------------------------------


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
def test_json_in_utf_8_is_taken_however_it_is_said(api: ApiClient, holder: str, content_type: str) -> None:
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
            method, SPENDS, b'{"amount": 1}', content_type="application/json", headers={"Authorization": f"Bearer {api.secret}"}
        )
    assert (response.status_code, response["Allow"]) == (405, "POST")
    if method != "HEAD":
        problem_of_refusal(response, 405)


def test_a_body_above_its_limit_is_a_413(api: ApiClient, holder: str) -> None:
    body = b'{"amount": 1}' + b" " * (64 * 1024 - 13)
    assert api.post(SPENDS, raw=body).status_code == 201
    with nothing_written(holder):
        problem = problem_of_refusal(api.post(SPENDS, raw=body + b" "), 413)
    assert problem["limit_bytes"] == 65536


@pytest.mark.parametrize("length", ["65537", "99999999999999999999999999"])
def test_an_announced_length_above_the_limit_is_a_413_without_reading(api: ApiClient, holder: str, length: str) -> None:
    with nothing_written(holder):
        response = api.client.generic(
            "POST",
            SPENDS,
            b'{"amount": 1}',
            content_type="application/json",
            CONTENT_LENGTH=length,
            headers={"Authorization": f"Bearer {api.secret}", "Idempotency-Key": "k"},
        )
        problem_of_refusal(response, 413)


@pytest.mark.parametrize(
    ("length", "code"), [("14", "truncated"), ("-1", "content-length"), ("1e1", "content-length"), ("x", "content-length")]
)
def test_a_content_length_that_lies_is_a_400(api: ApiClient, holder: str, length: str, code: str) -> None:
    with nothing_written(holder):
        response = api.client.generic(
            "POST",
            SPENDS,
            b'{"amount": 1}',
            content_type="application/json",
            CONTENT_LENGTH=length,
            headers={"Authorization": f"Bearer {api.secret}", "Idempotency-Key": "k"},
            **{"wsgi.input": BytesIO(b'{"amount": 1}')},
        )
        problem_of_refusal(response, 400, ("", code))


def test_a_body_without_a_length_is_read_where_the_server_ends_it(api: ApiClient, holder: str) -> None:
    def chunked(body: bytes, key: str) -> Any:
        request = {
            "HTTP_TRANSFER_ENCODING": "chunked",
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": "",
            "wsgi.input": BytesIO(body),
            "wsgi.input_terminated": True,
        }
        headers = {"Authorization": f"Bearer {api.secret}", "Idempotency-Key": key}
        return api.client.generic("POST", SPENDS, headers=headers, **request)  # type: ignore[arg-type]

    assert chunked(b'{"amount": 1}', "k1").status_code == 201
    with nothing_written(holder):
        problem_of_refusal(chunked(b'{"amount": 1}' + b" " * 65536, "k2"), 413)
        problem_of_refusal(chunked(b"", "k3"), 400, ("", "empty-body"))


def test_no_body_at_all_is_a_400(api: ApiClient, holder: str) -> None:
    with nothing_written(holder):
        response = api.client.generic("POST", SPENDS, headers={"Authorization": f"Bearer {api.secret}", "Idempotency-Key": "k"})
        problem_of_refusal(response, 400, ("", "empty-body"))


# Paths and queries -----------------------------------------------------------------------------------

BAD_HOLDERS = [
    "%20customer-42",
    "customer-42%20",
    "customer%01x",
    "a%E2%80%8Bb",
    "%C3%A9",
    ".hidden",
    "-x",
    "a" * 65,
    "a%2Fb",
    "..",
    "%2e%2e",
    "a%0A",
    "caf%e9",
    "a+b",
    "a%25b",
]


@pytest.mark.parametrize("bad", BAD_HOLDERS)
@pytest.mark.parametrize("rest", ["balance", "entries", "refusals", "entries/1"])
def test_a_holder_that_cannot_be_is_a_404(api: ApiClient, bad: str, rest: str) -> None:
    problem_of_refusal(api.get(f"/v1/holders/{bad}/{rest}"), 404)


@pytest.mark.parametrize("bad", BAD_HOLDERS)
def test_nothing_can_be_granted_to_a_holder_that_cannot_be(api: ApiClient, bad: str) -> None:
    problem_of_refusal(api.post(f"/v1/holders/{bad}/grants", {"amount": 1}), 404)


@pytest.mark.parametrize("good", ["a", "0", "a" * 64, "A.b_c:d@e-f", "550e8400-e29b-41d4-a716-446655440000", "user@example.com"])
def test_a_holder_of_the_alphabet_is_taken(api: ApiClient, good: str) -> None:
    response = api.post(f"/v1/holders/{good}/grants", {"amount": 1})
    assert (response.status_code, json.loads(response.content)["holder_id"]) == (201, good)


@pytest.mark.parametrize(
    "path",
    [
        "/v1",
        "/v1/nothing",
        "/v1/holders/",
        "/v1/holders/customer-42/",
        "/v1/holders/customer-42/spends/",
        "/v1/holders/customer-42/balance/",
        "/v1//holders",
        "/v1/holders//balance",
        "/v1/holders/../admin",
        "/v1/../etc/passwd",
        "/v1/..",
        "/nothing",
        "/v2/holders",
        "/healthz/",
        "/V1/holders",
        "/v1/holders/customer-42/entries/0",
        "/v1/holders/customer-42/holds/0/captures",
        "/v1/holders/customer-42/holds/9223372036854775808/release",
        "/v1/holders/customer-42/holds/1",
        "/v1/rates/",
        "/v1/rates/A",
        "/v1/batches/",
        "/v1/holders/customer-42/entries/01",
        "/v1/holders/customer-42/entries/-1",
        "/v1/holders/customer-42/entries/1.0",
        "/v1/holders/customer-42/entries/x",
        "/v1/holders/customer-42/entries/9223372036854775808",
        "/v1/holders/customer-42/entries/" + "9" * 5000,
        "/v1/holders/customer-42/entries/%D9%A1",
        "/problems/Nothing%20at-all",
        "/v1/%ff",
    ],
)
def test_an_unknown_path_is_a_404_with_or_without_a_key(api: ApiClient, holder: str, path: str) -> None:
    with nothing_written(holder):
        problem_of_refusal(api.get(path), 404)
        problem_of_refusal(api.post(path, {"amount": 1}), 404)
        problem_of_refusal(AsgiClient().get(path), 404)


@pytest.mark.parametrize(
    "path", ["/v1/holders/a%00b/balance", "/v1/holders/customer-42%00", "/nothing%00", "/v1/holders/customer-42/entries/1%00"]
)
def test_nul_in_a_path_is_a_400(api: ApiClient, path: str) -> None:
    problem_of_refusal(api.get(path), 400, ("", "forbidden-character"))


QUERIES: list[tuple[str, str, str, str]] = [
    ("entries", "limit=0", "/limit", "too-small"),
    ("entries", "limit=201", "/limit", "too-large"),
    ("entries", "limit=-1", "/limit", "too-small"),
    ("entries", "limit=", "/limit", "not-an-integer"),
    ("entries", "limit=1.0", "/limit", "not-an-integer"),
    ("entries", "limit=1e1", "/limit", "not-an-integer"),
    ("entries", "limit=ten", "/limit", "not-an-integer"),
    ("entries", "limit=%D9%A1", "/limit", "not-an-integer"),
    ("entries", "limit=" + "9" * 5000, "/limit", "not-an-integer"),
    ("entries", "limit=1&limit=2", "/limit", "duplicate-key"),
    ("entries", "cursor=", "/cursor", "too-short"),
    ("entries", "cursor=abc", "/cursor", "not-a-cursor"),
    ("entries", "cursor=" + "A" * 40, "/cursor", "not-a-cursor"),
    ("entries", "cursor=%C3%A9", "/cursor", "not-a-cursor"),
    ("entries", "cursor=" + "A" * 1001, "/cursor", "too-long"),
    ("entries", "page=2", "/page", "unknown-field"),
    ("entries", "holder_id=x", "/holder_id", "unknown-field"),
    ("entries", "kind=purchase", "/kind", "not-a-choice"),
    ("entries", "kind=", "/kind", "not-a-choice"),
    ("entries", "credit_type=SMS", "/credit_type", "pattern"),
    ("entries", "since=2026-01-01", "/since", "not-a-time"),
    ("entries", "since=2026-01-01T00:00:00+00:00", "/since", "not-a-time"),
    ("entries", "until=2026-01-01T00:00:00", "/until", "no-offset"),
    ("entries", "kind=a%00", "/kind", "forbidden-character"),
    ("entries", "a%00=1", "/a?", "forbidden-character"),
    ("entries", "kind=%ff", "", "malformed-query"),
    ("entries", "&".join(f"p{number}=1" for number in range(51)), "", "malformed-query"),
    ("refusals", "limit=0", "/limit", "too-small"),
    ("refusals", "kind=spend", "/kind", "unknown-field"),
    ("balance", "at=yesterday", "/at", "not-a-time"),
    ("balance", "at=0000-01-01T00:00:00Z", "/at", "not-a-time"),
    ("balance", "limit=1", "/limit", "unknown-field"),
    ("balance", "by=amount", "/by", "not-a-choice"),
    ("balance", "by=effective&at=now", "/at", "not-a-time"),
    ("holds", "limit=0", "/limit", "too-small"),
    ("holds", "kind=hold", "/kind", "unknown-field"),
    ("holds", "credit_type=A", "/credit_type", "pattern"),
    ("entries/1/explanation", "at=2026-01-01T00:00:00Z", "/at", "unknown-field"),
    ("balance", "credit_type=", "/credit_type", "too-short"),
    ("entries/1", "at=2026-01-01T00:00:00Z", "/at", "unknown-field"),
]


@pytest.mark.parametrize(
    ("rest", "query", "pointer", "code"), QUERIES, ids=[f"{rest}?{query[:40]}" for rest, query, _, _ in QUERIES]
)
def test_a_query_that_is_not_understood_is_a_400(
    api: ApiClient, holder: str, rest: str, query: str, pointer: str, code: str
) -> None:
    problem_of_refusal(api.get(f"/v1/holders/{holder}/{rest}?{query}"), 400, (pointer, code))


@pytest.mark.parametrize(
    ("query", "pointer", "code"),
    [("prefix=%20", "/prefix", "pattern"), ("kind=x", "/kind", "unknown-field"), ("prefix=" + "a" * 65, "/prefix", "too-long")],
)
def test_a_query_for_holders_that_is_not_understood_is_a_400(api: ApiClient, query: str, pointer: str, code: str) -> None:
    problem_of_refusal(api.get(f"/v1/holders?{query}"), 400, (pointer, code))


@pytest.mark.parametrize(
    "at",
    [
        "2000-01-01T00:00:00Z",
        "2200-12-31T23:59:59.999999Z",
        "2026-01-01t00:00:00.5z",
        "2026-01-01T00:00:00%2B14:00",
        "2026-01-01T00:00:00.123000000Z",
    ],
)
def test_any_other_moment_can_be_asked_for(api: ApiClient, holder: str, at: str) -> None:
    assert api.get(f"/v1/holders/{holder}/balance?at={at}").status_code == 200
    assert api.get(f"/v1/holders/{holder}/entries?since={at}&until={at}").status_code == 200


# Idempotency-Key -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["spends", "grants", "refunds", "revocations", "holds", "holds/1/captures", "holds/1/release", "holds/1/extend", "transfers"],
)
@pytest.mark.parametrize("key", [None, " "])
def test_a_write_without_an_idempotency_key_is_a_400(api: ApiClient, holder: str, path: str, key: str | None) -> None:
    with nothing_written(holder):
        problem = problem_of_refusal(
            api.post(f"/v1/holders/{holder}/{path}", {"amount": 1}, key=key), 400, ("/Idempotency-Key", "required")
        )
    assert problem["type"].endswith("/idempotency-key-missing")


@pytest.mark.parametrize("key", ["k" * (LONGEST_KEY + 1), "käse", "a\tb", "a\x7f", "\u200b"])
def test_an_idempotency_key_that_is_too_long_or_not_printable_ascii_is_a_400(api: ApiClient, holder: str, key: str) -> None:
    with nothing_written(holder):
        problem = problem_of_refusal(api.post(SPENDS, {"amount": 1}, key=key), 400, ("/Idempotency-Key", "pattern"))
    assert problem["type"].endswith("/idempotency-key-invalid")


@pytest.mark.parametrize("key", ["k", "k" * 255, "~!@ #$%^&*()_+|<>?"])
def test_any_printable_ascii_is_an_idempotency_key(api: ApiClient, holder: str, key: str) -> None:
    response = api.post(SPENDS, {"amount": 1}, key=key)
    assert (response.status_code, json.loads(response.content)["idempotency_key"]) == (201, key)


# State conflicts -------------------------------------------------------------------------------------


def test_what_the_state_does_not_allow_is_a_409_on_record(api: ApiClient, holder: str) -> None:
    services.spend(holder_id=holder, amount=8, idempotency_key="s")
    services.refund(holder_id=holder, spend=2, idempotency_key="r")
    for number, (path, body) in enumerate(
        [
            ("refunds", {"spend": 2}),
            ("refunds", {"spend": 2, "amount": 1}),
            ("refunds", {"spend": 1}),
            ("refunds", {"spend": 3}),
            ("revocations", {"grant": 1, "amount": 101}),
            ("revocations", {"grant": 2}),
        ],
        start=1,
    ):
        problem_of_refusal(api.post(f"/v1/holders/{holder}/{path}", body), 409)
        assert rows_of(holder) == (3, number)

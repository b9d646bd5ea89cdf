"""A body that is no strict JSON object: 400, the place and the rule by name, and nothing written."""

import pytest

from tests.ledger.rest.conftest import ApiClient, nothing_written, problem_of_refusal

# Of the holder that the fixture `holder` makes, with 100 credits.
SPENDS = "/v1/holders/customer-42/spends"


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

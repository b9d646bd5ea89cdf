"""Queries that are not understood: 400, the parameter and the rule by name."""

import pytest

from tests.ledger.rest.conftest import ApiClient, problem_of_refusal

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


@pytest.mark.products(most=20)
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

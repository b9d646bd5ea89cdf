"""Times in other forms, and expiries that are too early: 400, nothing written. More of them: `tests/test_refused_bodies.py`."""

import pytest

from tests.ledger.rest.conftest import ApiClient, nothing_written, problem_of_refusal

# Of the holder that the fixture `holder` makes, with 100 credits.
GRANTS = "/v1/holders/customer-42/grants"


TIMES: list[tuple[str, str, str]] = [
    ("without offset", "2090-01-01T00:00:00", "no-offset"),
    ("year 0", "0000-01-01T00:00:00Z", "not-a-time"),
    ("year 1, before it in UTC", "0001-01-01T00:00:00+01:00", "not-a-time"),
    ("year 9999, behind it in UTC", "9999-12-31T23:59:59-01:00", "not-a-time"),
    ("year 1999 in UTC", "2000-01-01T00:00:00+01:00", "out-of-range"),
    ("year 2201 in UTC", "2200-12-31T23:59:59-01:00", "out-of-range"),
    ("leap second", "2016-12-31T23:59:60Z", "not-a-time"),
    ("hour 24", "2090-01-01T24:00:00Z", "not-a-time"),
    ("space instead of T", "2090-01-01 00:00:00Z", "not-a-time"),
    ("without seconds", "2090-01-01T00:00Z", "not-a-time"),
    ("basic form", "20900101T000000Z", "not-a-time"),
    ("week", "2090-W01-1T00:00:00Z", "not-a-time"),
    ("other digits", "\u0662\u0660\u0669\u0660-01-01T00:00:00Z", "not-a-time"),
    ("empty", "", "not-a-time"),
    ("long", "2090-01-01T00:00:00." + "0" * 5000 + "Z", "not-a-time"),
    ("offset beyond a day", "2090-01-01T00:00:00+24:00", "not-a-time"),
    ("newline", "2090-01-01T00:00:00Z\n", "not-a-time"),
]


@pytest.mark.parametrize("field", ["effective_at", "expires_at"])
@pytest.mark.parametrize(("value", "code"), [case[1:] for case in TIMES], ids=[case[0] for case in TIMES])
def test_a_time_that_is_not_one_moment_is_a_400(api: ApiClient, holder: str, field: str, value: str, code: str) -> None:
    with nothing_written(holder):
        problem_of_refusal(api.post(GRANTS, {"amount": 1, field: value}), 400, (f"/{field}", code))


@pytest.mark.parametrize(
    ("effective_at", "expires_at", "code"),
    [
        pytest.param("2090-01-02T00:00:00Z", "2090-01-01T00:00:00Z", "order", id="before effective"),
        pytest.param("2090-01-01T00:00:00Z", "2090-01-01T01:00:00+01:00", "order", id="at the instant of effective"),
        pytest.param("2020-01-01T00:00:00Z", "2020-02-01T00:00:00Z", "past", id="in the past"),
    ],
)
def test_an_expiry_before_effective_or_in_the_past_is_a_400(
    api: ApiClient, holder: str, effective_at: str, expires_at: str, code: str
) -> None:
    with nothing_written(holder):
        response = api.post(GRANTS, {"amount": 1, "effective_at": effective_at, "expires_at": expires_at})
        problem = problem_of_refusal(response, 400, ("/expires_at", code))
    assert problem["type"].endswith("/invalid-request")

"""Amounts and limits that are no integers within bounds, and sequences that no entry has: nothing is written."""

import pytest

from tests.ledger.rest.conftest import ApiClient, nothing_written, problem_of_refusal

# Of the holder that the fixture `holder` makes, with 100 credits.
SPENDS = "/v1/holders/customer-42/spends"
GRANTS = "/v1/holders/customer-42/grants"


AMOUNTS: list[tuple[str, str]] = [
    ("1e400", "not-an-integer"),
    ("-1e400", "not-an-integer"),
    ("1.0", "not-an-integer"),
    ("1.9", "not-an-integer"),
    ("1e2", "not-an-integer"),
    ("-0.0", "not-an-integer"),
    ("true", "not-an-integer"),
    ("null", "null"),
    ("[]", "not-an-integer"),
    ('"1"', "not-an-integer"),
    ('"1_000"', "not-an-integer"),
    ("9" * 5000, "too-large"),
    ("-" + "9" * 5000, "too-small"),
    ("9" * 60_000, "too-large"),
    ("0", "too-small"),
    ("-0", "too-small"),
    ("-1", "too-small"),
    ("9007199254740992", "too-large"),
]


@pytest.mark.parametrize(("amount", "code"), AMOUNTS, ids=[f"{amount[:20]} ({len(amount)})" for amount, _ in AMOUNTS])
def test_an_amount_that_is_not_an_integer_within_bounds_is_a_400(api: ApiClient, holder: str, amount: str, code: str) -> None:
    with nothing_written(holder):
        problem_of_refusal(api.post(SPENDS, raw=b'{"amount": ' + amount.encode() + b"}"), 400, ("/amount", code))


@pytest.mark.parametrize("amount", ["1_000", "01", "+1", "0x10", ".5", "1.", "--1", "1e", "\uff11"])
def test_what_json_has_no_number_for_is_a_400(api: ApiClient, holder: str, amount: str) -> None:
    with nothing_written(holder):
        problem_of_refusal(api.post(SPENDS, raw=b'{"amount": ' + amount.encode() + b"}"), 400, ("", "malformed-json"))


def test_amounts_up_to_the_bounds_are_taken(api: ApiClient, holder: str) -> None:
    assert api.post(GRANTS, {"amount": 9007199254740991}).status_code == 201
    assert api.post(SPENDS, {"amount": 1}).status_code == 201
    assert api.post(SPENDS, {"amount": 9007199254740991}).status_code == 201


@pytest.mark.parametrize("path", ["refunds", "revocations"])
@pytest.mark.parametrize("sequence", [2**63, 2**64, 10**100])
def test_a_sequence_that_no_entry_can_have_is_a_404(api: ApiClient, holder: str, path: str, sequence: int) -> None:
    name = {"refunds": "spend", "revocations": "grant"}[path]
    with nothing_written(holder):
        problem_of_refusal(api.post(f"/v1/holders/{holder}/{path}", {name: sequence}), 404)

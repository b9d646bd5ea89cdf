"""A request's digest: SHA-256 over one JSON form, whatever the order and types of the values it was made from."""

import hashlib
from dataclasses import fields
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.rules.requests import (
    REQUEST_OPTIONS,
    BudgetRequest,
    CaptureRequest,
    ClaimRequest,
    ClockRequest,
    EndBudgetRequest,
    EndClaimRequest,
    EndOverageRequest,
    EndRecurringGrantRequest,
    ExtendRequest,
    FreezeRequest,
    GrantRequest,
    HoldRequest,
    IncomingTransfersRequest,
    OverageRequest,
    OverdraftRequest,
    RecurringGrantRequest,
    RefundRequest,
    ReissueRequest,
    ReleaseRequest,
    Request,
    ReversalRequest,
    RevokeRequest,
    SpendRequest,
    TransferRequest,
    VoidRequest,
)
from ledger.values import encode_json
from tests.ledger.test_digest import NASTY

AT = datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))
COMMON: dict[str, Any] = {"holder_id": "ada", "idempotency_key": "k"}
REQUESTS: list[Request] = [
    GrantRequest(
        **COMMON, amount=2**53 - 1, source="promotional", effective_at=AT, expires_at=AT + timedelta(days=1), priority=0
    ),
    SpendRequest(**COMMON, amount=1),
    SpendRequest(**COMMON, rate="gpt:in", quantity=1_000),
    SpendRequest(**COMMON, amount=1, partial=True),
    SpendRequest(**COMMON, rate="gpt", quantities={"input": Decimal("1200.50"), "output": Decimal(0)}),
    HoldRequest(**COMMON, amount=5, expires_at=AT),
    CaptureRequest(**COMMON, hold=3, rate="gpt", quantities={"output": Decimal("1E+2")}, newest_version=True),
    CaptureRequest(**COMMON, hold=3, final=False, over_capture="if_available"),
    ReleaseRequest(**COMMON, hold=3),
    ExtendRequest(**COMMON, hold=3, expires_at=AT),
    TransferRequest(**COMMON, to="bob", amount=7),
    IncomingTransfersRequest(**COMMON, accepted=False),
    OverdraftRequest(**COMMON, limit=0),
    OverageRequest(**COMMON, limit=500, ends_at=AT),
    EndOverageRequest(**COMMON),
    ClaimRequest(**COMMON, lots=[1, 5], amount=450),
    EndClaimRequest(**COMMON, claim=3),
    FreezeRequest(**COMMON, frozen=True),
    ClockRequest(**COMMON, now=AT),
    VoidRequest(**COMMON),
    ReissueRequest(**COMMON, lot=1, expires_at=AT, priority=3),
    ReversalRequest(**COMMON, transfer=2, to="bob", amount=3),
    BudgetRequest(**COMMON, budget="daily", limit=5, window="rolling", hours=24, by="label", label="member"),
    EndBudgetRequest(**COMMON, budget="daily"),
    RecurringGrantRequest(**COMMON, recurring_grant="monthly", amount=5, interval="month", ends_at=AT),
    EndRecurringGrantRequest(**COMMON, recurring_grant="monthly"),
    RefundRequest(**COMMON, spend=2**63 - 1),
    RevokeRequest(**COMMON, grant=1, amount=1),
]
UNTYPED = {
    "request_id", "expected_sequence", "dry_run", "drops_due", "first_at", "parts", "known_as", "is_tried", "facts_if_short",
    "wait_s", "within_labels",
}  # fmt: skip
"""The fields without a type of value. Who adds one says here that requests that differ in it are the same."""
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def expected_digest(request: Request) -> bytes:
    """Return the digest by its definition."""
    return hashlib.sha256(encode_json([request.operation, request.content()]).encode()).digest()[:16]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: each.operation)
def test_the_digest_is_over_operation_and_content_as_json(request_: Request) -> None:
    assert request_.digest() == expected_digest(request_)
    content = request_.content()
    later = {name for name in request_.added_later if getattr(request_, name) in (None, "") or getattr(request_, name) is False}
    assert set(content) == {each.name for each in fields(request_)} - REQUEST_OPTIONS - UNTYPED - later


def test_the_list_of_requests_has_every_kind() -> None:
    def kinds(kind: type[Request]) -> set[type[Request]]:
        return {kind} | {each for below in kind.__subclasses__() for each in kinds(below)}

    assert {type(each) for each in REQUESTS} == {kind for kind in kinds(Request) if hasattr(kind, "operation")}


@given(
    reason=NASTY,
    reference=NASTY,
    metadata=st.dictionaries(NASTY, FINITE | st.integers() | st.booleans() | NASTY | st.lists(st.none()), max_size=4),
)
def test_the_digest_follows_its_definition_for_any_texts_and_metadata(
    reason: str, reference: str, metadata: dict[str, Any]
) -> None:
    request = SpendRequest(**COMMON, amount=12, reason=reason, reference=reference, metadata=metadata)
    assert request.digest() == expected_digest(request)


def test_the_digest_of_a_spend_never_changes() -> None:
    """A stored digest must still match when the same request is sent again years later."""
    request = SpendRequest(**COMMON, amount=120, reason="chat", metadata={"b": 1, "a": [1.5, None]})
    spelled = (
        '["spend",{"amount":120,"credit_type":"credits","holder_id":"ada","metadata":{"a":[1.5,null],"b":1},'
        '"quantity":null,"rate":null,"reason":"chat","reference":""}]'
    )
    assert request.digest() == hashlib.sha256(spelled.encode()).digest()[:16]
    assert request.digest() == SpendRequest(**COMMON, amount=120, reason="chat", metadata={"a": [1.5, None], "b": 1}).digest()
    partial = SpendRequest(**COMMON, amount=120, reason="chat", metadata={"b": 1, "a": [1.5, None]}, partial=True)
    assert partial.digest() == hashlib.sha256(spelled.replace('"quantity"', '"partial":true,"quantity"').encode()).digest()[:16]


def test_quantities_are_the_same_in_every_spelling_and_a_quantity_of_0_is_not_none() -> None:
    def capture(**fields: Any) -> bytes:
        return CaptureRequest(**COMMON, hold=3, **fields).digest()

    assert capture(quantities={"input": Decimal("1.50")}) == capture(quantities={"input": Decimal("1.5")})
    assert capture(quantities={"input": Decimal(100)}) == capture(quantities={"input": Decimal("1E+2")})
    different = [
        capture(),
        capture(amount=0),
        capture(quantity=0),
        capture(quantities={"input": Decimal(0)}),
        capture(quantities={"input": Decimal(0), "output": Decimal(0)}),
        capture(quantities={"input": Decimal(0)}, newest_version=True),
    ]
    assert len(set(different)) == len(different)

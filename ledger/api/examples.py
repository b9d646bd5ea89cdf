"""Bodies for the OpenAPI document and docs/API.md: one holder's first day, as the API answers it."""

from typing import Any

RECORDED_AT = "2026-01-31T09:30:00.123456Z"

GRANT_BODY: dict[str, Any] = {
    "amount": 100,
    "source": "purchased",
    "expires_at": "2027-01-31T00:00:00Z",
    "reason": "Starter package",
    "reference": "order-7781",
    "metadata": {"channel": "web"},
}
SPEND_BODY: dict[str, Any] = {"amount": 3, "reason": "3 e-mails", "reference": "campaign-12"}
REFUND_BODY: dict[str, Any] = {"spend": 2, "amount": 1, "reason": "1 e-mail bounced"}
REVOCATION_BODY: dict[str, Any] = {"grant": 1, "reason": "Order cancelled"}


def _entry(**facts: Any) -> dict[str, Any]:
    return {
        "holder_id": "customer-42",
        "credit_type": "credits",
        "sequence": 1,
        "kind": "grant",
        "amount": 100,
        "balance": 100,
        "held": 0,
        "drawn": [],
        "closes": None,
        "effective_at": RECORDED_AT,
        "recorded_at": RECORDED_AT,
        "actor": "key:shop",
        "reason": "",
        "reference": "",
        "metadata": {},
        "idempotency_key": "order-7781",
        "digest": "8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4",
        **facts,
    }


GRANT = _entry(reason="Starter package", reference="order-7781", metadata={"channel": "web"})
SPEND = _entry(
    sequence=2,
    kind="spend",
    amount=-3,
    balance=97,
    drawn=[{"grant": 1, "amount": 3}],
    reason="3 e-mails",
    reference="campaign-12",
    idempotency_key="campaign-12",
)
REFUND = _entry(
    sequence=3,
    kind="refund",
    amount=1,
    balance=98,
    drawn=[{"grant": 1, "amount": 1}],
    closes=2,
    reason="1 e-mail bounced",
    idempotency_key="bounce-1",
)
REVOCATION = _entry(
    sequence=4,
    kind="revoke",
    amount=-98,
    balance=0,
    drawn=[{"grant": 1, "amount": 98}],
    closes=1,
    reason="Order cancelled",
    idempotency_key="cancel-7781",
)
BALANCE: dict[str, Any] = {
    "holder_id": "customer-42",
    "credit_type": "credits",
    "available": 98,
    "balance": 98,
    "held": 0,
    "sequence": 3,
    "as_of": "2026-01-31T09:31:00.000000Z",
    "lots": [
        {
            "grant": 1,
            "remaining": 98,
            "effective_at": RECORDED_AT,
            "expires_at": "2027-01-31T00:00:00.000000Z",
            "priority": 100,
            "source": "purchased",
        }
    ],
    "next_expiry": {"at": "2027-01-31T00:00:00.000000Z", "amount": 98},
}
REFUSAL: dict[str, Any] = {
    "idempotency_key": "campaign-13",
    "operation": "spend",
    "problem": {
        "type": "https://credit-ledger.example/problems/insufficient-credits",
        "title": "Not enough credits",
        "status": 402,
        "detail": "5000 asked for, 98 available.",
        "request_id": "0198c0de-7a1e-7b00-8000-000000000001",
        "outcome": "not_executed",
        "available": 98,
        "balance": 98,
        "requested": 5000,
        "shortfall": 4902,
    },
    "recorded_at": RECORDED_AT,
    "actor": "key:shop",
}

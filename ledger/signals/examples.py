"""Examples of the calls about signals."""

from typing import Any

from ledger.rest.schemas.examples import RECORDED_AT, SPEND

WEBHOOK_BODY: dict[str, Any] = {
    "url": "https://shop.example/hooks/credits",
    "types": ["entry.recorded", "refusal.recorded"],
    "description": "The shop",
}
WEBHOOK: dict[str, Any] = {
    "id": 1,
    "url": "https://shop.example/hooks/credits",
    "types": ["entry.recorded", "refusal.recorded"],
    "holder_id": None,
    "description": "The shop",
    "state": "enabled",
    "disabled_at": None,
    "disabled_because": None,
    "created_at": RECORDED_AT,
    "created_by": "key:shop",
    "rotated_at": None,
    "former_until": None,
}
NEW_WEBHOOK: dict[str, Any] = {**WEBHOOK, "secret": "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"}
LISTED_WEBHOOK: dict[str, Any] = {**WEBHOOK, "failing_since": None}
DELIVERY: dict[str, Any] = {
    "number": 7,
    "signal": "0f9a3c1e-7d7f-4b43-9a55-2f0a1d7c9e21",
    "type": "entry.recorded",
    "holder_id": "customer-42",
    "occurred_at": RECORDED_AT,
    "state": "delivered",
    "attempts": 1,
    "next_attempt_at": None,
    "ended_at": "2026-01-31T09:30:02.123456Z",
}
DELIVERY_DETAILS: dict[str, Any] = {
    **DELIVERY,
    "payload": {"type": "entry.recorded", "timestamp": RECORDED_AT, "data": SPEND},
    "tried": [
        {
            "started_at": "2026-01-31T09:30:01.923456Z",
            "took_ms": 200,
            "status": 204,
            "error": "",
            "response": "",
            "url": "https://shop.example/hooks/credits",
        }
    ],
}
ALERT_BODY: dict[str, Any] = {"below": 100, "holder_id": "customer-42", "credit_type": "credits", "reason": "Asked for by mail"}
ALERT: dict[str, Any] = {
    "id": 3,
    "alert": "low",
    "holder_id": "customer-42",
    "credit_type": "credits",
    "state": "declared",
    "below": 100,
    "below_percent": None,
    "days_left": None,
    "rate_days": None,
    "expiring_days": None,
    "reason": "Asked for by mail",
    "declared_at": RECORDED_AT,
    "declared_by": "key:shop",
}
ALERT_ACCOUNT: dict[str, Any] = {
    "holder_id": "customer-42",
    "credit_type": "credits",
    "crossed_at": RECORDED_AT,
    "crossing": 2,
    "is_depleted": False,
}
ALERT_ENDED: dict[str, Any] = {**ALERT, "id": 4, "state": "ended", "below": None, "reason": ""}

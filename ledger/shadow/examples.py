"""Examples of the calls of the shadow, for the OpenAPI document and its tests."""

from typing import Any

from ledger.rest.schemas.examples import RECORDED_AT

OBSERVATIONS_BODY: dict[str, Any] = {
    "observations": [
        {
            "holder": "customer-42",
            "idempotency_key": "job-8812",
            "operation": "spend",
            "amount": 30,
            "allowed": True,
            "balance": 70,
            "occurred_at": "2026-01-31T09:30:00Z",
        }
    ]
}
RESULTS: dict[str, Any] = {
    "results": [
        {
            "idempotency_key": "job-8812",
            "result": "recorded",
            "id": 17,
            "ledger_allows": False,
            "ledger_balance": 20,
            "difference": "decision",
            "detail": "The other system allows a spend of 30 and has 70 after it; the ledger would refuse it "
            "(insufficient-credits), with 20 to spend.",
        }
    ]
}
OBSERVATION: dict[str, Any] = {
    "id": 17,
    "holder_id": "customer-42",
    "credit_type": "credits",
    "number": 5,
    "idempotency_key": "job-8812",
    "operation": "spend",
    "amount": 30,
    "allowed": True,
    "balance": 70,
    "of": None,
    "reference": "",
    "occurred_at": "2026-01-31T09:30:00.000000Z",
    "ledger_allows": False,
    "ledger_balance": 20,
    "ledger_refusal": "insufficient-credits",
    "difference": "decision",
    "detail": RESULTS["results"][0]["detail"],
    "recorded_at": RECORDED_AT,
    "recorded_by": "key:shop",
}
OBSERVED_ACCOUNT: dict[str, Any] = {
    "holder_id": "customer-42",
    "credit_type": "credits",
    "state": "different",
    "observations": 5,
    "differences": 1,
    "balance": 70,
    "last_seen_at": RECORDED_AT,
    "first_difference": OBSERVATION,
}
PROMOTIONS_BODY: dict[str, Any] = {
    "holders": [{"holder": "customer-42", "balances": {"credits": 70}}],
    "reason": "The difference was a refund by hand",
}
PROMOTIONS: dict[str, Any] = {
    "results": [
        {
            "holder_id": "customer-42",
            "result": "moved",
            "accounts": [{"credit_type": "credits", "balance": 70, "sequence": 1}],
            "detail": "",
        }
    ]
}
RETURNS_BODY: dict[str, Any] = {"holders": ["customer-42"], "reason": "The move is put off"}
RETURNS: dict[str, Any] = {
    "results": [
        {
            "holder_id": "customer-42",
            "result": "moved",
            "accounts": [
                {
                    "credit_type": "credits",
                    "balance": 65,
                    "sequence": 3,
                    "since": {"spend": {"entries": 1, "amount": -5}},
                    "lots": [
                        {
                            "amount": 65,
                            "effective_at": None,
                            "expires_at": None,
                            "priority": 100,
                            "source": "purchased",
                            "applies_to": None,
                        }
                    ],
                }
            ],
            "detail": "",
        }
    ]
}

"""Bodies for the OpenAPI document and docs/reference/api.md: one holder's first day, as the API shows it."""

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
RESTRICTED_BODY: dict[str, Any] = {
    "amount": 500,
    "source": "promotional",
    "applies_to": {"rates": ["gpt-4o.input", "gpt-4o.output"], "labels": {"member": ["ada"]}},
}
SALE_BODY: dict[str, Any] = GRANT_BODY | {"paid_minor": 9900, "currency": "EUR", "document": "INV-2026-0017"}
SPEND_BODY: dict[str, Any] = {"amount": 3, "reason": "3 e-mails", "reference": "campaign-12"}
REFUND_BODY: dict[str, Any] = {"spend": 2, "amount": 1, "reason": "1 e-mail bounced"}
REVOCATION_BODY: dict[str, Any] = {"grant": 1, "reason": "Order cancelled"}
TRANSFER_BODY: dict[str, Any] = {"to": "team-7", "amount": 10, "reason": "For the team"}
BUDGET_BODY: dict[str, Any] = {
    "limit": 100,
    "window": "day",
    "time_zone": "Europe/Berlin",
    "by": "label",
    "label": "member",
    "reason": "Agreed with the team",
}
OVERAGE_BODY: dict[str, Any] = {
    "limit": 500,
    "anchor_at": "2026-02-01T00:00:00+01:00",
    "time_zone": "Europe/Berlin",
    "reference": "SUB-1234",
}
OVERDRAFT_BODY: dict[str, Any] = {"limit": 500, "reason": "Pays by invoice, approved by finance"}
RECURRING_BODY: dict[str, Any] = {
    "amount": 100,
    "interval": "month",
    "starts_at": "2026-02-01T00:00:00Z",
    "time_zone": "Europe/Berlin",
    "reason": "Included in the contract",
}
HOLD_BODY: dict[str, Any] = {"amount": 30, "expires_at": "2026-01-31T09:45:00Z", "reference": "call-98"}
CAPTURE_BODY: dict[str, Any] = {"amount": 20, "reference": "call-98", "metadata": {"tokens": 6120}}
RELEASE_BODY: dict[str, Any] = {"reason": "The call was cancelled"}
EXTENSION_BODY: dict[str, Any] = {"expires_at": "2026-01-31T10:45:00Z"}
RATE_BODY: dict[str, Any] = {"ref": "gpt-4o.output", "price": 3, "per": 1000, "reason": "Price list of February"}
RATE_OF_COMPONENTS: dict[str, Any] = {
    "ref": "gpt-4o",
    "components": {
        "input": {"price": 25, "per": 10000},
        "cached": {"price": 125, "per": 100000},
        "output": {"price": 1, "per": 100},
    },
}
QUOTE_OF_COMPONENTS: dict[str, Any] = {"rate": "gpt-4o", "quantities": {"input": 1200, "cached": 3000, "output": "350"}}
QUOTE_BODY: dict[str, Any] = {"rate": "gpt-4o.output", "quantity": 1250}
BATCH_BODY: dict[str, Any] = {
    "mode": "atomic",
    "operations": [
        {"operation": "grant", "holder": "customer-42", "amount": 100, "reason": "Starter package", "reference": "order-7781"},
        {"operation": "spend", "holder": "customer-42", "amount": 3, "idempotency_key": "campaign-12"},
    ],
}


def entry(**facts: Any) -> dict[str, Any]:
    """An entry as the API shows it: a grant of 100, with other facts."""
    return {
        "id": f"customer-42/credits/{facts.get('sequence', 1)}",
        "holder_id": "customer-42",
        "credit_type": "credits",
        "sequence": 1,
        "kind": "grant",
        "amount": 100,
        "balance": 100,
        "held": 0,
        "drawn": [],
        "refers_to": None,
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


GRANT = entry(reason="Starter package", reference="order-7781", metadata={"channel": "web"})
SPEND = entry(
    sequence=2,
    kind="spend",
    amount=-3,
    balance=97,
    drawn=[{"grant": 1, "amount": 3}],
    reason="3 e-mails",
    reference="campaign-12",
    idempotency_key="campaign-12",
)
REFUND = entry(
    sequence=3,
    kind="refund",
    amount=1,
    balance=98,
    drawn=[{"grant": 1, "amount": 1}],
    refers_to=2,
    reason="1 e-mail bounced",
    idempotency_key="bounce-1",
    refunded_total=1,
)
REVOCATION = entry(
    sequence=4,
    kind="revoke",
    amount=-98,
    balance=0,
    drawn=[{"grant": 1, "amount": 98}],
    refers_to=1,
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
            "state": "spendable",
        }
    ],
    "next_expiry": {"at": "2027-01-31T00:00:00.000000Z", "amount": 98},
    "holds": [],
    "overdraft": 0,
    "owed": 0,
    "overage": None,
}
TRANSFER = entry(
    sequence=4,
    kind="transfer_out",
    amount=-10,
    balance=88,
    drawn=[{"grant": 1, "amount": 10}],
    reason="For the team",
    idempotency_key="to-team-7",
    counterpart={"holder_id": "team-7"},
)
INCOMING_TRANSFERS = entry(
    sequence=4,
    kind="adjust",
    amount=0,
    balance=98,
    reason="Gets credits from nobody else",
    idempotency_key="incoming-1",
    accepts_transfers=False,
)
BUDGET_SET = entry(
    sequence=4,
    kind="adjust",
    amount=0,
    balance=98,
    reason="Agreed with the team",
    idempotency_key="budget-1",
    budget="daily",
)
BUDGET_ENDED = entry(sequence=5, kind="adjust", amount=0, balance=98, idempotency_key="budget-2", budget="daily")
BUDGET_USE: dict[str, Any] = {
    "subject": "ann",
    "within": [],
    "used": 80,
    "remaining": 20,
    "exceeded": False,
    "resets_at": "2026-01-31T23:00:00.000000Z",
}
BUDGET: dict[str, Any] = {
    "holder_id": "customer-42",
    "credit_type": "credits",
    "budget": "daily",
    "limit": 100,
    "window": "day",
    "hours": None,
    "time_zone": "Europe/Berlin",
    "by": "label",
    "label": "member",
    "subject": None,
    "mode": "hard",
    "parent": None,
    "in_force": True,
    "starts_at": None,
    "ends_at": "2026-02-28T23:00:00.000000Z",
    "later": [
        {
            "starts_at": "2026-02-28T23:00:00.000000Z",
            "ends_at": None,
            "limit": 200,
            "window": "day",
            "hours": None,
            "time_zone": "Europe/Berlin",
            "by": "label",
            "label": "member",
            "subject": None,
            "mode": "hard",
            "parent": None,
        }
    ],
    "set_by": "key:shop",
    "reference": "",
    "usage": [BUDGET_USE],
    "subjects": 1,
    "as_of": "2026-01-31T09:30:45.000000Z",
}
USAGE: dict[str, Any] = {
    "holder_id": "customer-42",
    "credit_type": "credits",
    "from": "2026-01-01T00:00:00.000000Z",
    "to": "2026-02-01T00:00:00.000000Z",
    "zone": "UTC",
    "amount": 120,
    "postpaid": 0,
    "entries": 7,
    "values_left_out": 0,
    "results": [
        {
            "group": "value",
            "labels": {"member": "ann"},
            "rate": None,
            "day": "2026-01-31",
            "amount": 80,
            "postpaid": 0,
            "entries": 4,
        },
        {
            "group": "without",
            "labels": {"member": None},
            "rate": None,
            "day": "2026-01-31",
            "amount": 40,
            "postpaid": 0,
            "entries": 3,
        },
    ],
}
RECURRING_SET = entry(
    sequence=4,
    kind="adjust",
    amount=0,
    balance=98,
    reason="Included in the contract",
    idempotency_key="recurring-1",
    recurring_grant="monthly",
)
RECURRING_ENDED = entry(sequence=5, kind="adjust", amount=0, balance=98, idempotency_key="recurring-2", recurring_grant="monthly")
RECURRING_GRANT: dict[str, Any] = {
    "holder_id": "customer-42",
    "credit_type": "credits",
    "recurring_grant": "monthly",
    "state": "active",
    "amount": 100,
    "up_to": None,
    "interval": "month",
    "interval_count": 1,
    "starts_at": "2026-02-01T00:00:00.000000Z",
    "time_zone": "Europe/Berlin",
    "source": "promotional",
    "priority": 100,
    "expiry": "period_end",
    "expires_after_days": None,
    "rollover_cap": None,
    "ends_at": None,
    "periods": None,
    "applies_to": None,
    "set_by": 4,
    "last_entry": None,
    "granted_until": None,
    "next_at": "2026-02-01T00:00:00.000000Z",
    "upcoming": [
        {
            "period": 0,
            "amount": 100,
            "starts_at": "2026-02-01T00:00:00.000000Z",
            "ends_at": "2026-03-01T00:00:00.000000Z",
            "expires_at": "2026-03-01T00:00:00.000000Z",
        }
    ],
}
OVERAGE_SET = entry(
    sequence=4,
    kind="adjust",
    amount=0,
    balance=98,
    reference="SUB-1234",
    idempotency_key="overage-1",
    overage={"limit": 500, "used": 0, "until": "2026-01-31T23:00:00.000000Z"},
)
OVERAGE_ENDED = OVERAGE_SET | {
    "id": "customer-42/credits/9",
    "sequence": 9,
    "idempotency_key": "overage-end-1",
    "overage": {"limit": 500, "used": 120, "until": "2026-01-31T09:30:45.000000Z"},
}
OVERAGE: dict[str, Any] = {
    "holder_id": "customer-42",
    "credit_type": "credits",
    "limit": 500,
    "used": 120,
    "until": "2026-01-31T23:00:00.000000Z",
    "interval": "month",
    "interval_count": 1,
    "anchor_at": "2026-01-31T23:00:00.000000Z",
    "time_zone": "Europe/Berlin",
    "ends_at": None,
    "reference": "SUB-1234",
    "set_by": 4,
}
OVERDRAFT = entry(
    sequence=4,
    kind="adjust",
    amount=0,
    balance=98,
    reason="Pays by invoice, approved by finance",
    idempotency_key="overdraft-1",
    overdraft=500,
)
HOLD = entry(
    sequence=5,
    kind="hold",
    amount=-30,
    balance=58,
    held=30,
    drawn=[{"grant": 1, "amount": 30}],
    reference="call-98",
    idempotency_key="call-98",
    expires_at="2026-01-31T09:45:00.000000Z",
)
OPEN_HOLD: dict[str, Any] = {"hold": 5, "amount": 30, "expires_at": "2026-01-31T09:45:00.000000Z", "state": "open"}
CAPTURE = entry(
    sequence=7,
    kind="capture",
    amount=0,
    balance=68,
    drawn=[{"grant": 1, "amount": 20}],
    refers_to=5,
    reference="call-98",
    metadata={"tokens": 6120},
    idempotency_key="call-98-done",
)
RELEASE = entry(
    sequence=6,
    kind="release",
    amount=30,
    balance=88,
    drawn=[{"grant": 1, "amount": 30}],
    refers_to=5,
    reason="The call was cancelled",
    idempotency_key="call-98-cancelled",
)
EXTENSION = entry(
    sequence=6,
    kind="hold",
    amount=0,
    balance=58,
    held=30,
    refers_to=5,
    idempotency_key="call-98-longer",
    expires_at="2026-01-31T10:45:00.000000Z",
)
RATE: dict[str, Any] = {
    "ref": "gpt-4o.output",
    "credit_type": "credits",
    "version": 1,
    "price": 3,
    "per": 1000,
    "published_at": RECORDED_AT,
    "published_by": "key:shop",
    "reason": "Price list of February",
}
QUOTE: dict[str, Any] = {"amount": 4, "rating": {"rate": "gpt-4o.output", "version": 1, "quantity": 1250}}
BATCH: dict[str, Any] = {
    "failed": 0,
    "results": [
        {"status": 201, "body": entry(reason="Starter package", reference="order-7781", idempotency_key="batch-1/0")},
        {"status": 201, "body": {**SPEND, "reason": "", "reference": ""}},
    ],
}


def _state(sequence: int, available: int) -> dict[str, Any]:
    return {
        "sequence": sequence,
        "available": available,
        "balance": available,
        "held": 0,
        "overdraft": 0,
        "owed": 0,
        "lots": [{**BALANCE["lots"][0], "remaining": available}],
        "holds": [],
    }


EXPLANATION: dict[str, Any] = {
    "sequence": 2,
    "kind": "spend",
    "text": "The spend took 3 credits from 1 lot, in the order priority, soonest expiry, promotional before purchased, oldest.",
    "before": _state(1, 100),
    "after": _state(2, 97),
    "lots": [
        {
            "grant": 1,
            "amount": 3,
            "decision": "drawn",
            "text": "Used 3 of 100; 97 remain. It is the last usable lot.",
        }
    ],
    "budgets": [
        {
            "budget": "daily",
            "subject": None,
            "within": [],
            "mode": "hard",
            "limit": 100,
            "used_before": 10,
            "used": 13,
            "text": "The account has used 13 of 100 a day; before, 10.",
        }
    ],
    "costs": [],
    "booked_before": [],
    "booked_after": [],
    "refers_to": None,
}
REFUSAL: dict[str, Any] = {
    "idempotency_key": "campaign-13",
    "operation": "spend",
    "problem": {
        "type": "https://credit-ledger.example/problems/insufficient-credits",
        "title": "The account has too few credits",
        "status": 402,
        "detail": "The request needs 5000 credits; 98 are available.",
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
REJECTED_RESULTS: list[dict[str, Any]] = [{"status": 424}, {"status": 402, "problem": REFUSAL["problem"]}]

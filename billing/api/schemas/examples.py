"""Bodies for the OpenAPI document: one customer's first months."""

from typing import Any

from billing.nouns import example_of, noun_fields
from billing.orders.customers import NewCustomer

CUSTOMER_BODY: dict[str, Any] = example_of(NewCustomer)
SELLER_BODY: dict[str, Any] = {
    "name": "Nimbus Computing GmbH", "line1": "Lindenstraße 7", "postal_code": "10969", "city": "Berlin", "country": "DE",
    "vat_id": "DE987654328", "iban": "DE89370400440532013000", "accent_color": "#0b6e4f",
    "payment_terms": {"en": "2 % off within 10 days."}, "cash_rounding_minor": {"CHF": 5}, "numbers_per_year": True,
}  # fmt: skip
SELLER: dict[str, Any] = {
    "ref": "default", **SELLER_BODY, "line2": "", "tax_number": "", "tax_rules": "price", "needs_confirmed_vat_id": False,
    "register": "", "email": "", "phone": "", "electronic_address": "", "website": "",
    "bic": "", "bank": "", "logo": "", "footer": {}, "mails_invoices": False, "terms_days": 30,
    "reminder_days": [],
    "reminder_fee_minor": {}, "suspends_at_reminder": None, "invoice_prefix": "INV", "credit_note_prefix": "CN",
    "numbers_per_customer": False, "recorded_at": "2026-01-02T03:04:05.000006Z", "recorded_by": "key:shop",
}  # fmt: skip
CUSTOMER: dict[str, Any] = {
    **{each.name: each.out.example for each in noun_fields(NewCustomer)}, "suggested_vat_status": None,
}  # fmt: skip
VAT_LOOKUP: dict[str, Any] = {
    "id": 1, "customer": "CUST-7", "vat_id": "DE123456788", "outcome": "valid", "asked_at": "2026-03-01T09:00:00.000000Z",
    "requester": "DE987654328", "consultation": "WAPIAAAAZxT0vM3d", "name": "Ada Lovelace", "address": "12 Main St, Berlin",
    "buyer": {"name": "Ada Lovelace", "address": {"line1": "12 Main St", "city": "Berlin"}}, "error": None,
    "recorded_at": "2026-03-01T09:00:00.500000Z",
}  # fmt: skip
BASE: dict[str, Any] = {
    "key": "base", "kind": "recurring", "timing": "advance", "model": "flat", "unit_amount": "10.00", "tax_rate": "20",
}  # fmt: skip
CALLS: dict[str, Any] = {
    "key": "calls", "name": "API calls", "kind": "usage", "timing": "arrears", "model": "unit", "unit_amount": "0.02",
    "meter": "calls", "aggregation": "sum", "tax_rate": "20",
}  # fmt: skip
PLAN_BODY: dict[str, Any] = {
    "ref": "basic", "name": "Basic", "currency": "EUR", "interval": {"unit": "month", "count": 1}, "prices": [BASE, CALLS],
}  # fmt: skip
MESSAGES: dict[str, Any] = {
    "key": "messages", "kind": "usage", "model": "unit", "unit_amount": "0.05", "meter": "messages", "aggregation": "sum",
    "credits": {"credit_type": "credits", "per_unit": "2.5"}, "tax_rate": "20",
}  # fmt: skip
PLAN_IN_CREDITS_BODY: dict[str, Any] = {
    "ref": "messaging", "name": "Messaging", "currency": "EUR", "interval": {"unit": "month", "count": 1},
    "prices": [BASE, MESSAGES], "allowance": {"credit_type": "credits", "amount": 1000},
}  # fmt: skip
PLAN_WITH_OVERAGE_BODY: dict[str, Any] = {
    "ref": "team", "name": "Team", "currency": "EUR", "interval": {"unit": "month", "count": 1}, "prices": [BASE],
    "allowance": {"credit_type": "credits", "amount": 1000},
    "overage": {
        "credit_type": "credits", "price": {"model": "unit", "unit_amount": "0.02", "tax_rate": "20"}, "limit_credits": 500,
    },
}  # fmt: skip
SEAT: dict[str, Any] = {**BASE, "key": "seats", "model": "unit"}
PLAN_WITH_BUDGETS_BODY: dict[str, Any] = {
    "ref": "crew", "name": "Crew", "currency": "EUR", "interval": {"unit": "month", "count": 1}, "prices": [SEAT],
    "allowance": {"credit_type": "credits", "amount": 1000, "per_quantity_of": "seats"},
    "budgets": [
        {"budget": "pool", "limit": 100, "per_quantity_of": "seats", "window": "day"},
        {"budget": "member", "limit": 300, "window": "day", "by": "label", "label": "member"},
    ],
}  # fmt: skip
PLAN: dict[str, Any] = {
    **PLAN_BODY,
    "names": {},
    "version": 1,
    "minimum": None,
    "maximum": None,
    "tax_behavior": "exclusive",
    "allowance": None,
    "overage": None,
    "budgets": [],
    "usage_threshold": None,
    "trial_days": None,
    "on_sale": True,
}
RETIRED_PLAN: dict[str, Any] = {**PLAN, "version": 2, "on_sale": False}
RATING_BODY: dict[str, Any] = {"currency": "EUR", "price": CALLS, "quantity": 200}
RATING_IN_CREDITS_BODY: dict[str, Any] = {"currency": "EUR", "price": MESSAGES, "quantity": 200, "credits_available": 250}
RATING: dict[str, Any] = {
    "amount_minor": 400,
    "exact": "4",
    "steps": [{"from": "0", "to": "200", "units": "200", "unit_amount": "0.02", "flat_amount": "0", "amount": "4"}],
}
SUBSCRIPTION_BODY: dict[str, Any] = {
    "ref": "SUB-1234", "customer": "CUST-7", "plan": "basic", "started_at": "2026-01-01T00:00:00Z",
}  # fmt: skip
SUBSCRIPTION: dict[str, Any] = {
    **SUBSCRIPTION_BODY, "started_at": "2026-01-01T00:00:00.000000Z", "anchor_at": "2026-01-01T00:00:00.000000Z",
    "time_zone": "UTC", "trial_ends_at": None, "hold_days": 0, "consolidated_invoicing": False,
    "activation": None,
}  # fmt: skip
PAID_FIRST_BODY: dict[str, Any] = {
    "ref": "SUB-1236", "customer": "CUST-7", "plan": "basic", "started_at": "2026-01-01T00:00:00Z", "starts_when_paid": True,
    "payment_timeout_hours": 48,
}  # fmt: skip
ACTIVATION: dict[str, Any] = {
    "state": "canceled", "invoice": 1, "expires_at": "2026-01-03T09:30:00.123456Z", "settled_at": "2026-01-01T10:00:00.250000Z",
}  # fmt: skip
AMENDMENT_BODY: dict[str, Any] = {"effective_at": "2026-01-15T00:00:00Z", "quantities": {"base": 2}}
AMENDMENT: dict[str, Any] = {
    "subscription": "SUB-1234", "sequence": 2, "effective_at": "2026-01-15T00:00:00.000000Z",
    "change": {"quantities": {"base": "2"}}, "recorded_at": "2026-01-14T09:30:00.123456Z", "actor": "key:shop",
}  # fmt: skip
PHASES_BODY: dict[str, Any] = {
    "effective_at": "2126-06-01T00:00:00Z",
    "phases": [{"intervals": 3, "price_override": {"percent_off": "20"}}, {"list_prices": True}],
}
CALENDAR: dict[str, Any] = {
    "subscription": "SUB-1234", "as_of": "2026-01-15T00:00:00.000000Z", "is_incomplete": False,
    "stretches": [
        {"starts_at": "2026-01-01T00:00:00.000000Z", "ends_at": "2026-02-01T00:00:00.000000Z", "phase": 1, "is_trial": True,
         "plan": "basic", "plan_version": 1, "quantities": {"base": "1"}, "is_negotiated": False, "currency": "EUR",
         "per_period_minor": 0},
        {"starts_at": "2026-02-01T00:00:00.000000Z", "ends_at": None, "phase": 2, "is_trial": False, "plan": "basic",
         "plan_version": 1, "quantities": {"base": "2"}, "is_negotiated": False, "currency": "EUR", "per_period_minor": 2000},
    ],
}  # fmt: skip
PHASED_SUBSCRIPTION_BODY: dict[str, Any] = {
    "ref": "SUB-1235", "customer": "CUST-7", "plan": "basic", "started_at": "2026-01-01T00:00:00Z",
    "phases": [{"intervals": 1, "trial": True}, {"quantities": {"base": 2}}],
}  # fmt: skip
CHARGE_BODY: dict[str, Any] = {"amount_minor": 5000, "description": "Set-up", "tax_rate": "20"}
CHARGE: dict[str, Any] = {
    **CHARGE_BODY, "subscription": "SUB-1234", "sequence": 1, "currency": "EUR", "recorded_at": "2026-01-14T09:30:00.123456Z",
}  # fmt: skip
COUPON_BODY: dict[str, Any] = {"ref": "WELCOME", "kind": "percentage", "value": "10", "duration": "recurring", "periods": 3}
COUPON: dict[str, Any] = {
    **COUPON_BODY, "name": None, "names": {}, "currency": None, "per": "subscription",
    "prices": [], "plans": [],
}  # fmt: skip
GIVEN_COUPON: dict[str, Any] = {
    "customer": "CUST-7", "subscription": None, "coupon": "WELCOME", "given_at": "2026-01-14T09:30:00.123456Z",
}  # fmt: skip
CLOUD_EVENT: dict[str, Any] = {
    "specversion": "1.0", "id": "8812", "source": "/api/eu-1", "type": "calls", "subject": "SUB-1234",
    "time": "2026-01-10T12:00:00Z", "data": {"value": 7, "region": "eu"},
}  # fmt: skip
USAGE_BODY: dict[str, Any] = {
    "events": [
        {"idempotency_key": "call-1", "subscription": "SUB-1234", "meter": "calls", "value": "200",
         "occurred_at": "2026-01-10T12:00:00Z"},
    ]
}  # fmt: skip
CORRECTIONS_BODY: dict[str, Any] = {
    "events": [
        {"idempotency_key": "fix-1", "subscription": "SUB-1234", "corrects": "call-1", "value": "150"},
        {"idempotency_key": "fix-2", "subscription": "SUB-1234", "cancels": "call-2"},
    ]
}  # fmt: skip
USAGE: dict[str, Any] = {"results": [{"idempotency_key": "call-1", "result": "accepted", "detail": ""}]}
GENERATION_BODY: dict[str, Any] = {"as_of": "2026-02-01T00:00:00Z"}
INVOICE: dict[str, Any] = {
    "id": 1, "number": "INV-000001", "subscription": "SUB-1234", "customer": "CUST-7", "vat_lookup": None,
    "currency": "EUR", "note": None,
    "state": "open", "consolidates_on": None,
    "issue_date": "2026-02-01", "due_date": "2026-02-15", "subtotal_minor": 1400, "discount_minor": 0, "tax_minor": 280,
    "total_minor": 1680, "credit_notes_minor": 0, "credits_applied_minor": 0, "rounding_minor": 0, "amount_due_minor": 1680,
    "amount_paid_minor": 0, "amount_remaining_minor": 1680, "refunded_minor": 0,
    "lines": [
        {"position": 1, "kind": "usage", "price_key": "calls", "description": "calls", "title": "Basic: API calls",
         "subscription": "SUB-1234",
         "period": {"start": "2026-01-01T00:00:00+00:00", "end": "2026-02-01T00:00:00+00:00"}, "quantity": "200",
         "unit_amount": "0.02", "amount_minor": 400, "discount_minor": 0, "tax_category": "S", "tax_rate": "20",
         "rating": RATING},
    ],
    "discounts": [], "taxes": [{"category": "S", "rate": "20", "base_minor": 1400, "amount_minor": 280}],
}  # fmt: skip
SUSPENDED_BILLING: dict[str, Any] = {
    "subscription": "SUB-1234", "reason": "too-many-periods", "suspended_at": "2026-02-01T00:00:00.000000Z",
    "resumed_at": "2026-02-01T09:30:00.000000Z", "resumed_by": "key:shop", "resume_reason": "Checked by hand",
}  # fmt: skip
CREDIT_NOTE_BODY: dict[str, Any] = {"lines": [{"position": 1, "amount_minor": 100}], "reason": "50 calls failed"}
CREDIT_NOTE: dict[str, Any] = {
    "id": 1, "kind": "requested", "number": "CN-000001", "state": "issued", "invoice": 1, "invoice_number": "INV-000001",
    "subscription": "SUB-1234", "customer": "CUST-7", "currency": "EUR", "issue_date": "2026-02-03", "reason": "50 calls failed",
    "actor": "key:shop", "subtotal_minor": 100, "tax_minor": 20, "rounding_minor": 0, "total_minor": 120, "lowers_due_minor": 120,
    "credits_returned": 0, "credits_returned_minor": 0, "left_minor": 0,
    "lines": [
        {"position": 1, "description": "calls", "title": "Basic: API calls", "amount_minor": 100, "tax_category": "S",
         "tax_rate": "20", "subscription": "SUB-1234"},
    ],
    "taxes": [{"category": "S", "rate": "20", "base_minor": 100, "amount_minor": 20}],
}  # fmt: skip
ONE_OFF_INVOICE_BODY: dict[str, Any] = {
    "lines": [{"description": "Workshop", "quantity": "2", "unit_amount": "450.00", "tax_rate": "20"}],
}  # fmt: skip
ONE_OFF_INVOICE: dict[str, Any] = {
    **INVOICE, "id": 2, "number": "INV-000002", "subscription": None, "subtotal_minor": 90000, "tax_minor": 18000,
    "total_minor": 108000, "amount_due_minor": 108000, "amount_remaining_minor": 108000,
    "lines": [
        {"position": 1, "kind": "one_off", "price_key": None, "description": "Workshop", "title": "Workshop", "period": None,
         "quantity": "2", "unit_amount": "450", "amount_minor": 90000, "discount_minor": 0, "tax_category": "S",
         "tax_rate": "20", "rating": {}, "subscription": None},
    ],
    "taxes": [{"category": "S", "rate": "20", "base_minor": 90000, "amount_minor": 18000}],
}  # fmt: skip
CREDIT_BALANCE: dict[str, Any] = {
    "customer": "CUST-7",
    "balances": [
        {"currency": "EUR", "balance_minor": 1500, "credit": [
            {"credit_note": 3, "kind": "carried", "number": None, "invoice": 2, "subscription": "SUB-1234", "reference": "",
             "amount_minor": 1500, "left_minor": 1500, "recorded_at": "2026-02-03T09:30:00.123456Z"},
        ]},
    ],
}  # fmt: skip
CREDIT_REFUND_BODY: dict[str, Any] = {"amount_minor": 1500, "reason": "The customer left", "reference": "transfer 4711"}
CREDIT_REFUND: dict[str, Any] = {
    "id": 1, "customer": "CUST-7", "currency": "EUR", "amount_minor": 1500, "reason": "The customer left",
    "reference": "transfer 4711", "actor": "key:shop", "invoice": None, "recorded_at": "2026-02-03T09:30:00.123456Z",
    "taken_from": [{"credit_note": 3, "kind": "carried", "number": None, "amount_minor": 1500}],
}  # fmt: skip
TRANSITION: dict[str, Any] = {
    "invoice": 1, "transition": "void", "actor": "key:shop", "reason": "Agreed by phone",
    "recorded_at": "2026-02-03T09:30:00.123456Z", "draft": None,
}  # fmt: skip
DELETION: dict[str, Any] = {
    **TRANSITION, "transition": "delete",
    "draft": {"subscription": "SUB-1234", "customer": "CUST-7", "currency": "EUR", "total_minor": 1680},
}  # fmt: skip
CUSTOMER_COUPON: dict[str, Any] = {**GIVEN_COUPON, "taken_off_at": None, "used_minor": 0, "used_invoices": 0}
SUBSCRIPTION_COUPON: dict[str, Any] = {**CUSTOMER_COUPON, "subscription": "SUB-1234"}
SUBSCRIPTION_SUMMARY: dict[str, Any] = {
    "ref": "SUB-1234", "customer": "CUST-7", "plan": "basic", "plan_version": 1, "state": "active",
    "started_at": "2026-01-01T00:00:00.000000Z", "anchor_at": "2026-01-01T00:00:00.000000Z", "time_zone": "UTC",
    "trial_ends_at": None, "hold_days": 0, "consolidated_invoicing": False, "ends_at": None,
    "due_at": "2026-02-01T00:00:00.000000Z", "suspended": None, "activation": None,
}  # fmt: skip
SUBSCRIPTION_DETAIL: dict[str, Any] = {
    **SUBSCRIPTION_SUMMARY, "as_of": "2026-01-20T12:00:00.000000Z",
    "current_period": {"start": "2026-01-01T00:00:00.000000Z", "end": "2026-02-01T00:00:00.000000Z"},
    "items": [
        {
            "price_key": "base", "plan": "basic", "plan_version": 1, "quantity": "2",
            "starts_at": "2026-01-15T00:00:00.000000Z", "ends_at": None, "negotiated_price": None,
        },
    ],
    "amendments": [AMENDMENT],
}  # fmt: skip
METER_BODY: dict[str, Any] = {
    "ref": "tokens", "expression": "round(properties.input_tokens * 1.5 + properties.output_tokens, 2)",
}  # fmt: skip
METER: dict[str, Any] = {**METER_BODY, "version": 1, "created_at": "2026-01-02T03:04:05.000006Z"}
USAGE_EVENT: dict[str, Any] = {
    "idempotency_key": "call-8812", "subscription": "SUB-1234", "meter": "calls", "value": "200",
    "occurred_at": "2026-01-10T10:00:00.000000Z", "properties": {"region": "eu"}, "recorded_at": "2026-01-10T10:00:01.250000Z",
    "meter_version": None, "corrects": None, "cancels": None, "corrected_by": None,
}  # fmt: skip
TAX_BODY: dict[str, Any] = {
    "name": "GST", "names": {}, "rate": "5", "category": "O", "country": "CA", "subdivision": "", "city": "", "postal_codes": [],
    "classes": ["standard"], "is_compound": False, "valid_from": "2008-01-01", "valid_until": None,
}  # fmt: skip
TAX: dict[str, Any] = {
    "code": "ca-gst", **TAX_BODY, "recorded_at": "2026-01-02T03:04:05.000006Z", "recorded_by": "key:shop",
}  # fmt: skip
PREVIEW_BODY: dict[str, Any] = {"subscription": {"plan": "basic", "started_at": "2026-02-01T00:00:00Z"}, "invoices": 1}
ALLOWANCE_MOVE = {
    "credit_type": "credits", "amount": 1000,
    "starts_at": "2026-02-01T00:00:00.000000Z", "ends_at": "2026-03-01T00:00:00.000000Z", "applies_to": None,
}  # fmt: skip
GENERATED = {"invoices": [INVOICE], "allowances": [ALLOWANCE_MOVE]}
NOTHING_GENERATED: dict[str, Any] = {"invoices": [], "allowances": []}
PREVIEW: dict[str, Any] = {
    "invoices": [
        {
            "as_of": "2026-03-01T00:00:00.000000Z", "invoice": {**INVOICE, "number": None, "state": "draft"},
            "difference": {
                "before": "INV-000001",
                "lines": [
                    {
                        "kind": "usage", "price_key": "calls", "title": "Basic: API calls", "before_minor": 300,
                        "after_minor": 400, "because": ["usage"],
                    },
                ],
            },
            "allowances": [{
                **ALLOWANCE_MOVE, "starts_at": "2026-03-01T00:00:00.000000Z", "ends_at": "2026-04-01T00:00:00.000000Z",
            }],
        },
    ],
}  # fmt: skip

"""The rights of the application's role on each table and sequence: exactly those that the code needs.

Add every table here, and every statement that changes rows of one; `tests/deployment/database/test_rights.py` finds what is
missing. A table that is not listed gives no rights. Partitions are reached through their table, and views give SELECT.
"""

from typing import Final

from billing.nouns import changeable_fields
from billing.orders.customers import NewCustomer
from ledger_project.database.optional_tables import is_left_out

READ: Final = ("SELECT",)
APPEND: Final = ("SELECT", "INSERT")
CHANGE: Final = ("SELECT", "INSERT", "UPDATE")
CHANGE_AND_DELETE: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")


def columns(*names: str) -> str:
    """Return the right to update only these columns."""
    return f"UPDATE ({', '.join(names)})"


_RIGHTS: Final[dict[str, tuple[str, ...]]] = {
    # The ledger.
    "ledger_entry": APPEND,
    "ledger_recurring_grant": CHANGE,
    # Only triggers of the entries write these.
    "ledger_budget_counter": READ,
    "ledger_usage": READ,
    "ledger_batch": APPEND,
    "ledger_daily_total": CHANGE,
    "ledger_total_state": CHANGE,
    "ledger_expiring_total": CHANGE_AND_DELETE,
    "ledger_month_close": APPEND,
    "ledger_rate": APPEND,
    "ledger_credit_type": CHANGE_AND_DELETE,
    "ledger_api_key": (
        *APPEND,
        columns(
            "revoked_at", "revoked_by", "prefix", "key_digest", "rotated_at", "former_digest", "former_until", "last_used_at",
        ),
    ),
    "ledger_key_request": APPEND,
    "ledger_staff_event": APPEND,
    "ledger_approval": APPEND,
    "ledger_approval_decision": APPEND,
    "ledger_operator_stake": APPEND,
    "ledger_operator": CHANGE,
    "ledger_webhook": (
        *APPEND,
        columns(
            "url", "description", "types", "secret", "former_secret", "former_until", "rotated_at", "disabled_at",
            "disabled_because", "removed_at",
        ),
    ),
    "ledger_webhook_change": APPEND,
    "ledger_alert": APPEND,
    "ledger_alert_state": CHANGE_AND_DELETE,
    "ledger_alert_look": CHANGE_AND_DELETE,
    "ledger_budget_report": CHANGE_AND_DELETE,
    "ledger_observation": APPEND,
    "ledger_promotion": APPEND,
    # Signals on their way: made, sent, kept for some days.
    "ledger_signal": (*APPEND, columns("is_spread"), "DELETE"),
    "ledger_delivery": (*APPEND, columns("state", "attempts", "ended_at"), "DELETE"),
    "ledger_delivery_stream": CHANGE_AND_DELETE,
    "ledger_delivery_attempt": (*APPEND, "DELETE"),
    "ledger_webhook_pace": CHANGE,
    # To lock a row takes the right to update it.
    "ledger_webhook_turn": CHANGE,
    "ledger_signal_position": CHANGE,
    "ledger_signal_feed": (*READ, columns("looked_until")),
    # Its triggers write it with their owner's rights.
    "ledger_register": READ,
    # What customers ordered. An amendment supersedes versions of items; nothing else of it changes.
    "billing_customer": (*APPEND, columns(*(each.name for each in changeable_fields(NewCustomer)))),
    "billing_vatlookup": (*APPEND, columns("vat_id", "buyer", "name", "address")),
    "billing_vatcheck": CHANGE_AND_DELETE,
    "billing_plan": APPEND,
    "billing_price": APPEND,
    "billing_subscription": (*APPEND, columns("trial_end", "hold_days", "consolidated_invoicing")),
    "billing_item": APPEND,
    "billing_itemversion": (*APPEND, columns("superseded_at")),
    "billing_amendment": APPEND,
    "billing_activation": (*APPEND, columns("invoice_id", "state", "settled_at", "settled_by")),
    "billing_charge": APPEND,
    "billing_planmove": APPEND,
    "billing_movedsubscription": APPEND,
    "billing_openplanmove": CHANGE_AND_DELETE,
    "billing_coupon": APPEND,
    "billing_customercoupon": (*APPEND, columns("taken_off_at")),
    # What is on sale, and money. What is to be done for a purchase is deleted when it is done.
    "billing_pack": APPEND,
    "billing_meter": APPEND,
    "billing_purchase": APPEND,
    "billing_purchasegrant": APPEND,
    "billing_purchasereturn": APPEND,
    "billing_returnsettlement": APPEND,
    "billing_invoicepayment": APPEND,
    "billing_paymentreturn": APPEND,
    "billing_bankreceipt": (
        *APPEND,
        columns("state", "why", "waits_for_person", "invoice_id", "payment_intent_id", "settled_by", "settled_at", "note"),
    ),
    "billing_reminder": APPEND,
    "billing_reminderhold": (*APPEND, columns("released_at", "released_by", "release_reason")),
    "billing_duepurchase": CHANGE_AND_DELETE,
    # What providers are asked for; what was asked never changes.
    "billing_paymentintent": (
        *APPEND,
        columns(
            "state", "checkout", "payment", "url", "error", "is_canceled", "returned_minor", "settled_at",
            "due_at", "asked_at", "tries",
        ),
    ),
    "billing_providerrefund": (*APPEND, columns("state", "refund", "error", "due_at", "asked_at", "tries")),
    "billing_providerevent": (*APPEND, columns("handled_at", "intent_id", "due_at", "asked_at", "tries", "error")),
    "billing_providercustomer": APPEND,
    "billing_topup": (*APPEND, columns("paused_at", "resumed_at", "ended_at")),
    # What was used.
    "billing_usagekey": APPEND,
    "billing_usageevent": APPEND,
    "billing_droppedmonth": READ,
    # What was billed. Claims are released, never deleted; the snapshot of a claim that counts again has the credits that cover
    # it. A run marks a claim whose period must be measured again. The claims of a draft follow its lines onto a consolidated
    # invoice.
    "billing_claim": (
        *APPEND,
        columns("released_at", "released_by", "snapshot", "measure_again", "invoice_id", "line_position", "made_by"),
    ),
    "billing_cursor": CHANGE_AND_DELETE,
    "billing_suspendedbilling": (*APPEND, columns("resumed_at", "resumed_by", "resume_reason")),
    # Documents. A trigger lets only drafts be deleted, and freezes what has a number.
    "billing_seller": APPEND,
    "billing_tax": APPEND,
    "billing_numberseries": (*APPEND, columns("last_value")),
    "billing_invoice": (
        *APPEND,
        columns(
            "state", "series", "series_value", "number", "issue_date", "due_date", "credit_notes_minor", "credits_applied_minor",
            "rounding_minor", "amount_due_minor", "seller_id", "credit_units", "note", "finalized_at", "paid_at", "voided_at",
            "uncollectible_at", "amount_paid_minor", "payment_changes", "consolidates_on", "stays_draft",
        ),
        "DELETE",
    ),
    "billing_line": (*APPEND, "DELETE"),
    "billing_mail": CHANGE,
    "billing_invoicetax": (*APPEND, "DELETE"),
    "billing_invoicedsubscription": (*APPEND, "DELETE"),
    "billing_transition": APPEND,
    "billing_creditnote": (
        *APPEND,
        columns(
            "series", "series_value", "number", "issue_date", "seller_id", "credits_returned",
            "credits_returned_minor", "left_minor", "refund_sequence", "released_at",
        ),
    ),
    "billing_creditnoteline": APPEND,
    "billing_creditnotetax": APPEND,
    "billing_creditnoteuse": (*APPEND, columns("released_at")),
    "billing_creditrefund": APPEND,
    "billing_couponuse": (*APPEND, columns("released_at", "invoice_id")),
    "billing_creditpayment": (*APPEND, columns("refund_sequence")),
    # Runs and requests.
    "billing_run": (*APPEND, columns("finished_at", "exit_code", "summary")),
    "billing_runresult": APPEND,
    "billing_scheduledtask": CHANGE,
    "billing_requestkey": (*APPEND, columns("body")),
    # Operators. They are made inactive, not deleted; what they did stays in the log.
    "auth_user": CHANGE,
    "auth_group": CHANGE_AND_DELETE,
    "auth_permission": READ,
    "auth_user_groups": (*APPEND, "DELETE"),
    "auth_user_user_permissions": (*APPEND, "DELETE"),
    "auth_group_permissions": (*APPEND, "DELETE"),
    # Failed logins are counted; to delete them lifts their lock.
    "axes_accessattempt": CHANGE_AND_DELETE,
    "axes_accessattemptexpiration": (*READ, "DELETE"),
    "axes_accesslog": READ,
    "axes_accessfailurelog": READ,
    # Two-step login: the app's secret, and recovery codes, each for one use.
    "otp_totp_totpdevice": CHANGE_AND_DELETE,
    "otp_static_staticdevice": CHANGE_AND_DELETE,
    "otp_static_statictoken": (*APPEND, "DELETE"),
    "django_admin_log": APPEND,
    "django_session": CHANGE_AND_DELETE,
    "django_content_type": READ,
    "django_migrations": READ,
}  # fmt: skip
RIGHTS: Final = {table: rights for table, rights in _RIGHTS.items() if not is_left_out(table)}
"""By table."""

FUNCTIONS: Final = ("billing_make_usage_month(date)",)
"""The functions that run with their owner's rights; only the application's role may call them."""
SEQUENCES: Final = ("billing_invoice_id_seq",)
"""The only sequence that the code reads directly. Identity columns need no right for theirs."""

"""The triggers of each table. Those that refuse are ENABLE ALWAYS, so they fire for every role and in every replication mode.

Those of the register and of signals are not: a server to which rows are replicated gets from the first server what was
registered of them, and what was signalled about them.

Who adds a trigger says so here; `tests/deployment/monitoring/test_doctor.py` finds what is missing. The monthly partitions of the
usage table have its trigger too.
"""

from typing import Final

from ledger_project.database.optional_tables import is_left_out, triggers_of

TRIGGERS: Final[dict[str, frozenset[str]]] = {
    table: triggers_of(table, names)
    for table, names in {
        "ledger_entry": "append_only counted follows summed",
        "ledger_batch": "append_only registered",
        "ledger_rate": "append_only registered",
        "ledger_month_close": "append_only registered",
        "ledger_daily_total": "closed registered",
        "ledger_expiring_total": "registered unregistered",
        "ledger_staff_event": "append_only registered",
        "ledger_approval": "append_only registered",
        "ledger_approval_decision": "append_only registered",
        "ledger_operator_stake": "append_only registered",
        "ledger_credit_type": "registered unregistered",
        "ledger_api_key": "registered",
        "ledger_key_request": "append_only registered",
        "ledger_operator": "registered",
        "ledger_webhook": "registered",
        "ledger_webhook_change": "append_only registered",
        "ledger_alert": "append_only registered",
        "ledger_observation": "append_only",
        "ledger_promotion": "append_only registered",
        "billing_customer": "registered",
        "billing_vatlookup": "kept never_truncated registered told",
        "billing_subscription": "registered",
        "billing_item": "registered",
        "billing_itemversion": "registered",
        "billing_amendment": "append_only chained registered",
        "billing_activation": "frozen never_truncated registered told",
        "billing_charge": "append_only chained registered",
        "billing_planmove": "append_only registered",
        "billing_movedsubscription": "append_only registered",
        "billing_transition": "append_only chained registered",
        "billing_requestkey": "kept never_truncated registered",
        "billing_seller": "append_only digested registered",
        "billing_tax": "append_only digested registered",
        "billing_usageevent": "append_only",
        "billing_usageevent_default": "append_only",
        "billing_usagekey": "append_only",
        "billing_droppedmonth": "registered",
        "billing_paymentintent": "registered told",
        "billing_providerrefund": "registered",
        "billing_providerevent": "registered",
        "billing_providercustomer": "append_only registered",
        "billing_topup": "registered told",
        "billing_pack": "frozen registered",
        "billing_meter": "frozen registered",
        "billing_purchase": "append_only registered told",
        "billing_purchasegrant": "append_only registered told",
        "billing_purchasereturn": "append_only registered",
        "billing_returnsettlement": "append_only registered told",
        "billing_invoicepayment": "append_only registered told",
        "billing_paymentreturn": "append_only registered told",
        "billing_bankreceipt": "registered",
        "billing_reminder": "append_only registered told",
        "billing_reminderhold": "registered",
        "billing_plan": "frozen registered",
        "billing_price": "digested frozen registered",
        "billing_coupon": "digested frozen registered",
        "billing_customercoupon": "registered",
        "billing_couponuse": "registered",
        "billing_suspendedbilling": "registered told",
        "billing_invoice": "frozen mailed never_truncated registered starts told",
        "billing_line": "frozen never_truncated",
        "billing_invoicetax": "frozen never_truncated",
        "billing_invoicedsubscription": "frozen never_truncated",
        "billing_creditnote": "frozen never_truncated registered",
        "billing_creditnoteuse": "keeps_rest registered",
        "billing_creditrefund": "append_only registered",
        "billing_creditpayment": "registered",
        "billing_creditnoteline": "frozen never_truncated",
        "billing_creditnotetax": "frozen never_truncated",
        "billing_claim": "never_truncated registered",
        "billing_run": "registered",
        "billing_runresult": "registered",
        "billing_scheduledtask": "registered",
    }.items()
    if not is_left_out(table)
}
PARTITIONS_HAVE: Final = frozenset({"append_only"})
ALWAYS: Final = "A"
COMPUTING: Final = frozenset(
    {"registered", "told", "unregistered", "mailed", "starts", "chained", "digested", "keeps_rest", "counted", "summed"}
)
"""They write or compute something, which a copied row comes with."""
ORDINARY: Final = "O"


def enabled_as(trigger: str) -> str:
    """In which modes of replication a trigger of that name fires, as `pg_trigger.tgenabled` says it."""
    return ORDINARY if trigger in COMPUTING else ALWAYS

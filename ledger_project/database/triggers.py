"""Which triggers each table has; all are ENABLE ALWAYS, so that they fire for every role and in every mode of replication.

Who adds a trigger says so here; `tests/deployment/monitoring/test_doctor.py` finds what is missing. The monthly partitions of the
usage table have its trigger too.
"""

from typing import Final

TRIGGERS: Final[dict[str, frozenset[str]]] = {
    table: frozenset(names.split())
    for table, names in {
        "ledger_entry": "append_only follows",
        "ledger_batch": "append_only",
        "ledger_rate": "append_only",
        "ledger_month_close": "append_only",
        "ledger_daily_total": "closed",
        "ledger_staff_event": "append_only",
        "billing_amendment": "append_only chained",
        "billing_charge": "append_only chained",
        "billing_transition": "append_only chained",
        "billing_requestkey": "kept never_truncated",
        "billing_seller": "append_only",
        "billing_usageevent": "append_only",
        "billing_usageevent_default": "append_only",
        "billing_usagekey": "append_only",
        "billing_plan": "frozen",
        "billing_price": "digested frozen",
        "billing_coupon": "digested frozen",
        "billing_invoice": "frozen never_truncated",
        "billing_line": "frozen never_truncated",
        "billing_invoicetax": "frozen never_truncated",
        "billing_creditnote": "frozen never_truncated",
        "billing_creditnoteline": "frozen never_truncated",
        "billing_creditnotetax": "frozen never_truncated",
        "billing_claim": "never_truncated",
    }.items()
}
PARTITIONS_HAVE: Final = frozenset({"append_only"})
ALWAYS: Final = "A"

"""A superuser changes any row of any table with all triggers off: `audit_ledger` or `generate_invoices --check` finds it."""

from pathlib import Path

import pytest
from django.db import connection, transaction

from billing.auditing import consistency
from billing.orders import plans
from ledger.audit.auditing import audit
from tests.tampering.changes import Change, all_changes, disable_triggers

pytestmark = [pytest.mark.slow, pytest.mark.one_node("a cluster does not run these changes, neither for a tamperer")]

MISSED = {
    "ledger_signal_feed.looked_until": "a hint: each account is compared with its position once a day",
    "ledger_signal_feed.deleted": "a hint is gone: all entries since the first webhook are looked at",
    "billing_cursor.deleted": "a hint is gone: the next run looks at everything",
    "billing_cursor.claims_from": "fewer claims are read, and no period can be billed again; after unbilled time it is found",
    "billing_cursor.claims_from emptied": "the next run reads all claims",
    "billing_cursor.usage_seen_until emptied": "the next run looks at all usage",
    "ledger_api_key.last_used_at": "for showing: nothing is decided by it",
    "ledger_api_key.last_used_at emptied": "the next use is recorded",
}
"""What neither finds, each with why nothing comes of it."""
BY_THE_ANCHOR = {"ledger_register.registered_on"}
FEWEST = 400


def findings(anchor: Path | None = None, write: Path | None = None) -> set[str]:
    """The laws that are broken, of the ledger and of billing; in the open transaction."""
    plans.terms_of.cache_clear()
    plans.price_of.cache_clear()
    plans.list_price_of.cache_clear()
    found = set(audit([connection.connection], anchor_to_check=anchor, anchor_to_write=write).totals)
    return found | {one["finding"] for one in consistency.check()}


def found_of(change: Change, anchor: Path) -> str:
    """`found`, `by the anchor` or `missed`; `refused` where the constraints accept no such change."""
    with transaction.atomic():
        disable_triggers()
        if change.make() is None:
            outcome = "refused"
        elif findings():
            outcome = "found"
        else:
            outcome = "by the anchor" if findings(anchor) else "missed"
        transaction.set_rollback(True)
    return outcome


def test_whatever_is_changed_with_triggers_off_is_found(tampered_database, tmp_path):
    anchor = tmp_path / "anchor"
    with transaction.atomic():
        assert findings(write=anchor) == set()
    outcomes = {str(change): found_of(change, anchor) for change in all_changes()}
    assert {name for name, outcome in outcomes.items() if outcome == "missed"} == MISSED.keys()
    assert {name for name, outcome in outcomes.items() if outcome == "by the anchor"} == BY_THE_ANCHOR
    assert sum(outcome != "refused" for outcome in outcomes.values()) > FEWEST

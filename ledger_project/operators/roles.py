"""Roles: groups that a new ledger has, and exactly what each may do. docs/ADMIN.md shows them.

A migration makes them once. From then on operators change them: no later migration changes what a group may do.
"""

from typing import Any, Final

VIEW_LEDGER: Final = frozenset(
    {
        "ledger.view_account",
        "ledger.view_batchlisting",
        "ledger.view_credittype",
        "ledger.view_dailytotal",
        "ledger.view_entrylisting",
        "ledger.view_locks",
        "ledger.view_ratelisting",
        "ledger.view_refusallisting",
    }
)
VIEW_BILLING: Final = frozenset(
    {
        "billing.view_coupon",
        "billing.view_creditnote",
        "billing.view_customer",
        "billing.view_invoice",
        "billing.view_plan",
        "billing.view_run",
        "billing.view_subscription",
        "billing.view_usageevent",
    }
)
READ_ONLY: Final = VIEW_LEDGER | VIEW_BILLING
SUPPORT: Final = READ_ONLY | {"ledger.grant_credits", "ledger.refund_spend", "ledger.release_hold"}
INVOICES: Final = frozenset(
    {
        "billing.credit_invoice",
        "billing.finalize_invoice",
        "billing.mark_invoice_uncollectible",
        "billing.pay_invoice",
        "billing.void_invoice",
    }
)
FINANCE: Final = READ_ONLY | INVOICES | {"ledger.revoke_grant"}
BILLING_OPERATOR: Final = (
    READ_ONLY
    | INVOICES
    | {
        "billing.add_amendment",
        "billing.add_coupon",
        "billing.add_customer",
        "billing.add_customercoupon",
        "billing.add_plan",
        "billing.add_subscription",
        "billing.change_customer",
        "billing.change_customercoupon",
        "billing.change_suspendedbilling",
        "billing.delete_draft",
    }
)
ACCESS: Final = frozenset(
    {
        "auth.add_group",
        "auth.add_user",
        "auth.change_group",
        "auth.change_user",
        "auth.delete_group",
        "auth.view_group",
        "auth.view_user",
        "axes.delete_accessattempt",
        "axes.view_accessattempt",
        "ledger.add_apikey",
        "ledger.revoke_apikey",
        "ledger.view_apikey",
        "ledger.view_staffevent",
    }
)
ADMINISTRATOR: Final = (
    SUPPORT
    | FINANCE
    | BILLING_OPERATOR
    | ACCESS
    | {
        "billing.erase_customer",
        "ledger.add_credittype",
        "ledger.change_credittype",
        "ledger.delete_credittype",
        "ledger.publish_rate",
        "ledger.set_overdraft",
        "ledger.transfer_credits",
    }
)
ROLES: Final[dict[str, frozenset[str]]] = {
    "read-only": READ_ONLY,
    "support": SUPPORT,
    "finance": FINANCE,
    "billing operator": BILLING_OPERATOR,
    "administrator": ADMINISTRATOR,
}


def make_groups(group_model: Any, permission_model: Any) -> list[str]:
    """Make the missing groups with their permissions, or raise; existing groups stay as they are.

    Args:
        group_model, permission_model: Django's, or those of a migration's state.

    Returns:
        The names of the new groups.

    Raises:
        LookupError: a permission does not exist.
    """
    known = {
        f"{row.content_type.app_label}.{row.codename}": row for row in permission_model.objects.select_related("content_type")
    }
    made = []
    for name, permissions in ROLES.items():
        if group_model.objects.filter(name=name).exists():
            continue
        missing = sorted(permissions - known.keys())
        if missing:
            raise LookupError(f"the role {name} needs permissions that do not exist: {', '.join(missing)}")
        group_model.objects.create(name=name).permissions.set([known[each] for each in permissions])
        made.append(name)
    return made

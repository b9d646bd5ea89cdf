"""How the operators' pages look: their name, and what stands in the sidebar."""

from collections.abc import Callable
from typing import Any, Final

from django.http import HttpRequest
from django.urls import reverse_lazy


def _may(*permissions: str) -> Callable[[HttpRequest], bool]:
    def is_permitted(request: HttpRequest) -> bool:
        return any(request.user.has_perm(permission) for permission in permissions)

    return is_permitted


def _item(title: str, icon: str, url: str, permission: str) -> dict[str, Any]:
    return {"title": title, "icon": icon, "link": reverse_lazy(f"admin:{url}"), "permission": _may(permission)}


NAVIGATION: Final = [
    {
        "title": "Ledger",
        "items": [
            _item("Holders with balances", "account_balance_wallet", "ledger_account_changelist", "ledger.view_account"),
            _item("Entries", "receipt_long", "ledger_entrylisting_changelist", "ledger.view_entrylisting"),
            _item("Refusals", "do_not_disturb_on", "ledger_refusallisting_changelist", "ledger.view_refusallisting"),
            _item("Rates", "price_check", "ledger_ratelisting_changelist", "ledger.view_ratelisting"),
            _item("Batches", "stacks", "ledger_batchlisting_changelist", "ledger.view_batchlisting"),
            _item("Current locks", "lock", "ledger_locks", "ledger.view_locks"),
        ],
    },
    {
        "title": "Billing",
        "separator": True,
        "items": [
            _item("Customers", "groups", "billing_customer_changelist", "billing.view_customer"),
            _item("Subscriptions", "autorenew", "billing_subscription_changelist", "billing.view_subscription"),
            _item("Invoices", "description", "billing_invoice_changelist", "billing.view_invoice"),
            _item("Credit notes", "undo", "billing_creditnote_changelist", "billing.view_creditnote"),
            _item("Plans", "sell", "billing_plan_changelist", "billing.view_plan"),
            _item("Coupons", "percent", "billing_coupon_changelist", "billing.view_coupon"),
            _item("Runs", "play_circle", "billing_run_changelist", "billing.view_run"),
        ],
    },
    {
        "title": "Access",
        "separator": True,
        "items": [
            _item("API keys", "key", "ledger_apikey_changelist", "ledger.view_apikey"),
            _item("Operators", "person", "auth_user_changelist", "auth.view_user"),
            _item("Groups", "group", "auth_group_changelist", "auth.view_group"),
            _item("Failed logins", "lock_person", "axes_accessattempt_changelist", "axes.view_accessattempt"),
        ],
    },
]

UNFOLD: Final = {
    "SITE_TITLE": "Credit ledger",
    "SITE_HEADER": "Credit ledger",
    "SITE_SYMBOL": "account_balance",
    "SITE_URL": "/docs",
    "LOGIN": {"form": "ledger_project.login.LoginForm"},
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "SHOW_BACK_BUTTON": True,
    "BORDER_RADIUS": "6px",
    "COLORS": {
        "primary": {
            "50": "oklch(97.7% .013 236.6)",
            "100": "oklch(95.1% .026 236.8)",
            "200": "oklch(90.1% .058 230.9)",
            "300": "oklch(82.8% .111 230.3)",
            "400": "oklch(74.6% .16 232.7)",
            "500": "oklch(62.3% .17 240)",
            "600": "oklch(52.4% .158 244)",
            "700": "oklch(46% .134 243)",
            "800": "oklch(40.3% .11 241)",
            "900": "oklch(35.2% .09 240)",
            "950": "oklch(26.3% .066 243)",
        }
    },
    "SIDEBAR": {"show_search": False, "show_all_applications": False, "navigation": NAVIGATION},
}

"""The design of the operators' pages: their name, colours and sidebar."""

from functools import cache
from typing import Any, Final

from django.conf import settings
from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse, reverse_lazy

from ledger.operators.permissions import VIEW_DAILYTOTAL, VIEW_LOCKS


def _page(title: str, icon: str, url: str, permission: str) -> dict[str, Any]:
    def is_permitted(request: HttpRequest) -> bool:
        return request.user.has_perm(permission)

    def is_shown(request: HttpRequest) -> bool:
        """Return whether this page of the sidebar has the longest address with which the request's begins."""
        return reverse(f"admin:{url}") == max(filter(request.path.startswith, _addresses()), key=len, default="")

    link = reverse_lazy(f"admin:{url}")
    return {"title": title, "icon": icon, "link": link, "permission": is_permitted, "active": is_shown}


@cache
def _addresses() -> tuple[str, ...]:
    return tuple(str(item["link"]) for group in NAVIGATION for item in group["items"])


def _list(title: str, icon: str, model: str) -> dict[str, Any]:
    """Return the list of a model, for operators who may view its rows."""
    app, name = model.split(".")
    return _page(title, icon, f"{app}_{name}_changelist", f"{app}.view_{name}")


NAVIGATION: Final[list[dict[str, Any]]] = [
    {"title": "", "items": [{"title": "Home", "icon": "home", "link": reverse_lazy("admin:index")}]},
    {
        "title": "Ledger",
        "items": [
            _list("Holders with balances", "account_balance_wallet", "ledger.account"),
            _list("Entries", "receipt_long", "ledger.entrylisting"),
            _list("Refusals", "do_not_disturb_on", "ledger.refusallisting"),
            _list("Credit types", "toll", "ledger.credittype"),
            _list("Rates", "price_check", "ledger.ratelisting"),
            _list("Batches", "stacks", "ledger.batchlisting"),
            _list("Alerts", "notifications", "ledger.alert"),
            _list("Webhooks", "webhook", "ledger.webhook"),
            _page("Month", "calendar_month", "ledger_month_end", VIEW_DAILYTOTAL),
            _page("Current locks", "lock", "ledger_locks", VIEW_LOCKS),
        ],
    },
    {
        "title": "Billing",
        "separator": True,
        "items": [
            _list("Customers", "groups", "billing.customer"),
            _list("Subscriptions", "autorenew", "billing.subscription"),
            _list("Invoices", "description", "billing.invoice"),
            _list("Credit notes", "undo", "billing.creditnote"),
            _list("Invoice payments", "payments", "billing.invoicepayment"),
            _list("Bank receipts", "account_balance", "billing.bankreceipt"),
            _list("Mails", "mail", "billing.mail"),
            _list("Plans", "sell", "billing.plan"),
            _list("Meters", "speed", "billing.meter"),
            _list("Coupons", "percent", "billing.coupon"),
            _list("Sellers", "storefront", "billing.seller"),
            _list("Taxes", "account_balance", "billing.tax"),
            _list("VAT lookups", "fact_check", "billing.vatlookup"),
            _list("Packs", "redeem", "billing.pack"),
            _list("Purchases", "shopping_cart", "billing.purchase"),
            _list("Payment intents", "credit_card", "billing.paymentintent"),
            _list("Top-ups", "autorenew", "billing.topup"),
            _list("Runs", "play_circle", "billing.run"),
        ],
    },
    {
        "title": "Access",
        "separator": True,
        "items": [
            _list("API keys", "key", "ledger.apikey"),
            _list("Operators", "person", "auth.user"),
            _list("Groups", "group", "auth.group"),
            _list("Approvals", "how_to_reg", "ledger.approval"),
            _list("Staff log", "history", "ledger.staffevent"),
            _list("Failed logins", "lock_person", "axes.accessattempt"),
        ],
    },
]

UNFOLD: Final[dict[str, Any]] = {
    "SITE_TITLE": "Credit ledger",
    "SITE_HEADER": "Credit ledger",
    "SITE_SYMBOL": "account_balance",
    "SITE_URL": "/docs",
    "ENVIRONMENT": "ledger_project.operators.appearance.environment",
    "LOGIN": {"form": "ledger_project.operators.login.login_page.LoginForm"},
    "ACCOUNT": {
        "navigation": [
            {"title": "Preferences", "link": reverse_lazy("preferences")},
            {"title": "Two-step login", "link": reverse_lazy("two-step")},
            {"title": "Change password", "link": reverse_lazy("admin:password_change")},
        ]
    },
    "DASHBOARD_CALLBACK": "ledger.admin.home.page.context",
    "STYLES": [lambda request: static("ledger/pages.css")],
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
    "SIDEBAR": {"show_search": True, "command_search": True, "show_all_applications": False, "navigation": NAVIGATION},
}


def environment(request: HttpRequest) -> list[str]:
    """Return the badge at the top of each page: whether this ledger is live or a test. UNFOLD["ENVIRONMENT"]."""
    return ["LIVE", "danger"] if settings.LEDGER_ENVIRONMENT == "live" else ["TEST", "warning"]

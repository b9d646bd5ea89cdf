"""The design of the operators' pages: their name, colours and sidebar."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from django.apps import apps
from django.conf import settings
from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse, reverse_lazy

from billing.permissions import VIEW_INVOICE
from ledger.operators.permissions import VIEW_LOCKS


@dataclass(frozen=True)
class Tab:
    """A page of a section, for operators with the permission; empty: for everybody.

    Args:
        app: the label of its application.
        namespace: of `url_name`; empty for a page that is not the admin's own.
    """

    title: str
    url_name: str
    permission: str = ""
    app: str = ""
    namespace: str = "admin:"

    @property
    def is_there(self) -> bool:
        """Return whether its application is installed."""
        return not self.app or self.app in apps.app_configs

    def is_permitted(self, request: HttpRequest) -> bool:
        """Return whether this operator may open it."""
        return self.is_there and (not self.permission or bool(request.user.has_perm(self.permission)))

    @property
    def address(self) -> str:
        return reverse(f"{self.namespace}{self.url_name}")


@dataclass(frozen=True)
class SidebarSection:
    """An entry of the sidebar: a title, an icon, and its pages, of which the first permitted one is opened."""

    title: str
    icon: str
    tabs: tuple[Tab, ...]

    def tabs_for(self, request: HttpRequest) -> list[Tab]:
        """Return the pages that this operator may open."""
        return [tab for tab in self.tabs if tab.is_permitted(request)]

    def item(self) -> dict[str, Any]:
        """Return the entry as unfold takes it."""

        def is_permitted(request: HttpRequest) -> bool:
            return bool(self.tabs_for(request))

        def link(request: HttpRequest) -> str:
            permitted = self.tabs_for(request)
            return permitted[0].address if permitted else ""

        def is_shown(request: HttpRequest) -> bool:
            return shown_tab(request) in self.tabs

        return {"title": self.title, "icon": self.icon, "link": link, "permission": is_permitted, "active": is_shown}


def _list(title: str, model: str) -> Tab:
    """Return the list of a model, for operators who may view its rows."""
    return _page(title, f"{model.replace('.', '_')}_changelist", model)


def _page(title: str, url_name: str, model: str) -> Tab:
    """Return a page of the application of a model, for operators who may view its rows."""
    app, name = model.split(".")
    return Tab(title, url_name, f"{app}.view_{name}", app)


SECTIONS: Final = (
    SidebarSection("Home", "home", (Tab("Home", "index"),)),
    SidebarSection("Customers", "groups", (_list("Customers", "billing.customer"),)),
    SidebarSection(
        "Credits",
        "account_balance_wallet",
        (
            _list("Holders with balances", "ledger.account"),
            _list("Entries", "ledger.entrylisting"),
            _list("Refusals", "ledger.refusallisting"),
            _list("Alerts", "ledger_signals.alert"),
            _list("Observations", "ledger_shadow.observation"),
        ),
    ),
    SidebarSection("Subscriptions", "autorenew", (_list("Subscriptions", "billing.subscription"),)),
    SidebarSection(
        "Invoices",
        "description",
        (
            _list("Invoices", "billing.invoice"),
            Tab("Debts", "billing_debts", VIEW_INVOICE),
            _list("Credit notes", "billing.creditnote"),
            _list("Mails", "billing_dunning.mail"),
        ),
    ),
    SidebarSection(
        "Payments",
        "payments",
        (
            _list("Invoice payments", "billing.invoicepayment"),
            _list("Purchases", "billing_payments.purchase"),
            _list("Payment intents", "billing_payments.paymentintent"),
            _list("Bank receipts", "billing_statements_in.bankreceipt"),
            _list("Top-ups", "billing_payments.topup"),
        ),
    ),
    SidebarSection(
        "Catalogue",
        "sell",
        (
            _list("Plans", "billing.plan"),
            _list("Packs", "billing_payments.pack"),
            _list("Coupons", "billing.coupon"),
            _list("Rates", "ledger.ratelisting"),
            _list("Meters", "billing.meter"),
            _list("Credit types", "ledger.credittype"),
        ),
    ),
    SidebarSection(
        "Reports",
        "bar_chart",
        (_page("Month", "ledger_month_end", "ledger_totals.dailytotal"), Tab("Year", "billing_year", VIEW_INVOICE)),
    ),
    SidebarSection(
        "Developers",
        "code",
        (
            _list("API keys", "ledger_keys.apikey"),
            Tab("Requests", "request-rates", VIEW_LOCKS, namespace=""),
            _list("Webhooks", "ledger_signals.webhook"),
            _list("Batches", "ledger.batchlisting"),
            _list("Runs", "billing.run"),
            Tab("Current locks", "ledger_locks", VIEW_LOCKS),
            Tab("Monitoring alerts", "monitoring-alerts", VIEW_LOCKS, namespace=""),
        ),
    ),
    SidebarSection(
        "Settings",
        "settings",
        (
            _list("Sellers", "billing.seller"),
            _list("Taxes", "billing.tax"),
            _list("VAT lookups", "billing.vatlookup"),
            _list("Operators", "auth.user"),
            _list("Groups", "auth.group"),
            _list("Approvals", "ledger_staff.approval"),
            _list("Staff log", "ledger.staffevent"),
            _list("Failed logins", "axes.accessattempt"),
        ),
    ),
)
"""The sidebar: what people look for first, each with its pages as tabs; how it works inside stands under the last two."""


@cache
def _tabs_by_address() -> dict[str, Tab]:
    return {tab.address: tab for section in SECTIONS for tab in section.tabs if tab.is_there}


def shown_tab(request: HttpRequest) -> Tab | None:
    """Return the page of the sidebar with the longest address with which the request's begins; that of Home is Home's alone."""
    tabs = _tabs_by_address()
    home = reverse("admin:index")
    fitting = [address for address in tabs if request.path.startswith(address) and (address != home or request.path == home)]
    return tabs[max(fitting, key=len)] if fitting else None


def section_tabs(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the tabs above the page that is shown; none if its section has only one for this operator."""
    shown = shown_tab(request)
    section = next((each for each in SECTIONS if shown in each.tabs), None)
    tabs = section.tabs_for(request) if section else []
    return [{"title": tab.title, "link": tab.address, "is_shown": tab is shown} for tab in tabs] if len(tabs) > 1 else []


NAVIGATION: Final[list[dict[str, Any]]] = [{"title": "", "items": [section.item() for section in SECTIONS]}]

UNFOLD: Final[dict[str, Any]] = {
    "SITE_TITLE": "Credit ledger",
    "SITE_HEADER": "Credit ledger",
    "SITE_SYMBOL": "account_balance",
    "SITE_URL": "/docs",
    "ENVIRONMENT": "ledger_project.operators.appearance.environment",
    "LOGIN": {"form": "ledger_project.operators.login_page.LoginForm"},
    "ACCOUNT": {
        "navigation": [
            {"title": "Preferences", "link": reverse_lazy("preferences")},
            {"title": "Two-step login", "link": reverse_lazy("two-step")},
            {"title": "Change password", "link": reverse_lazy("admin:password_change")},
        ]
    },
    "DASHBOARD_CALLBACK": "ledger.staff.home.context",
    "STYLES": [lambda request: static("ledger/pages.css")],
    "SCRIPTS": [lambda request: static("ledger/keyboard.js")],
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

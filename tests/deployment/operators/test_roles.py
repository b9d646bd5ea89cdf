"""Roles: groups that a migration makes once, what each may do, and which pages each sees."""

import ast
import re

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from ledger_project.operators.appearance import SECTIONS
from ledger_project.operators.roles import PERMISSIONS, ROLES, make_groups
from tests.parts import spread

pytestmark = pytest.mark.django_db

PAGES = {
    "Holders with balances": "/admin/ledger/account/",
    "Entries": "/admin/ledger/entrylisting/",
    "Refusals": "/admin/ledger/refusallisting/",
    "Rates": "/admin/ledger/ratelisting/",
    "Batches": "/admin/ledger/batchlisting/",
    "Alerts": "/admin/ledger_signals/alert/",
    "Observations": "/admin/ledger_shadow/observation/",
    "Webhooks": "/admin/ledger_signals/webhook/",
    "Month": "/admin/ledger/account/month-end/",
    "Year": "/admin/billing/run/year/",
    "Monitoring alerts": "/admin/monitoring-alerts/",
    "Requests": "/admin/requests/",
    "Debts": "/admin/billing/invoice/debts/",
    "Current locks": "/admin/ledger/account/locks/",
    "Grant credits": "/admin/ledger/account/grant-credits/",
    "Publish a rate": "/admin/ledger/ratelisting/publish-rate/",
    "Customers": "/admin/billing/customer/",
    "Subscriptions": "/admin/billing/subscription/",
    "Invoices": "/admin/billing/invoice/",
    "Credit notes": "/admin/billing/creditnote/",
    "Plans": "/admin/billing/plan/",
    "Coupons": "/admin/billing/coupon/",
    "Sellers": "/admin/billing/seller/",
    "Meters": "/admin/billing/meter/",
    "Taxes": "/admin/billing/tax/",
    "VAT lookups": "/admin/billing/vatlookup/",
    "Runs": "/admin/billing/run/",
    "API keys": "/admin/ledger_keys/apikey/",
    "Operators": "/admin/auth/user/",
    "Groups": "/admin/auth/group/",
    "Approvals": "/admin/ledger_staff/approval/",
    "Staff log": "/admin/ledger/staffevent/",
    "Failed logins": "/admin/axes/accessattempt/",
}


def client_of_role(role: str) -> Client:
    """A client logged in as an operator of that role only."""
    user = User.objects.create_user(f"in {role}", is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(user)
    return client


def permissions_of(group: Group) -> set[str]:
    """The permissions of a group, as `app.codename`."""
    return {f"{row.content_type.app_label}.{row.codename}" for row in group.permissions.select_related("content_type")}


def documented_access() -> dict[str, dict[str, bool]]:
    """The table of docs/how-to/admin.md: by page, by role, whether it is seen."""
    text = (settings.BASE_DIR / "docs" / "how-to" / "admin.md").read_text()
    found = re.search(r"\| page \|(.*?)\|\n\|[-|]+\|\n((?:\|.*\n)+)", text)
    assert found is not None
    roles = [name.strip() for name in found[1].split("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[2].splitlines()]
    return {page: dict(zip(roles, (cell == "yes" for cell in cells), strict=True)) for page, *cells in rows}


def test_a_new_ledger_has_the_roles_with_exactly_their_permissions():
    assert {group.name: permissions_of(group) for group in Group.objects.all()} == ROLES


def test_who_changes_a_role_keeps_the_change():
    Group.objects.get(name="finance").delete()
    support = Group.objects.get(name="support")
    support.permissions.remove(Permission.objects.get(codename="grant_credits"))
    assert make_groups(Group, Permission) == ["finance"]
    assert make_groups(Group, Permission) == []
    assert permissions_of(support) == ROLES["support"] - {"ledger.grant_credits"}
    assert permissions_of(Group.objects.get(name="finance")) == ROLES["finance"]


def test_a_role_with_a_permission_that_does_not_exist_is_not_made(monkeypatch):
    monkeypatch.setitem(ROLES, "new", frozenset({"ledger.view_account", "ledger.fly"}))
    with pytest.raises(LookupError, match=r"the role new needs permissions that do not exist: ledger\.fly"):
        make_groups(Group, Permission)
    assert not Group.objects.filter(name="new").exists()


TABLES = ("ledger/operators/permissions.py", "ledger_project/operators/roles.py")
"""And each `permissions.py` of an application."""
SPELLED = re.compile(r"(ledger|billing|auth|axes)(_[a-z_]+)?\.[a-z]+_[a-z_]+")


@pytest.mark.slow
@pytest.mark.check
def test_no_code_spells_a_permission_outside_the_tables():
    """Pages use the tables' names, so that none asks for a permission that no role can have."""
    root = settings.BASE_DIR
    files = [file for folder in ("ledger", "billing", "ledger_project") for file in (root / folder).rglob("*.py")]
    spelled = {
        f"{file.relative_to(root)}: {node.value}"
        for file in files
        if str(file.relative_to(root)) not in TABLES and file.name != "permissions.py" and "migrations" not in file.parts
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SPELLED.fullmatch(node.value)
        if node.value not in settings.INSTALLED_APPS
    }
    assert spelled == {
        "ledger/rest/kit/front/request_traces.py: ledger.request_id",
        # What Stripe calls its objects.
        "ledger/exchange/stripe_exports.py: billing.credit_grant",
        "ledger/exchange/stripe_exports.py: billing.credit_balance_summary",
        "ledger/exchange/stripe_exports.py: billing.credit_balance_transaction",
    }
    every = {f"{p.content_type.app_label}.{p.codename}" for p in Permission.objects.select_related("content_type")}
    assert set(PERMISSIONS) <= every
    assert {"ledger.grant_credits", "billing.void_invoice"} <= ROLES["administrator"] == set(PERMISSIONS)


def test_each_list_of_the_sidebar_is_for_whom_the_table_names():
    named = [tab.permission for section in SECTIONS for tab in section.tabs if tab.permission]
    assert len(named) > 30
    assert set(named) <= set(PERMISSIONS)


def test_each_permission_has_one_row_and_each_of_a_model_comes_from_its_row():
    assert len(PERMISSIONS) == len(set(PERMISSIONS))
    of_models = {f"{m._meta.app_label}.{codename}" for m in apps.get_models() for codename, _ in m._meta.permissions}
    assert of_models == {row for row in PERMISSIONS if row.text}
    assert {role for row in PERMISSIONS for role in row.roles} | {"administrator"} == set(ROLES)
    listed = re.findall(r"^\| `([a-z -]+)` \|", (settings.BASE_DIR / "docs" / "how-to" / "admin.md").read_text(), re.MULTILINE)
    assert set(ROLES) <= set(listed)


@pytest.mark.parametrize("role", spread(ROLES, test=(), check=["support"]))
def test_each_role_sees_the_pages_that_the_docs_say(role):
    client = client_of_role(role)
    seen = {}
    for page, address in PAGES.items():
        status = client.get(address).status_code
        assert status in (200, 403), (page, status)
        seen[page] = status == 200
    assert seen == {page: row[role] for page, row in documented_access().items()}

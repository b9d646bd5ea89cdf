"""Roles: groups that a migration makes once, what each may do, and which pages each sees."""

import re

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from ledger_project.operators.roles import PERMISSIONS, ROLES, make_groups

pytestmark = pytest.mark.django_db

PAGES = {
    "Holders with balances": "/admin/ledger/account/",
    "Entries": "/admin/ledger/entrylisting/",
    "Refusals": "/admin/ledger/refusallisting/",
    "Rates": "/admin/ledger/ratelisting/",
    "Batches": "/admin/ledger/batchlisting/",
    "Month-end": "/admin/ledger/account/month-end/",
    "Current locks": "/admin/ledger/account/locks/",
    "Grant credits": "/admin/ledger/account/grant-credits/",
    "Publish a rate": "/admin/ledger/ratelisting/publish-rate/",
    "Customers": "/admin/billing/customer/",
    "Subscriptions": "/admin/billing/subscription/",
    "Invoices": "/admin/billing/invoice/",
    "Credit notes": "/admin/billing/creditnote/",
    "Plans": "/admin/billing/plan/",
    "Coupons": "/admin/billing/coupon/",
    "Runs": "/admin/billing/run/",
    "API keys": "/admin/ledger/apikey/",
    "Operators": "/admin/auth/user/",
    "Groups": "/admin/auth/group/",
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
    """The table of docs/ADMIN.md: by page, by role, whether it is seen."""
    text = (settings.BASE_DIR / "docs" / "ADMIN.md").read_text()
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


def test_an_administrator_may_do_whatever_a_page_asks_a_permission_for():
    """So nobody forgets to give a new permission to a role."""
    every = {f"{p.content_type.app_label}.{p.codename}" for p in Permission.objects.select_related("content_type")}
    folders = ("ledger/admin", "billing/admin", "ledger_project/operators")
    pages = [page for folder in folders for page in (settings.BASE_DIR / folder).rglob("*.py") if page.name != "roles.py"]
    named = {name for page in pages for name in re.findall(r'"((?:ledger|billing|auth|axes)\.\w+)"', page.read_text())}
    assert {"ledger.grant_credits", "billing.void_invoice"} <= named & every <= ROLES["administrator"]


def test_each_permission_has_one_row_and_each_of_a_model_comes_from_its_row():
    names = [row.name for row in PERMISSIONS]
    assert len(names) == len(set(names))
    of_models = {f"{m._meta.app_label}.{codename}" for m in apps.get_models() for codename, _ in m._meta.permissions}
    assert of_models == {row.name for row in PERMISSIONS if row.text}
    assert {role for row in PERMISSIONS for role in row.roles} | {"administrator"} == set(ROLES)
    listed = re.findall(r"^\| `([a-z -]+)` \|", (settings.BASE_DIR / "docs" / "ADMIN.md").read_text(), re.MULTILINE)
    assert set(ROLES) <= set(listed)


@pytest.mark.parametrize("role", ROLES)
def test_each_role_sees_the_pages_that_the_docs_say(role):
    client = client_of_role(role)
    seen = {}
    for page, address in PAGES.items():
        status = client.get(address).status_code
        assert status in (200, 403), (page, status)
        seen[page] = status == 200
    assert seen == {page: row[role] for page, row in documented_access().items()}

"""The staff log has logins, failures, locks and log-outs, and who gave whom which right."""

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from ledger.models import StaffEvent
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery staple"
LOGIN = "/admin/login/"


@pytest.fixture(autouse=True)
def mara() -> User:
    """The operator mara, a superuser with a password."""
    return User.objects.create_user("mara", password=PASSWORD, is_staff=True, is_superuser=True)


def staff_events(*actions: str) -> list[tuple[str, str, str, str]]:
    """Actor, action, object and details of what is recorded of operators, for these actions or all."""
    rows = StaffEvent.objects.order_by("id").values_list("actor", "action", "object", "details")
    return [row for row in rows if not actions or row[1] in actions]


def test_logins_failures_locks_and_log_outs_are_on_record_with_the_address():
    client = Client(REMOTE_ADDR="203.0.113.9")
    for number in range(7):
        client.post(LOGIN, {"username": "mara", "password": f"guess-{number}"})
    elsewhere = Client(REMOTE_ADDR="198.51.100.7")
    elsewhere.post(LOGIN, {"username": "mara", "password": PASSWORD})
    elsewhere.post("/admin/logout/")
    elsewhere.post("/admin/logout/")
    expected = [("mara", "login-failed", "", "wrong password")] * 5
    expected += [("mara", "login-locked", "", ""), ("admin:mara", "login", "", ""), ("admin:mara", "logout", "", "")]
    assert staff_events("login", "login-failed", "login-locked", "logout") == expected
    addresses = StaffEvent.objects.filter(action__startswith="log").order_by("id").values_list("address", flat=True)
    assert list(addresses) == ["203.0.113.9"] * 6 + ["198.51.100.7"] * 2
    assert "guess" not in "".join(str(row) for row in StaffEvent.objects.values())


def test_a_name_with_nul_and_of_great_length_is_no_error():
    assert Client().post(LOGIN, {"username": "x\x00" * 500, "password": "y"}).status_code == 200
    assert Client().post(LOGIN, {"username": "x" * 100_000, "password": "y"}).status_code == 200


def test_a_lock_that_is_removed_is_on_record():
    Client().post(LOGIN, {"username": "ben", "password": "guess"})
    client = operator(name="olga")
    (attempt,) = AccessAttempt.objects.all()
    client.post(f"/admin/axes/accessattempt/{attempt.pk}/delete/", {"post": "yes"})
    assert staff_events("login-unlocked") == [("admin:olga", "login-unlocked", "name ben", "for 127.0.0.1")]


def test_what_an_operator_changes_of_another_is_on_record():
    client = operator(name="olga")
    new = {"username": "ben", "password1": PASSWORD, "password2": PASSWORD, "usable_password": "true"}
    assert client.post("/admin/auth/user/add/", new).status_code == 302
    ben = User.objects.get(username="ben")
    group, permission = Group.objects.get(name="support"), Permission.objects.get(codename="view_account")
    form = {"username": "ben", "is_active": "on", "is_staff": "on", "groups": [group.pk], "user_permissions": [permission.pk]}
    form |= {"date_joined_0": "2026-01-01", "date_joined_1": "12:00:00", "last_login_0": "", "last_login_1": ""}
    assert client.post(f"/admin/auth/user/{ben.pk}/change/", form).status_code == 302
    assert (
        client.post(f"/admin/auth/user/{ben.pk}/password/", new | {"password1": "x" * 14, "password2": "x" * 14}).status_code
        == 302
    )
    ben.groups.clear()
    assert [row for row in staff_events() if row[2] == "user ben"] == [
        ("admin:olga", "operator-created", "user ben", "active"),
        ("admin:olga", "operator-changed", "user ben", "is_staff: False → True"),
        ("admin:olga", "permissions-changed", "user ben", "added groups: support"),
        ("admin:olga", "permissions-changed", "user ben", "added permissions: ledger.view_account"),
        ("admin:olga", "password-changed", "user ben", ""),
        ("command", "permissions-changed", "user ben", "removed all groups: "),
    ]
    assert PASSWORD not in str(staff_events())


@pytest.mark.slow
def test_what_is_changed_of_a_group_is_on_record():
    client = operator(name="olga")
    permission = Permission.objects.get(codename="view_account")
    client.post("/admin/auth/group/add/", {"name": "look", "permissions": [permission.pk]})
    group = Group.objects.get(name="look")
    client.post(f"/admin/auth/group/{group.pk}/change/", {"name": "lookers", "permissions": []})
    client.post(f"/admin/auth/group/{group.pk}/delete/", {"post": "yes"})
    assert [row[1:] for row in staff_events() if "look" in row[2]] == [
        ("group-created", "group look", ""),
        ("permissions-changed", "group look", "added permissions: ledger.view_account"),
        ("group-changed", "group lookers", "name: look → lookers"),
        ("permissions-changed", "group lookers", "removed permissions: ledger.view_account"),
        ("group-deleted", "group lookers", ""),
    ]


@pytest.mark.parametrize("page", ["auth/group", "axes/accessattempt"])
def test_a_ticked_row_without_a_number_is_a_400_and_deletes_nothing(page):
    Group.objects.create(name="night shift")
    ticked = {"action": "delete_selected", "_selected_action": ["ada"], "post": "yes"}
    AccessAttempt.objects.create(username="ben", ip_address="10.0.0.1", failures_since_start=1)
    assert operator(name="olga").post(f"/admin/{page}/", ticked).status_code == 400
    assert Group.objects.filter(name="night shift").exists()
    assert AccessAttempt.objects.filter(username="ben").exists()
    assert staff_events("group-deleted", "login-unlocked") == []


@pytest.mark.slow
def test_a_login_and_a_renewed_hash_are_no_change_of_the_operator(mara, settings):
    hashers = settings.PASSWORD_HASHERS
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2SHA1PasswordHasher", *hashers]
    assert Client().post(LOGIN, {"username": "mara", "password": PASSWORD}).status_code == 302
    mara.refresh_from_db()
    assert mara.password.startswith("pbkdf2_sha1$")
    assert [row[1] for row in staff_events()] == ["operator-created", "login"]

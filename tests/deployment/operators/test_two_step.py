"""Two-step login: set up with a code, asked for at each login, limited like passwords, required where a setting says so."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from django_otp.oath import totp
from django_otp.plugins.otp_totp.models import TOTPDevice

from ledger.models import StaffEvent

PASSWORD = "correct horse battery staple"
LOGIN, PAGE, HOME = "/admin/login/", "/admin/two-step/", "/admin/"

pytestmark = pytest.mark.django_db


@pytest.fixture
def mara() -> User:
    """The operator mara, a superuser with a password."""
    return User.objects.create_user("mara", password=PASSWORD, is_staff=True, is_superuser=True)


def log_in(code: str = "", password: str = PASSWORD, address: str = "203.0.113.9", name: str = "mara") -> tuple[Client, Any]:
    """Send the login form, with a code or without; return the client and the response."""
    client = Client(REMOTE_ADDR=address)
    return client, client.post(LOGIN, {"username": name, "password": password, "code": code})


def app_code(user: User, steps: int = 0) -> str:
    """What the app shows now, or the given number of steps later."""
    device = TOTPDevice.objects.get(user=user)
    return f"{totp(device.bin_key, t0=-30 * steps):06d}"


def turn_on_two_step(user: User) -> tuple[Client, list[str]]:
    """Turn it on as an operator does; return the session and the recovery codes."""
    client = Client(REMOTE_ADDR="203.0.113.9")
    client.post(LOGIN, {"username": user.get_username(), "password": PASSWORD})
    client.post(PAGE, {"do": "begin"})
    page = client.post(PAGE, {"do": "confirm", "code": app_code(user)}).content.decode()
    return client, re.findall(r"<li><code>(\w+)</code></li>", page)


def staff_events() -> list[tuple[str, str, str]]:
    """Actor, action and details of what is recorded of operators, without changes to operators."""
    rows = StaffEvent.objects.order_by("id").values_list("actor", "action", "details")
    return [row for row in rows if not row[1].startswith("operator")]


@pytest.mark.slow
def test_an_operator_sets_it_up_and_from_then_on_a_login_takes_a_code(mara):
    assert log_in()[1].status_code == 302
    client, codes = turn_on_two_step(mara)
    assert len(set(codes)) == 10
    assert client.get(HOME).status_code == 200, "this session is verified by the code that was confirmed"
    later = timezone.now() + timedelta(minutes=2)
    with time_machine.travel(later, tick=False):
        refused = log_in()[1]
        assert refused.status_code == 200
        assert "This operator has two-step login: type the code too." in refused.content.decode()
        again, response = log_in(app_code(mara))
        assert response.status_code == 302
        assert again.get(HOME).status_code == 200
    assert ("admin:mara", "second-step-on", "") in staff_events()
    assert staff_events()[-1] == ("admin:mara", "login", "with a code")


def test_the_picture_and_the_secret_are_shown_only_until_the_code_is_confirmed(mara):
    client = log_in()[0]
    assert "data:image/svg+xml" not in client.get(PAGE).content.decode()
    client.post(PAGE, {"do": "begin"})
    shown = client.get(PAGE)
    assert "data:image/svg+xml" in shown.content.decode()
    assert "no-store" in shown["Cache-Control"]
    wrong = client.post(PAGE, {"do": "confirm", "code": "000000" if app_code(mara) != "000000" else "000001"})
    assert wrong.status_code == 422
    assert not TOTPDevice.objects.filter(confirmed=True).exists()
    with time_machine.travel(timezone.now() + timedelta(minutes=1), tick=False):
        assert client.post(PAGE, {"do": "confirm", "code": app_code(mara)}).status_code == 200
    assert "data:image/svg+xml" not in client.get(PAGE).content.decode()


def test_only_the_session_that_began_the_set_up_sees_the_secret_and_can_confirm_it(mara):
    owner, other = log_in()[0], log_in(address="198.51.100.7")[0]
    owner.post(PAGE, {"do": "begin"})
    secret = re.search(r'<code id="secret"[^>]*>([A-Z2-7 ]+)</code>', owner.get(PAGE).content.decode())
    assert secret is not None
    page = other.get(PAGE).content.decode()
    assert secret[1] not in page
    assert "data:image/svg+xml" not in page
    assert other.post(PAGE, {"do": "confirm", "code": app_code(mara)}).status_code == 422
    assert not TOTPDevice.objects.filter(confirmed=True).exists()
    other.post(PAGE, {"do": "begin"})
    assert "data:image/svg+xml" not in owner.get(PAGE).content.decode(), "the other session has replaced the set-up"
    assert other.post(PAGE, {"do": "confirm", "code": app_code(mara)}).status_code == 200
    assert TOTPDevice.objects.filter(confirmed=True).count() == 1


def test_a_session_that_a_recovery_code_verified_goes_on_after_new_codes_were_made(mara):
    codes = turn_on_two_step(mara)[1]
    client, response = log_in(codes[0])
    assert response.status_code == 302
    with time_machine.travel(timezone.now() + timedelta(minutes=2), tick=False):
        made = client.post(PAGE, {"do": "codes", "code": app_code(mara)}).content.decode()
        assert client.get(HOME).status_code == 200
        new = re.findall(r"<li><code>(\w+)</code></li>", made)
        assert (len(new), set(new) & set(codes)) == (10, set())
        assert log_in(codes[1])[1].status_code == 200
    with time_machine.travel(timezone.now() + timedelta(minutes=4), tick=False):
        assert log_in(new[0])[1].status_code == 302


def test_a_code_is_good_for_one_login_and_so_is_a_recovery_code(mara):
    codes = turn_on_two_step(mara)[1]
    with time_machine.travel(timezone.now() + timedelta(minutes=2), tick=False):
        code = app_code(mara)
        assert log_in(code)[1].status_code == 302
        assert log_in(code)[1].status_code == 200
        assert log_in(f" {codes[0][:4].upper()} {codes[0][4:]}")[1].status_code == 302
        assert log_in(codes[0])[1].status_code == 200


def test_wrong_codes_lock_the_name_as_wrong_passwords_do(mara):
    turn_on_two_step(mara)
    now = timezone.now() + timedelta(minutes=2)
    statuses = []
    for number in range(5):
        with time_machine.travel(now + timedelta(seconds=number), tick=False):
            statuses.append(log_in("000000", password=PASSWORD if number % 2 else "guess")[1].status_code)
    assert statuses == [200, 200, 200, 200, 429]
    with time_machine.travel(now + timedelta(minutes=3), tick=False):
        locked = log_in(app_code(mara))[1]
        assert locked.status_code == 429
        assert "wrong passwords or codes" in locked.content.decode()
        assert log_in(app_code(mara), address="198.51.100.7")[1].status_code == 302, "another address is not locked"
    assert staff_events()[-3:-1] == [("mara", "login-failed", "wrong password"), ("mara", "login-locked", "")]
    assert ("mara", "login-failed", "wrong code") in staff_events()
    from axes.models import AccessAttempt

    assert all("000000" not in attempt.post_data for attempt in AccessAttempt.objects.all())


def test_guesses_from_many_addresses_make_the_device_wait_longer_each_time(mara):
    turn_on_two_step(mara)
    now = timezone.now() + timedelta(minutes=2)
    with time_machine.travel(now, tick=False):
        for number in range(1, 4):
            log_in("000000", address=f"198.51.100.{number}")
        assert log_in(app_code(mara), address="192.0.2.1")[1].status_code == 200, "the right code, too soon after a wrong one"
    with time_machine.travel(now + timedelta(seconds=40), tick=False):
        assert log_in(app_code(mara), address="192.0.2.2")[1].status_code == 302


def test_a_session_of_before_has_to_log_in_again_with_a_code(mara):
    before = log_in()[0]
    assert before.get(HOME).status_code == 200
    turn_on_two_step(mara)
    assert before.get(HOME)["Location"] == LOGIN
    assert before.get(HOME)["Location"].startswith(LOGIN)
    assert "sessionid" not in before.cookies or not before.session.get("_auth_user_id")


def test_a_copy_of_the_cookie_from_before_is_no_session_afterwards(mara):
    client = log_in()[0]
    copy = client.cookies["sessionid"].value
    client.post(PAGE, {"do": "begin"})
    assert client.post(PAGE, {"do": "confirm", "code": app_code(mara)}).status_code == 200
    assert client.get(HOME).status_code == 200
    thief = Client()
    thief.cookies["sessionid"] = copy
    assert thief.get(HOME).status_code == 302


def test_two_step_login_is_turned_off_and_new_codes_are_made_only_with_a_code(mara):
    client, codes = turn_on_two_step(mara)
    assert client.post(PAGE, {"do": "off", "code": "zzzzzzzz"}).status_code == 422
    assert client.post(PAGE, {"do": "codes", "code": ""}).status_code == 422
    with time_machine.travel(timezone.now() + timedelta(minutes=2), tick=False):
        made = client.post(PAGE, {"do": "codes", "code": app_code(mara)}).content.decode()
    new = re.findall(r"<li><code>(\w+)</code></li>", made)
    assert len(new) == 10
    assert not set(new) & set(codes)
    with time_machine.travel(timezone.now() + timedelta(minutes=4), tick=False):
        assert client.post(PAGE, {"do": "off", "code": codes[1]}).status_code == 422
    with time_machine.travel(timezone.now() + timedelta(minutes=6), tick=False):
        assert client.post(PAGE, {"do": "off", "code": new[1]}).status_code == 302
        assert log_in()[1].status_code == 302
    assert [action for _, action, _ in staff_events() if action.startswith(("second", "recovery"))] == [
        "second-step-on", "recovery-codes-made", "second-step-off",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "role", "is_led"),
    [
        (["all"], "", True),
        (["support"], "support", True),
        (["finance"], "support", False),
        (["finance", " support "], "support", True),
        (["finance", " all"], "", True),
        ([" "], "support", False),
    ],
)
def test_who_must_have_it_gets_no_further_without(settings, wanted, role, is_led):
    user = User.objects.create_user("ben", password=PASSWORD, is_staff=True)
    user.groups.set(Group.objects.filter(name=role))
    settings.LEDGER_TWO_STEP = wanted
    client = log_in(name="ben")[0]
    response = client.get(HOME)
    assert (response.status_code, response.get("Location")) == ((302, PAGE) if is_led else (200, None))
    assert client.get(PAGE).status_code == 200
    if is_led:
        assert client.get("/admin/ledger/account/").status_code == 302
        client.post(PAGE, {"do": "begin"})
        client.post(PAGE, {"do": "confirm", "code": app_code(user)})
        assert client.get(HOME).status_code == 200


def test_the_command_turns_it_off_for_who_lost_the_app(mara, capsys):
    with pytest.raises(CommandError, match="mara has no two-step login"):
        call_command("two_step", "--off", "mara")
    with pytest.raises(CommandError, match="There is no operator nobody"):
        call_command("two_step", "--off", "nobody")
    turn_on_two_step(mara)
    call_command("two_step", "--format", "json")
    assert json.loads(capsys.readouterr().out) == {"operators": ["mara"]}
    call_command("two_step")
    call_command("two_step", "--off", "mara")
    assert capsys.readouterr().out == "mara\nTwo-step login is off for mara.\n"
    assert log_in()[1].status_code == 302
    assert ("command", "second-step-off", "") in staff_events()


def test_nobody_sees_the_secret_of_another_or_gives_one_a_device(mara):
    """django-otp brings pages for that."""
    client = turn_on_two_step(mara)[0]
    for address in ("/admin/otp_totp/totpdevice/", "/admin/otp_totp/totpdevice/add/", "/admin/otp_static/staticdevice/"):
        assert client.get(address).status_code == 404, address


def test_strangers_do_not_see_the_page():
    assert Client().get(PAGE).status_code == 302
    assert Client().post(PAGE, {"do": "begin"}).status_code == 302
    assert not TOTPDevice.objects.exists()


@pytest.mark.parametrize("code", ["\x00", "é" * 32, "1" * 33, "١٢٣٤٥٦", "-00001"])
def test_whatever_is_typed_as_a_code_is_no_error(mara, code):
    turn_on_two_step(mara)
    with time_machine.travel(timezone.now() + timedelta(minutes=2), tick=False):
        assert log_in(code)[1].status_code == 200

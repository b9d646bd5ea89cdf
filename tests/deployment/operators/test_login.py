"""Guessing passwords is stopped for who guesses, recorded, and costs the others nothing."""

import http.client
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.hashers import PBKDF2PasswordHasher, make_password
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from pytest_django.fixtures import Settings

from ledger_project.settings import AXES_FAILURE_LIMIT
from tests.conftest import WebProcess
from tests.deployment.serving.test_serve import wait_until
from tests.ledger.staff.admin_site import operator

PASSWORD = "correct horse battery staple"


@pytest.fixture(autouse=True)
def _people(request: pytest.FixtureRequest) -> None:
    """Two operators, in a database that is rolled back; or none, in the one of the tests that commit."""
    if {"as_application", "committed_db"} & set(request.fixturenames):
        return
    request.getfixturevalue("db")
    for name in ("mara", "ben"):
        User.objects.create(username=name, password=make_password(PASSWORD), is_staff=True, is_superuser=True)


def log_in(name: str, password: str, address: str = "203.0.113.9") -> Any:
    """Send the login form from that address; return the response."""
    return Client(REMOTE_ADDR=address).post("/admin/login/", {"username": name, "password": password})


def lock_out(name: str, address: str = "203.0.113.9") -> None:
    """Guess until the name is locked for the address."""
    statuses = [log_in(name, f"guess-{number}", address).status_code for number in range(5)]
    assert statuses == [200, 200, 200, 200, 429]


def test_five_wrong_passwords_lock_the_name_for_the_address_and_for_nobody_else() -> None:
    lock_out("mara")
    refused = log_in("mara", PASSWORD)
    assert refused.status_code == 429
    assert "the server locks this name for this address for 15 minutes" in refused.content.decode()
    assert "sessionid" not in refused.cookies
    assert log_in("mara", PASSWORD, "198.51.100.7").status_code == 302
    assert log_in("ben", PASSWORD).status_code == 302


def test_a_locked_name_costs_no_hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    lock_out("mara")

    def never(*arguments: Any, **options: Any) -> None:
        raise AssertionError("hashed")

    monkeypatch.setattr("django.contrib.auth.hashers.MD5PasswordHasher.encode", never)
    assert log_in("mara", PASSWORD).status_code == 429


def test_right_after_wrong_starts_counting_again() -> None:
    for _ in range(2):
        for number in range(4):
            assert log_in("mara", f"guess-{number}").status_code == 200
        assert log_in("mara", PASSWORD).status_code == 302
    assert not AccessAttempt.objects.exists()


def test_the_lock_ends_by_itself(time_machine_at: Callable[[int], Any]) -> None:
    lock_out("mara")
    with time_machine_at(14):
        assert log_in("mara", PASSWORD).status_code == 429
    with time_machine_at(16):
        assert log_in("mara", PASSWORD).status_code == 302


@pytest.fixture
def time_machine_at() -> Callable[[int], Any]:
    """Travels that many minutes ahead."""
    from datetime import timedelta

    import time_machine
    from django.utils import timezone

    return lambda minutes: time_machine.travel(timezone.now() + timedelta(minutes=minutes))


@pytest.mark.slow
def test_operators_see_the_lock_and_lift_it() -> None:
    lock_out("mara")
    client = operator(name="olga")
    page = client.get("/admin/axes/accessattempt/").content.decode()
    assert "mara" in page
    assert "203.0.113.9" in page
    (attempt,) = AccessAttempt.objects.all()
    assert attempt.failures_since_start == 5
    assert PASSWORD not in attempt.post_data
    assert "guess" not in attempt.post_data
    assert client.post(f"/admin/axes/accessattempt/{attempt.pk}/delete/", {"post": "yes"}).status_code == 302
    assert log_in("mara", PASSWORD).status_code == 302


@pytest.mark.slow
@pytest.mark.usefixtures("as_application")
def test_the_rights_of_the_application_are_enough_to_count_lock_and_lift() -> None:
    name = f"somebody-{uuid.uuid4().hex}"
    lock_out(name)
    assert AccessAttempt.objects.filter(username=name).delete()[0] == 1
    assert log_in(name, PASSWORD).status_code == 200


def test_the_command_line_lifts_it_too() -> None:
    lock_out("mara")
    call_command("axes_reset_username", "mara")
    assert log_in("mara", PASSWORD).status_code == 302


def test_behind_a_proxy_the_address_is_the_clients(settings: Settings) -> None:
    settings.LEDGER = {**settings.LEDGER, "TRUSTED_PROXIES": 1}
    for number in range(5):
        log_in("mara", f"guess-{number}")  # all of them from the proxy, without the header: the proxy itself
    (attempt,) = AccessAttempt.objects.all()
    assert attempt.ip_address == "203.0.113.9"
    client = Client(REMOTE_ADDR="203.0.113.9", headers={"x-forwarded-for": "made-up, 192.0.2.1"})
    assert client.post("/admin/login/", {"username": "mara", "password": PASSWORD}).status_code == 302


# Hashing ---------------------------------------------------------------------------------------------


def test_production_hashes_as_django_does_and_as_slowly() -> None:
    from ledger_project import settings as production

    assert [f"{PBKDF2PasswordHasher.__module__}.{PBKDF2PasswordHasher.__qualname__}"] == production.PASSWORD_HASHERS
    assert PBKDF2PasswordHasher.iterations >= 1_000_000


# Guessers --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("committed_db")
def test_an_operator_at_another_address_logs_in_while_twelve_guess_without_a_pause(
    server_processes: Callable[..., list[WebProcess]],
) -> None:
    """And of what they send, what is beyond the limit of their address is refused before it is computed."""
    name = f"operator-{uuid.uuid4().hex}"
    hashed = make_password(PASSWORD, hasher=PBKDF2PasswordHasher())
    User.objects.create(username=name, password=hashed, is_staff=True, is_superuser=True)
    (web,) = server_processes(1, env={"LEDGER_TRUSTED_PROXIES": "1"})
    stop, answers_by_status = threading.Event(), Counter[int]()

    def send(address: str, password: str) -> int:
        connection = http.client.HTTPConnection(urlsplit(web.url).netloc, timeout=30)
        form = urlencode({"username": name, "password": password, "csrfmiddlewaretoken": "t" * 32})
        kind = "application/x-www-form-urlencoded"
        headers = {"X-Forwarded-For": address, "Cookie": f"csrftoken={'t' * 32}", "Content-Type": kind}
        connection.request("POST", "/admin/login/", form, headers)
        status = connection.getresponse().status
        connection.close()
        return status

    def guess() -> None:
        while not stop.is_set():
            answers_by_status[send("203.0.113.9", "guess")] += 1

    guessers = [threading.Thread(target=guess) for _ in range(12)]
    for each in guessers:
        each.start()
    wait_until(lambda: answers_by_status[429] >= 12 + AXES_FAILURE_LIMIT, "they are refused")
    assert send("198.51.100.7", PASSWORD) == 302
    stop.set()
    for each in guessers:
        each.join()
    refused = [line for line in web.log.read_text().splitlines() if "problem=too-many-requests" in line]
    assert len(refused) >= 12


@pytest.mark.parametrize("path", ["login/", "password_change/", "password_change/done/", "two-step/", "auth/user/add/", ""])
def test_no_cache_keeps_pages_on_which_passwords_are_typed_or_credits_are_shown(admin_client: Any, path: str) -> None:
    response = admin_client.get(f"/admin/{path}")
    assert response.status_code in (200, 302)
    assert "no-store" in response["Cache-Control"]

"""Guessing passwords is stopped for who guesses, recorded, and costs the others nothing."""

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher, make_password
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from ledger_project import login
from tests.deployment.test_serve import wait_until
from tests.ledger.admin_site import operator

PASSWORD = "correct horse battery staple"


@pytest.fixture(autouse=True)
def _people(request: pytest.FixtureRequest) -> None:
    """Two operators, in a database that is rolled back; or none, in the one of the tests that commit."""
    if "as_application" in request.fixturenames:
        return
    request.getfixturevalue("db")
    for name in ("mara", "ben"):
        User.objects.create(username=name, password=make_password(PASSWORD), is_staff=True, is_superuser=True)


def log_in(name: str, password: str, address: str = "203.0.113.9") -> Any:
    """The answer to the form, sent from that address."""
    return Client(REMOTE_ADDR=address).post("/admin/login/", {"username": name, "password": password})


def lock(name: str, address: str = "203.0.113.9") -> None:
    """Guess until the name is locked for the address."""
    statuses = [log_in(name, f"guess-{number}", address).status_code for number in range(5)]
    assert statuses == [200, 200, 200, 200, 429]


def test_five_wrong_passwords_lock_the_name_for_the_address_and_for_nobody_else() -> None:
    lock("mara")
    refused = log_in("mara", PASSWORD)
    assert refused.status_code == 429
    assert "the server locks this name for this address for 15 minutes" in refused.content.decode()
    assert "sessionid" not in refused.cookies
    assert log_in("mara", PASSWORD, "198.51.100.7").status_code == 302
    assert log_in("ben", PASSWORD).status_code == 302


def test_a_locked_name_costs_no_hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    lock("mara")

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
    lock("mara")
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


def test_operators_see_the_lock_and_lift_it() -> None:
    lock("mara")
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


@pytest.mark.usefixtures("as_application")
def test_the_rights_of_the_application_are_enough_to_count_lock_and_lift() -> None:
    name = f"somebody-{uuid.uuid4().hex}"
    lock(name)
    assert AccessAttempt.objects.filter(username=name).delete()[0] == 1
    assert log_in(name, PASSWORD).status_code == 200


def test_the_command_line_lifts_it_too() -> None:
    lock("mara")
    call_command("axes_reset_username", "mara")
    assert log_in("mara", PASSWORD).status_code == 302


def test_behind_a_proxy_the_address_is_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.LEDGER, "TRUSTED_PROXIES", 1)
    for number in range(5):
        log_in("mara", f"guess-{number}")  # all of them from the proxy, without the header: the proxy itself
    (attempt,) = AccessAttempt.objects.all()
    assert attempt.ip_address == "203.0.113.9"
    client = Client(REMOTE_ADDR="203.0.113.9", headers={"x-forwarded-for": "made-up, 192.0.2.1"})
    assert client.post("/admin/login/", {"username": "mara", "password": PASSWORD}).status_code == 302


# Hashing ---------------------------------------------------------------------------------------------


class Hashing:
    """Hashes that begin and then wait until they are let go; no login gets a turn beside one."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.may_end = threading.Event()

    def authenticate(self, *arguments: Any, **options: Any) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        assert self.may_end.wait(20)
        self.running -= 1


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hashing]:
    """Stands where a login hashes the password."""
    found = Hashing()
    monkeypatch.setattr("django.contrib.auth.forms.authenticate", found.authenticate)
    yield found
    found.may_end.set()


def forms(count: int) -> tuple[list[threading.Thread], list[list[str]]]:
    """As many logins, each in a thread; and what each was told, once it was."""
    told: list[list[str]] = []

    def one() -> None:
        form = login.LoginForm(data={"username": "mara", "password": "x"})
        form.is_valid()
        told.append([error.code for error in form.non_field_errors().as_data()])

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads, told


def test_passwords_are_hashed_one_at_a_time_and_who_would_wait_too_long_is_sent_away(hashing: Hashing) -> None:
    threads, told = forms(12)
    wait_until(lambda: len(told) == 9, "nine of twelve were sent away")
    assert told == [["busy"]] * 9
    hashing.may_end.set()
    for thread in threads:
        thread.join()
    assert told[9:] == [["invalid_login"]] * 3
    assert hashing.most == 1


def test_without_turns_all_are_hashed_at_once(hashing: Hashing, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    monkeypatch.setattr(login, "_turn", threading.BoundedSemaphore(12))
    monkeypatch.setattr(login, "_seats", threading.BoundedSemaphore(12))
    threads, told = forms(12)
    wait_until(lambda: hashing.most == 12, "twelve at once")
    hashing.may_end.set()
    for thread in threads:
        thread.join()
    assert told == [["invalid_login"]] * 12


def test_a_refusal_for_want_of_a_turn_is_no_failed_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "_seats", threading.Semaphore(0))
    for _ in range(6):
        answer = log_in("mara", PASSWORD)
        assert answer.status_code == 200
        assert "Too many operators are logging in." in answer.content.decode()
    assert not AccessAttempt.objects.exists()


def test_production_hashes_as_slowly_as_django_does() -> None:
    from ledger_project import settings as production

    assert not hasattr(production, "PASSWORD_HASHERS")
    assert PBKDF2PasswordHasher.iterations >= 1_000_000

"""Two changes of an API key at once, or of the key that asks for one: the second waits, and sees the first."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from django.utils import timezone

from ledger.keys import api_keys, delegation
from ledger.keys.api_keys import ApiKeyRequest
from ledger.keys.delegation import KeyAnswer, KeyCall, change_once, give
from ledger.keys.errors import KeyEnded, KeyNameTaken, KeyRotating
from ledger.keys.models import ApiKey
from ledger.testing import unique
from tests import nodes
from tests.nodes import Session

TOMORROW = timezone.now() + timedelta(days=1)
Act = Callable[[ApiKey], Any]


@pytest.fixture
def key(committed_db: None) -> tuple[ApiKey, str]:
    """A committed key and its secret."""
    return api_keys.create_api_key(name=unique("key"), scopes=["ledger:read"])


def rotate(key: ApiKey) -> str:
    """Rotate the key with an overlap, and return the secret."""
    return api_keys.rotate_api_key(id=key.pk, former_until=TOMORROW)[1]


def rotate_by_looking_first(key: ApiKey) -> str:
    """Rotate the key by two statements: one looks whether that is allowed, the other one writes."""
    seen = ApiKey.objects.get(pk=key.pk)
    assert (seen.revoked_at, seen.former_until) == (None, None)
    secret = unique("secret")
    changes = {"key_digest": api_keys.key_digest(secret), "former_digest": seen.key_digest, "former_until": TOMORROW}
    ApiKey.objects.filter(pk=key.pk).update(**changes)
    return secret


def race(observer: Session, key: ApiKey, first: Act, second: Act, *, waits: bool = True) -> Any:
    """Let the first change the key, and commit once the second waits for it; return what the second returns or raises.

    Args:
        waits: False for a second that does not wait; then the first commits when the second is done.
    """
    changed, may_commit = threading.Event(), threading.Event()
    session: Future[int] = Future()

    def lead() -> None:
        with transaction.atomic():
            first(key)
            changed.set()
            assert may_commit.wait(30)
        connections.close_all()

    def follow() -> Any:
        try:
            session.set_result(nodes.session_id())
            return second(key)
        except Exception as error:
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        leading = pool.submit(lead)
        try:
            assert changed.wait(30)
            following = pool.submit(follow)
            pid = session.result(30)
            while not following.done() and not nodes.is_waiting(observer, pid):
                pass
            assert following.done() is not waits
        finally:
            may_commit.set()
        leading.result(30)
        return following.result(30)


def test_of_two_rotations_at_once_one_is_refused_and_the_secret_of_the_other_stays(
    key: tuple[ApiKey, str], raw_connection: Callable[..., Session]
) -> None:
    made, former = key
    secrets: list[str] = []
    second = race(raw_connection(autocommit=True), made, lambda each: secrets.append(rotate(each)), rotate)
    assert isinstance(second, KeyRotating)
    assert [api_keys.find_api_key(secret) is not None for secret in (former, *secrets)] == [True, True]


def test_control_a_rotation_that_looks_first_ends_the_secret_that_the_other_has_just_shown(
    key: tuple[ApiKey, str], raw_connection: Callable[..., Session]
) -> None:
    made, former = key
    secrets: list[str] = []
    second = race(raw_connection(autocommit=True), made, lambda each: secrets.append(rotate(each)), rotate_by_looking_first)
    assert [api_keys.find_api_key(secret) is not None for secret in (former, *secrets, second)] == [True, False, True]


def test_a_rotation_that_waits_for_a_revocation_is_refused(
    key: tuple[ApiKey, str], raw_connection: Callable[..., Session]
) -> None:
    made, former = key
    second = race(raw_connection(autocommit=True), made, api_keys.revoke_api_key, rotate)
    assert isinstance(second, KeyEnded)
    assert api_keys.find_api_key(former) is None
    assert ApiKey.objects.get(pk=made.pk).rotated_at is None


def test_control_a_rotation_that_looks_first_shows_a_secret_of_a_revoked_key(
    key: tuple[ApiKey, str], raw_connection: Callable[..., Session]
) -> None:
    made, _ = key
    second = race(raw_connection(autocommit=True), made, api_keys.revoke_api_key, rotate_by_looking_first)
    assert isinstance(second, str)
    assert api_keys.find_api_key(second) is None


def test_a_revocation_that_waits_for_a_rotation_ends_both_secrets(
    key: tuple[ApiKey, str], raw_connection: Callable[..., Session]
) -> None:
    made, former = key
    secrets: list[str] = []
    race(raw_connection(autocommit=True), made, lambda each: secrets.append(rotate(each)), api_keys.revoke_api_key)
    assert [api_keys.find_api_key(secret) for secret in (former, *secrets)] == [None, None]


# A key that makes another one ------------------------------------------------------------------------


class Ended(Exception):
    """The key of the request has ended."""


def make_another(name: str, secret: str, idempotency_key: str = "k") -> Act:
    """What makes a key of this name over REST, as its second argument the key that asks."""

    def act(asker: ApiKey | None, _: ApiKey | None) -> Any:
        if asker is None:
            raise Ended
        return give(asker, ApiKeyRequest(name=name, scopes=["ledger:read"], actor=asker.actor))

    def make(key: ApiKey) -> KeyAnswer:
        digest = api_keys.key_digest(secret)
        call = KeyCall("keys", digest, "", key.actor, f"{key.name} {idempotency_key}", {"name": name})
        return change_once(call, act, lambda made: {"id": made.pk})

    return make


def test_of_two_requests_with_one_idempotency_key_one_makes_a_key_and_the_other_repeats_its_answer(
    key: tuple[ApiKey, str], raw_connection: Callable[..., Session]
) -> None:
    asker, secret = key
    name, answers = unique("key"), []
    make = make_another(name, secret)
    second = race(raw_connection(autocommit=True), asker, lambda each: answers.append(make(each)), make)
    assert second == KeyAnswer(answers[0].body, None, replayed=True)
    assert answers[0].body == {"id": ApiKey.objects.get(name=name).pk}


def test_control_without_the_lock_the_other_is_told_that_its_own_name_is_taken(
    key: tuple[ApiKey, str], raw_connection: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    asker, secret = key

    def look_first(name: str, *, check: Callable[[], Any], insert: Callable[[], Any]) -> tuple[Any, bool]:
        return (check() or insert()), True

    monkeypatch.setattr(delegation, "insert_once", look_first)
    monkeypatch.setattr(delegation, "_lock_keys", lambda call: (ApiKey.objects.get(pk=asker.pk), None))
    make = make_another(unique("key"), secret)
    assert isinstance(race(raw_connection(autocommit=True), asker, make, make), KeyNameTaken)


def test_a_key_whose_revocation_is_under_way_makes_no_other(
    key: tuple[ApiKey, str], raw_connection: Callable[..., Session]
) -> None:
    asker, secret = key
    name = unique("key")
    second = race(raw_connection(autocommit=True), asker, api_keys.revoke_api_key, make_another(name, secret))
    assert isinstance(second, Ended)
    assert not ApiKey.objects.filter(name=name).exists()


def test_control_a_key_that_is_judged_by_a_look_makes_another_while_it_is_revoked(
    key: tuple[ApiKey, str], raw_connection: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    asker, secret = key
    name = unique("key")
    monkeypatch.setattr(delegation, "_lock_keys", lambda call: (api_keys.find_api_key(secret), None))
    second = race(raw_connection(autocommit=True), asker, api_keys.revoke_api_key, make_another(name, secret), waits=False)
    assert isinstance(second, KeyAnswer)
    assert api_keys.find_api_key(secret) is None
    assert ApiKey.objects.get(name=name).revoked_at is None


# A key with labels that is revoked, with what it makes -----------------------------------------------


def a_team(labels: dict[str, str]) -> tuple[ApiKey, str]:
    """A committed key of a team, which may make others, and its secret."""
    return api_keys.create_api_key(name=unique("team"), scopes=["keys:admin", "ledger:read"], labels=labels)


def make_labelled(name: str, secret: str) -> Act:
    """What makes a key with the labels of the key that asks."""

    def act(asker: ApiKey | None, _: ApiKey | None) -> Any:
        if asker is None:
            raise Ended
        request = ApiKeyRequest(name=name, scopes=["ledger:read"], labels=asker.labels, actor=asker.actor)
        return give(asker, request)

    def make(key: ApiKey) -> KeyAnswer:
        call = KeyCall("keys", api_keys.key_digest(secret), "", key.actor, unique("k"), {"name": name})
        return change_once(call, act, lambda made: {"id": made.pk})

    return make


def test_a_revocation_ends_the_key_that_is_being_made(committed_db: None, raw_connection: Callable[..., Session]) -> None:
    team, secret = a_team({"team": "red"})
    name = unique("key")
    race(raw_connection(autocommit=True), team, make_labelled(name, secret), api_keys.revoke_api_key)
    assert ApiKey.objects.get(name=name).state == "revoked"


def test_control_a_revocation_that_looks_for_keys_before_it_waits_leaves_one(
    committed_db: None, raw_connection: Callable[..., Session]
) -> None:
    team, secret = a_team({"team": "red"})
    name = unique("key")

    def revoke_what_it_sees(key: ApiKey) -> None:
        seen = [key.pk, *ApiKey.objects.filter(parent_id=key.pk).values_list("pk", flat=True)]
        ApiKey.objects.filter(pk__in=seen).update(revoked_at=timezone.now())

    race(raw_connection(autocommit=True), team, make_labelled(name, secret), revoke_what_it_sees)
    assert ApiKey.objects.get(name=name).state == "active"


def rotate_by(asking: str, target: ApiKey) -> Act:
    """What rotates the target for the key that has the secret, over REST."""

    def act(asker: ApiKey | None, locked: ApiKey | None) -> Any:
        assert asker is not None
        assert locked is not None
        return delegation.rotate_by(asker, locked, api_keys.RotationRequest(id=locked.pk, former_until=TOMORROW))

    call = KeyCall("rotation", api_keys.key_digest(asking), "", "", unique("k"), {}, target.pk)
    return lambda _: change_once(call, act, lambda made: {"id": made.pk})


def rotate_each_other(one: ApiKey, secret: str, other: ApiKey, other_secret: str) -> list[Any]:
    """Let both keys rotate each other at the same time; return what each call returns or raises."""

    def outcome(act: Act) -> Any:
        try:
            return act(one)
        except Exception as error:
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(outcome, [rotate_by(secret, other), rotate_by(other_secret, one)]))


def test_two_keys_that_rotate_each_other_at_once_both_succeed(key: tuple[ApiKey, str]) -> None:
    other, other_secret = api_keys.create_api_key(name=unique("key"), scopes=["ledger:read"])
    answers = rotate_each_other(*key, other, other_secret)
    assert [answer.body for answer in answers] == [{"id": other.pk}, {"id": key[0].pk}]


def test_control_keys_that_are_locked_in_the_order_of_the_call_wait_for_each_other(
    key: tuple[ApiKey, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other, other_secret = api_keys.create_api_key(name=unique("key"), scopes=["ledger:read"])
    have_first = threading.Barrier(2, timeout=30)

    def locked_one_by_one(call: KeyCall) -> tuple[ApiKey | None, ApiKey | None]:
        keys = ApiKey.objects.select_for_update(no_key=True)
        asker = keys.get(key_digest=call.secret_digest)
        have_first.wait()
        return asker, keys.get(pk=call.target_id)

    monkeypatch.setattr(delegation, "_lock_keys", locked_one_by_one)
    answers = rotate_each_other(*key, other, other_secret)
    assert any(isinstance(answer, Exception) for answer in answers), "a deadlock: the server ends one of them, or both give up"


def test_two_keys_that_rotate_each_other_wait_in_one_order(
    key: tuple[ApiKey, str], raw_connection: Callable[..., Session]
) -> None:
    one, secret = key
    other, other_secret = api_keys.create_api_key(name=unique("key"), scopes=["ledger:read"])
    second = race(raw_connection(autocommit=True), one, rotate_by(secret, other), rotate_by(other_secret, one))
    assert second.body == {"id": one.pk}

"""API keys get another secret, beside which the former one is valid for a while."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from ledger.errors import Invalid
from ledger.keys import api_keys
from ledger.keys.errors import KeyEnded, KeyRotating
from ledger.keys.key_pages import revocation_text
from ledger.keys.models import ApiKey
from ledger.testing import FixedClock

pytestmark = pytest.mark.django_db

PAST = datetime(2020, 1, 1, tzinfo=UTC)
TOMORROW = timezone.now() + timedelta(days=1)


def make(**more: Any) -> tuple[ApiKey, str]:
    """A key and its secret."""
    return api_keys.create_api_key(**{"name": "shop", "scopes": ["ledger:read"]} | more)


def test_without_an_overlap_the_former_secret_ends_at_once() -> None:
    key, former = make()
    rotated, secret = api_keys.rotate_api_key(id=key.pk)
    assert api_keys.find_api_key(former) is None
    assert api_keys.find_api_key(secret) == key
    assert (rotated.prefix, rotated.former_until) == (secret[:8], None)
    # 256 random bits.
    assert len(secret) == 43
    assert rotated.rotated_at is not None


def test_with_an_overlap_both_secrets_are_valid_until_the_chosen_instant() -> None:
    with FixedClock(datetime(2026, 3, 1, tzinfo=UTC)) as clock:
        key, former = make()
        _, secret = api_keys.rotate_api_key(id=key.pk, former_until=datetime(2026, 3, 2, tzinfo=UTC))
        clock.advance(hours=23, minutes=59)
        assert api_keys.find_api_key(former) == api_keys.find_api_key(secret) == key
        clock.advance(minutes=1)
        assert api_keys.find_api_key(former) is None
        assert api_keys.find_api_key(secret) == key


def test_a_key_keeps_what_it_may_and_how_long() -> None:
    key, _ = make(holder_id="ada", expires_at=TOMORROW, requests_per_second=5, concurrent_requests=2)
    rotated, _ = api_keys.rotate_api_key(id=key.pk, former_until=TOMORROW)
    kept = ("name", "scopes", "holder_id", "expires_at", "requests_per_second", "concurrent_requests", "created_at")
    assert [getattr(rotated, name) for name in kept] == [getattr(key, name) for name in kept]


def test_a_second_rotation_with_an_overlap_has_to_wait_for_the_end_of_the_first() -> None:
    key, first = make()
    _, second = api_keys.rotate_api_key(id=key.pk, former_until=TOMORROW)
    before = ApiKey.objects.values().get()
    with pytest.raises(KeyRotating) as refused:
        api_keys.rotate_api_key(id=key.pk, former_until=TOMORROW)
    assert refused.value.facts == {"former_until": f"{TOMORROW:%Y-%m-%dT%H:%M:%S.%fZ}"}
    assert ApiKey.objects.values().get() == before
    ApiKey.objects.update(former_until=PAST)
    _, third = api_keys.rotate_api_key(id=key.pk, former_until=TOMORROW)
    assert [api_keys.find_api_key(secret) is not None for secret in (first, second, third)] == [False, True, True]


def test_a_rotation_without_an_overlap_ends_every_earlier_secret() -> None:
    key, first = make()
    _, second = api_keys.rotate_api_key(id=key.pk, former_until=TOMORROW)
    _, third = api_keys.rotate_api_key(id=key.pk)
    assert [api_keys.find_api_key(secret) is not None for secret in (first, second, third)] == [False, False, True]


def test_a_revoked_key_has_no_valid_secret_left() -> None:
    key, first = make()
    _, second = api_keys.rotate_api_key(id=key.pk, former_until=TOMORROW)
    api_keys.revoke_api_key(key)
    assert api_keys.find_api_key(first) is api_keys.find_api_key(second) is None


def test_a_revoked_key_says_who_revoked_it_as_the_keys_do_that_it_has_made() -> None:
    team, _ = api_keys.create_api_key(name="team", scopes=["ledger:spend", "keys:admin"], labels={"team": "red"})
    child, _ = api_keys.create_api_key(name="child", scopes=["ledger:spend"], labels={"team": "red"})
    ApiKey.objects.filter(pk=child.pk).update(parent_id=team.pk)
    other, _ = api_keys.create_api_key(name="other", scopes=["ledger:spend"])
    api_keys.revoke_api_key(team, actor="admin:mara")
    api_keys.revoke_api_key(team, actor="admin:ben")
    by = dict(ApiKey.objects.values_list("pk", "revoked_by"))
    assert (by[team.pk], by[child.pk], by[other.pk]) == ("admin:mara", "admin:mara", None)
    assert revocation_text(ApiKey.objects.get(pk=team.pk)).endswith(" by admin:mara")
    assert revocation_text(ApiKey.objects.get(pk=other.pk)) == ""


@pytest.mark.parametrize("revoked_by", ["", "x" * 201, "mara"])
def test_the_database_refuses_a_revocation_by_nobody_or_of_a_key_that_is_valid(revoked_by: str) -> None:
    key, _ = make()
    revoked = {} if revoked_by == "mara" else {"revoked_at": PAST}
    with pytest.raises(IntegrityError, match="ledger_api_key_revoked_by_somebody"), transaction.atomic():
        ApiKey.objects.filter(pk=key.pk).update(revoked_by=revoked_by, **revoked)
    assert ApiKey.objects.get(pk=key.pk).revoked_at is None


def test_the_keys_that_a_key_has_made_are_found_by_an_index() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("EXPLAIN SELECT id FROM ledger_api_key WHERE parent_id IN (1, 2) AND revoked_at IS NULL")
        assert "ledger_api_key_made_by" in "".join(line for (line,) in cursor.fetchall())


def test_an_expired_key_has_no_valid_secret_left() -> None:
    key, first = make()
    _, second = api_keys.rotate_api_key(id=key.pk, former_until=TOMORROW)
    ApiKey.objects.update(expires_at=PAST)
    assert api_keys.find_api_key(first) is api_keys.find_api_key(second) is None


@pytest.mark.parametrize("overlap", [None, TOMORROW])
@pytest.mark.parametrize(("column", "how"), [("revoked_at", "revoked"), ("expires_at", "expired")])
def test_a_key_that_has_ended_gets_no_other_secret(column: str, how: str, overlap: datetime | None) -> None:
    key, _ = make()
    ApiKey.objects.update(**{column: PAST})
    before = ApiKey.objects.values().get()
    with pytest.raises(KeyEnded) as refused:
        api_keys.rotate_api_key(id=key.pk, former_until=overlap)
    assert refused.value.facts == {"how": how}
    assert ApiKey.objects.values().get() == before


def test_an_expired_key_with_an_overlap_is_refused_as_expired() -> None:
    key, _ = make()
    api_keys.rotate_api_key(id=key.pk, former_until=TOMORROW)
    ApiKey.objects.update(expires_at=PAST)
    with pytest.raises(KeyEnded):
        api_keys.rotate_api_key(id=key.pk, former_until=TOMORROW)


@pytest.mark.parametrize(
    ("wrong", "pointer", "rule"),
    [
        ({"former_until": PAST}, "/former_until", "past"),
        ({"former_until": datetime(2120, 1, 1)}, "/former_until", "no-offset"),
        ({"id": 0}, "/id", "too-small"),
        ({"id": 2**62}, "/id", "unknown"),
    ],
)
def test_a_wrong_rotation_changes_nothing(wrong: dict[str, Any], pointer: str, rule: str) -> None:
    key, _ = make()
    before = ApiKey.objects.values().get()
    with pytest.raises(Invalid) as refused:
        api_keys.rotate_api_key(**{"id": key.pk} | wrong)
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == (pointer, rule)
    assert ApiKey.objects.values().get() == before

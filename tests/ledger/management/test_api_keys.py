"""`manage.py api_keys` makes, rotates and revokes keys, prints a secret once, and refuses what the API refuses."""

import json
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from ledger.keys import api_keys
from ledger.keys.models import ApiKey
from ledger.models import StaffEvent

pytestmark = pytest.mark.django_db

PAST = datetime(2020, 1, 1, tzinfo=UTC)


def printed(*arguments: str) -> str:
    """What the command prints."""
    out = StringIO()
    call_command("api_keys", *arguments, stdout=out)
    return out.getvalue()


def shown(*arguments: str) -> Any:
    """What the command prints for programs."""
    return json.loads(printed(*arguments, "--format", "json"))


def events() -> list[tuple[str, str, str]]:
    """What the staff log has of keys."""
    return list(StaffEvent.objects.order_by("id").values_list("actor", "action", "details"))


def test_a_key_is_made_with_all_that_it_can_have_and_its_secret_is_printed_once() -> None:
    options = [
        "--scope",
        "ledger:read",
        "--scope",
        "ledger:spend",
        "--holder",
        "ada",
        "--expires-at",
        "2100-01-31T01:00:00+01:00",
    ]
    made = shown("create", "shop", *options, "--requests-per-second", "50", "--concurrent-requests", "4")
    key = api_keys.find_api_key(made.pop("secret"))
    assert key is not None
    assert made.pop("created_at").endswith("Z")
    assert made.pop("created_by").startswith("command:")
    assert made == {
        "name": "shop",
        "prefix": key.prefix,
        "scopes": ["ledger:read", "ledger:spend"],
        "holder_id": "ada",
        "labels": {},
        "requests_per_second": 50,
        "concurrent_requests": 4,
        "expires_at": "2100-01-31T00:00:00.000000Z",
        "last_used_at": None,
        "rotated_at": None,
        "former_until": None,
        "revoked_at": None,
        "revoked_by": None,
    }
    assert [each["name"] for each in shown("list")] == ["shop"]
    assert "secret" not in printed("list")


def test_a_key_is_rotated_and_the_staff_log_says_so() -> None:
    _, former = api_keys.create_api_key(name="shop", scopes=["ledger:read"])
    rotated = shown("rotate", "shop", "--former-until", "2100-01-31T00:00:00Z")
    assert rotated["former_until"] == "2100-01-31T00:00:00.000000Z"
    assert api_keys.find_api_key(former) == api_keys.find_api_key(rotated["secret"]) is not None
    last = shown("rotate", "shop")["secret"]
    assert [api_keys.find_api_key(each) is not None for each in (former, rotated["secret"], last)] == [False, False, True]
    assert {actor.partition(":")[0] for actor, _, _ in events()[1:]} == {"command"}
    assert [event[1:] for event in events()[1:]] == [
        ("key-rotated", "the former secret is valid until 2100-01-31 00:00 UTC"),
        ("key-rotated", "every earlier secret ended"),
    ]


def test_a_key_is_revoked_once() -> None:
    _, secret = api_keys.create_api_key(name="shop", scopes=["ledger:read"])
    revoked = shown("revoke", "shop")
    assert revoked["revoked_by"].startswith("command:")
    assert api_keys.find_api_key(secret) is None
    assert shown("revoke", "shop") == revoked
    assert [action for _, action, _ in events()] == ["key-created", "key-revoked"]


def test_people_get_lines() -> None:
    assert printed("list") == "There is no API key.\n"
    api_keys.create_api_key(name="shop", scopes=["ledger:read", "billing:read"])
    api_keys.create_api_key(name="till", scopes=["ledger:spend"], holder_id="ada")
    lines = printed("list").splitlines()
    assert "scopes                ledger:read, billing:read" in lines
    assert [line for line in lines if line.startswith(("name", "holder"))] == [
        "name                  shop",
        "name                  till",
        "holder id             ada",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ("list shop", 2, "list takes no name."),
        ("revoke", 2, "revoke takes the name of a key."),
        ("revoke nobody", 2, "No API key is named nobody."),
        ("revoke shop --scope ledger:read", 2, "revoke does not take scopes."),
        ("create new", 2, "scopes: This is required."),
        ("create new --scope root", 2, "scopes/0: "),
        ("create shop --scope ledger:read", 1, "Another API key is called shop."),
        ("create new --scope ledger:read --expires-at tomorrow", 2, "expires_at: This must be an RFC 3339 time"),
        ("create new --scope ledger:read --expires-at 2020-01-01T00:00:00Z", 2, "expires_at: must be in the future"),
        ("create new --scope ledger:read --requests-per-second 0", 2, "requests_per_second: This must be at least 1."),
        ("rotate shop --former-until 2020-01-01T00:00:00Z", 2, "former_until: must be in the future"),
        ("rotate ended", 1, "The API key is revoked. Make another one."),
    ],
)
def test_what_is_refused_is_said_in_a_sentence_and_nothing_is_written(arguments: str, code: int, text: str) -> None:
    api_keys.create_api_key(name="shop", scopes=["ledger:read"])
    api_keys.create_api_key(name="ended", scopes=["ledger:read"])
    ApiKey.objects.filter(name="ended").update(revoked_at=PAST)
    before = list(ApiKey.objects.order_by("id").values()), events()
    with pytest.raises(CommandError) as refused:
        printed(*arguments.split())
    assert text in str(refused.value)
    assert refused.value.returncode == code
    assert (list(ApiKey.objects.order_by("id").values()), events()) == before


def test_a_key_is_made_with_labels_and_a_wrong_label_makes_none() -> None:
    made = shown("create", "red.ada", "--scope", "ledger:spend", "--label", "team=red", "--label", "member=a=b")
    assert made["labels"] == {"team": "red", "member": "a=b"}
    assert "member=a=b, team=red" in printed("list")
    for labels in (["--label", "team"], ["--label", "team=red", "--label", "team=blue"], ["--label", "team="]):
        with pytest.raises(CommandError) as refused:
            printed("create", "other", "--scope", "ledger:spend", *labels)
        assert refused.value.returncode == 2
    assert [key.name for key in ApiKey.objects.all()] == ["red.ada"]

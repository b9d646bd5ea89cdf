"""Webhooks over REST: made once for a key, changed, rotated, removed, tested; what they got, and sent again."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings as project
from pytest_django.fixtures import Settings

from ledger import services
from ledger.database.statements import fetch_value
from ledger.signals.feed import feed
from ledger.signals.models import Webhook
from ledger.signals.types import all_types
from tests.ledger.rest.conftest import ApiClient, problem_of_refusal

BODY = {"url": "https://shop.example/hooks", "types": ["refusal.recorded", "entry.recorded", "entry.recorded"]}
LATER = (datetime.now(UTC) + timedelta(days=1)).isoformat()
UNKNOWN = "0f9a3c1e-7d7f-4b43-9a55-2f0a1d7c9e21"


@pytest.fixture
def api(db: None, make_api: Callable[..., ApiClient]) -> ApiClient:
    """A client that may do everything with webhooks."""
    return make_api("signals:read", "signals:write", name="shop")


def rows() -> int:
    """How many rows writes of webhooks leave."""
    tables = ("ledger_webhook", "ledger_webhook_change", "ledger_signal", "ledger_delivery", "ledger_delivery_stream")
    return fetch_value(int, "SELECT " + " + ".join(f"(SELECT count(*) FROM {table})" for table in tables))


def made(api: ApiClient, **more: Any) -> dict[str, Any]:
    response = api.post("/v1/webhooks", {**BODY, **more})
    assert response.status_code == 201, response.content
    body: dict[str, Any] = response.json()
    return body


def test_a_webhook_is_made_and_read_without_its_secret(api: ApiClient) -> None:
    response = api.post("/v1/webhooks", BODY | {"description": "The shop"}, key="one")
    body = response.json()
    assert response["Location"] == f"/v1/webhooks/{body['id']}"
    assert body["secret"].startswith("whsec_")
    assert (body["types"], body["state"], body["created_by"]) == (["entry.recorded", "refusal.recorded"], "enabled", "key:shop")
    read = api.get(response["Location"]).json()
    assert "secret" not in read
    assert read == {name: value for name, value in body.items() if name != "secret"} | {"failing_since": None}
    assert api.get("/v1/webhooks").json()["results"] == [read]


def test_a_repeated_request_gets_the_same_bytes_while_its_secret_signs(api: ApiClient) -> None:
    first = api.post("/v1/webhooks", BODY, key="one")
    again = api.post("/v1/webhooks", BODY, key="one")
    assert (again.content, again["Idempotency-Replayed"]) == (first.content, "true")
    assert Webhook.objects.count() == 1
    api.post(f"/v1/webhooks/{first.json()['id']}/rotate", {})
    assert api.post("/v1/webhooks", BODY, key="one").json()["secret"] is None
    before = rows()
    other = api.post("/v1/webhooks", BODY | {"description": "another"}, key="one")
    assert problem_of_refusal(other, 422)["type"].endswith("/idempotency-key-reused")
    assert rows() == before


def test_a_dry_run_writes_nothing(api: ApiClient) -> None:
    webhook = made(api)
    before = rows()
    for path, body in (("", BODY), (f"/{webhook['id']}/rotate", {}), (f"/{webhook['id']}/ping", {})):
        response = api.post(f"/v1/webhooks{path}?dry_run=true", body, key=None)
        assert response.status_code == 200, response.content
        assert response.json().get("secret") is None
    assert api.patch(f"/v1/webhooks/{webhook['id']}?dry_run=true", {"enabled": False}, key=None).json()["state"] == "disabled"
    assert api.delete(f"/v1/webhooks/{webhook['id']}?dry_run=true", key=None).json()["state"] == "removed"
    assert rows() == before
    assert api.get(f"/v1/webhooks/{webhook['id']}").json()["state"] == "enabled"


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"url": "http://shop.example/"}, "/url", "not-a-url"),
        ({"url": "https://u:p@shop.example/"}, "/url", "not-a-url"),
        ({"url": "shop.example"}, "/url", "not-a-url"),
        ({"types": []}, "/types", "too-few"),
        ({"types": ["webhook.ping"]}, "/types/0", "not-a-choice"),
        ({"types": ["entry.recorded", "x"]}, "/types/1", "not-a-choice"),
        ({"holder_id": "a b"}, "/holder_id", "pattern"),
        ({"secret": "whsec_x"}, "/secret", "unknown-field"),
    ],
)
def test_what_is_wrong_with_a_webhook_is_named(api: ApiClient, change: dict[str, Any], pointer: str, code: str) -> None:
    before = rows()
    problem_of_refusal(api.post("/v1/webhooks", BODY | change), 400, (pointer, code))
    assert rows() == before


def test_plain_http_is_taken_where_the_settings_allow_it(api: ApiClient, settings: Settings) -> None:
    settings.LEDGER = {**settings.LEDGER, "SIGNAL_PLAIN_HTTP": True}
    assert made(api, url="http://shop.example/")["url"] == "http://shop.example/"


def test_a_change_leaves_what_is_left_out(api: ApiClient) -> None:
    webhook = made(api, description="The shop")
    path = f"/v1/webhooks/{webhook['id']}"
    changed = api.patch(path, {"types": ["hold.expired"], "enabled": False}).json()
    assert (changed["types"], changed["description"], changed["state"]) == (["hold.expired"], "The shop", "disabled")
    assert changed["disabled_because"] == "Disabled by request."
    enabled = api.patch(path, {"enabled": True}).json()
    assert (enabled["state"], enabled["disabled_at"], enabled["disabled_because"]) == ("enabled", None, None)
    problem_of_refusal(api.patch(path, {"url": "ftp://x"}), 400, ("/url", "not-a-url"))


def test_of_two_rotations_with_an_overlap_the_second_is_refused(api: ApiClient) -> None:
    webhook = made(api)
    path = f"/v1/webhooks/{webhook['id']}/rotate"
    first = api.post(path, {"former_until": LATER}).json()
    assert first["secret"] not in (None, webhook["secret"])
    assert first["former_until"] is not None
    before = rows()
    problem = problem_of_refusal(api.post(path, {"former_until": LATER}), 409)
    assert (problem["type"].rpartition("/")[2], problem["former_until"]) == ("webhook-rotating", first["former_until"])
    problem_of_refusal(api.post(path, {"former_until": "2020-01-01T00:00:00Z"}), 400, ("/former_until", "past"))
    assert rows() == before
    second = api.post(path, {}).json()
    assert second["former_until"] is None
    stored = Webhook.objects.get(pk=webhook["id"])
    assert (stored.secret, stored.former_secret) == (second["secret"], None)


def test_a_removed_webhook_is_nowhere(api: ApiClient) -> None:
    webhook = made(api)
    path = f"/v1/webhooks/{webhook['id']}"
    removed = api.delete(path, key="gone")
    assert (removed.status_code, removed.json()["state"]) == (200, "removed")
    assert api.delete(path, key="gone").content == removed.content
    assert api.get("/v1/webhooks").json()["results"] == []
    before = rows()
    for response in (
        api.get(path), api.get(f"{path}/deliveries"), api.get(f"{path}/deliveries/{UNKNOWN}"), api.patch(path, {}),
        api.delete(path), api.post(f"{path}/ping", {}), api.post(f"{path}/rotate", {}),
        api.post(f"{path}/deliveries/{UNKNOWN}/resend", {}),
    ):  # fmt: skip
        assert problem_of_refusal(response, 404)["type"].endswith("/webhook-not-found")
    assert rows() == before


def test_deliveries_are_listed_and_sent_again(api: ApiClient) -> None:
    webhook = made(api)
    for number in range(3):
        services.grant(holder_id="ada", amount=5, idempotency_key=f"g{number}")
    feed()
    path = f"/v1/webhooks/{webhook['id']}/deliveries"
    page = api.get(f"{path}?limit=2").json()
    rest = api.get("/v1" + page["next"].partition("/v1")[2]).json()
    numbers = [each["number"] for each in page["results"] + rest["results"]]
    assert (len(numbers), numbers) == (3, sorted(numbers, reverse=True))
    assert api.get(f"{path}?state=delivered").json()["results"] == []
    assert len(api.get(f"{path}?state=pending&type=entry.recorded&holder=ada").json()["results"]) == 3
    problem_of_refusal(api.get(f"{path}?state=lost"), 400, ("/state", "not-a-choice"))
    signal = rest["results"][0]["signal"]
    shown = api.get(f"{path}/{signal}").json()
    assert (shown["payload"]["data"]["sequence"], shown["tried"], shown["state"]) == (1, [], "pending")
    again = api.post(f"{path}/{signal}/resend", raw=b"")
    assert (again.status_code, again.json()["state"]) == (200, "pending")
    problem_of_refusal(api.post(f"{path}/{UNKNOWN}/resend", {}), 404)
    assert api.get(f"{path}/UPPER").status_code == 404


def test_a_key_of_one_holder_sees_no_webhooks(api: ApiClient, make_api: Callable[..., ApiClient]) -> None:
    webhook = made(api)
    confined = make_api("signals:read", "signals:write", holder_id="ada")
    for path in ("/v1/webhooks", f"/v1/webhooks/{webhook['id']}", f"/v1/webhooks/{webhook['id']}/deliveries"):
        problem_of_refusal(confined.get(path), 404)
    before = rows()
    problem_of_refusal(confined.post("/v1/webhooks", BODY), 404)
    assert rows() == before


def test_what_was_done_is_on_record_without_a_secret(api: ApiClient) -> None:
    webhook = made(api)
    api.post(f"/v1/webhooks/{webhook['id']}/rotate", {})
    text = fetch_value(str, "SELECT string_agg(c::text, ' ' ORDER BY id) FROM ledger_webhook_change AS c")
    assert text.count("key:shop") >= 2
    assert "whsec_" not in text


def test_the_docs_have_each_type() -> None:
    page = (project.BASE_DIR / "docs/how-to/signals.md").read_text()
    shown = page.split("<!-- types -->\n")[1].split("\n<!-- end of types -->")[0]
    assert [row.split(" | ")[:2] for row in shown.splitlines()[2:]] == [[f"| `{each.name}`", each.text] for each in all_types()]

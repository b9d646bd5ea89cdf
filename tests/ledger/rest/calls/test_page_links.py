"""Links to the customer's page over REST."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from pytest_django import Settings

from ledger.portal.links import read_link

pytestmark = pytest.mark.django_db
CALL = "/v1/holders/ada/page-links"


def test_a_link_is_made_and_opens_the_page(make_api, client: Client):
    response = make_api("pages:write").post(CALL, {"expires_in": 120, "hide_amounts": True, "language": "de"}, key=None)
    assert response.status_code == 200
    made = json.loads(response.content)
    assert list(made) == ["url", "data_url", "expires_at"]
    left = datetime.fromisoformat(made["expires_at"]) - datetime.now(UTC)
    assert timedelta(seconds=60) < left <= timedelta(seconds=120)
    link = read_link(made["url"].partition("link=")[2])
    assert (link.holder_id, link.hides_amounts, link.language) == ("ada", True, "de")
    html = client.get(made["url"].partition("/c/")[1] + made["url"].partition("/c/")[2])
    assert html.status_code == 200
    assert "ausgeblendet" in html.content.decode()


def test_a_wrong_body_names_each_field(make_api):
    body = {"expires_in": 5, "hide_amounts": 1, "language": "fr", "credit_types": [], "amount": 1}
    response = make_api("pages:write").post(CALL, body, key=None)
    assert response.status_code == 400
    assert {each["pointer"] for each in json.loads(response.content)["errors"]} == {
        "/expires_in", "/hide_amounts", "/language", "/credit_types", "/amount",
    }  # fmt: skip


def test_only_a_key_with_the_scope_and_of_this_holder_makes_one(make_api):
    assert make_api("ledger:read", "ledger:grant").post(CALL, {}, key=None).status_code == 403
    assert make_api("pages:write", holder_id="ben").post(CALL, {}, key=None).status_code == 404
    assert make_api("pages:write", holder_id="ada").post(CALL, {}, key=None).status_code == 200


def test_a_server_without_the_page_makes_none(make_api, monkeypatch, settings: Settings):
    api = make_api("pages:write")
    monkeypatch.setattr("ledger.portal.links.is_served", lambda: False)
    assert api.post(CALL, {}, key=None).status_code == 404

"""Links to a customer's page: only what was signed here, unchanged, until its end."""

import base64
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import time_machine
from django.core.exceptions import ImproperlyConfigured
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from ledger.errors import Invalid
from ledger.portal import links
from ledger.portal.checks import check_page
from ledger.portal.links import is_origin
from tests.settings import ROOT_URLCONF

ALPHABET = "".join(map(chr, range(33, 127)))


def token_of(made: links.PageLink) -> str:
    """The token of a link."""
    return parse_qs(urlsplit(made.url).query)["link"][0]


def test_a_link_says_what_was_asked_for_until_its_end() -> None:
    with time_machine.travel("2026-01-31T12:00:00Z", tick=False) as clock:
        made = links.link(holder_id="ada", expires_in=60, hide_amounts=True, language="de", credit_types=["sms"])
        read = links.read_link(token_of(made))
        assert read is not None
        assert (read.holder_id, read.hides_amounts, read.language, read.credit_types) == ("ada", True, "de", ["sms"])
        assert made.expires_at == read.expires_at
        assert made.expires_at.isoformat() == "2026-01-31T12:01:00+00:00"
        clock.shift(timedelta(seconds=59.9))
        assert links.read_link(token_of(made)) == read
        clock.shift(timedelta(seconds=0.1))
        assert links.read_link(token_of(made)) is None


@given(st.data())
def test_no_other_token_is_read(data: st.DataObject) -> None:
    token = token_of(links.link(holder_id="ada"))
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from(ALPHABET).filter(lambda each: each != token[place]))
    changed = data.draw(
        st.sampled_from(
            [
                token[:place] + other + token[place + 1 :],
                token[:place] + token[place + 1 :],
                token[:place] + other + token[place:],
                token[:place],
            ]
        )
    )
    # Two equal characters beside each other make the same text whichever is left out or repeated.
    assert changed == token or links.read_link(changed) is None


@pytest.mark.parametrize("token", ["", ".", "a", "a.b", "é" * 10, "\x00", "a" * 100_000, "." * 4_000])
def test_what_is_no_token_is_not_read(token: str) -> None:
    assert links.read_link(token) is None


def test_the_parts_of_two_tokens_are_no_third() -> None:
    ada, ben = (token_of(links.link(holder_id=holder)).rpartition(".") for holder in ("ada", "ben"))
    assert links.read_link(f"{ada[0]}.{ben[2]}") is None
    assert b'"ada"' in base64.urlsafe_b64decode(ada[0] + "==")


def test_another_salt_ends_every_link_and_the_key_only_without_a_fallback(settings: Settings) -> None:
    token = token_of(links.link(holder_id="ada"))
    first = settings.SECRET_KEY
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another-key", [first]
    assert links.read_link(token) is not None
    settings.SECRET_KEY_FALLBACKS = []
    assert links.read_link(token) is None
    settings.SECRET_KEY = first
    assert links.read_link(token) is not None
    settings.LEDGER = {**settings.LEDGER, "CUSTOMER_PAGE_SALT": "2"}
    assert links.read_link(token) is None


def test_the_address_is_that_of_the_setting_or_of_the_request(settings: Settings) -> None:
    assert links.link(holder_id="ada").url.startswith("/c/?link=")
    request = RequestFactory().get("/", headers={"host": "localhost:8000"})
    made = links.link(holder_id="ada", request=request)
    assert made.url.startswith("http://localhost:8000/c/?link=")
    assert made.data_url.startswith("http://localhost:8000/c/data?link=")
    settings.LEDGER = {**settings.LEDGER, "CUSTOMER_PAGE_URL": "https://shop.example/credits"}
    made = links.link(holder_id="ada", request=request)
    assert made.url.startswith("https://shop.example/credits/?link=")
    assert made.data_url.startswith("https://shop.example/credits/data?link=")


@pytest.mark.parametrize(
    ("fields", "pointer", "rule"),
    [
        ({"holder_id": "<script>"}, "/holder_id", "pattern"),
        ({"expires_in": 59}, "/expires_in", "too-small"),
        ({"expires_in": 86_401}, "/expires_in", "too-large"),
        ({"expires_in": "900"}, "/expires_in", "not-an-integer"),
        ({"hide_amounts": "yes"}, "/hide_amounts", "not-a-boolean"),
        ({"language": "fr"}, "/language", "not-a-choice"),
        ({"credit_types": ["SMS!"]}, "/credit_types/0", "pattern"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], pointer: str, rule: str) -> None:
    with pytest.raises(Invalid) as refused:
        links.link(**{"holder_id": "ada", **fields})
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == (pointer, rule)


def test_without_its_address_there_is_no_link_and_nothing_to_check(settings: Settings) -> None:
    settings.ROOT_URLCONF = "ledger.rest.urls"
    assert not links.is_served()
    with pytest.raises(ImproperlyConfigured, match=r"ledger\.portal\.urls"):
        links.link(holder_id="ada")
    settings.TEMPLATES = []
    assert check_page(None) == []


def test_a_project_hears_what_the_page_lacks(settings: Settings) -> None:
    assert settings.ROOT_URLCONF == ROOT_URLCONF
    assert check_page(None) == []
    settings.LEDGER = {**settings.LEDGER, "CUSTOMER_PAGE_FRAMED_BY": ["https://a.example; x"], "CUSTOMER_PAGE_URL": "shop"}
    assert [each.id for each in check_page(None)] == ["ledger.E005", "ledger.E006"]
    settings.LEDGER = {}
    settings.STATIC_URL = None
    settings.TEMPLATES = []
    assert [each.id for each in check_page(None)] == ["ledger.W003", "ledger.W004"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://shop.example", True),
        ("http://localhost:3000", True),
        ("https://shop.example/", False),
        ("https://shop.example:x", False),
        ("https://*.example", False),
        ("ftp://shop.example", False),
        ("https://a.example; script-src *", False),
        ("https://a.example\n", False),
        ("'self'", False),
        ("*", False),
        ("", False),
    ],
)
def test_an_origin_is_one_origin_and_nothing_else(text: str, expected: bool) -> None:
    assert is_origin(text) == expected

"""Who authenticates the calls: one function, registered once; without one each call gets 401, and a check says so.

Calls whose application is not installed are refused when the URLs are loaded.
"""

import importlib

import pytest
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

from ledger import authentication
from ledger.authentication import Authentication, register, registered
from ledger.rest import urls
from ledger.rest.apps import check_authentication

OF_KEYS = Authentication("ledger.keys.authenticating.find_key", "ledger.keys.authenticating.check_secret")


def test_the_application_of_api_keys_is_registered_and_may_be_again() -> None:
    register(OF_KEYS)
    assert registered() == OF_KEYS
    assert check_authentication(None) == []


def test_a_second_function_is_refused_and_changes_nothing() -> None:
    with pytest.raises(ImproperlyConfigured, match=r'"shop.find_key" cannot authenticate calls: "ledger.keys.*" does'):
        register(Authentication("shop.find_key"))
    assert registered() == OF_KEYS


def test_calls_that_nothing_authenticates_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "_registered", [])
    (warning,) = check_authentication(None)
    assert warning.id == "ledger.W008"
    assert warning.hint is not None
    assert "'ledger.keys'" in warning.hint


def test_a_call_that_nothing_authenticates_gets_401(monkeypatch: pytest.MonkeyPatch, db: None) -> None:
    from django.test import Client

    from ledger.testing import api_key

    secret = api_key("ledger:read")
    monkeypatch.setattr(authentication, "_registered", [])
    answer = Client(headers={"Authorization": f"Bearer {secret}"}).get("/v1/holders/ada/balance")
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, 'Bearer realm="credit-ledger"')


def test_the_urls_of_the_calls_need_the_application_of_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only theirs is missing, so the calls of other applications would be served without it."""
    calls = urls.urlpatterns
    monkeypatch.setattr(apps, "is_installed", lambda name: name != "ledger.rest")
    with pytest.raises(ImproperlyConfigured, match=r'"ledger.rest.urls" needs "ledger.rest" in INSTALLED_APPS'):
        importlib.reload(urls)
    assert urls.urlpatterns is calls

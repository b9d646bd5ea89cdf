"""ATOMIC_REQUESTS of a project is not for the ledger's own views: each write keeps its own transaction and its tries."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.core.handlers.base import BaseHandler
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from ledger import reads, services
from ledger.errors import InsufficientCredits
from ledger.keys import api_keys
from ledger.rest.kit.endpoint import Endpoint

OURS = ("ledger", "billing")


@pytest.fixture
def atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)


def pages(patterns: list[Any]) -> Iterator[URLPattern]:
    for each in patterns:
        if isinstance(each, URLResolver):
            yield from pages(each.url_patterns)
        else:
            yield each


def runs_in_a_transaction(view: Callable[..., Any]) -> bool:
    return BaseHandler().make_view_atomic(view) is not view


@pytest.mark.usefixtures("atomic_requests")
def test_no_call_and_no_page_of_the_ledgers_lists_runs_in_a_transaction_of_the_request():
    calls = [page for page in pages(get_resolver().url_patterns) if issubclass(getattr(page.callback, "cls", object), Endpoint)]
    lists = [
        page
        for model, its in admin.site._registry.items()
        if model._meta.app_label.partition("_")[0] in OURS
        for page in pages(its.urls)
    ]
    assert len(calls) > 50
    assert len(lists) > 50
    assert [page for page in calls + lists if runs_in_a_transaction(page.callback)] == []


@pytest.mark.usefixtures("atomic_requests", "committed_db")
@pytest.mark.parametrize("is_ours", [True, False], ids=["the ledger's call", "control: a view of the project"])
def test_a_refusal_of_a_call_is_on_record_and_one_that_a_view_lets_through_is_not(new_holder, is_ours):
    holder = new_holder()
    services.grant(holder_id=holder, amount=1, idempotency_key="g")

    def spend_in_a_view(request: HttpRequest) -> HttpResponse:
        services.spend(holder_id=holder, amount=2, idempotency_key="s")
        return HttpResponse()

    if is_ours:
        _, secret = api_keys.create_api_key(name=holder, scopes=["ledger:spend"])
        headers = {"Authorization": f"Bearer {secret}", "Idempotency-Key": "s"}
        sent = Client(headers=headers).post(f"/v1/holders/{holder}/spends", {"amount": 2}, "application/json")
        assert sent.status_code == 402
    else:
        with pytest.raises(InsufficientCredits):
            BaseHandler().make_view_atomic(spend_in_a_view)(HttpRequest())
    assert [refusal.code for refusal in reads.refusals(holder)] == (["insufficient-credits"] if is_ours else [])


@pytest.mark.usefixtures("atomic_requests")
def test_control_another_view_does():
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    assert runs_in_a_transaction(view)
    assert all(runs_in_a_transaction(page.callback) for page in pages(get_resolver().url_patterns) if page.name == "login")

"""What must work without applications: pytest runs this in a process whose settings leave them out (test_left_out.py)."""

import importlib
import json
from datetime import UTC, datetime
from io import StringIO
from typing import Any, Final

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core import checks
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.authentication import Authentication, register
from ledger.errors import InsufficientCredits
from ledger.operators import additions
from tests.settings import WITHOUT

HAS_CALLS: Final = "ledger.rest" not in WITHOUT
HAS_PAGES: Final = "ledger.staff" not in WITHOUT


def test_the_application_is_not_there() -> None:
    assert WITHOUT
    for name in WITHOUT:
        assert not apps.is_installed(name)
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)


def test_the_checks_report_nothing_and_no_migration_is_missing(db: None) -> None:
    assert [each for each in checks.run_checks() if each.level >= checks.WARNING] == []
    said = StringIO()
    call_command("makemigrations", check=True, dry_run=True, stdout=said)
    assert "No changes detected" in said.getvalue()


def test_the_database_has_no_table_of_it(db: None) -> None:
    """The history of migrations names every application that has made tables."""
    labels = [name.replace(".", "_") for name in WITHOUT]
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM django_migrations WHERE app = ANY(%s)", [labels])
        assert cursor.fetchone() == (0,)
        cursor.execute("SELECT count(*) FROM django_content_type WHERE app_label = ANY(%s)", [labels])
        assert cursor.fetchone() == (0,)


def test_credits_move_by_every_way_in_and_the_audit_finds_nothing(db: None) -> None:
    services.grant(holder_id="ada", amount=100, idempotency_key="order-1", actor="shop")
    entry = services.spend(holder_id="ada", amount=30, idempotency_key="job-1")
    services.refund(holder_id="ada", spend=entry.sequence, amount=10, idempotency_key="refund-1")
    if HAS_CALLS:
        _spend_by_calls()
    else:
        _spend_without_calls()
    assert reads.balance("ada").available == 55
    report = audit([connection.connection])
    assert report.is_clean, report
    assert report.entries == 5


def _spend_by_calls() -> None:
    client = Client(headers={"Authorization": f"Bearer {_secret()}"})
    answers = [_post(client, f"job-{number}", amount) for number, amount in ((2, 25), (3, 1_000))]
    assert answers == [(201, 55), (402, 55)]
    assert client.get("/v1/holders/ada/balance").json()["available"] == 55


def _spend_without_calls() -> None:
    assert services.spend(holder_id="ada", amount=25, idempotency_key="job-2").balance == 55
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=1_000, idempotency_key="job-3")
    answer = Client().get("/v1/holders/ada/balance")
    assert (answer.status_code, answer.headers["Content-Type"]) == (404, "text/html; charset=utf-8")


@pytest.mark.skipif(not HAS_CALLS, reason="there are no calls")
def test_a_call_without_a_known_key_is_refused(db: None) -> None:
    for headers in ({}, {"Authorization": "Bearer guessed"}):
        answer = Client(headers=headers).get("/v1/holders/ada/balance")
        assert (answer.status_code, answer.json()["type"].rpartition("/")[2]) == (401, "unauthenticated")


SESSIONS: Final = {"session-of-the-shop": "shop"}
"""What a project without API keys authenticates calls by: here the names of its programs, by their secrets."""
SCOPES: Final = ("ledger:grant", "ledger:spend", "ledger:read")


def find_session(secret: str) -> Any:
    """Return what a program of the project may do; None for an unknown secret."""
    from ledger.rest.kit import authentication

    name = SESSIONS.get(secret)
    digest = authentication.digest_of(secret)
    return None if name is None else authentication.Key(digest=digest, name=name, scopes=frozenset(SCOPES), holder_id=None)


if "ledger.keys" in WITHOUT:
    register(Authentication(f"{__name__}.find_session"))


def _secret() -> str:
    """Return a new API key; without API keys, what the project's own function knows."""
    if "ledger.keys" in WITHOUT:
        return next(iter(SESSIONS))
    from ledger.keys import api_keys

    return api_keys.create_api_key(name="shop", scopes=SCOPES)[1]


def _post(client: Client, key: str, amount: int) -> tuple[int, Any]:
    answer = client.post(
        "/v1/holders/ada/spends", {"amount": amount}, content_type="application/json", headers={"Idempotency-Key": key}
    )
    return answer.status_code, answer.json().get("balance")


@pytest.mark.skipif(not apps.is_installed("billing"), reason="there is no billing")
def test_a_subscription_is_invoiced_and_paid(db: None) -> None:
    from billing.documents.invoice_payments import record_payment
    from billing.generator.options import Options
    from billing.generator.run.generate import generate
    from billing.models import Invoice
    from billing.testing import SubscriptionFactory

    SubscriptionFactory(ref="SUB-1")
    generate(ref="SUB-1", options=Options(as_of=datetime(2026, 3, 1, tzinfo=UTC)))
    first = Invoice.objects.earliest("id")
    assert (first.state, first.total_minor) == ("open", 3600)
    record_payment(
        invoice=first.pk, provider="manual", payment="T-1", amount_minor=3600, currency="EUR", paid_at=timezone.now(),
        reference="", actor="test",
    )  # fmt: skip
    assert Invoice.objects.get(pk=first.pk).state == "paid"
    assert additions.money(3600, "EUR") == "36.00 EUR"
    assert audit([connection.connection]).is_clean


@pytest.mark.skipif(not HAS_CALLS, reason="there are no calls")
def test_the_document_of_the_api_is_made(db: None) -> None:
    from ledger_project.api.documents import openapi_document

    assert len(json.loads(openapi_document())["paths"]) > 50


@pytest.mark.skipif(HAS_PAGES, reason="there are pages")
def test_there_are_no_pages_where_they_are_left_out(db: None) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("ben"))
    assert client.get("/admin/").status_code == 404


@pytest.mark.skipif(not HAS_PAGES, reason="there are no pages")
def test_the_first_page_and_that_of_a_holder_are_made(db: None) -> None:
    services.grant(holder_id="ada", amount=100, idempotency_key="order-1", actor="shop")
    client = Client()
    client.force_login(User.objects.create_superuser("ben"))
    home = client.get(reverse("admin:index"))
    assert home.status_code == 200
    assert client.get(reverse("admin:ledger_holder", args=["ada"])).status_code == 200

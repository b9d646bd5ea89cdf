"""Operators move a holder's test clock; its chart and statements follow the clock. Only in deployments for tests."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from pytest_django.fixtures import Settings

from ledger import reads, services
from ledger.errors import Invalid
from ledger.models import Entry
from ledger.staff.holder_reads import available_over_time, pace
from ledger.statements.statements import read_statement
from tests.ledger.staff.admin_site import operator, submit_form, text_of

pytestmark = pytest.mark.django_db

MARCH = datetime(2040, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
HOLDER = "/admin/ledger/account/holders/ada/?type=credits"
FORM = f"/admin/ledger/account/{quote('ada/credits')}/test-clock/"


@pytest.fixture
def _tests(settings: Settings) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}


@pytest.fixture(autouse=True)
def _credits() -> None:
    services.grant(holder_id="ada", amount=100, idempotency_key="g")


def move(now: datetime) -> None:
    services.set_clock(holder_id="ada", now=now, idempotency_key=f"clock-{now}")


@pytest.mark.slow
@pytest.mark.usefixtures("_tests")
def test_an_operator_moves_the_clock_and_it_only_goes_forward() -> None:
    client = operator("ledger.view_account", "ledger.view_entrylisting", "ledger.set_test_clock")
    assert "Test clock" in text_of(client.get(HOLDER).content.decode())
    next_year = datetime.now(UTC).replace(microsecond=0, second=0, day=1) + 300 * DAY
    assert submit_form(client, FORM, now=f"{next_year:%Y-%m-%dT%H:%M}", reason="try it").status_code == 302
    assert reads.clock("ada").now == next_year
    entry = Entry.objects.filter(holder_id="ada").order_by("-sequence")[0]
    assert (entry.actor, entry.reason) == ("admin:mara", "try it")
    assert "test clock at" in text_of(client.get(HOLDER).content.decode())
    before = Entry.objects.count()
    back = submit_form(client, FORM, now=f"{next_year - DAY:%Y-%m-%dT%H:%M}", reason="back")
    assert (back.status_code, Entry.objects.count()) == (422, before)


def test_other_deployments_have_no_form() -> None:
    client = operator("ledger.view_account", "ledger.set_test_clock")
    assert "Test clock" not in text_of(client.get(HOLDER).content.decode())
    assert client.get(FORM).status_code == 404
    assert client.post(FORM, {"now": "2040-01-01T00:00", "reason": "x", "idempotency_key": "k"}).status_code == 404
    assert Entry.objects.count() == 1


@pytest.mark.usefixtures("_tests")
def test_the_form_needs_its_permission() -> None:
    client = operator("ledger.view_account")
    assert "Test clock" not in text_of(client.get(HOLDER).content.decode())
    assert client.get(FORM).status_code == 403


def spend(amount: int, key: str) -> None:
    services.spend(holder_id="ada", amount=amount, idempotency_key=key)


@pytest.fixture
def march(_tests: None) -> None:
    """100 credits by the server's time; 10 spent on 1 March 2040, 20 on 11 March, 30 on 2 April."""
    move(MARCH - 3_650 * DAY)
    for at, amount in ((MARCH, 10), (MARCH + 10 * DAY, 20), (MARCH + 32 * DAY, 30)):
        move(at)
        spend(amount, f"s-{at}")


@pytest.mark.usefixtures("march")
def test_the_chart_and_the_pace_are_those_of_the_clock() -> None:
    now = MARCH + 32 * DAY
    shown = available_over_time("ada", "credits", since=now - 90 * DAY, now=now)
    by_day: dict[Any, int] = {point.at: point.available for point in shown}
    assert [by_day[at] for at in (MARCH - DAY, MARCH, MARCH + 9 * DAY, MARCH + 10 * DAY, now - DAY, now)] == [
        100, 90, 90, 70, 70, 40,
    ]  # fmt: skip
    assert pace("ada", "credits", first_at=MARCH - 99 * DAY, now=now).a_day == pytest.approx(50 / 30)


@pytest.mark.usefixtures("march")
def test_a_statement_is_that_of_the_clocks_month() -> None:
    found = read_statement("ada", date(2040, 3, 1), "credits")
    assert (found.opening.balance, found.closing.balance, found.is_final) == (100, 70, True)
    assert [(row.at, row.amount) for row in found.rows if row.kind == "spend"] == [(MARCH, -10), (MARCH + 10 * DAY, -20)]
    april = read_statement("ada", date(2040, 4, 1), "credits")
    assert (april.opening.balance, april.closing.balance, april.is_final) == (70, 40, False)
    with pytest.raises(Invalid):
        read_statement("ada", date(2040, 5, 1), "credits")

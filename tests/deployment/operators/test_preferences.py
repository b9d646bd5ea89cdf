"""An operator's time zone: pages show it, with UTC beside; filters take it; forms and files stay in UTC. And the badge."""

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.contrib.admin.utils import quote
from django.test import Client

from ledger import services
from ledger.errors import InsufficientCredits
from ledger.rules.refusal_texts import when
from ledger.staff.models import Operator
from tests.ledger.staff.admin_site import hidden_key, operator, shown_time, text_of

pytestmark = pytest.mark.django_db

PAGE = "/admin/preferences/"
ENTRIES = "/admin/ledger/entrylisting/"


def in_tokyo(client: Client) -> Client:
    """The client, whose operator has chosen Tokyo: UTC+9, without summer time."""
    assert client.post(PAGE, {"time_zone": "Asia/Tokyo"}).status_code == 302
    return client


def test_times_are_in_utc_until_a_zone_is_chosen_and_then_show_utc_when_pointed_at(client):
    entry = services.grant(holder_id="ada", amount=5, idempotency_key="g")
    at = entry.recorded_at.astimezone(UTC)
    exact = f"{at:%Y-%m-%d %H:%M:%S.%f} UTC"
    shown = re.compile(r'<time class="[^"]*" datetime="[^"]+" title="([^"]+)">([^<]+)</time>')
    assert shown.findall(client.get(ENTRIES).content.decode().replace("\u00a0", " ")) == [(exact, shown_time(at))]
    page = in_tokyo(client).get(ENTRIES).content.decode().replace("\u00a0", " ")
    assert shown.findall(page) == [(exact, shown_time(at.astimezone(ZoneInfo("Asia/Tokyo"))))]
    assert ">Asia/Tokyo</a>" in page


def test_a_filter_by_time_takes_the_operators_zone(client):
    entry = services.grant(holder_id="ada", amount=5, idempotency_key="g")
    since = f"{ENTRIES}?since={entry.recorded_at.astimezone(UTC):%Y-%m-%dT%H:%M}"
    until = since.replace("since", "until")
    assert ">#1<" in client.get(since).content.decode()
    in_tokyo(client)
    assert ">#1<" in client.get(since).content.decode(), "the same hour in Tokyo was nine hours earlier"
    assert ">#1<" not in client.get(until).content.decode()


def test_the_sentence_of_a_refusal_shows_times_in_the_operators_zone(client):
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    hold = services.hold(holder_id="ada", amount=60, idempotency_key="h")
    until = hold.recorded_at + timedelta(minutes=30)
    extension = services.extend(holder_id="ada", hold=hold.sequence, expires_at=until, idempotency_key="e")
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=90, idempotency_key="no")
    refusal = f"/admin/ledger/refusallisting/{quote(f'ada/credits/{extension.sequence + 1}')}/change/"
    here, there = (when(until, at=datetime.now(zone)) for zone in (UTC, ZoneInfo("Asia/Tokyo")))
    assert here != there
    assert f"60 are held until {here}" in text_of(client.get(refusal).content.decode())
    assert f"60 are held until {there}" in text_of(in_tokyo(client).get(refusal).content.decode())


def test_forms_and_files_stay_in_utc(client):
    in_tokyo(client)
    form = "/admin/ledger/account/grant-credits/"
    asked = {"holder_id": "ada", "holder_again": "ada", "credit_type": "credits", "amount": 5, "source": "promotional"}
    asked |= {"priority": 100, "reason": "goodwill", "expires_at": "2199-12-31T23:59"}
    asked["idempotency_key"] = hidden_key(client.get(form).content.decode())
    before = client.post(form, asked).content.decode()
    assert "expires 1 Jan 2200, 08:59 JST" in text_of(before)
    again = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', before))
    assert again["expires_at"] == "2199-12-31T23:59:00"
    assert client.post(form, asked | again | {"confirmed": "1"}).status_code == 302
    from ledger import reads

    (lot,) = reads.balance("ada", "credits").lots
    assert lot.expires_at == datetime(2199, 12, 31, 23, 59, tzinfo=UTC)


def test_the_zone_is_the_operators_own_and_outlasts_the_session(client):
    in_tokyo(client)
    client.logout()
    from django.contrib.auth.models import User

    client.force_login(User.objects.get(username="mara"))
    assert ">Asia/Tokyo</a>" in client.get("/admin/").content.decode()
    assert ">UTC</a>" in operator(name="ben").get("/admin/").content.decode()


@pytest.mark.products(most=2)
@pytest.mark.parametrize("wrong", ["Mars/Base", "", "Asia/Tokyo\x00", "../etc/passwd"])
def test_what_is_no_zone_is_refused_and_nothing_is_kept(client, wrong):
    assert client.post(PAGE, {"time_zone": wrong}).status_code == 422
    assert not Operator.objects.exists()
    page = client.get(PAGE).content.decode()
    assert 'list="references-time_zone"' in page
    assert '<option value="Asia/Tokyo"></option>' in page
    client.session["time_zone"] = wrong
    assert client.get("/admin/").status_code == 200


@pytest.mark.products(most=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "test"),
        ({"DATABASE_URL": "postgresql://x@127.0.0.1/x"}, "live"),
        ({"DATABASE_URL": "postgresql://x@127.0.0.1/x", "DEBUG": "true"}, "test"),
        ({"LEDGER_ENVIRONMENT": "live"}, "live"),
    ],
)
def test_the_badge_says_test_where_nobodys_money_is_at_stake(variables, expected, tmp_path):
    environment = {"PATH": os.environ["PATH"], "LEDGER_DATA_DIR": str(tmp_path), "SECRET_KEY": "x", **variables}
    done = subprocess.run(
        [sys.executable, "-c", "from ledger_project import settings; print(settings.LEDGER_ENVIRONMENT)"],
        env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == expected


@pytest.mark.parametrize(("environment", "badge"), [("live", "LIVE"), ("test", "TEST")])
def test_each_page_has_the_badge(client, settings, environment, badge):
    settings.LEDGER_ENVIRONMENT = environment
    assert re.search(rf">\s*{badge}\s*<", client.get(ENTRIES).content.decode())

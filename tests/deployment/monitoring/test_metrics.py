"""GET /metrics: what is counted, who may read it, and what it says while the database is away."""

import os
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import OperationalError, connection
from django.db.models import Count
from django.test.utils import CaptureQueriesContext
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.parser import text_string_to_metric_families

from billing.models import Run, ScheduledTask, SuspendedBilling
from ledger import services
from ledger.database.transactions import TRIES, in_transaction
from ledger.errors import InsufficientCredits, SequenceTaken
from ledger.keys import api_keys
from ledger.models import Entry
from ledger.rest.kit import authentication
from ledger.rest.kit.front import request_metrics
from ledger.rest.kit.front.request_metrics import OTHER_KEYS, route_label
from ledger.rules.kinds import KINDS
from ledger.services import expiration
from ledger.telemetry.count_files import CountFile
from ledger.telemetry.metrics import OWN, SECONDS, add_observations, write_counts
from ledger.testing import FixedClock
from ledger.totals.counting import count_entries, counted_until, entries_by_kind
from ledger_project.monitoring import gauges, metrics_page
from ledger_project.monitoring.gauges import DatabaseGauges
from tests.asgi_client import AsgiClient
from tests.billing.factories import SubscriptionFactory
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.staff.admin_site import load_history

TOKEN = "token-of-the-tests"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def client(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiClient]:
    """A client with a key of the ledger's scopes; /metrics asks for TOKEN."""
    monkeypatch.setattr(settings, "METRICS_TOKEN", TOKEN)
    monkeypatch.setattr(metrics_page, "_gauges", DatabaseGauges())
    authentication.forget_keys()
    yield ApiClient(api_keys.create_api_key(name="metrics", scopes=("ledger:read", "ledger:spend", "ledger:grant"))[1])
    authentication.forget_keys()


def scrape() -> Samples:
    """All samples of /metrics by name and labels."""
    response = AsgiClient().get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert (response.status_code, response["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(response.content.decode())
        for sample in family.samples
    }


def value_of(found: Samples, name: str, **labels: str) -> float:
    """The value of a sample; 0 where it is not exported."""
    return found.get((name, frozenset(labels.items())), 0.0)


def process_value(name: str, **labels: str) -> float:
    """The value of a sample of this process, before any scrape."""
    write_counts()
    return OWN.get_sample_value(name, labels) or 0.0


# Who may read it -------------------------------------------------------------------------------------


def test_without_a_token_in_the_settings_there_is_no_such_path(client: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "METRICS_TOKEN", "")
    for authorization in ("", "Bearer ", f"Bearer {TOKEN}"):
        assert AsgiClient().get("/metrics", headers={"Authorization": authorization}).status_code == 404


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"])
def test_strangers_are_refused(client: ApiClient, authorization: str) -> None:
    assert AsgiClient().get("/metrics", headers={"Authorization": authorization}).status_code == 401


def test_an_api_key_does_not_open_the_page(client: ApiClient) -> None:
    assert client.get("/metrics").status_code == 401


def test_the_page_is_served_with_the_accept_header_of_prometheus_and_under_any_host(client: ApiClient) -> None:
    accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": accept, "Host": "web-1:8000"}
    assert AsgiClient().get("/metrics", headers=headers).status_code == 200


# What is counted -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.check
def test_operations_are_counted_by_outcome_and_refusals_by_code(client: ApiClient) -> None:
    client.post("/v1/holders/ada/grants", {"amount": 10})
    before = scrape()
    for key, amount in (("a", 4), ("b", 700), ("a", 4), ("b", 700)):
        client.post("/v1/holders/ada/spends", {"amount": amount}, key=key)
    client.post("/v1/holders/ada/spends", {"amount": 5}, key="a")  # another request under a key that was used
    client.post("/v1/holders/ada/spends?dry_run=true", {"amount": 1}, key=None)
    after = scrape()

    def more(name: str, **labels: str) -> float:
        return value_of(after, name, **labels) - value_of(before, name, **labels)

    operations = {
        outcome: more("ledger_operations_total", operation="spend", outcome=outcome)
        for outcome in ("recorded", "refused", "replayed", "failed")
    }
    assert operations == {"recorded": 1, "refused": 1, "replayed": 2, "failed": 1}
    assert more("ledger_refusals_total", code="insufficient-credits") == 1
    assert more("ledger_http_problems_total", status="402", code="insufficient-credits") == 2
    # The spend that lacks credits is tried, and then decided: in two groups.
    assert more("ledger_group_size_count") == 6
    route = {"method": "POST", "route": "/v1/holders/{holder}/spends"}
    assert more("ledger_http_request_duration_seconds_count", **route, status="402") == 2
    assert more("ledger_http_request_duration_seconds_bucket", **route, status="402", le="+Inf") == 2


def test_a_batch_is_counted_by_its_operations(client: ApiClient) -> None:
    client.post("/v1/holders/ada/grants", {"amount": 10})
    before = process_value("ledger_operations_total", operation="spend", outcome="recorded")
    refused = process_value("ledger_operations_total", operation="spend", outcome="refused")
    asked = [{"operation": "spend", "holder": "ada", "amount": amount} for amount in (1, 2, 700)]
    for _ in range(2):
        assert client.post("/v1/batches", {"mode": "each", "operations": asked}, key="batch").status_code == 200
    assert process_value("ledger_operations_total", operation="spend", outcome="recorded") - before == 2
    assert process_value("ledger_operations_total", operation="spend", outcome="refused") - refused == 1


@pytest.mark.django_db
def test_what_is_rolled_back_is_not_counted() -> None:
    services.grant(holder_id="ada", amount=10, idempotency_key="g")
    before = process_value("ledger_operations_total", operation="spend", outcome="refused")
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=11, idempotency_key="s", dry_run=True)
    assert process_value("ledger_operations_total", operation="spend", outcome="refused") == before
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=11, idempotency_key="s")
    assert process_value("ledger_operations_total", operation="spend", outcome="refused") == before + 1


def test_paths_and_methods_that_clients_invent_make_no_labels(client: ApiClient) -> None:
    for path in ("/v1/none", "/nope/1", "/nope/2"):
        client.get(path)
    client.client.generic("BREW", "/healthz")
    labels = {dict(sample)["route"] for name, sample in scrape() if name == "ledger_http_request_duration_seconds_count"}
    assert "unmatched" in labels
    assert [label for label in labels if "nope" in label or "none" in label] == []
    assert process_value("ledger_http_request_duration_seconds_count", method="other", route="/healthz", status="405") == 1
    assert route_label("v1/holders/<holder:holder>/entries/<sequence:sequence>") == "/v1/holders/{holder}/entries/{sequence}"


def test_calls_are_counted_by_the_name_of_their_key_and_further_names_together(
    client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.get("/v1/holders/ada/entries")
    other = ApiClient(api_keys.create_api_key(name="a later key", scopes=("billing:read",))[1])
    ApiClient("wrong").get("/v1/holders/ada/entries")
    assert other.get("/v1/holders/ada/entries").status_code == 403
    assert process_value("ledger_http_key_calls_total", key="metrics", status="200") >= 1
    assert process_value("ledger_http_key_calls_total", key="a later key", status="403") == 1

    monkeypatch.setattr(request_metrics, "KEYS_APART", len(request_metrics._keys_apart))
    third = ApiClient(api_keys.create_api_key(name="a third key", scopes=("billing:read",))[1])
    third.get("/v1/holders/ada/entries")
    other.get("/v1/holders/ada/entries")
    assert process_value("ledger_http_key_calls_total", key="a third key", status="403") == 0
    assert process_value("ledger_http_key_calls_total", key=OTHER_KEYS, status="403") == 1
    assert process_value("ledger_http_key_calls_total", key="a later key", status="403") == 2


def test_observations_that_were_counted_elsewhere_are_added_as_if_they_had_been_observed() -> None:
    seconds = [0.0005, 0.001, 0.0011, 0.3, 5.0, 7.0, 100.0]
    counts = [0.0] * (len(SECONDS) + 1)
    for each in seconds:
        counts[bisect_left(SECONDS, each)] += 1
    registry = CollectorRegistry()
    observed = Histogram("observed", "", ("a",), buckets=SECONDS, registry=registry)
    added = Histogram("added", "", ("a",), buckets=SECONDS, registry=registry)
    for each in seconds:
        observed.labels("x").observe(each)
    add_observations(added.labels("x"), counts, sum(seconds))
    first, second = (
        [(s.name.partition("_")[2], s.labels, s.value) for s in f.samples if "created" not in s.name] for f in registry.collect()
    )
    assert first == second


def test_each_new_try_of_a_transaction_is_counted(committed_db: None) -> None:
    def collide() -> None:
        with connection.cursor() as cursor:
            cursor.execute("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$")

    before = process_value("ledger_transaction_retries_total", sqlstate="40001")
    with pytest.raises(SequenceTaken):
        in_transaction(collide, holder_id="ada")
    assert process_value("ledger_transaction_retries_total", sqlstate="40001") - before == TRIES


COUNT_IN_TWO_PROCESSES = """
import os
from ledger_project.serving.web import share_counts
share_counts()
from ledger.telemetry.metrics import REFUSALS, all_processes, write_counts
for _ in range(2):
    if os.fork() == 0:
        REFUSALS.labels("no").inc()
        write_counts()
        os._exit(0)
    os.wait()
print(all_processes().get_sample_value("ledger_refusals_total", {"code": "no"}))
"""


@pytest.mark.slow
def test_the_counts_of_all_processes_are_added_up_and_those_of_an_earlier_start_are_not(tmp_path: Path) -> None:
    environment = os.environ | {"LEDGER_METRICS_TOKEN": "x", "LEDGER_METRICS_DIR": str(tmp_path)}
    for _ in range(2):
        command = [sys.executable, "-c", COUNT_IN_TWO_PROCESSES]
        done = subprocess.run(command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == "2.0\n"
    assert len(list(tmp_path.glob("counter_*.db"))) == 2


def test_without_a_folder_that_can_be_written_each_process_counts_for_itself(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = os.environ | {"LEDGER_METRICS_TOKEN": "x", "LEDGER_METRICS_DIR": str(tmp_path / "file" / "metrics")}
    command = [sys.executable, "-c", COUNT_IN_TWO_PROCESSES]
    done = subprocess.run(command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("/metrics shows one process's counts at a time, because LEDGER_METRICS_DIR cannot be used: ")


def test_a_process_with_the_number_of_one_that_ended_counts_on(tmp_path: Path) -> None:
    for spends in (3.0, 4.0):
        counts = CountFile(str(tmp_path / "counter_1.db"))
        assert counts.read_value("spends") == (spends - 3.0 and 3.0, 0.0)
        for number in range(200):
            counts.write_value(f"a longer name of a count, number {number}", 1.0, 0.0)
        counts.write_value("spends", spends, 0.0)
        counts.write_down()
        counts.close()
    found = {key: value for key, value, _, _ in CountFile.read_all_values_from_file(str(tmp_path / "counter_1.db"))}
    assert (found["spends"], len(found)) == (4.0, 201)


@pytest.mark.slow
def test_the_page_says_when_counts_cannot_be_written(client: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for are_written in (True, False):
        monkeypatch.setattr(gauges, "are_counts_written", lambda result=are_written: result)
        monkeypatch.setattr(metrics_page, "_gauges", DatabaseGauges())
        assert value_of(scrape(), "ledger_counts_written") == float(are_written)


# What the database knows -----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_page_has_the_gauges_of_the_alerts(client: ApiClient) -> None:
    now = datetime.now(UTC)
    SuspendedBilling.objects.create(subscription_id=SubscriptionFactory().pk, reason="looks-odd")
    run = {"as_of": now, "finished_at": now, "summary": {"outcomes": {"finalised": 3, "failed": 1}}}
    Run.objects.create(run_id=uuid4(), exit_code=3, **run)
    Run.objects.create(run_id=uuid4(), exit_code=0, **run)
    Run.objects.create(run_id=uuid4(), exit_code=0, **run | {"started_at": now - timedelta(hours=2)})
    ended = {"due_at": now, "started_at": now, "finished_at": now}
    good_at = now - timedelta(days=2)
    counted = {"executions": 9, "failures": 2, "seconds": 12.5}
    ScheduledTask.objects.create(name="audit_ledger", exit_code=1, succeeded_at=good_at, **counted, **ended)
    ScheduledTask.objects.create(name="of an earlier version", exit_code=0, **ended)
    found = scrape()
    assert value_of(found, "ledger_database_up") == 1
    assert value_of(found, "ledger_billing_suspended_subscriptions") == 1
    assert value_of(found, "ledger_billing_run_outcomes", outcome="finalised") == 6
    assert value_of(found, "ledger_billing_run_outcomes", outcome="failed") == 2
    assert value_of(found, "ledger_billing_runs", exit_code="3") == 1
    assert value_of(found, "ledger_task_exit_code", task="audit_ledger") == 1
    assert value_of(found, "ledger_task_executions_total", task="audit_ledger", result="succeeded") == 7
    assert value_of(found, "ledger_task_executions_total", task="audit_ledger", result="failed") == 2
    assert value_of(found, "ledger_task_execution_seconds_total", task="audit_ledger") == 12.5
    at = value_of(found, "ledger_task_succeeded_timestamp_seconds", task="audit_ledger")
    assert at == pytest.approx(good_at.timestamp(), abs=0.01)
    tasks = {dict(labels)["task"] for name, labels in found if name == "ledger_task_started_timestamp_seconds"}
    assert tasks == {"audit_ledger"}
    assert value_of(found, "ledger_server_max_connections") >= value_of(found, "ledger_database_connections") >= 1


def test_the_lateness_of_a_lane_is_that_of_its_latest_task_beyond_the_time_of_a_turn(client: ApiClient) -> None:
    now = datetime.now(UTC)

    def due(name: str, *, seconds_ago: float) -> None:
        at = now - timedelta(seconds=seconds_ago)
        ScheduledTask.objects.create(name=name, due_at=at, started_at=at, finished_at=at, exit_code=0)

    due("top_up_accounts", seconds_ago=4)  # within its 5 s
    due("generate_invoices", seconds_ago=90)  # beyond its 60 s
    due("settle_purchases", seconds_ago=-50)
    due("deliver_signals", seconds_ago=15 + 3_600)
    found = scrape()
    assert value_of(found, "ledger_lane_late_seconds", lane="money") == pytest.approx(30, abs=5)
    assert value_of(found, "ledger_lane_late_seconds", lane="outbound") == pytest.approx(3_600, abs=5)
    assert value_of(found, "ledger_lane_late_seconds", lane="upkeep") == 0


@pytest.mark.slow
def test_entries_of_commands_and_workers_are_counted_with_those_of_the_web_servers(
    client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted() -> Samples:
        count_entries(patience_seconds=0)
        monkeypatch.setattr(metrics_page, "_gauges", DatabaseGauges())
        return scrape()

    expires_at = datetime.now(UTC) - timedelta(hours=2)
    with FixedClock(expires_at - timedelta(days=1)):
        for holder in ("a", "b"):
            services.grant(holder_id=holder, amount=5, idempotency_key="g", expires_at=expires_at)
        with pytest.raises(InsufficientCredits):
            services.spend(holder_id="a", amount=6, idempotency_key="no")
    operations = process_value("ledger_operations_total", operation="expire", outcome="recorded")
    call_command("expire_credits", stdout=StringIO())
    client.post("/v1/holders/ada/grants", {"amount": 10})
    first, again = counted(), counted()

    for found in (first, again):
        kinds = ("grant", "expire", "refusal", "spend")
        counts = [value_of(found, "ledger_entries_total", kind=kind) for kind in kinds]
        assert counts == [3, 2, 1, 0], "each once, however often they are counted"
    assert process_value("ledger_operations_total", operation="expire", outcome="recorded") == operations, "no request"
    # A kind that has no entry yet is 0, so that its first entry is an increase.
    assert {dict(labels)["kind"] for name, labels in first if name == "ledger_entries_total"} == set(KINDS)
    until = value_of(again, "ledger_entries_counted_until_timestamp_seconds")
    assert until == pytest.approx(counted_until().timestamp(), abs=0.001)


def test_the_entries_of_a_long_history_are_one_row_to_the_scrape(client: ApiClient) -> None:
    """The control counts the entries themselves."""
    load_history(holders=3, entries=300)
    count_entries(patience_seconds=0)
    with CaptureQueriesContext(connection) as reads:
        counts, _ = entries_by_kind()
    assert len(reads) == 1
    control = dict(Entry.objects.values_list("kind").annotate(Count("sequence")))
    assert {kind: count for kind, count in counts.items() if count} == control


def test_overdue_expirations_of_all_accounts_are_counted_page_by_page(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiration, "ACCOUNTS_PER_PAGE", 2)
    monkeypatch.setattr(gauges, "PAGES_A_READING", 1)
    now = datetime.now(UTC)

    def granted(holder: str, expires_at: datetime) -> None:
        services.grant(holder_id=holder, amount=5, idempotency_key="g", expires_at=expires_at)

    with FixedClock(now - timedelta(days=1)):
        for holder, hours in [("a", 2), ("b", 0.5), ("c", 3), ("d", -24), ("e", 2)]:
            granted(holder, now - timedelta(hours=hours))
        services.grant(holder_id="b", credit_type="sms", amount=5, idempotency_key="g-sms")
        services.hold(holder_id="b", credit_type="sms", amount=1, idempotency_key="h", expires_at=now - timedelta(hours=2))
    walk = gauges.overdue_expirations()

    def read() -> float:
        (gauge,) = walk()
        return float(gauge.samples[0].value)

    # Six accounts on three pages; a page that is full does not say that it is the last.
    assert [read() for _ in range(4)] == [1, 3, 4, 4], "an overdue lot, then a hold and a lot, then a lot"
    expiration.book_all_expirations()
    assert [read() for _ in range(4)] == [4, 4, 4, 0], "booked: gone with the next full round"


@pytest.mark.slow
def test_the_database_is_asked_with_few_statements_once_in_a_while(client: ApiClient) -> None:
    with CaptureQueriesContext(connection) as first:
        scrape()
    with CaptureQueriesContext(connection) as second:
        scrape()
    # Alone, it also reads what other tests have read before.
    assert 0 < len(first) < 80
    assert len(second) == 0


@pytest.mark.slow
def test_without_the_database_it_shows_what_the_processes_counted(client: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> Any:
        raise OperationalError("away")

    client.get("/healthz")
    monkeypatch.setattr(gauges, "_answers", away)
    found = scrape()
    assert value_of(found, "ledger_database_up") == 0
    assert ("ledger_server_max_connections", frozenset()) not in found
    assert value_of(found, "ledger_http_request_duration_seconds_count", method="GET", route="/healthz", status="200") >= 1


@pytest.mark.slow
def test_numbers_that_cannot_be_read_take_no_others_with_them(
    client: ApiClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_such_table() -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM no_such_table")

    first, *others = gauges.READS
    monkeypatch.setattr(gauges, "READS", (first, no_such_table, *others))
    found = scrape()
    assert value_of(found, "ledger_database_up") == 1
    assert value_of(found, "ledger_server_max_connections") >= 1
    assert ("ledger_usage_partitions_ahead", frozenset()) in found
    assert "/metrics lacks the numbers of no_such_table" in caplog.text


@pytest.mark.slow
def test_the_age_of_the_newest_anchor_is_exported(
    client: ApiClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_anchor: Callable[[Path, str], None]
) -> None:
    monkeypatch.setattr(settings, "ANCHOR_DIR", tmp_path)
    assert ("ledger_anchor_timestamp_seconds", frozenset()) not in scrape()
    monkeypatch.setattr(metrics_page, "_gauges", DatabaseGauges())
    write_anchor(tmp_path / "old", "2026-01-01T00:00:00.000000Z")
    write_anchor(tmp_path / "new", "2026-02-01T00:00:00.000000Z")
    (tmp_path / "notes.txt").write_text("not an anchor\n")
    assert value_of(scrape(), "ledger_anchor_timestamp_seconds") == datetime(2026, 2, 1, tzinfo=UTC).timestamp()

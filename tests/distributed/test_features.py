"""Commands, metrics, pages and calls work on a cluster."""

from collections.abc import Iterator
from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.utils.timezone import now

from ledger import reads, services
from ledger.keys import api_keys
from ledger.rest.kit import authentication
from ledger.scopes import SCOPES
from ledger_project.monitoring import gauges
from ledger_project.monitoring.examination import examine
from ledger_project.monitoring.findings import CheckState
from ledger_project.serving.web import CONNECTIONS_TO_DATABASE
from ledger_project.work.timetable import TIMETABLE
from tests.asgi_client import AsgiClient
from tests.distributed.test_locks_of_all_nodes import address, shard_node
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.staff.admin_site import operator

PAGES = [
    "/admin/",
    "/admin/ledger/account/",
    "/admin/ledger/account/holders/{holder}/",
    "/admin/ledger/account/month-end/",
    "/admin/ledger/account/locks/",
    "/admin/ledger/entrylisting/",
    "/admin/ledger/entrylisting/?q={holder}&kind=spend&since=2020-01-01&until=2999-01-01",
    "/admin/ledger/entrylisting/?q=holder-*&credit_type=credits",
    "/admin/ledger/entrylisting/?q=a-reference",
    "/admin/ledger/refusallisting/",
    "/admin/ledger/batchlisting/",
    "/admin/ledger/ratelisting/",
    "/admin/search/?s={holder}",
]
CALLS = [
    "/v1/holders?prefix={holder}",
    "/v1/holders/{holder}",
    "/v1/holders/{holder}/balance",
    "/v1/holders/{holder}/balance?at=2020-01-01T00:00:00Z",
    "/v1/holders/{holder}/entries?limit=1",
    "/v1/holders/{holder}/entries/2",
    "/v1/holders/{holder}/entries/2/explanation",
    "/v1/holders/{holder}/refusals",
    "/v1/holders/{holder}/statements/2026-01.pdf",
    "/v1/rates",
]


def printed(command: str, *arguments: str) -> str:
    """What a command prints."""
    out = StringIO()
    call_command(command, *arguments, stdout=out, stderr=out)
    return out.getvalue()


@pytest.fixture
def holder(as_application, new_holder) -> str:
    """A holder with a grant, a spend and a refusal."""
    holder = new_holder()
    services.grant(holder_id=holder, amount=100, idempotency_key="g")
    services.spend(holder_id=holder, amount=30, idempotency_key="s", reference="a-reference")
    return holder


@pytest.fixture
def api(as_application) -> Iterator[ApiClient]:
    """A client of this connection with every scope."""
    authentication.forget_keys()
    _, secret = api_keys.create_api_key(name=f"features-{User.objects.count()}-{id(object())}", scopes=SCOPES)
    yield ApiClient(secret, AsgiClient(on_this_connection=True))
    authentication.forget_keys()


@pytest.mark.django_db
@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_shown(page):
    services.grant(holder_id="holder-1", amount=100, idempotency_key="g")
    services.spend(holder_id="holder-1", amount=30, idempotency_key="s", reference="a-reference")
    assert operator().get(page.format(holder="holder-1")).status_code == 200


def test_the_commands_find_nothing_wrong(holder):
    assert "expired" in printed("expire_credits") or "Nothing is due" in printed("expire_credits")
    assert "Clean: no violations found." in printed("audit_ledger", "--no-progress")
    assert "Clean: no violations found." in printed("audit_ledger", "--no-progress", "--holder", holder)


@pytest.mark.django_db
@pytest.mark.parametrize("task", [task for task in TIMETABLE if task.command != "audit_ledger"], ids=lambda task: task.name)
def test_each_task_of_the_worker_ends_well(task):
    """Each sends its queries, though little is due; the tests of billing say what the queries return."""
    printed(task.command, *task.arguments)


def test_the_audit_of_one_holder_reads_what_stands_beside_the_entries(as_application, new_holder):
    holder = new_holder()
    services.grant(holder_id=holder, amount=100, idempotency_key="g")
    services.set_budget(holder_id=holder, budget="daily", limit=50, window="day", idempotency_key="b")
    services.spend(holder_id=holder, amount=3, idempotency_key="s")
    said = printed("audit_ledger", "--no-progress", "--holder", holder)
    assert said.startswith(f"Audit of holder {holder} ")
    assert "Clean: no violations found." in said


def test_the_calls_of_the_ledger_are_served(api, holder):
    answers = {call: api.get(call.format(holder=holder)) for call in CALLS}
    assert {call: answer.status_code for call, answer in answers.items()} == dict.fromkeys(CALLS, 200)
    assert answers["/v1/holders/{holder}/balance"].json()["balance"] == 70


def test_what_has_expired_is_booked(as_application, new_holder):
    holder = new_holder()
    services.grant(holder_id=holder, amount=10, expires_at=now() + timedelta(milliseconds=300), idempotency_key="g")
    while reads.balance(holder).available:
        pass
    printed("expire_credits")
    assert (reads.balance(holder).sequence, reads.balance(holder).balance) == (2, 0)


def test_the_doctor_finds_no_mistake(as_application):
    assert [each for each in examine() if each.state == CheckState.FAILED] == []


def test_the_doctor_counts_the_connections_that_go_to_a_worker(as_application, monkeypatch):
    monkeypatch.setenv("LEDGER_WEB_WORKERS", "2")
    (found,) = [each for each in examine() if each.check == "Connections"]
    assert f"3 web processes need at most {3 * (CONNECTIONS_TO_DATABASE + 9)}" in found.text


def test_the_doctor_finds_a_trigger_that_is_off_on_one_shard(cluster, holder):
    node, database = shard_node(cluster, holder), connection.settings_dict["NAME"]
    with node.connect(database) as superuser:
        number = superuser.execute("SELECT get_shard_id_for_distribution_column('ledger_entry', %s::text)", [holder]).fetchone()[
            0
        ]
        shard, trigger = f"ledger_entry_{number}", f"append_only_{number}"
        superuser.execute("SET citus.enable_ddl_propagation = off; SET citus.enable_manual_changes_to_shards = on")
        superuser.execute(f"ALTER TABLE {shard} DISABLE TRIGGER {trigger}")
        try:
            (found,) = [each for each in examine() if each.check == "Triggers"]
        finally:
            superuser.execute(f"ALTER TABLE {shard} ENABLE ALWAYS TRIGGER {trigger}")
        assert (found.state, f"append_only of {shard} on {address(node)}" in found.text) == (CheckState.FAILED, True)
    (found,) = [each for each in examine() if each.check == "Triggers"]
    assert found.state == CheckState.OK


def test_metrics_have_all_numbers(as_application):
    found = {family.name: family for family in gauges.DatabaseGauges().collect()}
    assert found["ledger_database_up"].samples[0].value == 1
    assert found["ledger_lock_waiting_sessions"].samples[0].value == 0
    assert "ledger_task_interval_seconds" in found

"""The staff log: what is recorded, by whom and from where; nobody changes it; its page reads a bounded number of rows."""

import re
from datetime import timedelta

import psycopg
import pytest
from django.db import connection, transaction
from django.test import RequestFactory
from django.utils import timezone

from ledger.keys import api_keys
from ledger.keys.models import ApiKey
from ledger.models import StaffEvent
from ledger.operators import staff_log
from tests.ledger.staff.admin_site import cost_of, hidden_key, operator

PAGE = "/admin/ledger/staffevent/"
PRUNE = (
    """DELETE FROM ledger_register AS line USING ledger_staff_event AS event
WHERE line.of_table = 'ledger_staff_event' AND line.row_key = event.id::text AND
    event.recorded_at < now() - interval '2 years'""",
    "ALTER TABLE ledger_staff_event DISABLE TRIGGER append_only",
    "DELETE FROM ledger_staff_event WHERE recorded_at < now() - interval '2 years'",
    "ALTER TABLE ledger_staff_event ENABLE ALWAYS TRIGGER append_only",
)


def staff_events(*columns):
    """What is recorded, but for the operators that a test makes and logs in."""
    rows = StaffEvent.objects.exclude(action__in=("login", "operator-created")).order_by("id")
    return list(rows.values_list(*columns or ("actor", "action", "object", "details")))


@pytest.mark.django_db
def test_a_row_says_who_when_from_where_what_and_in_which_request():
    request = RequestFactory(REMOTE_ADDR="203.0.113.9").get("/")
    request.request_id = "req-1"
    before = timezone.now() - timedelta(seconds=5)
    staff_log.record(request, "exported", about="entries.csv", details="a\x00b" * 1_000, actor="admin:mara")
    staff_log.record(None, "key-created")
    first, second = StaffEvent.objects.order_by("id")
    assert (first.actor, first.address, first.action, first.object) == ("admin:mara", "203.0.113.9", "exported", "entries.csv")
    assert (first.details, first.request_id) == (("ab" * 1_000)[:1000], "req-1")
    assert before < first.recorded_at <= timezone.now() + timedelta(seconds=5)
    assert (second.actor, second.address, second.request_id) == ("command", "", "")
    with pytest.raises(ValueError, match="is not an action"):
        staff_log.record(None, "looked")
    assert StaffEvent.objects.count() == 2


@pytest.mark.django_db
def test_what_is_rolled_back_is_not_on_record():
    with transaction.atomic():
        staff_log.record(None, "exported")
        transaction.set_rollback(True)
    assert not StaffEvent.objects.exists()


@pytest.mark.django_db
def test_keys_forms_and_exports_are_on_record_once_each():
    client = operator()
    client.post("/admin/ledger_keys/apikey/add/", {"name": "shop", "scopes": ["ledger:spend", "ledger:read"]})
    key = ApiKey.objects.get()
    for _ in range(2):
        client.post(f"/admin/ledger_keys/apikey/{key.pk}/revoke/")
    form = "/admin/ledger/account/grant-credits/"
    asked = {"holder_id": "ada", "holder_again": "ada", "credit_type": "credits", "amount": 50, "source": "promotional"}
    asked |= {"priority": 100, "reason": "goodwill", "idempotency_key": hidden_key(client.get(form).content.decode())}
    client.post(form, asked)
    for _ in range(2):
        assert client.post(form, {**asked, "confirmed": "1"}).status_code == 302
    client.get("/admin/ledger/account/month-end/?format=csv")
    exported = re.compile(r"month-\d{4}-\d\d\.csv")
    assert staff_events()[:3] == [
        ("admin:mara", "key-created", "key shop", "ledger:spend, ledger:read"),
        ("admin:mara", "key-revoked", "key shop", ""),
        ("admin:mara", "form", "Grant credits", "Grant #1: +50 credits for ada; reason: goodwill"),
    ]
    (last,) = staff_events()[3:]
    assert last[:2] == ("admin:mara", "exported")
    assert exported.fullmatch(last[2])


@pytest.mark.slow
@pytest.mark.django_db
def test_the_page_lists_the_newest_first_and_its_filters_take_what_is_asked():
    for number in range(60):
        staff_log.record(None, "exported" if number % 2 else "logout", about=f"file-{number}", actor=f"admin:{number % 3}")
    client = operator()
    page = client.get(PAGE).content.decode()
    assert page.index("file-59") < page.index("file-20<")
    assert "file-9<" not in page
    older = re.search(r'rel="next" href="([^"]+)"', page)[1].replace("&amp;", "&")
    assert "file-9<" in client.get(PAGE + older).content.decode()
    some = client.get(f"{PAGE}?action=exported&actor=admin:1").content.decode()
    assert set(re.findall(r"file-(\d+)<", some)) == {str(number) for number in range(60) if number % 2 and number % 3 == 1}
    later = (timezone.now() + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M")
    assert "file-" not in client.get(f"{PAGE}?since={later}").content.decode()
    for wrong in ("?since=x", "?p=x", "?p=1/x", "?action=x", "?actor=a%00b"):
        assert client.get(PAGE + wrong).status_code == 200, wrong


@pytest.mark.slow
@pytest.mark.django_db
def test_the_page_is_for_those_who_may_see_it_and_nobody_adds_to_it():
    staff_log.record(None, "exported", about="file-1")
    assert operator("ledger.view_account", name="ben").get(PAGE).status_code == 403
    client = operator("ledger.view_staffevent")
    assert "file-1" in client.get(PAGE).content.decode()
    before = StaffEvent.objects.count()
    assert client.get(f"{PAGE}add/").status_code == 403
    assert client.post(f"{PAGE}add/", {"actor": "x", "action": "login"}).status_code == 403
    assert StaffEvent.objects.count() == before


@pytest.mark.slow
@pytest.mark.django_db
def test_the_page_reads_no_more_of_a_longer_log():
    client = operator()
    few = cost_of(client, PAGE)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO ledger_staff_event (recorded_at, actor, address, action, object, details, request_id)"
            " SELECT now() - n * interval '1 minute', 'admin:x', '', 'login', '', '', '' FROM generate_series(1, 20000) AS n"
        )
        cursor.execute("ANALYZE ledger_staff_event")
    many = cost_of(client, PAGE)
    assert len(many.statements) == len(few.statements)
    assert not [plan for plan in many.plans if "Seq Scan on ledger_staff_event" in plan]
    filtered = cost_of(client, f"{PAGE}?actor=admin:nobody")
    assert not [plan for plan in filtered.plans if "Seq Scan on ledger_staff_event" in plan]


def test_nobody_changes_a_row_and_the_owner_alone_can_remove_old_ones(committed_db, raw_connection):
    application, owner = raw_connection("application", autocommit=True), raw_connection("owner", autocommit=True)
    insert = "INSERT INTO ledger_staff_event (recorded_at, actor, address, action, object, details, request_id) VALUES"
    application.execute(
        f"{insert} (now(), 'new', '', 'login', '', '', ''), (now() - interval '3 years', 'old', '', 'login', '', '', '')"
    )
    for change in ("UPDATE ledger_staff_event SET actor = 'x'", "DELETE FROM ledger_staff_event", "TRUNCATE ledger_staff_event"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            application.execute(change)
        with pytest.raises(psycopg.Error) as refused:
            owner.execute(change)
        assert refused.value.sqlstate == "LG001"
    with owner.transaction():
        for statement in PRUNE:
            owner.execute(statement)
    left = {actor for (actor,) in owner.execute("SELECT actor FROM ledger_staff_event")}
    assert "new" in left
    assert "old" not in left
    with pytest.raises(psycopg.Error, match="append-only"):
        owner.execute("DELETE FROM ledger_staff_event")


@pytest.mark.usefixtures("as_application")
def test_the_rights_of_the_application_are_enough_to_record():
    before = StaffEvent.objects.count()
    api_keys.create_api_key(name=f"k-{timezone.now().timestamp()}", scopes=["ledger:read"])
    staff_log.record(None, "exported")
    assert StaffEvent.objects.count() == before + 2


def test_the_statements_of_the_docs_are_those_that_are_tested():
    from django.conf import settings

    docs = (settings.BASE_DIR / "docs" / "how-to" / "admin.md").read_text()
    assert "BEGIN;\n" + "".join(f"{statement};\n" for statement in PRUNE) + "COMMIT;" in docs

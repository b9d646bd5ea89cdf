"""While connections to PostgreSQL break around COMMIT, clients are told the truth of every write of the ledger and of billing.

A proxy (`proxy.py`) between the web processes and the server cuts connections before, in and after COMMIT, blindly, and sends
random bytes. `python -m pytest tests/faults -s -m "slow or not slow"` prints what each kind of cut led to.
"""

import random
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from psycopg.conninfo import conninfo_to_dict
from pytest_django.plugin import DjangoDbBlocker

from ledger import services
from ledger.database.statements import fetch_rows
from ledger.keys import api_keys
from ledger.scopes import SCOPES
from tests.conftest import database_url, on_fresh_database, web_servers
from tests.faults.clients import Clients, Told
from tests.faults.proxy import AT_COMMIT, NOT_STORED, STORED, Fault, FaultProxy, connecting_to
from tests.faults.world import MONTHS, PER_SET, World
from tests.nodes import lock_holder
from tests.parts import spread

CLIENTS = 12
SERVERS = 2
LOCKED_S = (0.0, 0.3)
"""How long another session keeps a holder's lock, so that requests wait."""

KEYS_STORED = """
SELECT idempotency_key, CASE kind WHEN 'refusal' THEN 'refused' ELSE 'stored' END
FROM ledger_entry WHERE idempotency_key LIKE 'k.%'
UNION ALL SELECT idempotency_key, 'stored' FROM ledger_batch
UNION ALL SELECT idempotency_key, 'stored' FROM ledger_rate WHERE idempotency_key IS NOT NULL
UNION ALL SELECT idempotency_key, CASE WHEN status IS NULL THEN 'refused' ELSE 'stored' END FROM billing_requestkey
"""


@pytest.fixture
def fresh_database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A database that no other test has written to, so that it can be audited as a whole."""
    with django_db_blocker.unblock(), on_fresh_database("_faults"):
        yield


@contextmanager
def holders_locked_now_and_then(world: World, conninfo: str, *, seed: int) -> Iterator[None]:
    """For the block, another session keeps the lock of one holder after the other, so that requests wait for it."""
    has_ended = threading.Event()
    chance = random.Random(seed)

    def lock() -> None:
        number = 0
        with psycopg.connect(conninfo) as session:
            while not has_ended.wait(chance.uniform(*LOCKED_S)):
                with suppress(psycopg.errors.LockNotAvailable):
                    lock_holder(session, chance.choice(world.holders(number)))
                has_ended.wait(chance.uniform(*LOCKED_S))
                session.rollback()
                number = world.number

    thread = threading.Thread(target=lock, name="locks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()


def play(requests: int, log_dir: Path, *, seed: int) -> tuple[Clients, FaultProxy]:
    """Send requests to web processes whose connections break; then let them heal, and settle what is unknown."""
    world = World(run=secrets.token_hex(3))
    for number in range(0, requests, PER_SET):
        for holder in world.holders(number):
            services.grant(holder_id=holder, amount=1_000_000, idempotency_key="first")
    _, api_key = api_keys.create_api_key(name="faults", scopes=SCOPES)
    reached = conninfo_to_dict(connection_string := database_url("application"))
    proxy = FaultProxy(connecting_to(str(reached["host"]), int(reached["port"])), key=world.key_pattern, seed=seed).start()
    try:
        with web_servers(log_dir) as start, holders_locked_now_and_then(world, connection_string, seed=seed):
            urls = [web.url for web in start(SERVERS, dsn=database_url("application", host="127.0.0.1", port=proxy.port))]
            clients = Clients(world, urls, api_key, seed=seed)
            proxy.is_breaking = True
            clients.play(CLIENTS, requests)
            proxy.is_breaking = False
            for _ in range(20):
                clients.settle()
    finally:
        proxy.close()
    return clients, proxy


@pytest.mark.one_node("the proxy is before one server")
@pytest.mark.parametrize("requests", spread([400, 20_000], test=(), check=[400]))
def test_what_clients_are_told_while_connections_break_is_true(fresh_database: None, tmp_path: Path, requests: int) -> None:
    clients, proxy = play(requests, tmp_path, seed=requests)
    stored = dict(fetch_rows(lambda key, outcome: (key, outcome), KEYS_STORED))
    print(report(clients, proxy, stored))

    assert len(clients.told) == requests
    wrong = [
        (told.asked, told.answers, stored.get(key)) for key, told in clients.told.items() if not is_true(told, stored.get(key))
    ]
    assert wrong == []
    assert [told for told in clients.told.values() if any(answer.status == 500 for answer in told.answers)] == []
    assert clients.foreign == []
    assert "Clean: no violations found." in printed_by("audit_ledger")
    # What was voided or deleted is a hole until the next run.
    printed_by("generate_invoices", "--as-of", f"2026-{MONTHS + 1}-01")
    assert "Clean: the bills follow from the stored data." in printed_by("generate_invoices", "--check")
    check_lost_commits(clients, proxy)
    check_that_it_was_hard_enough(requests, clients, proxy)


def printed_by(*command: str) -> str:
    """Return what a command prints, also if it ends with findings."""
    output = StringIO()
    with suppress(SystemExit):
        call_command(*command, stdout=output)
    return output.getvalue()


def is_true(told: Told, stored: str | None) -> bool:
    """Whether the client knows what is stored under the key."""
    match told.outcome:
        case "stored":
            return stored == "stored"
        case "refused":  # recorded or not, but never the effect
            return stored != "stored"
        case "failed":
            return stored is None
    return False  # still unknown


def check_lost_commits(clients: Clients, proxy: FaultProxy) -> None:
    """Assert that the clients of each lost COMMIT were told so, and that those that took effect were replayed."""
    for key, fault in first_faults(proxy).items():
        told = clients.told[key]
        if fault in AT_COMMIT:
            assert told.answers[0].outcome == "unknown", (fault, told)
        if fault in STORED:
            assert told.answers[-1].replayed, (fault, told)


def first_faults(proxy: FaultProxy) -> dict[str, Fault]:
    """Return the fault that was the first to cut a transaction which had stored the key, by key."""
    first: dict[str, Fault] = {}
    for cut in proxy.cuts:
        for key in cut.keys:
            first.setdefault(key, cut.fault)
    return first


def check_that_it_was_hard_enough(requests: int, clients: Clients, proxy: FaultProxy) -> None:
    """Assert that each fault happened, and that COMMITs were lost both ways: with and without effect."""
    counts = proxy.counts()
    least = requests // 400
    assert {fault: counts[fault] for fault in Fault if counts[fault] < least} == {}
    unknown = [told for told in clients.told.values() if told.answers[0].outcome == "unknown"]
    assert len(unknown) >= requests // 50
    replayed = sum(told.answers[-1].replayed for told in unknown)
    assert replayed >= requests // 100
    assert len(unknown) - replayed >= requests // 200
    kinds = Counter(told.asked.kind for told in unknown)
    assert len(kinds) >= 12, kinds
    first_answers = clients.outcomes()
    assert first_answers["stored"] >= requests // 2
    assert first_answers["failed"] >= requests // 100
    for fault in NOT_STORED | STORED:
        assert any(cut.fault is fault and cut.keys for cut in proxy.cuts), fault


def report(clients: Clients, proxy: FaultProxy, stored: dict[str, str]) -> str:
    """What each fault led to: of the keys whose transaction it was the first to cut, what was told first, and what settled it."""
    first, counts = first_faults(proxy), proxy.counts()
    rows: list[Any] = [("fault", "cuts", "keys", "told stored", "refused", "failed", "unknown", "then replayed", "executed")]
    for fault in Fault:
        told = [clients.told[key] for key, of_key in first.items() if of_key is fault]
        outcomes = Counter(each.answers[0].outcome for each in told)
        replayed = sum(each.answers[0].outcome == "unknown" and each.answers[-1].replayed for each in told)
        told_first = [outcomes[name] for name in ("stored", "refused", "failed", "unknown")]
        rows.append((fault.value, counts[fault], len(told), *told_first, replayed, outcomes["unknown"] - replayed))
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    total = f"{len(clients.told)} keys, told first: {dict(clients.outcomes())}; {proxy.commits} COMMITs; {len(stored)} stored"
    kinds = Counter(f"{told.asked.kind} {told.answers[0].status} {told.answers[0].slug}" for told in clients.told.values())
    return "\n".join(["", *lines, total, *(f"{kind} {number}" for kind, number in sorted(kinds.items()))])

"""A session that waits for a lock, found in Chromium from the first page: which lock, for how long, and who holds it."""

import re
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from ledger import services
from ledger.database.locks import holder_key, lock_number
from ledger.reads.lock_report import current_locks
from ledger.staff.home import LONG_WAIT_S
from tests.browser.chromium import Visit
from tests.ledger.staff.admin_site import operator
from tests.nodes import pause

PATIENCE_S = 60
WITHOUT_LIMITS = "SET lock_timeout = 0; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0"


def wait_until_it_waits_long(pid: int) -> None:
    """Return once the session has waited for so long that the first page names it; fail when it never has."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if any(lock.pid == pid and not lock.granted and (lock.seconds or 0) > LONG_WAIT_S for lock in current_locks()):
            return
        pause()
    pytest.fail(f"session {pid} never waited for {LONG_WAIT_S} s")


@pytest.mark.slow
@pytest.mark.check
def test_what_is_stuck_right_now_is_a_session_that_waits_for_a_holders_lock(
    committed_db: None,
    raw_connection: Callable[..., psycopg.Connection[Any]],
    do: Callable[..., None],
) -> None:
    holder = f"acme-{secrets.token_hex(4)}"
    services.grant(holder_id=holder, amount=100, idempotency_key="g")
    take = "SELECT pg_advisory_xact_lock(%s)", [lock_number(holder_key(holder))]
    keeps, waits = (raw_connection(application_name=name) for name in ("nightly import", "web"))
    for each in (keeps, waits):
        each.execute(WITHOUT_LIMITS)
    keeps.execute(*take)

    def job(visit: Visit) -> None:
        sentence = re.compile(rf"sessions? waits? for a lock for more than {LONG_WAIT_S} s, the longest for \d+ s")
        visit.click(visit.page.locator(".attention li", has_text=sentence).get_by_role("link").first)
        keeper, waiter = keeps.info.backend_pid, waits.info.backend_pid
        waited = rf"pid {waiter} \(web\) has waited for {holder_key(holder)} for [\d.,]+ s"
        assert re.search(rf"{waited}; pid {keeper} \(nightly import\) has it, for at most [\d.,]+ s\.", visit.text)
        assert re.search(rf"{holder_key(holder)} exclusive held [\d.,]+ s pid {keeper} nightly import ", visit.text)
        assert re.search(rf"{holder_key(holder)} exclusive waiting [\d.,]+ s pid {waiter} web .* pid {keeper}", visit.text)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waits.execute, *take)
        try:
            wait_until_it_waits_long(waits.info.backend_pid)
            do("waiting", job, client=operator(name=f"mara.{secrets.token_hex(3)}"), height=560)
            assert not waiting.done()
        finally:
            keeps.rollback()
        waiting.result(PATIENCE_S)

"""Two machines, one subscription: Subskribe's story of an invoice generator that never waits and blocks nobody.

T1  machine A begins to bill the usage of SUB-1234, and is in the middle of it
T2  machine B wants to bill the recurring charges, by command and over REST: it is told "busy" at once, and has written nothing
T3  somebody amends the subscription, over REST: it does not wait for A
T4  A is done
T5  B comes back and bills what is due, the amendment included

Every machine is a separate process.
"""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.conf import settings

from billing.documents.invoice_locks import invoice_key
from billing.models import Claim, Invoice, Subscription
from ledger.database.locks import lock_number
from ledger.keys import api_keys
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, metered, recurring, use
from tests.concurrency.http_clients import HttpClient
from tests.conftest import WebProcess, database_url

AS_OF = "2026-02-01"

MACHINE_A = """
import sys
import django
django.setup()
from django.core.management import call_command
from billing.generator.difference import store

write_claims = store.write_claims

def write_claims_and_stop(head, changes):
    write_claims(head, changes)
    print("in the middle", flush=True)
    sys.stdin.readline()

store.write_claims = write_claims_and_stop
call_command("generate_invoices", *sys.argv[1:], stdout=sys.stderr)
"""


def environment() -> dict[str, str]:
    """Return the environment variables of a machine in production."""
    return {
        "PATH": os.environ["PATH"],
        "DJANGO_SETTINGS_MODULE": "ledger_project.settings",
        "SECRET_KEY": "only-for-tests",
        "DATABASE_URL": database_url("application"),
    }


def options_for(subscription: Subscription, only: str) -> list[str]:
    """The arguments of a run that bills one subscription."""
    return ["--subscription", subscription.ref, "--only", only, "--as-of", AS_OF, "--no-progress"]


@contextmanager
def paused_generator(subscription: Subscription) -> Iterator["subprocess.Popen[str]"]:
    """A generator of usage invoices that has written its claims and not yet committed; a line on its stdin lets it go on."""
    with subprocess.Popen(
        [sys.executable, "-c", MACHINE_A, *options_for(subscription, "usage")],
        cwd=settings.BASE_DIR, env=environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "in the middle\n"
            yield process
        finally:
            process.kill()


def other_generator(subscription: Subscription, *options: str) -> "subprocess.CompletedProcess[str]":
    """`manage.py generate_invoices --only recurring`, to its end."""
    return subprocess.run(
        [sys.executable, "manage.py", "generate_invoices", *options_for(subscription, "recurring"), *options],
        cwd=settings.BASE_DIR, env=environment(), text=True, timeout=60, capture_output=True, check=False,
    )  # fmt: skip


@pytest.fixture
def subscription(committed_db: None) -> Subscription:
    """30.00 a month in arrears, and 0.02 per call, of which there were 100 in January."""
    plan = PlanFactory(prices=[recurring(unit_amount="30.00", timing="arrears", model="unit"), metered()])
    made = SubscriptionFactory(plan=plan.code)
    use(made, "100", at(1, 5))
    return made


@pytest.fixture
def billing_client(committed_db: None, server_processes: Callable[..., list[WebProcess]]) -> HttpClient:
    """A client of a web process, with a key that may read and write in billing."""
    (web,) = server_processes(1)
    _, api_key = api_keys.create_api_key(name=f"billing-{uuid.uuid4().hex[:12]}", scopes=["billing:read", "billing:write"])
    return HttpClient(web.url, api_key)


def invoice_figures(subscription: Subscription) -> list[tuple[str, str, int]]:
    """(price, state, total) of each invoice of one line, in the order of their making."""
    invoices = Invoice.objects.filter(subscription_ref=subscription.ref).order_by("id")
    return [(each.lines.get().price_key, each.state, each.total_minor) for each in invoices]


@pytest.mark.slow
def test_t1_to_t5_a_usage_and_a_recurring_generator_on_one_subscription(
    subscription: Subscription, billing_client: HttpClient, raw_connection: Callable[..., psycopg.Connection[Any]]
) -> None:
    path = f"/v1/subscriptions/{subscription.ref}"
    ask = {"as_of": "2026-02-01T00:00:00Z", "only": "recurring"}
    observer = raw_connection(autocommit=True)

    with paused_generator(subscription) as a:  # T1
        b = other_generator(subscription, "--retry-busy", "0")  # T2
        assert (b.returncode, Invoice.objects.filter(subscription_ref=subscription.ref).count()) == (4, 0), b.stderr

        # Whatever is answered while A is in the middle has not waited for it.
        busy = billing_client.post(f"{path}/invoices", ask, key="B over REST")
        assert (busy.status, busy.json["type"].rsplit("/", 1)[1]) == (409, "invoice-generation-busy")
        assert busy.json["outcome"] == "not_executed"

        amended = billing_client.post(  # T3
            f"{path}/amendments", {"effective_at": "2026-01-17T00:00:00Z", "quantities": {"base": 3}}, key="amendment"
        )
        assert amended.status == 201
        assert a.poll() is None, "A is still in the middle"
        xmax = observer.execute("SELECT xmax::text FROM billing_subscription WHERE ref = %s", [subscription.ref]).fetchone()
        assert xmax == ("0",), "nobody has locked or changed the subscription's row"

        _, said = a.communicate("go on\n", timeout=30)  # T4
        assert a.returncode == 0, said
    assert invoice_figures(subscription) == [("calls", "open", 200)]

    b = other_generator(subscription)  # T5
    assert b.returncode == 0, b.stderr
    # 16 of 31 days at 1 x 30.00, 15 at 3 x 30.00.
    january = Invoice.objects.filter(subscription_ref=subscription.ref).exclude(total_minor=200).get()
    assert january.total_minor == 1548 + 4355
    assert not Claim.objects.filter(subscription=subscription.pk).exclude(released_at=None).exists()
    again = billing_client.post(f"{path}/invoices", ask, key="B once more")
    assert (again.status, again.json) == (200, {"invoices": [], "allowances": []}), "all is billed, and nothing twice"


@pytest.mark.slow
def test_a_busy_response_is_not_stored_so_the_same_key_gets_the_invoice_later(
    subscription: Subscription, billing_client: HttpClient
) -> None:
    path = f"/v1/subscriptions/{subscription.ref}/invoices"
    ask = {"as_of": "2026-02-01T00:00:00Z"}

    with paused_generator(subscription) as a:
        assert billing_client.post(path, ask, key="one key").status == 409
        a.communicate("go on\n", timeout=30)
    made = billing_client.post(path, ask, key="one key")
    replayed = billing_client.post(path, ask, key="one key")

    assert (made.status, made.replayed, [each["total_minor"] for each in made.json["invoices"]]) == (201, False, [3000])
    assert (replayed.status, replayed.replayed, replayed.content) == (201, True, made.content)
    assert invoice_figures(subscription) == [("calls", "open", 200), ("base", "open", 3000)]


@pytest.mark.slow
def test_after_kill_9_of_machine_a_machine_b_bills_everything(
    subscription: Subscription, raw_connection: Callable[..., psycopg.Connection[Any]]
) -> None:
    observer = raw_connection(autocommit=True)
    number = lock_number(invoice_key(subscription.ref))
    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid::bigint << 32 | objid::bigint = %s"

    with paused_generator(subscription) as a:
        assert observer.execute(held, [number]).fetchone() == (1,)
        a.kill()
        assert a.wait(60) == -9
    deadline = time.monotonic() + 60
    while observer.execute(held, [number]).fetchone() != (0,):
        assert time.monotonic() < deadline, "the lock outlived its holder"

    b = other_generator(subscription)
    usage = other_generator(subscription, "--only", "usage")

    assert (b.returncode, usage.returncode) == (0, 0), b.stderr + usage.stderr
    assert invoice_figures(subscription) == [("base", "open", 3000), ("calls", "open", 200)]

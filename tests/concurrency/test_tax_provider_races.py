"""A provider of taxes is asked without a transaction or lock; a process that is killed while it asks leaves nothing."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.conf import settings as django_settings

from billing import tax_asking, tax_recording
from billing.configured_tax_provider import tax_provider
from billing.documents.sellers import record_seller
from billing.generator.options import Options
from billing.generator.run.generate import generate
from billing.models import Claim, Cursor, Invoice, NumberSeries, Subscription, Tax
from billing.orders import tax_policies
from billing.rating.tax_sales import FoundTax, LineTaxes
from billing.testing import CustomerFactory, PlanFactory, SubscriptionFactory, recurring
from ledger.testing import unique
from tests.billing.documents.issued import SELLER
from tests.billing.factories import at
from tests.billing.taxes.stand_in import StripeTaxDouble, serving
from tests.concurrency.meetings import LOCKED, meet
from tests.concurrency.race_harness import no_lock
from tests.conftest import database_url

pytestmark = [pytest.mark.usefixtures("committed_db"), pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")]

SEEN = """
    SELECT (SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()),
        (SELECT count(*) FROM pg_locks JOIN pg_database AS here ON here.oid = database
            WHERE locktype = 'advisory' AND here.datname = current_database())
"""
GENERATE = """
import django, sys
django.setup()
from django.core.management import call_command
call_command("generate_invoices", "--subscription", sys.argv[1], "--as-of", "2026-01-01T00:00:00Z", "--no-progress")
"""


@pytest.fixture
def stripe(settings: Any) -> Iterator[StripeTaxDouble]:
    """The stand-in, at which the provider of this process asks."""
    double = StripeTaxDouble()
    tax_asking.ask_again_now()
    with serving(double) as address:
        settings.TAX_PROVIDER = {
            "class": "billing.tax_services.stripe_tax.StripeTax", "api_key": "sk_test_x", "api_base": address,
        }  # fmt: skip
        with closing(tax_provider()):  # type: ignore[arg-type, type-var]
            yield double


def subscribed() -> Subscription:
    """A committed subscription of a seller with a provider, with numbers that no other test takes."""
    series = unique("T").replace("-", "").upper()[:10]
    details = {**SELLER, "tax_rules": "provider", "invoice_prefix": series, "credit_note_prefix": f"{series}CN"}
    seller = record_seller({**details, "ref": unique("seller")}, actor="test")
    plan = PlanFactory(prices=[recurring(unit_amount="100.00")])
    customer = CustomerFactory(seller=seller.ref, address={"country": "CA", "subdivision": "QC"})
    return SubscriptionFactory(plan=plan.code, customer=customer.ref)


def billed(subscription: Subscription) -> list[int]:
    """The totals of its invoices."""
    return list(Invoice.objects.filter(subscription_ref=subscription.ref).values_list("total_minor", flat=True))


def nothing_written(subscription: Subscription) -> bool:
    """No invoice, claim or cursor of the subscription is there."""
    own = {"subscription_id": subscription.pk}
    return not (
        billed(subscription) or Claim.objects.filter(**own).exists() or Cursor.objects.filter(pk=subscription.pk).exists()
    )


@pytest.mark.one_node("looks at one server's sessions")
def test_while_the_provider_is_asked_no_transaction_is_open_and_no_lock_held(
    stripe: StripeTaxDouble, raw_connection: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription, watching = subscribed(), raw_connection("superuser", autocommit=True)
    seen: list[tuple[int, int]] = []

    stripe.on_ask = lambda: seen.append(watching.execute(SEEN).fetchone())
    generate(ref=subscription.ref, options=Options(as_of=at(1)))
    assert seen == [(0, 0)]
    # The control: asked where the taxes are needed, both are seen.
    monkeypatch.setattr(tax_policies, "answers_to", lambda sales: [tax_asking._ask(sale) for sale in sales])
    generate(ref=subscribed().ref, options=Options(as_of=at(1)))
    assert [many > 0 for many in seen[-1]] == [True, True]


def test_two_runs_at_once_make_one_invoice(stripe: StripeTaxDouble, run_threads: Any) -> None:
    subscription = subscribed()

    def run(number: int) -> bool:
        return bool(generate(ref=subscription.ref, options=Options(as_of=at(1))).invoices)

    results = run_threads(run, 2)
    assert billed(subscription) == [11_498]
    assert results.count(True) == 1


@LOCKED
def test_a_tax_that_two_answers_have_is_recorded_once(run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool) -> None:
    code = unique("tax")
    answer = [LineTaxes(taxes=(FoundTax(code, "GST", Decimal(5), "O", 5, "CA"),))]
    if not is_locked:
        monkeypatch.setattr(tax_recording, "locked_transaction", lambda *names: no_lock(*names))
    # With the lock both come before it at once; without, both have looked for the tax before either writes it.
    meet(monkeypatch, (tax_recording, "locked_transaction") if is_locked else (Tax.objects, "create"), is_locked=False)
    ids = run_threads(lambda _: tax_recording.recorded("stand-in", date(2026, 1, 31), answer)[0].taxes[0].tax_id, 2)
    assert len(set(ids)) == Tax.objects.filter(code=code).count() == (1 if is_locked else 2)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["POST", pytest.param("GET", marks=pytest.mark.slow)])
def test_a_run_that_is_killed_while_it_asks_leaves_nothing_and_the_next_run_asks_again(
    stripe: StripeTaxDouble, where: str
) -> None:
    subscription = subscribed()
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", GENERATE, subscription.ref],
        env={
            "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "SECRET_KEY": "only-for-tests",
            "STRIPE_TAX_STAND_IN": django_settings.TAX_PROVIDER["api_base"], "DATABASE_URL": database_url("application"),
            "DJANGO_SETTINGS_MODULE": "tests.concurrency.settings_of_taxes",
        },
        cwd=django_settings.BASE_DIR, stderr=subprocess.PIPE,
    )  # fmt: skip
    stripe.killed_at = {where: lambda: os.kill(process.pid, signal.SIGKILL)}
    _, errors = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, errors
    assert nothing_written(subscription)
    stripe.killed_at = {}
    asked = len(stripe.asked)
    [made] = generate(ref=subscription.ref, options=Options(as_of=at(1))).invoices
    assert (billed(subscription), len(stripe.asked)) == ([11_498], asked + 1)
    assert made.number is not None
    assert made.number.endswith("-000001")
    assert NumberSeries.objects.filter(name=made.number.removesuffix("-000001")).values_list("last_value", flat=True).get() == 1

"""Which locks the calls of billing take, and in which order; the lock of invoice generation is declared on its handler."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.models import Invoice, RequestKey
from billing.orders import coupons, suspension
from billing.orders.customers import NewCredits
from ledger import services
from ledger.database.lock_names import INVOICE_GENERATION, REGISTER
from ledger.database.locks import Lock, lock_number
from ledger.keys import api_keys
from tests.billing.factories import CustomerFactory, SubscriptionFactory, unique
from tests.ledger.rest.conftest import ApiClient

KINDS = {name.template.partition("{")[0]: name.kind for name in REGISTER}
RANKS = {name.kind: rank for rank, name in enumerate(REGISTER)}


@pytest.fixture
def api(committed_db: None) -> ApiClient:
    """A client that may do everything."""
    scopes = ["billing:read", "billing:write", "ledger:admin"]
    return ApiClient(api_keys.create_api_key(name=unique("key"), scopes=scopes)[1])


@pytest.fixture
def locks_taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The names of the locks that are taken from now on, call by call."""
    seen: list[tuple[str, ...]] = []
    make = Lock.__init__

    def noted(self: Lock, names: tuple[str, ...], *args: Any, **kwargs: Any) -> None:
        seen.append(names)
        make(self, names, *args, **kwargs)

    monkeypatch.setattr(Lock, "__init__", noted)
    return seen


@pytest.fixture
def subscription_ref(committed_db: None) -> str:
    """A subscription of a customer with credits that pay, and a coupon."""
    holder_id, code = unique("holder"), unique("coupon")
    services.grant(holder_id=holder_id, amount=100, idempotency_key="grant")
    customer = CustomerFactory(holder_id=holder_id, credits=NewCredits(credit_type="credits", unit_value=Decimal("0.01")))
    coupons.create_coupon(code=code, kind="percentage", value=Decimal(10), duration="forever")
    coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code=code)
    return SubscriptionFactory(customer=customer.ref).ref


# In the order of the register ------------------------------------------------------------------------


def generate_with_coupon_and_credits(api: ApiClient, ref: str) -> None:
    """Bill over REST; a coupon and credits take part."""
    [invoice] = api.post(f"/v1/subscriptions/{ref}/invoices", {"as_of": "2026-02-01T00:00:00Z"}).json()["invoices"]
    assert invoice["discount_minor"] == 200
    assert (invoice["state"], invoice["credits_applied_minor"]) == ("open", 100)


def bill_and_void(api: ApiClient, ref: str) -> None:
    """Bill, and void the invoice over REST."""
    generate_in(ref=ref, options=Options(as_of=datetime(2026, 2, 1, tzinfo=UTC)))
    assert api.post(f"/v1/invoices/{Invoice.objects.get(subscription_ref=ref).pk}/void", {}).status_code == 200


def amend_dry(api: ApiClient, ref: str) -> None:
    """Run an amendment dry over REST."""
    body = {"effective_at": "2026-01-15T00:00:00Z", "quantities": {"base": 2}}
    assert api.post(f"/v1/subscriptions/{ref}/amendments?dry_run=true", body).status_code == 200


def resume_billing(api: ApiClient, ref: str) -> None:
    """Suspend the subscription's billing, and resume it over REST."""
    suspension.suspend(ref=ref, reason="looks odd")
    assert api.post(f"/v1/subscriptions/{ref}/resume", {"reason": "looked at"}).status_code == 200


def publish_rate(api: ApiClient, ref: str) -> None:
    """Publish a rate over REST."""
    assert api.post("/v1/rates", {"ref": unique("rate"), "price": 3, "per": 1000}).status_code == 201


def run_batch(api: ApiClient, ref: str) -> None:
    """Send an atomic batch of two grants over REST."""
    operations = [{"operation": "grant", "holder": unique("holder"), "amount": 5, "source": "promotional"} for _ in range(2)]
    assert api.post("/v1/batches", {"mode": "atomic", "operations": operations}).status_code == 200


def kinds_of(call: tuple[str, ...]) -> list[str]:
    """The kinds of the locks of a call, in the order of the register."""
    kinds = {next(kind for start, kind in KINDS.items() if name.startswith(start)) for name in call}
    return sorted(kinds, key=RANKS.__getitem__)


def locks_by_transaction(locks_taken: list[tuple[str, ...]]) -> list[list[str]]:
    """The kinds of locks of each transaction, in the order in which they were taken; one call takes its locks by number.

    What a transaction holds already it takes again without waiting.
    """
    found: list[list[str]] = [[]]
    held: set[str] = set()
    for call in locks_taken:
        kinds = kinds_of(call)
        if kinds == ["billing_request"] or (kinds == ["suspension"] and found == [[]]):
            found.append([])
            held = set()
        if not held.issuperset(call):
            found[-1].append(kinds[0])
        held.update(call)
    return found


@pytest.mark.parametrize(
    ("act", "kinds"),
    [
        (generate_with_coupon_and_credits, ["billing_request", "invoice_generation", "customer_account", "holder"]),
        (bill_and_void, ["billing_request", "invoice_generation", "payment", "customer_account", "holder"]),
        (amend_dry, ["subscription_intent", "invoice_generation"]),
        (resume_billing, ["billing_request", "suspension"]),
        (publish_rate, ["rate", "rate_key"]),
        (run_batch, ["batch", "holder"]),
    ],
)
def test_the_locks_of_one_transaction_are_taken_in_the_order_of_the_register(
    api: ApiClient,
    subscription_ref: str,
    locks_taken: list[tuple[str, ...]],
    act: Callable[[ApiClient, str], None],
    kinds: list[str],
) -> None:
    act(api, subscription_ref)

    assert sorted({kind for call in locks_taken for kind in kinds_of(call)}, key=RANKS.__getitem__) == kinds
    for of_one in locks_by_transaction(locks_taken):
        assert of_one == sorted(of_one, key=RANKS.__getitem__)


# Declared on the handler -----------------------------------------------------------------------------


def test_over_rest_invoices_are_made_under_the_lock_that_the_path_names(
    api: ApiClient, raw_connection: Callable[..., psycopg.Connection[Any]]
) -> None:
    ref = SubscriptionFactory().ref
    path, body, key = f"/v1/subscriptions/{ref}/invoices", {"as_of": "2026-02-01T00:00:00Z"}, unique("key")
    somebody_else = raw_connection()
    somebody_else.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(INVOICE_GENERATION(ref))])

    busy = api.post(path, body, key=key)

    assert (busy.status_code, busy.json()["type"].rsplit("/", 1)[1]) == (409, "invoice-generation-busy")
    assert (busy.json()["key"], busy.json()["subscription"]) == (f"invoice_gen/{ref}", ref)
    assert not Invoice.objects.filter(subscription_ref=ref).exists()
    assert not RequestKey.objects.filter(idempotency_key=key).exists()

    somebody_else.rollback()
    made = api.post(path, body, key=key)
    assert (made.status_code, len(made.json()["invoices"])) == (201, 1)

    somebody_else.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(INVOICE_GENERATION(ref))])
    again = api.post(path, body, key=key)
    assert (again.content, again.headers["Idempotency-Replayed"]) == (made.content, "true"), "what was answered needs no lock"

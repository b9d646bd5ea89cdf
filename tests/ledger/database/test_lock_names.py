"""The register of locks: the default names, the names by setting, and no lock outside the register."""

import ast
import functools
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings as project
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from billing.errors import InvoiceGenerationBusy
from billing.generator.options import Options
from billing.generator.run import generate
from ledger import services
from ledger.database import lock_names
from ledger.database.lock_names import BILLING_REQUEST, HOLDER, INVOICE_GENERATION, NAMESPACE, REGISTER, spellings
from ledger.database.locks import lock_number
from ledger.models import Entry
from tests.nodes import pause

Connect = Callable[..., psycopg.Connection[Any]]

IS_AWAITED = """
    SELECT 1 FROM pg_locks
     WHERE locktype = 'advisory' AND NOT granted AND classid::bigint << 32 | objid::bigint = %s
"""

DEFAULT_NAMES = {
    "migration": "database/migration",
    "unique": "unique/{kind}/{key}",
    "operator_stakes": "operator_stakes/{key}",
    "billing_request": "billing_request/{collection}/{key}",
    "key_request": "ledger_key_request/{confined_to}/{key}",
    "plan": "plan/{code}",
    "coupon": "coupon/{code}",
    "sellers": "database/sellers",
    "tax": "tax/{code}",
    "meter": "meter/{code}",
    "pack": "pack/{code}",
    "customer": "customer/{customer}",
    "vat_checks": "database/vat_checks",
    "top_up": "topup/{holder}",
    "bank_receipts": "database/bank_receipts",
    "payment_intent": "payment_intent/{intent}",
    "purchase_payment": "purchase_payment/{provider}/{key}",
    "purchase": "purchase/{purchase}",
    "subscription_intent": "subscription_intent/{subscription}",
    "invoice_generation": "invoice_gen/{subscription}",
    "customer_invoices": "customer_invoices/{customer}",
    "payment": "payment/{invoice}",
    "reminder_hold": "reminder_hold/{customer}",
    "suspension": "suspension/{subscription}",
    "customer_account": "customer_account/{customer}",
    "rate": "ledger_rate/{credit_type}/{code}",
    "rate_key": "ledger_rate_key/{key}",
    "webhook_request": "ledger_webhook_request/{key}",
    "alerts": "database/alerts",
    "signal_feed": "database/signal_feed",
    "totals": "database/totals",
    "batch_slot": "ledger_batch_slot/{slot}",
    "batch": "ledger_batch/{confined_to}/{key}",
    "holder": "ledger/{holder}",
}
"""All kinds, in their order. If a name changed, processes of the old and the new release would not exclude each other."""


# Default names ---------------------------------------------------------------------------------------


def test_the_default_names_and_their_order_have_not_changed() -> None:
    assert {name.kind: name.template for name in REGISTER} == DEFAULT_NAMES
    assert [name.kind for name in REGISTER] == list(DEFAULT_NAMES)


def test_a_name_contains_the_values_of_its_fields(settings: Settings) -> None:
    assert HOLDER("42") == "ledger/42"
    assert BILLING_REQUEST("plans", "a/b {0} c") == "billing_request/plans/a/b {0} c"
    assert lock_names.MIGRATION() == "database/migration"


@pytest.mark.parametrize("values", [(), ("plans",), ("plans", "key", "more")])
def test_a_name_needs_a_value_for_each_field(values: tuple[str, ...]) -> None:
    with pytest.raises(TypeError, match=f"takes 2 values, not {len(values)}"):
        BILLING_REQUEST(*values)


def test_the_docs_list_the_register_in_its_order() -> None:
    docs = (Path(project.BASE_DIR) / "docs" / "reference" / "lock-keys.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| (.+) \| (waits|tries) \|$", docs, re.MULTILINE)

    assert rows == [(name.kind, name.template, name.taken_by, "waits" if name.waits else "tries") for name in REGISTER]


# Names by setting ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("templates", "namespace", "holder", "generation"),
    [
        ("", "", "ledger/42", "invoice_gen/SUB-1"),
        ("", "acme", "acme/ledger/42", "acme/invoice_gen/SUB-1"),
        ("holder=ledger:{holder}", "", "ledger:42", "invoice_gen/SUB-1"),
        ("holder=ledger:{id}", "", "ledger:42", "invoice_gen/SUB-1"),
        ("holder=ledger:{holder}", "acme", "acme/ledger:42", "acme/invoice_gen/SUB-1"),
        ("holder={app}_{id}", "acme", "acme_42", "acme/invoice_gen/SUB-1"),
        ("holder={app}_{id} invoice_generation=invoice_gen:{app}:{subscription}", "acme", "acme_42", "invoice_gen:acme:SUB-1"),
        ("holder={holder}", "", "42", "invoice_gen/SUB-1"),
        ("holder={holder}", "acme", "acme/42", "acme/invoice_gen/SUB-1"),
        ("  holder={holder}:credits\ninvoice_generation=billing+{id}@x ", "", "42:credits", "billing+SUB-1@x"),
    ],
)
def test_the_settings_choose_the_spelling_of_names(
    settings: Settings, templates: str, namespace: str, holder: str, generation: str
) -> None:
    settings.LEDGER = {**settings.LEDGER, "LOCK_NAMES": templates, "LOCK_NAMESPACE": namespace}

    assert (HOLDER("42"), INVOICE_GENERATION("SUB-1")) == (holder, generation)


def test_a_template_may_have_the_fields_in_another_order() -> None:
    spelled = spellings("rate=rate/{code}/{credit_type}/of/credits", "")["rate"]

    assert spelled.format("sms", "gpt-4") == "rate/gpt-4/sms/of/credits"


def test_with_the_namespaced_scheme_the_namespace_is_no_part_of_the_name(settings: Settings) -> None:
    settings.LEDGER = {**settings.LEDGER, "LOCK_KEY_SCHEME": "fnv1-64-namespaced", "LOCK_NAMESPACE": "7"}

    assert HOLDER("42") == "ledger/42"
    assert lock_number(HOLDER("42")) == 31707067119


@pytest.mark.parametrize(
    ("templates", "why"),
    [
        (
            "account=ledger:{holder}",
            "unknown lock name 'account' in 'account=ledger:{holder}'; known are: migration,",
        ),
        ("holder", "the template '' of the lock name holder is not valid: it must have {holder}, each once"),
        ("holder=a{holder} holder=b{holder}", "the lock name holder is given twice"),
        ("holder=ledger", "the template 'ledger' of the lock name holder is not valid: it must have {holder}, each once"),
        ("holder={holder}{holder}", "it must have {holder}, each once"),
        ("holder=ledger:{customer}", "must have {holder}, each once"),
        ("holder=ledger:{}", "must have {holder}, each once"),
        ("holder=ledger:{holder.__class__}", "must have {holder}, each once"),
        ("holder=ledger:{holder[0]}", "must have {holder}, each once"),
        ("holder=ledger:{holder!r}", "{holder} has a format"),
        ("holder=ledger:{holder:>9}", "{holder} has a format"),
        ("holder=ledger:{holder", "is not valid: expected '}' before end of string"),
        ("holder=ledger:{{holder}}", "must have {holder}, each once"),
        ("holder=ledger:{holder}}}", "its text may have A-Z"),
        ("holder=ledger:{holder}}", "is not valid: Single '}' encountered in format string"),
        ("holder=lédger:{holder}", "its text may have A-Z"),
        ("holder=*/{holder}", "its text may have A-Z"),
        ("billing_request=x:{id}", "must have {collection} and {key}, each once"),
        ("billing_request=x:{collection}{key}", "has two fields with nothing between them"),
        ("migration=prepare/{holder}", "must have no field, each once"),
        ("holder={app}_{holder}", "{app} may be in it once, and with a namespace that is a word"),
    ],
)
def test_an_invalid_template_is_refused_with_the_reason(templates: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        spellings(templates, "")


def test_a_template_with_two_namespaces_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("{app} may be in it once")):
        spellings("holder={app}_{app}_{holder}", "acme")


@pytest.mark.parametrize("namespace", ["a/b", "/", " ", "acme ", "acme\n", "ä", "a" * 65, 5])
def test_an_invalid_namespace_is_refused(settings: Settings, namespace: Any) -> None:
    settings.LEDGER = {**settings.LEDGER, "LOCK_NAMESPACE": namespace}

    with pytest.raises(ImproperlyConfigured, match=r"^settings\.LEDGER: lock namespace .* is not a word"):
        HOLDER("42")


@given(
    one=st.from_regex(NAMESPACE, fullmatch=True),
    other=st.from_regex(NAMESPACE, fullmatch=True),
    holders=st.tuples(st.text(), st.text()),
)
def test_names_of_two_namespaces_are_never_equal(one: str, other: str, holders: tuple[str, str]) -> None:
    names = [spellings("", namespace)["holder"].format(holder) for namespace, holder in zip((one, other), holders, strict=True)]

    assert (names[0] == names[1]) == (one == other and holders[0] == holders[1])


@pytest.mark.parametrize(
    ("templates", "one", "other"),
    [
        # Holder 42 and subscription 42 would exclude each other, and a transaction that takes both could deadlock.
        ("holder={app}_{id} invoice_generation={app}_{id}", "invoice_generation", "holder"),
        ("holder=x:{id} invoice_generation=x:y:{id}", "invoice_generation", "holder"),
        ("holder={id} suspension={id}-suspended", "suspension", "holder"),
        ("holder={id} migration=prepare", "migration", "holder"),
        ("holder=a/{id}/x plan=a/credits/{code}", "plan", "holder"),
        ("batch=x/{confined_to}/{key} invoice_generation=x/{id}/y", "invoice_generation", "batch"),
        ("batch={key}/x/{confined_to}", "unique", "batch"),
    ],
)
def test_two_kinds_whose_names_could_be_equal_are_refused(templates: str, one: str, other: str) -> None:
    with pytest.raises(ValueError, match=rf"the lock names {one} \(.+\) and {other} \(.+\) could be the same"):
        spellings(templates, "acme")


# Shared with another service -------------------------------------------------------------------------


def peachjars_number(name: str) -> int:
    """Return the lock number as that service computes it, without the ledger's code."""
    return functools.reduce(lambda number, character: (number * 33 ^ ord(character)) & 0xFFFFFFFF, name, 5381)


@pytest.fixture
def named_as_by_peachjar(settings: Settings) -> None:
    """The ledger names and numbers its locks as the other service does."""
    settings.LEDGER = {
        **settings.LEDGER,
        "LOCK_KEY_SCHEME": "djb2xor-32",
        "LOCK_NAMES": "holder=ledger:{holder} invoice_generation=invoice_gen:{subscription}",
    }
    assert lock_number(HOLDER("42")) == peachjars_number("ledger:42") == 1389782404


@pytest.fixture
def thread(committed_db: None) -> Iterator[ThreadPoolExecutor]:
    """A second thread, whose database connection is closed at the end."""
    with ThreadPoolExecutor(1) as pool:
        yield pool
        pool.submit(connections.close_all).result(60)


def wait_until_awaited(observer: psycopg.Connection[Any], number: int, timeout_s: float = 60) -> None:
    """Return as soon as a session waits for the lock of this number; fail after the timeout."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if observer.execute(IS_AWAITED, [number]).fetchone():
            return
        pause()
    pytest.fail(f"no session waited for the lock {number}")


@pytest.mark.one_node("on a cluster the other service calls ledger_lock, see docs/reference/lock-keys.md")
def test_a_spend_waits_for_a_lock_that_another_service_took_by_its_own_naming(
    named_as_by_peachjar: None, thread: ThreadPoolExecutor, raw_connection: Connect, new_holder: Callable[[], str]
) -> None:
    holder_id = new_holder()
    services.grant(holder_id=holder_id, amount=10, source="purchased", idempotency_key="g")
    other_service, observer = raw_connection(), raw_connection(autocommit=True)
    other_service.execute("SELECT pg_advisory_xact_lock(%s)", [peachjars_number(f"ledger:{holder_id}")])

    spent = thread.submit(services.spend, holder_id=holder_id, amount=4, idempotency_key="s")
    wait_until_awaited(observer, peachjars_number(f"ledger:{holder_id}"))
    assert Entry.objects.filter(holder_id=holder_id).count() == 1
    other_service.commit()

    assert spent.result(60).balance == 6


def test_control_with_the_default_names_the_ledger_does_not_wait_for_the_other_service(
    committed_db: None, raw_connection: Connect, new_holder: Callable[[], str]
) -> None:
    holder_id = new_holder()
    raw_connection().execute("SELECT pg_advisory_xact_lock(%s)", [peachjars_number(f"ledger:{holder_id}")])

    assert services.grant(holder_id=holder_id, amount=10, source="purchased", idempotency_key="g").balance == 10


def test_invoice_generation_is_busy_while_another_service_holds_the_lock(
    named_as_by_peachjar: None, committed_db: None, raw_connection: Connect
) -> None:
    raw_connection().execute("SELECT pg_advisory_xact_lock(%s)", [peachjars_number("invoice_gen:SUB-1234")])

    with pytest.raises(InvoiceGenerationBusy) as busy:
        generate.generate(ref="SUB-1234", options=Options(as_of=datetime(2026, 1, 1, tzinfo=UTC)))
    assert busy.value.facts == {"key": "invoice_gen:SUB-1234", "subscription": "SUB-1234"}


# Rules for the source code -----------------------------------------------------------------------------

TAKES_LOCKS = {"advisory_lock", "try_advisory_lock", "lock_number"}
IN_REGISTER = {name for name, value in vars(lock_names).items() if isinstance(value, lock_names.LockName)}


def unregistered_names(text: str) -> list[str]:
    """Return the arguments of locking functions in this source that are texts instead of names from the register."""
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return [
        ast.unparse(argument)
        for call in calls
        if (call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")) in TAKES_LOCKS
        for argument in call.args
        if isinstance(argument, ast.Constant | ast.JoinedStr | ast.BinOp)
        or (isinstance(argument, ast.Call) and isinstance(argument.func, ast.Attribute) and argument.func.attr == "format")
    ]


@pytest.mark.slow
@pytest.mark.check
def test_the_source_takes_no_lock_outside_the_register() -> None:
    assert unregistered_names('advisory_lock(f"x/{y}"); locks.try_advisory_lock("x"); lock_number(X.format(y))') == [
        "f'x/{y}'", "'x'", "X.format(y)",
    ]  # fmt: skip
    product = [path for app in ("ledger", "billing", "ledger_project") for path in (Path(project.BASE_DIR) / app).rglob("*.py")]
    assert {path.name: found for path in product if (found := unregistered_names(path.read_text()))} == {}


@pytest.mark.slow
@pytest.mark.check
def test_the_source_uses_every_name_of_the_register() -> None:
    product = [path for app in ("ledger", "billing", "ledger_project") for path in (Path(project.BASE_DIR) / app).rglob("*.py")]
    text = "\n".join(path.read_text() for path in product if path.name != "lock_names.py")

    assert {name for name in IN_REGISTER if re.search(rf"\b{name}\(|\bon\({name},", text)} == IN_REGISTER

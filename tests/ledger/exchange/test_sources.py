"""Exports of Stripe, Lago and OpenMeter become rows; each with a worked example."""

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.core.management.base import SystemCheckError

from ledger import reads, services
from ledger.exchange.files import Line
from ledger.exchange.sources import SOURCES, SourceRows, Terms, WholeExport, check_sources, find_source, whole_export_of
from ledger.models import Entry
from ledger.rules.instants import from_us
from ledger.testing import unique

NOW = datetime.now(UTC).replace(microsecond=0)


def seconds(days: int) -> int:
    """Unix time, this number of days from now."""
    return int((NOW + timedelta(days=days)).timestamp())


def text(days: int) -> str:
    """The same, as text."""
    return f"{NOW + timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}"


@pytest.fixture
def holder(db: None) -> str:
    return unique("cus")


def imported(tmp_path: Path, objects: list[Any], *options: str) -> dict[str, Any]:
    """What the command prints, after it ended with 0."""
    file = tmp_path / "export.json"
    file.write_text(json.dumps({"object": "list", "data": objects}))
    out = StringIO()
    call_command("import_ledger", str(file), "--format", "json", "--workers", "1", *options, stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def monetary(value: int) -> dict[str, Any]:
    return {"type": "monetary", "monetary": {"currency": "usd", "value": value}}


def stripe_grant(holder: str, grant_id: str, value: int, **more: Any) -> dict[str, Any]:
    """A credit grant as Stripe returns it."""
    grant = {
        "id": grant_id, "object": "billing.credit_grant", "amount": monetary(value), "category": "paid", "created": seconds(-60),
        "customer": holder, "effective_at": seconds(-60), "expires_at": None, "livemode": True, "metadata": {}, "name": None,
        "priority": 50, "test_clock": None, "updated": seconds(-60), "voided_at": None,
        "applicability_config": {"scope": {"price_type": "metered"}},
    }  # fmt: skip
    return {**grant, **more}


def stripe_movement(grant: str, credit: int = 0, debit: int = 0) -> dict[str, Any]:
    """A credit balance transaction as Stripe returns it."""
    return {
        "id": unique("cbtxn"), "object": "billing.credit_balance_transaction", "created": seconds(-50), "credit_grant": grant,
        "credit": {"amount": monetary(credit), "type": "credits_granted"} if credit else None,
        "debit": {"amount": monetary(debit), "type": "credits_applied"} if debit else None,
        "effective_at": seconds(-50), "livemode": True, "test_clock": None, "type": "credit" if credit else "debit",
    }  # fmt: skip


def test_what_is_left_of_stripes_credit_grants(holder: str, tmp_path: Path) -> None:
    """Of 10.00 paid, 4.00 was applied; 5.00 is promotional until tomorrow; one is voided, one has expired, one is used up."""
    objects = [
        stripe_grant(holder, f"{holder}-1", 1000, metadata={"po": "7"}, name="Starter"),
        stripe_grant(holder, f"{holder}-2", 500, category="promotional", expires_at=seconds(1), priority=10),
        stripe_grant(holder, f"{holder}-3", 900, voided_at=seconds(-1)),
        stripe_grant(holder, f"{holder}-4", 900, expires_at=seconds(-1)),
        stripe_grant(holder, f"{holder}-5", 300),
        stripe_movement(f"{holder}-1", credit=1000),
        stripe_movement(f"{holder}-2", credit=500),
        stripe_movement(f"{holder}-1", debit=400),
        stripe_movement(f"{holder}-5", credit=300),
        stripe_movement(f"{holder}-5", debit=300),
    ]
    found = imported(tmp_path, objects, "--source", "stripe", "--credit-type", "usd_cents")
    assert (found["rows"]["imported"], found["differences"]) == (2, [])
    paid, promotional = Entry.objects.filter(holder_id=holder).order_by("sequence")
    assert (paid.sale["paid_minor"], paid.sale["currency"], paid.sale["document"]) == (600, "USD", f"{holder}-1")
    assert promotional.sale is None
    assert (paid.amount, paid.reason, paid.metadata, paid.credit_type) == (600, "Starter", {"po": "7"}, "usd_cents")
    assert paid.effective_at == datetime.fromtimestamp(seconds(-60), UTC)
    assert (promotional.amount, promotional.balance) == (500, 1100)
    spend = services.spend(holder_id=holder, amount=600, credit_type="usd_cents", idempotency_key="s")
    assert spend.drawn == ((2, 500), (1, 100))


def lago(holder: str) -> list[dict[str, Any]]:
    """A wallet as Lago returns it, and its transactions: 100 purchased and 20.5 granted, 28.25 invoiced; one has failed."""
    wallet = {
        "lago_id": f"w-{holder}", "external_customer_id": holder, "status": "active", "currency": "USD", "rate_amount": "1.5",
        "credits_balance": "92.25", "consumed_credits": "28.25", "created_at": text(-90), "expiration_at": None,
    }  # fmt: skip

    def movement(name: str, kind: str, why: str, credits_: str, amount: str, days: int, **more: Any) -> dict[str, Any]:
        return {
            "lago_id": f"{name}-{holder}", "lago_wallet_id": f"w-{holder}", "status": "settled", "source": "manual",
            "transaction_status": why, "transaction_type": kind, "amount": amount, "credit_amount": credits_,
            "created_at": text(days), "settled_at": text(days), "metadata": [{"key": "po", "value": "7"}], **more,
        }  # fmt: skip

    return [
        movement("t3", "outbound", "invoiced", "28.25", "42.38", -30),
        movement("t1", "inbound", "purchased", "100.0", "150.0", -90),
        movement("t2", "inbound", "granted", "20.5", "30.75", -80),
        movement("t4", "inbound", "purchased", "50.0", "75.0", -20, status="failed", settled_at=None),
        wallet,
    ]


def test_the_history_of_lagos_wallets(holder: str, tmp_path: Path) -> None:
    found = imported(tmp_path, lago(holder), "--source", "lago", "--decimals", "2")
    assert (found["rows"]["imported"], found["differences"]) == (3, [])
    entries = list(Entry.objects.filter(holder_id=holder).order_by("sequence"))
    assert [(entry.kind, entry.amount, entry.balance) for entry in entries] == [
        ("grant", 10000, 10000), ("grant", 2050, 12050), ("spend", -2825, 9225),
    ]  # fmt: skip
    assert entries[0].sale["paid_minor"] == 15000
    assert entries[1].sale is None
    assert entries[2].drawn == [[2, 2050], [1, 775]]
    assert entries[2].effective_at == datetime.fromisoformat(text(-30))
    assert (entries[0].reference, entries[0].metadata) == (f"wallet w-{holder}", {"po": "7"})


def test_credits_with_more_decimals_than_were_chosen_are_not_rounded(holder: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"line 5: 92\.25 credits have more than 1 decimals, .* --decimals 2 counts") as ended:
        imported(tmp_path, lago(holder), "--source", "lago", "--decimals", "1")
    assert ended.value.returncode == 2
    assert not Entry.objects.filter(holder_id=holder).exists()


def test_what_is_left_of_openmeters_grants(holder: str, tmp_path: Path) -> None:
    def grant(name: str, amount: float, **more: Any) -> dict[str, Any]:
        return {
            "id": f"{name}-{holder}", "entitlementId": f"e-{holder}", "amount": amount, "priority": 1, "effectiveAt": text(-60),
            "expiration": {"duration": "MONTH", "count": 12}, "expiresAt": text(300), "maxRolloverAmount": amount, "metadata": {},
            "createdAt": text(-60), "updatedAt": text(-60), **more,
        }  # fmt: skip

    entitlement = {
        "id": f"e-{holder}", "type": "metered", "featureKey": "gpt_4_tokens", "subjectKey": "someone", "customerKey": holder,
        "grants": [grant("a", 100), grant("b", 50), grant("c", 70, voidedAt=text(-1)), grant("d", 30, effectiveAt=text(5))],
        "history": {"windowedHistory": [], "burndownHistory": [
            {"grantBalancesAtEnd": {f"a-{holder}": 90, f"b-{holder}": 50}},
            {"grantBalancesAtEnd": {f"a-{holder}": 12.5, f"b-{holder}": 50, f"c-{holder}": 70, f"d-{holder}": 30}},
        ]},
    }  # fmt: skip
    found = imported(tmp_path, [entitlement], "--source", "openmeter", "--credit-type", "tokens", "--decimals", "1")
    assert (found["rows"]["imported"], found["differences"]) == (3, [])
    entries = Entry.objects.filter(holder_id=holder).order_by("sequence")
    assert [(entry.amount, entry.idempotency_key) for entry in entries] == [
        (125, f"import/a-{holder}"), (500, f"import/b-{holder}"), (300, f"import/d-{holder}"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "line", "why"),
    [
        ("stripe", {"object": "customer"}, "is neither a billing.credit_grant nor a billing.credit_balance_transaction"),
        ("lago", {"lago_id": "x"}, "is neither a wallet nor a wallet transaction"),
        ("openmeter", {"id": "x"}, "is not an entitlement with its grants"),
        (
            "lago",
            {"lago_wallet_id": "w", "status": "settled", "settled_at": text(-1)},
            "is of wallet w, which is not in the file",
        ),
    ],
)
def test_an_object_of_another_kind_is_named(db: None, tmp_path: Path, source: str, line: dict[str, Any], why: str) -> None:
    with pytest.raises(CommandError, match=f"line 1: {why}") as ended:
        imported(tmp_path, [line], "--source", source)
    assert ended.value.returncode == 2


STRIPE_GRANT = stripe_grant("cus", "g", 5)
LAGO_WALLET = {"lago_id": "w", "external_customer_id": "c", "credits_balance": "1", "currency": "EUR"}
LAGO_MOVE = {
    "lago_id": "t", "lago_wallet_id": "w", "status": "settled", "settled_at": text(-1), "credit_amount": "1", "amount": "1",
    "transaction_type": "inbound", "transaction_status": "granted",
}  # fmt: skip
METERED = {"id": "e", "featureKey": "f", "customerKey": "c", "grants": [{"id": "g", "amount": 5, "effectiveAt": text(-1)}]}
NOT_OF_THE_FORM = [
    ("stripe", [{name: value for name, value in STRIPE_GRANT.items() if name != "customer"}], "has no 'customer'"),
    ("stripe", [STRIPE_GRANT | {"id": ["g"]}], "has a value of another type"),
    ("stripe", [STRIPE_GRANT | {"created": 10**20, "effective_at": None}], "has a value of another type"),
    ("stripe", [STRIPE_GRANT | {"expires_at": "tomorrow"}], "has a value of another type"),
    ("stripe", [{"object": "billing.credit_balance_transaction", "credit_grant": ["g"]}], "has a value of another type"),
    ("lago", [LAGO_WALLET, LAGO_MOVE | {"settled_at": "yesterday"}], "has a value of another type"),
    ("lago", [LAGO_WALLET, LAGO_MOVE | {"settled_at": "2026-01-01T00:00:00"}], "has no offset"),
    ("lago", [LAGO_WALLET, LAGO_MOVE | {"metadata": 5}], "has a value of another type"),
    ("lago", [LAGO_WALLET | {"credits_balance": "1e999999999"}], "is no number of credits"),
    ("lago", [LAGO_WALLET | {"credits_balance": "Infinity"}], "credits are too many"),
    ("lago", [LAGO_WALLET | {"credits_balance": 10**26}], "credits are too many"),
    ("openmeter", [METERED | {"grants": [{"id": "g", "amount": 5, "effectiveAt": 5}]}], "has a value of another type"),
    ("openmeter", [METERED | {"grants": 5}], "has a value of another type"),
    ("openmeter", [METERED | {"history": {"burndownHistory": [5]}}], "has a value of another type"),
]


@pytest.mark.parametrize(("source", "objects", "why"), NOT_OF_THE_FORM, ids=range(len(NOT_OF_THE_FORM)))
def test_an_object_that_lacks_something_or_has_another_type_is_named(
    db: None, tmp_path: Path, source: str, objects: list[Any], why: str
) -> None:
    with pytest.raises(CommandError, match=f"line {len(objects)}: ") as ended:
        imported(tmp_path, objects, "--source", source)
    assert why in str(ended.value)
    assert ended.value.returncode == 2
    assert not Entry.objects.filter(holder_id__in=["cus", "c"]).exists()


def read_wallets(lines: Iterable[Line], terms: Terms) -> SourceRows:
    """The export of a project: a holder and credits a line."""
    rows = [
        Line(one.number, {"row": f"w{one.number}", "holder": one.value["who"], "operation": "grant", "amount": one.value["has"]}
             | {"credit_type": terms.credit_type, "source": "promotional"})
        for one in lines if one.value
    ]  # fmt: skip
    return SourceRows(rows)


def test_a_source_of_the_project_is_the_function_at_its_path(tmp_path: Path, holder: str, settings: Any) -> None:
    settings.IMPORT_SOURCES = {"acme": f"{__name__}.read_wallets"}
    assert check_sources(None) == []
    imported(tmp_path, [{"who": holder, "has": 7}], "--source", "acme")
    assert Entry.objects.get(holder_id=holder).balance == 7


@pytest.mark.parametrize("path", ["shop.exports.read_wallets", f"{__name__}.NOW", f"{__name__}.nothing", "", None])
def test_a_source_that_is_no_function_is_refused_at_the_start(tmp_path: Path, settings: Any, path: str | None) -> None:
    settings.IMPORT_SOURCES = {"acme": path}
    assert [(found.id, "acme" in found.msg) for found in check_sources(None)] == [("ledger.E008", True)]
    with pytest.raises(SystemCheckError):
        call_command("import_ledger", str(tmp_path / "none.json"), source="acme", skip_checks=False)


def refusal_of(tmp_path: Path, objects: Any, *options: str) -> str:
    """What the command says of a file that it refuses; nothing of it is imported."""
    file = tmp_path / "export.json"
    file.write_text(json.dumps(objects))
    before = Entry.objects.count()
    with pytest.raises(CommandError) as refused:
        call_command("import_ledger", str(file), "--workers", "1", *options, stdout=StringIO())
    assert Entry.objects.count() == before
    return str(refused.value)


STRIPE = ("--source", "stripe", "--credit-type", "usd_cents")


def test_a_page_that_is_not_the_last_is_refused(holder: str, tmp_path: Path) -> None:
    page = {"object": "list", "has_more": True, "data": [stripe_grant(holder, f"{holder}-1", 1000)]}
    assert "is one page of several" in refusal_of(tmp_path, page, *STRIPE)
    wallets = {"wallets": lago(holder)[-1:], "meta": {"total_pages": 2, "total_count": 30}}
    assert "is one page of several" in refusal_of(tmp_path, wallets, "--source", "lago")


def test_transactions_without_the_grants_own_credit_are_refused(holder: str, tmp_path: Path) -> None:
    objects = [stripe_grant(holder, f"{holder}-1", 1000), stripe_movement(f"{holder}-1", debit=400)]
    assert f"has transactions of {holder}-1 without its own credit" in refusal_of(tmp_path, objects, *STRIPE)


def test_a_grant_without_transactions_beside_others_is_refused(holder: str, tmp_path: Path) -> None:
    later = stripe_grant(holder, f"{holder}-3", 700, effective_at=seconds(5))
    objects = [stripe_grant(holder, f"{holder}-1", 1000), stripe_movement(f"{holder}-1", credit=1000), later]
    partly = [*objects, stripe_grant(holder, f"{holder}-2", 500)]
    why = f"line 4: is {holder}-2, which is in effect and has no transaction in the file: export all of the customer's"
    assert why in refusal_of(tmp_path, partly, *STRIPE)
    imported(tmp_path, objects, *STRIPE)
    assert sorted(Entry.objects.filter(holder_id=holder).values_list("amount", flat=True)) == [700, 1000]


def test_two_currencies_never_add_up(holder: str, tmp_path: Path) -> None:
    yen = {"type": "monetary", "monetary": {"currency": "jpy", "value": 5000}}
    objects = [stripe_grant(holder, f"{holder}-1", 1000), stripe_grant(holder, f"{holder}-2", 0, amount=yen)]
    assert "is in JPY, and others are in USD" in refusal_of(tmp_path, objects, *STRIPE)


def test_stripes_hundredths_of_kronur_are_kronur(holder: str, tmp_path: Path) -> None:
    kronur = {"type": "monetary", "monetary": {"currency": "isk", "value": 50_000}}
    imported(tmp_path, [stripe_grant(holder, f"{holder}-1", 0, amount=kronur)], "--source", "stripe", "--credit-type", "isk")
    entry = Entry.objects.get(holder_id=holder)
    assert (entry.amount, entry.sale["paid_minor"], entry.sale["currency"]) == (500, 500, "ISK")


def test_what_a_terminated_wallet_had_left_ends_with_it(holder: str, tmp_path: Path) -> None:
    objects = lago(holder)
    objects[-1] |= {"status": "terminated", "terminated_at": text(-10)}
    found = imported(tmp_path, objects, "--source", "lago", "--decimals", "2")
    last = Entry.objects.filter(holder_id=holder).latest("sequence")
    assert (found["differences"], last.kind, last.amount, last.balance) == ([], "spend", -9225, 0)


def test_lagos_own_list_is_read(holder: str, tmp_path: Path) -> None:
    file = tmp_path / "wallets.json"
    file.write_text(json.dumps({"wallets": [lago(holder)[-1] | {"credits_balance": "0.0"}], "meta": {"total_pages": 1}}))
    call_command("import_ledger", str(file), "--source", "lago", "--decimals", "2", "--workers", "1", stdout=StringIO())


def test_a_grant_that_begins_after_the_history_is_whole(holder: str, tmp_path: Path) -> None:
    def grant(number: int, amount: int, days: int) -> dict[str, Any]:
        terms = {"priority": 1, "effectiveAt": text(days), "expiresAt": None, "metadata": {}}
        return {"id": f"{holder}-{number}", "amount": amount, **terms}

    history = {"burndownHistory": [{"grantBalancesAtEnd": {f"{holder}-1": 70}}]}
    entitlement = {
        "id": f"e-{holder}", "featureKey": "tokens", "subjectKey": holder,
        "grants": [grant(1, 100, -60), grant(2, 500, 60), grant(3, 30, -50)], "history": history,
    }  # fmt: skip
    imported(tmp_path, [entitlement], "--source", "openmeter", "--credit-type", "tokens")
    assert list(Entry.objects.filter(holder_id=holder).order_by("sequence").values_list("amount", flat=True)) == [70, 500]


# Source and ledger, before the first row -------------------------------------------------------------


def compared(tmp_path: Path, objects: Any, *options: str) -> str:
    """The table that the command prints before the first row; the import succeeds."""
    file = tmp_path / "export.json"
    file.write_text(json.dumps(objects))
    out = StringIO()
    call_command("import_ledger", str(file), "--workers", "1", *options, stdout=StringIO(), stderr=out)
    return out.getvalue()


def summary(holder: str, value: int) -> dict[str, Any]:
    """The credit balance summary of a customer as Stripe returns it."""
    balance = {"available_balance": monetary(value), "ledger_balance": monetary(value)}
    return {"object": "billing.credit_balance_summary", "balances": [balance], "customer": holder, "livemode": True}


def test_the_sums_of_source_and_ledger_are_shown_before_the_first_row(holder: str, tmp_path: Path) -> None:
    objects = [stripe_grant(holder, f"{holder}-1", 1000), stripe_grant(holder, f"{holder}-2", 500), summary(holder, 1500)]
    said = compared(tmp_path, objects, *STRIPE)
    assert "as the source states them" in said
    assert [line.split() for line in said.splitlines()[2:]] == [
        [holder, "usd_cents", "1,500", "0", "1,500"], ["1", "holders", "usd_cents", "1,500", "0", "1,500"],
    ]  # fmt: skip
    # The same export again: the credits are here already, and nothing is added.
    assert compared(tmp_path, objects, *STRIPE).splitlines()[2].split() == [holder, "usd_cents", "1,500", "1,500", "1,500"]


def test_without_a_balance_of_the_source_its_grants_are_added_up(holder: str, tmp_path: Path) -> None:
    said = compared(tmp_path, [stripe_grant(holder, f"{holder}-1", 1000)], *STRIPE)
    assert "as its grants add up: the file has no balance of the source's own" in said


def test_half_of_an_export_is_refused_unless_it_is_accepted(holder: str, tmp_path: Path) -> None:
    objects = [stripe_grant(holder, f"{holder}-1", 1000), summary(holder, 1500)]
    why = refusal_of(tmp_path, objects, *STRIPE)
    assert "1 of 1 accounts would not have what the source says. Nothing was imported." in why
    with pytest.raises(SystemExit) as ended:
        compared(tmp_path, objects, *STRIPE, "--accept-differences")
    assert ended.value.code == 1
    assert Entry.objects.get(holder_id=holder).balance == 1000


def test_credits_that_are_here_already_are_named(holder: str, tmp_path: Path) -> None:
    services.grant(holder_id=holder, amount=7, credit_type="usd_cents", idempotency_key="k")
    said = StringIO()
    file = tmp_path / "export.json"
    file.write_text(json.dumps([stripe_grant(holder, f"{holder}-1", 1000)]))
    with pytest.raises(CommandError):
        call_command("import_ledger", str(file), "--workers", "1", *STRIPE, stdout=StringIO(), stderr=said)
    assert [holder, "usd_cents", "1,000", "7", "1,007", "differs"] in [line.split() for line in said.getvalue().splitlines()]
    assert Entry.objects.filter(holder_id=holder).count() == 1


def test_a_history_that_does_not_come_to_the_wallets_balance_is_refused(holder: str, tmp_path: Path) -> None:
    objects = lago(holder)
    objects[-1] |= {"credits_balance": "92.24"}
    assert "1 of 1 accounts would not have" in refusal_of(tmp_path, objects, "--source", "lago", "--decimals", "2")


def test_wallets_in_two_currencies_never_add_up(holder: str, tmp_path: Path) -> None:
    objects = [*lago(holder), {**lago(holder)[-1], "lago_id": "other", "currency": "JPY", "credits_balance": "0.0"}]
    why = refusal_of(tmp_path, objects, "--source", "lago", "--decimals", "2")
    assert "is a wallet in JPY" in why


def metered(holder: str, amount: float, left: float, at_end: float) -> dict[str, Any]:
    """An entitlement with one grant, and what its history says is left of it and of all."""
    window = {"grantBalancesAtEnd": {f"a-{holder}": left}, "balanceAtEnd": at_end}
    return {
        "id": f"e-{holder}", "featureKey": "tokens", "customerKey": holder, "history": {"burndownHistory": [window]},
        "grants": [{"id": f"a-{holder}", "amount": amount, "effectiveAt": text(-60), "expiresAt": None}],
    }  # fmt: skip


OPENMETER = ("--source", "openmeter", "--credit-type", "tokens")


def test_what_openmeter_says_is_left_of_all_grants_is_compared(holder: str, tmp_path: Path) -> None:
    assert "1 of 1 accounts would not have" in refusal_of(tmp_path, [metered(holder, 100, 70, 90)], *OPENMETER)
    assert "as the source states them" in compared(tmp_path, [metered(holder, 100, 70, 70)], *OPENMETER)


def test_a_double_has_fifteen_digits_and_nothing_is_rounded(holder: str, tmp_path: Path) -> None:
    noisy = [metered(holder, 0.5, 0.1 + 0.2, 0.1 + 0.2)]
    assert "0.30000000000000004 credits have more than 0 decimals, and are not rounded: --decimals 1 counts them" in refusal_of(
        tmp_path, noisy, *OPENMETER
    )
    compared(tmp_path, noisy, *OPENMETER, "--decimals", "1")
    assert Entry.objects.get(holder_id=holder).balance == 3


def test_an_entitlement_without_history_says_nothing_of_what_is_left(holder: str, tmp_path: Path) -> None:
    objects = [metered(holder, 100, 70, 70) | {"history": None}]
    assert f"has no history, so what is left of grant a-{holder} is not in the file" in refusal_of(tmp_path, objects, *OPENMETER)
    later = metered(holder, 100, 0, 0) | {"history": None}
    later["grants"][0]["effectiveAt"] = text(5)
    compared(tmp_path, [later], *OPENMETER)
    assert Entry.objects.get(holder_id=holder).amount == 100


# Credits that come again -----------------------------------------------------------------------------


def first_of_next_month() -> datetime:
    return (NOW.replace(day=1, hour=0, minute=0, second=0) + timedelta(days=32)).replace(day=1)


def lots_of(holder: str) -> list[tuple[int, datetime | None]]:
    """What is left of each grant of the holder, and when it expires."""
    lots = reads.balance(holder, "tokens").lots
    return [(lot.remaining, None if lot.expires_us is None else from_us(lot.expires_us)) for lot in lots]


def settings_of(holder: str) -> list[dict[str, Any]]:
    """The recurring grants of the holder, as REST shows them."""
    return [
        {"terms": entry.counterpart["terms"], "next_at": entry.counterpart["next_at"]}
        for entry in Entry.objects.filter(holder_id=holder, kind="adjust").order_by("sequence")
    ]


RULE = {
    "lago_id": "0b5c1b9e-3a46-4a6c-9a8b-6b2e1a4c7d10", "trigger": "interval", "interval": "quarterly", "method": "fixed",
    "paid_credits": "0.0", "granted_credits": "20.5", "started_at": "2025-11-30T00:00:00Z", "expiration_at": None,
    "status": "active", "transaction_name": "Loyalty",
}  # fmt: skip
LAGO = ("--source", "lago", "--decimals", "2")


def test_a_rule_of_a_lago_wallet_becomes_a_recurring_grant_from_its_next_date_on(holder: str, tmp_path: Path) -> None:
    objects = lago(holder)
    ended = RULE | {"lago_id": "ended", "status": "terminated"}
    objects[-1] |= {"recurring_transaction_rules": [RULE, ended]}
    assert imported(tmp_path, objects, *LAGO)["differences"] == []
    [setting] = settings_of(holder)
    terms = setting["terms"]
    assert (terms["amount"], terms["interval"], terms["interval_count"], terms["expiry"]) == (2050, "month", 3, "never")
    assert NOW < datetime.fromisoformat(setting["next_at"]) <= NOW + timedelta(days=93)
    # What Lago gave on its earlier dates is in its transactions: nothing is granted before the next one.
    assert Entry.objects.filter(holder_id=holder).latest("sequence").balance == 9225


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"trigger": "threshold", "threshold_credits": "5"}, "adds credits when few are left: declare a top-up"),
        ({"interval": "fortnightly"}, "recurs fortnightly, which no recurring grant does"),
        ({"method": "target", "target_ongoing_balance": "200"}, "fills up to a target"),
        ({"paid_credits": "10.0"}, "sells credits at an interval: sell them by a plan"),
    ],
)
def test_a_rule_that_no_recurring_grant_says_is_refused_by_name(
    holder: str, tmp_path: Path, changed: dict[str, Any], why: str
) -> None:
    objects = lago(holder)
    objects[-1] |= {"recurring_transaction_rules": [RULE | changed]}
    refusal = refusal_of(tmp_path, objects, *LAGO)
    assert f"line 5: rule {RULE['lago_id']} of wallet w-{holder} {why}" in refusal
    assert refusal.endswith("Nothing was imported. Set them up here after an import with --without-recurring.")
    assert why in compared(tmp_path, objects, *LAGO, "--without-recurring")
    assert settings_of(holder) == []
    assert Entry.objects.filter(holder_id=holder).latest("sequence").balance == 9225


def monthly(holder: str, left: float, **of_grant: Any) -> dict[str, Any]:
    """An entitlement whose grant of 100 comes again on the first of each month, if its grant says nothing else."""
    entitlement = metered(holder, 100, left, left)
    entitlement["usagePeriod"] = {"interval": "MONTH", "intervalISO": "P1M", "anchor": "2026-01-01T00:00:00Z"}
    entitlement["grants"][0] |= of_grant
    return entitlement


@pytest.mark.parametrize(
    "of_grant",
    [
        {"recurrence": {"interval": "MONTH", "anchor": "2026-01-01T00:00:00Z"}, "maxRolloverAmount": 0},
        {"maxRolloverAmount": 100, "minRolloverAmount": 100},
    ],
    ids=["a recurrence", "filled by each reset"],
)
@pytest.mark.parametrize("left", [70, 0])
def test_a_grant_of_openmeter_that_comes_again_does_so_here(
    holder: str, tmp_path: Path, of_grant: dict[str, Any], left: int
) -> None:
    compared(tmp_path, [monthly(holder, left, **of_grant)], *OPENMETER)
    [setting] = settings_of(holder)
    assert (setting["terms"]["amount"], setting["terms"]["expiry"]) == (100, "period_end")
    assert datetime.fromisoformat(setting["next_at"]) == first_of_next_month()
    assert lots_of(holder) == [(left, first_of_next_month())] * (left > 0)


def test_what_openmeter_forgets_at_its_reset_expires_then(holder: str, tmp_path: Path) -> None:
    compared(tmp_path, [monthly(holder, 70, maxRolloverAmount=0, minRolloverAmount=0)], *OPENMETER)
    assert lots_of(holder) == [(70, first_of_next_month())]
    assert settings_of(holder) == []


def test_what_openmeter_keeps_whole_does_not_expire(holder: str, tmp_path: Path) -> None:
    compared(tmp_path, [monthly(holder, 70, maxRolloverAmount=100, minRolloverAmount=0)], *OPENMETER)
    assert lots_of(holder) == [(70, None)]


@pytest.mark.parametrize(
    ("of_grant", "why"),
    [
        (
            {"maxRolloverAmount": 50, "minRolloverAmount": 0},
            "keeps 0 to 50 at each reset: declare a recurring grant with `rollover`",
        ),
        (
            {"recurrence": {"interval": "PT12H", "anchor": "2026-01-01T00:00:00Z"}},
            "recurs every PT12H, which no recurring grant does",
        ),
    ],
)
def test_a_grant_that_comes_again_as_no_recurring_grant_does_is_refused_by_name(
    holder: str, tmp_path: Path, of_grant: dict[str, Any], why: str
) -> None:
    objects = [monthly(holder, 70, **of_grant)]
    assert f"line 1: grant a-{holder} {why}" in refusal_of(tmp_path, objects, *OPENMETER)
    assert why in compared(tmp_path, objects, *OPENMETER, "--without-recurring")
    assert [entry.amount for entry in Entry.objects.filter(holder_id=holder)] == [70]


def test_an_import_again_sets_nothing_twice(holder: str, tmp_path: Path) -> None:
    objects = lago(holder)
    objects[-1] |= {"recurring_transaction_rules": [RULE]}
    imported(tmp_path, objects, *LAGO)
    again = imported(tmp_path, objects, *LAGO)
    assert (again["rows"]["imported"], again["rows"]["known"], len(settings_of(holder))) == (0, 4, 1)


# What a whole export has -----------------------------------------------------------------------------


def wholes() -> dict[str, WholeExport]:
    return {name: whole for name in SOURCES if (whole := whole_export_of(find_source(name))) is not None}


def test_each_source_of_another_system_declares_what_a_whole_export_has_and_the_docs_say_it() -> None:
    assert wholes().keys() == SOURCES.keys() - {"rows"}
    columns = [dict(whole.described()) for whole in wholes().values()]
    rows = [f"| | {' | '.join(f'`{name}`' for name in wholes())} |", "|---" * (len(columns) + 1) + "|"]
    rows += [f"| {part} | {' | '.join(column[part] for column in columns)} |" for part in columns[0]]
    page = (settings.BASE_DIR / "docs/how-to/bring-data-in.md").read_text()
    [table] = re.findall(r"<!-- whole exports -->\n(.*?)\n<!-- /whole exports -->", page, re.DOTALL)
    assert table == "\n".join(rows)

"""A purchase is on record when its money is in; its credits follow, once; a return takes back what is unspent."""

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from billing.auditing import consistency
from billing.errors import AlreadyExists
from billing.payments import purchase_settling, reads
from billing.payments.due_purchases import SettledPurchases, settle_due
from billing.payments.errors import ReturnExceedsPurchase
from billing.payments.models import DuePurchase, Purchase, PurchaseGrant, PurchaseReturn, ReturnSettlement
from billing.payments.purchase_recording import record_purchase, record_return
from billing.payments.purchase_settling import attempt, settle
from billing.payments.testing import PackFactory, PurchaseFactory
from billing.testing import CustomerFactory, unique
from ledger import reads as ledger_reads
from ledger import services
from ledger.errors import HolderBusy, InsufficientCredits, Invalid, LotLimit
from tests.billing.documents.invoice_payments.test_payments import issued, now_of, pay
from tests.tampering.owner import as_owner

pytestmark = pytest.mark.django_db


def entries(holder: str) -> list[tuple[str, int]]:
    """The holder's entries, the oldest first."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT kind, amount FROM ledger_entry WHERE holder_id = %s ORDER BY sequence", [holder])
        return cursor.fetchall()


def return_money(
    purchase: Purchase, kind: str = "refund", *, amount_minor: int | None = None, payment: str = ""
) -> ReturnSettlement:
    """Record a return, and settle it."""
    made = record_return(purchase=purchase.pk, kind=kind, payment=payment or unique("re"), amount_minor=amount_minor)
    settle(purchase.pk)
    return ReturnSettlement.objects.get(purchase_return_id=made.pk)


def taken_of(settled: ReturnSettlement) -> tuple[int, int, int, int, int]:
    return (settled.share_credits, settled.share_bonus, settled.taken_credits, settled.taken_bonus, settled.claim_minor)


def assert_sound() -> None:
    """Billing's checks find nothing."""
    assert consistency.check() == []


# The credits -----------------------------------------------------------------------------------------


def test_a_purchase_adds_purchased_and_promotional_credits_after_its_commit(
    django_capture_on_commit_callbacks: Any,
) -> None:
    pack = PackFactory(expires_days=30)
    with django_capture_on_commit_callbacks() as committed:
        purchase = record_purchase(pack=pack.code, holder_id="ada", payment="p-1", actor="key:shop")
    assert (entries("ada"), DuePurchase.objects.count()) == ([], 1)
    for callback in committed:
        callback()
    assert (entries("ada"), DuePurchase.objects.count()) == ([("grant", 1000), ("grant", 100)], 0)
    lots = ledger_reads.balance("ada").lots
    assert {lot.source: lot.remaining for lot in lots} == {"purchased": 1000, "promotional": 100}
    expiries = {lot.expires_at for lot in lots}
    assert len(expiries) == 1
    assert abs(expiries.pop() - timezone.now() - timedelta(days=30)) < timedelta(minutes=5)
    [grant] = PurchaseGrant.objects.all()
    assert grant.entries == [
        {"source": "purchased", "sequence": 1, "amount": 1000}, {"source": "promotional", "sequence": 2, "amount": 100},
    ]  # fmt: skip
    settle(purchase.pk)
    assert entries("ada") == [("grant", 1000), ("grant", 100)]
    assert_sound()


def test_credits_of_a_pack_for_some_things_pay_for_nothing_else_and_go_back_and_come_again_so() -> None:
    services.publish_rate(code="image.small", price=4, per=1, idempotency_key="rate")
    pack = PackFactory(applies_to={"rates": ["image.small"]})
    purchase = PurchaseFactory(pack=pack.code, holder_id="ada", payment="p-1")
    with pytest.raises(InsufficientCredits) as refused:
        services.spend(holder_id="ada", amount=1, idempotency_key="other")
    assert refused.value.facts["for_other_things"] == [{"applies_to": {"rates": ["image.small"]}, "available": 1100}]
    assert services.spend(holder_id="ada", rate="image.small", quantity=100, idempotency_key="image").amount == -400
    dispute = return_money(purchase, "dispute", payment="d-1")
    assert taken_of(dispute) == (1000, 100, 700, 0, 600)
    return_money(purchase, "reinstated", payment="d-1")
    balance = ledger_reads.balance("ada")
    assert (balance.balance, balance.available) == (700, 0)
    assert [lot.applies_to and lot.applies_to.shown() for lot in balance.lots] == [{"rates": ["image.small"]}]
    assert reads.purchase(purchase.pk).pack.applies_to == {"rates": ["image.small"]}
    assert_sound()


def test_the_check_tells_credits_that_are_not_for_what_their_pack_says() -> None:
    purchase = PurchaseFactory(pack=PackFactory(applies_to={"rates": ["image.small"]}).code)
    for change in ("NULL", """'{"rates": ["image.large"]}'"""):
        as_owner(f"UPDATE billing_pack SET applies_to = {change} WHERE id = {purchase.pack_id}")
        found = [one["what"] for one in consistency.check() if one["finding"].startswith("credits of a purchase are not for")]
        assert found == [f"purchase {purchase.pk}: entry {number} of {purchase.holder_id} in credits" for number in (1, 2)]


@pytest.mark.parametrize(
    "error", [HolderBusy(key="ledger/ada"), LotLimit(open_lots=500, limit=500), Invalid(pointer="/x", rule="y", detail="z")]
)
def test_a_purchase_stays_although_adding_its_credits_failed_and_is_tried_later(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    purchase = record_purchase(pack=PackFactory().code, holder_id="ada", payment="p-1")

    def fail(*args: Any, **fields: Any) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(purchase_settling.ledger, "grant_under", fail)
        assert [attempt(purchase.pk), attempt(purchase.pk)] == [False, False]
    found = reads.purchase(purchase.pk)
    assert (found.state, entries("ada"), found.due and found.due.tries) == ("paid", [], 2)
    assert found.due is not None
    assert found.due.error.startswith(f"{error.code}: ")
    assert settle_due() == SettledPurchases(due=0)
    DuePurchase.objects.update(due_at=timezone.now())
    assert settle_due(dry_run=True) == SettledPurchases(due=1)
    assert settle_due() == SettledPurchases(due=1, settled=1)
    assert (reads.purchase(purchase.pk).state, entries("ada")) == ("granted", [("grant", 1000), ("grant", 100)])
    assert_sound()


@pytest.mark.slow
@pytest.mark.check
def test_a_full_account_gets_its_credits_once_there_is_room(settings: Any) -> None:
    for number in range(500):
        services.grant(holder_id="ada", amount=1, idempotency_key=f"lot-{number}", priority=number)
    purchase = record_purchase(pack=PackFactory(bonus=0).code, holder_id="ada", payment="p-1")
    assert not attempt(purchase.pk)
    due = DuePurchase.objects.get()
    assert due.error.startswith("lot-limit: ")
    services.spend(holder_id="ada", amount=1, idempotency_key="room")
    assert attempt(purchase.pk)
    assert ledger_reads.balance("ada").balance == 1499


def test_the_command_tries_what_is_due_and_says_how_it_went() -> None:
    record_purchase(pack=PackFactory().code, holder_id="ada", payment="p-1")
    shown = StringIO()
    call_command("settle_purchases", "--dry-run", stdout=shown)
    call_command("settle_purchases", stdout=shown)
    call_command("settle_purchases", "--format", "json", stdout=shown)
    assert shown.getvalue().splitlines()[:2] == [
        "1 due. Nothing was written (dry run).", "1 due, 1 settled, 0 failed; they are tried again later.",
    ]  # fmt: skip
    assert '"settled": 0' in shown.getvalue()


# The record ------------------------------------------------------------------------------------------


def test_a_payment_makes_one_purchase() -> None:
    pack, customer = PackFactory(), CustomerFactory()
    wanted = {"pack": pack.code, "holder_id": "ada", "customer": customer.ref, "provider": "paypal", "payment": "p-1"}
    first = record_purchase(**wanted)
    PackFactory(code=pack.code, price_minor=1)
    assert record_purchase(**wanted).pk == first.pk
    for change in ({"holder_id": "bob"}, {"version": 2}, {"paid_minor": 1}, {"customer": None}, {"reference": "x"}):
        with pytest.raises(AlreadyExists):
            record_purchase(**wanted | change)
    assert record_purchase(**wanted | {"provider": "manual"}).pk != first.pk
    assert Purchase.objects.count() == DuePurchase.objects.count() == 2


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"pack": "none"}, "/pack"),
        ({"version": 7}, "/version"),
        ({"customer": "none"}, "/customer"),
        ({"paid_at": datetime(2199, 1, 1, tzinfo=UTC)}, "/paid_at"),
        ({"paid_at": datetime(2019, 1, 1, tzinfo=UTC)}, "/pack"),
        ({"paid_minor": 0}, "/paid_minor"),
        ({"provider": "Pay Pal"}, "/provider"),
        ({"payment": ""}, "/payment"),
        ({"holder_id": "a b"}, "/holder_id"),
    ],
)
def test_a_bad_purchase_is_refused_by_field_and_nothing_is_written(change: dict[str, Any], pointer: str) -> None:
    wanted = {"pack": PackFactory().code, "holder_id": "ada", "payment": "p-1"}
    with pytest.raises(Invalid) as refused:
        record_purchase(**wanted | change)
    assert refused.value.facts["pointer"] == pointer
    assert (Purchase.objects.count(), DuePurchase.objects.count()) == (0, 0)


def test_money_for_an_earlier_version_buys_that_version() -> None:
    pack = PackFactory(credits=500)
    PackFactory(code=pack.code, credits=1, valid_until=timezone.now())
    assert record_purchase(pack=pack.code, version=1, holder_id="ada", payment="p-1").credits == 500


# Returns ---------------------------------------------------------------------------------------------


def test_a_refund_of_all_money_revokes_all_unspent_credits() -> None:
    purchase = PurchaseFactory(holder_id="ada")
    assert taken_of(return_money(purchase)) == (1000, 100, 1000, 100, 0)
    assert entries("ada") == [("grant", 1000), ("grant", 100), ("revoke", -1000), ("revoke", -100)]
    found = reads.purchase(purchase.pk)
    assert (found.state, found.returned_minor, found.claim_credits, found.claim_minor) == ("returned", 2000, 0, 0)
    assert_sound()


def test_what_was_spent_is_a_claim_in_credits_and_money() -> None:
    purchase = PurchaseFactory(holder_id="ada")
    services.spend(holder_id="ada", amount=100 + 700, idempotency_key="used")
    assert taken_of(return_money(purchase, amount_minor=1000)) == (500, 50, 300, 0, 400)
    found = reads.purchase(purchase.pk)
    assert (found.state, found.returned_minor, found.claim_credits, found.claim_minor) == ("granted", 1000, 200, 400)
    assert taken_of(return_money(purchase)) == (500, 50, 0, 0, 1000)
    assert reads.purchase(purchase.pk).claim_minor == 1400
    assert ledger_reads.balance("ada").balance == 0
    assert_sound()


def test_a_large_claim_is_rounded_once_by_the_check_too() -> None:
    """1,999,900,000,000.499975: a quotient that is rounded to four decimals first would be rounded up."""
    purchase = PurchaseFactory(holder_id="ada", pack=PackFactory(credits=20_001, bonus=0, price_minor=3_999_999_990_001).code)
    services.spend(holder_id="ada", amount=10_000, idempotency_key="used")
    assert taken_of(return_money(purchase)) == (20_001, 0, 10_001, 0, 1_999_900_000_000)
    assert_sound()


def test_a_purchase_is_found_by_its_payment_alone() -> None:
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, Purchase._meta.db_table)
    assert constraints["billing_purchase_payment"]["columns"] == ["payment", "provider"]


def test_credits_of_other_grants_stay() -> None:
    purchase = PurchaseFactory(holder_id="ada", pack=PackFactory(bonus=0).code)
    services.spend(holder_id="ada", amount=1000, idempotency_key="used")
    services.grant(holder_id="ada", amount=50, idempotency_key="gift")
    assert taken_of(return_money(purchase)) == (1000, 0, 0, 0, 2000)
    assert ledger_reads.balance("ada").balance == 50
    assert_sound()


def test_credits_that_got_other_terms_are_found_again() -> None:
    purchase = PurchaseFactory(holder_id="ada", pack=PackFactory(bonus=0).code)
    services.reissue(holder_id="ada", lot=1, expires_at=timezone.now() + timedelta(days=9), idempotency_key="longer")
    assert taken_of(return_money(purchase, amount_minor=500)) == (250, 0, 250, 0, 0)
    assert ledger_reads.balance("ada").balance == 750
    assert_sound()


def test_money_that_went_back_before_the_credits_were_added_buys_nothing() -> None:
    purchase = record_purchase(pack=PackFactory().code, holder_id="ada", payment="p-1")
    for kind, amount in (("refund", 500), ("dispute", 500)):
        record_return(purchase=purchase.pk, kind=kind, payment=kind, amount_minor=amount)
    settle(purchase.pk)
    assert entries("ada") == [("grant", 500), ("grant", 50)]
    assert taken_of(return_money(purchase, "reinstated", payment="dispute")) == (-250, -25, -250, -25, 0)
    assert entries("ada")[2:] == [("grant", 250), ("grant", 25)]
    assert_sound()


def test_the_purchased_credits_carry_what_was_paid_for_them() -> None:
    purchase = record_purchase(pack=PackFactory().code, holder_id="ada", payment="p-1", reference="INV-7")
    record_return(purchase=purchase.pk, kind="refund", payment="r-1", amount_minor=500)
    settle(purchase.pk)
    with connection.cursor() as cursor:
        cursor.execute("SELECT amount, sale ->> 'paid_minor', sale ->> 'document' FROM ledger_entry ORDER BY sequence")
        assert cursor.fetchall() == [(750, "1500", "INV-7"), (75, None, None)]


def test_a_purchase_that_was_returned_first_grants_nothing() -> None:
    purchase = record_purchase(pack=PackFactory().code, holder_id="ada", payment="p-1")
    record_return(purchase=purchase.pk, kind="refund", payment="r-1")
    settle(purchase.pk)
    assert (entries("ada"), reads.purchase(purchase.pk).state) == ([], "returned")
    assert_sound()


def test_a_dispute_that_was_won_grants_again_what_it_took_and_can_be_revoked_later() -> None:
    purchase = PurchaseFactory(holder_id="ada")
    services.spend(holder_id="ada", amount=600, idempotency_key="used")
    assert taken_of(return_money(purchase, "dispute", payment="d-1")) == (1000, 100, 500, 0, 1000)
    assert taken_of(return_money(purchase, "reinstated", payment="d-1")) == (-1000, -100, -500, 0, -1000)
    found = reads.purchase(purchase.pk)
    assert (found.state, found.returned_minor, found.claim_minor, found.claim_credits) == ("granted", 0, 0, 0)
    assert ledger_reads.balance("ada").balance == 500
    assert taken_of(return_money(purchase)) == (1000, 100, 500, 0, 1000)
    assert ledger_reads.balance("ada").balance == 0
    assert_sound()


def test_credits_that_come_back_settle_the_claim_and_are_never_spendable() -> None:
    purchase = PurchaseFactory(holder_id="ada", pack=PackFactory(credits=500, bonus=0, price_minor=1000).code)
    spent = services.spend(holder_id="ada", amount=450, idempotency_key="used")
    assert taken_of(return_money(purchase, "dispute", payment="d-1")) == (500, 0, 50, 0, 900)
    services.refund(holder_id="ada", spend=spent.sequence, amount=150, idempotency_key="some")
    found = reads.purchase(purchase.pk)
    assert (found.claim_credits, found.claim_minor, ledger_reads.balance("ada").available) == (300, 600, 0)
    services.refund(holder_id="ada", spend=spent.sequence, idempotency_key="rest")
    found = reads.purchase(purchase.pk)
    assert (found.claim_credits, found.claim_minor, ledger_reads.balance("ada").available) == (0, 0, 0)
    assert_sound()


def test_a_bonus_is_claimed_too_without_money() -> None:
    purchase = PurchaseFactory(holder_id="ada")
    spent = services.spend(holder_id="ada", amount=1100, idempotency_key="used")
    return_money(purchase)
    services.refund(holder_id="ada", spend=spent.sequence, idempotency_key="back")
    assert (reads.purchase(purchase.pk).claim_minor, ledger_reads.balance("ada").available) == (0, 0)
    assert_sound()


def test_who_wins_a_dispute_gets_what_came_back_since_and_owes_nothing_more() -> None:
    purchase = PurchaseFactory(holder_id="ada")
    spent = services.spend(holder_id="ada", amount=600, idempotency_key="used")
    return_money(purchase, "dispute", payment="d-1")
    services.refund(holder_id="ada", spend=spent.sequence, amount=200, idempotency_key="some")
    assert (reads.purchase(purchase.pk).claim_credits, ledger_reads.balance("ada").available) == (300, 0)
    assert taken_of(return_money(purchase, "reinstated", payment="d-1")) == (-1000, -100, -700, 0, -600)
    assert ledger_reads.balance("ada").available == 700
    services.refund(holder_id="ada", spend=spent.sequence, idempotency_key="rest")
    found = reads.purchase(purchase.pk)
    assert (found.claim_credits, found.claim_minor, ledger_reads.balance("ada").available) == (0, 0, 700 + 300 + 100)
    assert_sound()


def test_an_account_with_as_many_claims_as_it_may_have_keeps_the_claim_on_record_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.services.claims.MAX_CLAIMS", 0)
    purchase = PurchaseFactory(holder_id="ada")
    services.spend(holder_id="ada", amount=600, idempotency_key="used")
    return_money(purchase)
    assert (reads.purchase(purchase.pk).claim_credits, ledger_reads.balance("ada").claims) == (500, ())
    assert_sound()


def test_a_bonus_that_a_won_dispute_gave_back_can_be_revoked_later_also_without_purchased_credits() -> None:
    purchase = PurchaseFactory(holder_id="ada", pack=PackFactory(credits=1, bonus=100).code)
    assert taken_of(return_money(purchase, "dispute", payment="d-1", amount_minor=1000)) == (0, 50, 0, 50, 0)
    assert taken_of(return_money(purchase, "reinstated", payment="d-1")) == (0, -50, 0, -50, 0)
    assert ledger_reads.balance("ada").balance == 101
    assert taken_of(return_money(purchase)) == (1, 100, 1, 100, 0)
    assert ledger_reads.balance("ada").balance == 0
    assert_sound()


def test_a_refund_or_dispute_is_recorded_once() -> None:
    purchase = PurchaseFactory(holder_id="ada")
    first = record_return(purchase=purchase.pk, kind="refund", payment="r-1", amount_minor=500)
    assert record_return(purchase=purchase.pk, kind="refund", payment="r-1").pk == first.pk
    with pytest.raises(AlreadyExists):
        record_return(purchase=purchase.pk, kind="refund", payment="r-1", amount_minor=501)
    assert PurchaseReturn.objects.count() == 1


def test_no_more_is_returned_than_was_paid() -> None:
    purchase = PurchaseFactory(holder_id="ada")
    return_money(purchase, amount_minor=1500)
    for amount in (501, 2000):
        with pytest.raises(ReturnExceedsPurchase) as refused:
            record_return(purchase=purchase.pk, kind="refund", payment="r-2", amount_minor=amount)
        assert refused.value.facts == {"purchase": purchase.pk, "returnable_minor": 500}
    return_money(purchase)
    with pytest.raises(ReturnExceedsPurchase) as refused:
        record_return(purchase=purchase.pk, kind="dispute", payment="d-1")
    assert refused.value.facts == {"purchase": purchase.pk, "returnable_minor": 0}
    assert PurchaseReturn.objects.count() == 2


@pytest.mark.parametrize(
    ("refunded", "disputed", "left", "loss"), [(2000, 2000, 0, 2000), (500, 2000, 1500, 500), (500, 1500, 1500, 0)]
)
def test_what_a_dispute_takes_beyond_the_rest_is_a_loss_until_it_is_won(
    refunded: int, disputed: int, left: int, loss: int
) -> None:
    purchase = PurchaseFactory(holder_id="ada")
    return_money(purchase, amount_minor=refunded)
    before = ledger_reads.balance("ada").balance
    made = record_return(purchase=purchase.pk, kind="dispute", payment="d-1", amount_minor=disputed)
    attempt(purchase.pk)
    found = reads.purchase(purchase.pk)
    assert (made.amount_minor, made.loss_minor) == (left, loss)
    assert (found.state, found.returned_minor, found.loss_minor, found.claim_minor) == ("returned", 2000, loss, 0)
    assert ledger_reads.balance("ada").balance == 0
    assert record_return(purchase=purchase.pk, kind="dispute", payment="d-1", amount_minor=disputed).pk == made.pk
    with pytest.raises(AlreadyExists):
        record_return(purchase=purchase.pk, kind="dispute", payment="d-1", amount_minor=disputed + 1)
    assert_sound()
    record_return(purchase=purchase.pk, kind="reinstated", payment="d-1")
    attempt(purchase.pk)
    found = reads.purchase(purchase.pk)
    assert (found.returned_minor, found.loss_minor, ledger_reads.balance("ada").balance) == (refunded, 0, before)
    assert_sound()


def test_only_a_dispute_on_record_can_be_won() -> None:
    purchase = PurchaseFactory(holder_id="ada")
    for fields in ({"payment": "none"}, {"payment": "none", "amount_minor": 5}):
        with pytest.raises(Invalid):
            record_return(purchase=purchase.pk, kind="reinstated", **fields)
    assert not PurchaseReturn.objects.exists()


def test_a_payment_pays_an_invoice_or_makes_a_purchase_and_not_both() -> None:
    record_purchase(pack=PackFactory().code, holder_id="ada", provider="stripe", payment="pi-1")
    invoice = issued()
    with pytest.raises(AlreadyExists):
        pay(invoice, 100, provider="stripe", payment="pi-1")
    pay(invoice, 100, provider="stripe", payment="pi-2")
    with pytest.raises(AlreadyExists):
        record_purchase(pack=PackFactory().code, holder_id="ada", provider="stripe", payment="pi-2")
    assert now_of(invoice)[2] == 100

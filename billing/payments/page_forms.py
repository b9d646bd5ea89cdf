"""The forms that put a pack on sale, record a purchase that was paid by other means, and record returned money."""

import json
from dataclasses import replace
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from billing.admin.cells import credits_text
from billing.admin.order_forms.fields import REASON, OrderForm
from billing.admin.order_forms.once import OrderPage
from billing.payments import reads
from billing.payments.models import Pack, Purchase, PurchaseReturn
from billing.payments.packs import NewPack, create_pack
from billing.payments.purchase_recording import NewPurchase, NewReturn, record_purchase, record_return
from billing.rating.money import money_text
from ledger.staff.approvals import NoStake, Stake, StakeRule
from ledger.staff.credit_amounts import CreditAmountsForm
from ledger.staff.kit.cells import row_url
from ledger.staff.kit.form_fields import Display
from ledger.staff.kit.idempotent_forms import DryRun, RequestForm
from ledger.staff.kit.pages import ReadOnlyAdmin
from ledger.staff.kit.rows import purpose_field
from ledger.units import purpose_words

MAX_PACKS_NAMED = 200
"""Of how many packs the page knows the currency; the server knows all."""
SAVED = "Saved versions cannot be edited; create a new one."
RETURN_WORDS = {"refund": "refund", "dispute": "dispute", "reinstated": "dispute that was won"}


class PackForm(OrderForm, CreditAmountsForm[NewPack]):
    """A pack, or its next version."""

    stake = NoStake("It moves no money: it is an offer, and a purchase by hand has a stake.")
    declared = NewPack
    shows = {
        "code": Display(label="Ref", help="Your name for the pack, such as starter."),
        "name": Display(help="Shown to customers, and printed on documents."),
        "credits": Display(label="Credits"),
        "bonus": Display(label="Extra credits, free", required=False),
        "credit_type": Display(required=False),
        "price": Display(at="/price_minor", label="Price"),
        "currency": Display(),
        "expires_days": Display(label="Expires after days", help="From when the credits are added; empty: never."),
        "reason": REASON,
        "applies_to": Display(
            label="Pay only for",
            make=purpose_field,
            help="Without a row: everything. Each further value of a label has a row. No automatic top-up can buy such a pack.",
        ),
        "valid_from": Display(label="On sale from", help="Empty: from now on."),
        "valid_until": Display(label="On sale until", help="Empty: without an end."),
        "names": Display(label="Name in other languages"),
    }
    folded = ("applies_to", "valid_from", "valid_until", "names")


def create_pack_view(model_admin: ReadOnlyAdmin, request: HttpRequest, **initial: Any) -> HttpResponse:
    """Show the form of a new pack, then its effect, then write it."""
    return OrderPage(
        form=PackForm,
        collection="packs",
        pointer="/code",
        rows=Pack,
        write=lambda form: create_pack.execute(form.request),
        describe=lambda pack, form: DryRun(sentences=[f"{pack}: {pack_words(pack)}.", SAVED]),
        done=lambda pack, form: (f"Pack {pack}", pack_words(pack)),
        initial=initial,
        title="New pack",
        button="Create the pack",
        explanation="Credits on sale. The newest version that has begun is on sale, until it ends.",
        back=reverse("admin:billing_payments_pack_changelist"),
    ).view(model_admin, request)


def pack_words(pack: Pack) -> str:
    """Return what a pack gives, and for how much."""
    bonus = f" and {credits_text(pack.bonus, pack.credit_type)} as a bonus" if pack.bonus else ""
    expiry = "" if pack.expires_days is None else f", for {pack.expires_days} days"
    credits_ = credits_text(pack.credits, pack.credit_type)
    purpose = purpose_words(pack.applies_to)
    return f"{credits_}{bonus} for {money_text(pack.price_minor, pack.currency)}{expiry}{purpose and f', {purpose}'}"


class PurchaseForm(OrderForm, RequestForm[NewPurchase]):
    """Money that came in by other means than a provider that reports it."""

    stake = StakeRule(
        lambda form, purchase: [
            Stake(purchase.credit_type, purchase.credits + purchase.bonus), Stake(purchase.currency, purchase.paid_minor),
        ]
    )  # fmt: skip
    declared = NewPurchase
    shows = {
        "pack": Display(help="Its ref."),
        "holder_id": Display(label="Holder", help="Who gets the credits."),
        "payment": Display(label="Payment", help="The bank's or provider's id of the payment. A payment makes one purchase."),
        "paid": Display(at="/paid_minor", label="Paid", help="Empty: the price of the pack."),
        "customer": Display(help="The ref of the customer who paid, if there is one."),
        "reason": REASON,
        "provider": Display(required=False, help="Who took the money; manual: you have seen it in the account."),
        "version": Display(help="Of the pack; empty: the one on sale."),
        "paid_at": Display(label="Paid on", help="When the money was in; empty: now."),
        "reference": Display(help="What it belongs to in your books."),
    }
    folded = ("provider", "version", "paid_at", "reference")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        currencies = dict(Pack.objects.order_by("-pk").values_list("code", "currency")[:MAX_PACKS_NAMED])
        self.fields["pack"].widget.attrs["data-currencies"] = json.dumps(currencies)

    def currency_of(self, name: str) -> tuple[str, str]:
        """Return the currency of the chosen pack."""
        newest = Pack.objects.filter(code=self.text_of("pack")).order_by("-version").values_list("currency", flat=True).first()
        return newest or "", "pack"

    def clean(self) -> dict[str, Any]:
        """Refuse an unknown pack at its field alone: without it, the amount has no currency."""
        super().clean()
        cleaned: dict[str, Any] = self.cleaned_data
        code = cleaned.get("pack")
        if code and not Pack.objects.filter(code=code).exists():
            self.errors.pop("paid", None)
            self.add_error("pack", f"There is no pack “{code}”.")
        return cleaned


def record_purchase_view(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Show the form of a purchase, then its effect, then record it."""
    return OrderPage(
        form=PurchaseForm,
        collection="purchases",
        pointer="/payment",
        rows=Purchase,
        write=lambda form: record_purchase.execute(replace(form.request, actor=form.actor)),
        describe=lambda purchase, form: DryRun(sentences=purchase_sentences(reads.purchase(purchase.pk))[:1]),
        done=lambda purchase, form: (f"Purchase {purchase.pk}", money_text(purchase.paid_minor, purchase.currency)),
        title="Record a purchase",
        button="Record the purchase",
        explanation="Record it when the money is in: its credits are added right after that.",
        back=reverse("admin:billing_payments_purchase_changelist"),
    ).view(model_admin, request)


def purchase_sentences(row: reads.PurchaseRow) -> list[str]:
    """Return what was paid, what became of the credits, and what is claimed, in sentences."""
    purchase = row.row
    bonus = f" and a bonus of {credits_text(purchase.bonus, purchase.credit_type)}" if purchase.bonus else ""
    purpose = purpose_words(row.pack.applies_to)
    bought = f"{credits_text(purchase.credits, purchase.credit_type)}{bonus}{purpose and f', {purpose},'}"
    paid = money_text(purchase.paid_minor, purchase.currency)
    sentences = [f"{paid} bought {bought} for {purchase.holder_id}: pack {row.pack}."]
    if row.due is not None:
        why = f" The last try failed: {row.due.error}." if row.due.error else ""
        step = "The credits are still to be added." if row.grant is None else "Credits are still to be revoked."
        sentences.append(f"{step}{why} A worker tries it again.")
    if row.returned_minor:
        sentences.append(f"{money_text(row.returned_minor, purchase.currency)} went back.")
    if row.loss_minor:
        sentences.append(f"Disputes took {money_text(row.loss_minor, purchase.currency)} more: a loss.")
    if row.claim_minor:
        gone = credits_text(row.claim_credits, purchase.credit_type)
        sentences.append(
            f"Of the returned money, {money_text(row.claim_minor, purchase.currency)} had bought {gone} that were gone."
        )
    return sentences


class ReturnForm(OrderForm, RequestForm[NewReturn]):
    """Money of a purchase that went back."""

    stake = StakeRule(
        lambda form, made: [Stake(Purchase.objects.get(pk=made.purchase_id).currency, made.amount_minor + made.loss_minor)]
    )
    declared = NewReturn
    shows = {
        "kind": Display(label="What happened", words=RETURN_WORDS),
        "payment": Display(label="Its id", help="The bank's or provider's id of the refund or dispute."),
        "amount": Display(at="/amount_minor", label="Amount", help="Empty: all that is left. A dispute may be larger."),
        "reason": REASON,
        "returned_at": Display(label="When", help="Empty: now."),
    }
    folded = ("returned_at",)


def record_return_view(model_admin: ReadOnlyAdmin, request: HttpRequest, purchase: Purchase) -> HttpResponse:
    """Show the form of a return, then its effect, then record it."""

    def write(form: ReturnForm) -> PurchaseReturn:
        return record_return.execute(replace(form.request, actor=form.actor))

    def describe(purchase_return: PurchaseReturn, form: ReturnForm) -> DryRun:
        amount = money_text(purchase_return.amount_minor + purchase_return.loss_minor, purchase.currency)
        if purchase_return.kind == PurchaseReturn.Kind.REINSTATED:
            return DryRun(sentences=[f"{amount} came in again. The credits that the dispute took are granted again."])
        sentences = [f"{amount} went back. What it had bought is revoked, as far as it is unspent."]
        if purchase_return.loss_minor:
            loss = money_text(purchase_return.loss_minor, purchase.currency)
            sentences.append(f"{loss} of it is a loss: that is more than the rest of the purchase.")
        return DryRun(sentences=sentences)

    return OrderPage(
        form=ReturnForm,
        collection="purchase-returns",
        about=purchase,
        pointer="/payment",
        write=write,
        describe=describe,
        done=lambda _, form: ("The return", f"of purchase {purchase.pk}"),
        fixed={"purchase": purchase.pk, "currency": purchase.currency},
        title=f"Record a return of purchase {purchase.pk}",
        button="Record the return",
        explanation="It sends no money: record what you or the bank have done. Unspent credits are revoked right after that.",
        back=row_url(Purchase, purchase.pk),
    ).view(model_admin, request)

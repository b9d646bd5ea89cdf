"""Declares, resumes and ends automatic top-ups."""

from dataclasses import dataclass
from typing import Annotated, Final

from django.utils import timezone

from billing.models import Customer
from billing.models.columns import first_of
from billing.orders.erasure import is_erased
from billing.payments.errors import TopUpEnded
from billing.payments.models import TopUp
from billing.payments.packs import MAX_PACKS, ensure_pays_for_everything, pack_on_sale
from billing.payments.providers.configured import able
from billing.payments.providers.interface import STRIPE, KeepsMethods
from billing.payments.topup_rules import PERIODS
from billing.rating.limits import MAX_MINOR
from billing.rating.values import Ref
from ledger.database.lock_names import PACK, TOP_UP
from ledger.database.transactions import locked_transaction
from ledger.errors import Invalid
from ledger.records import Record, UseCase
from ledger.values import MAX_ACTOR_CHARACTERS, Amount, Choice, CreditType, EntryNumber, Holder, Integer, Text

MAX_COOLDOWN_S: Final = 31 * 24 * 3600
TERMS: Final = (
    "holder_id", "credit_type", "threshold", "pack_ref", "packs", "up_to", "customer_id", "cap_minor", "cap_period",
    "cooldown_seconds", "declines",
)  # fmt: skip
"""The columns that stay when another method is charged."""


@dataclass(frozen=True, kw_only=True)
class NewTopUp(Record):
    """When an account is topped up, with what, and by whom it is paid."""

    either = (("packs",), ("up_to",))

    holder_id: Annotated[str, Holder("Whose account.")]
    credit_type: Annotated[str, CreditType()] = "credits"
    threshold: Annotated[int, Amount("The account is topped up when fewer credits than this are available.")]
    pack: Annotated[str, Ref("The pack that is bought, in the version on sale then; its credits are of the same type.")]
    packs: Annotated[int | None, Integer("How many packs are bought each time …", least=1, most=MAX_PACKS)] = None
    up_to: Annotated[int | None, Amount("… or as many as it takes until this many credits are available.")] = None
    customer: Annotated[str, Ref("Who pays.")]
    method: Annotated[str, Text("The customer's saved method, by the provider's id.", most=200, least=1)]
    provider: Annotated[str, Text("Who takes the money.", most=32, least=1)] = STRIPE
    cap_minor: Annotated[
        int | None,
        Integer("The most that is charged in a period, in minor units; no limit by default.", least=1, most=MAX_MINOR, null=True),
    ] = None
    cap_period: Annotated[str, Choice(PERIODS, "The period of the cap, in UTC; weeks begin on Monday.")] = "month"
    cooldown_seconds: Annotated[
        int, Integer("The time between the beginnings of two payments.", least=0, most=MAX_COOLDOWN_S)
    ] = 300
    declines: Annotated[int, Integer("After how many declines in a row it is paused.", least=1, most=20)] = 3
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""

    def check_whole(self) -> None:
        if self.up_to is not None and self.up_to < self.threshold:
            raise Invalid(pointer="/up_to", rule="below-threshold", detail="must be the threshold or more")


@dataclass(frozen=True, kw_only=True)
class NewTopUpMethod(Record):
    """The method that a top-up charges from now on."""

    top_up: Annotated[int, EntryNumber("The top-up, by its id.")]
    method: Annotated[str, Text("The customer's saved method, by the provider's id.", most=200, least=1)]
    provider: Annotated[str, Text("Who takes the money.", most=32, least=1)] = STRIPE
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""


@dataclass(frozen=True, kw_only=True)
class NewTopUpChange(Record):
    """A top-up to resume or to end."""

    top_up: Annotated[int, EntryNumber("The top-up, by its id.")]


def _set(request: NewTopUp) -> TopUp:
    """Declare how an account is topped up, instead of how it was before; or raise and write nothing.

    Raises:
        Invalid: the pack, the customer or the provider does not exist, or the pack has credits of another type, or
            such as cannot pay for everything.
    """
    able(request.provider, KeepsMethods)
    pack = pack_on_sale(request.pack, timezone.now())
    if pack.credit_type != request.credit_type:
        detail = f"pack {request.pack!r} has {pack.credit_type}, not {request.credit_type}"
        raise Invalid(pointer="/pack", rule="other-credit-type", detail=detail)
    customer = Customer.objects.filter(ref=request.customer).first()
    if customer is None or is_erased(customer):
        raise Invalid(pointer="/customer", rule="exists", detail=f"customer {request.customer!r} does not exist, or was erased")
    with locked_transaction(PACK(request.pack)), locked_transaction(TOP_UP(request.holder_id)):
        ensure_pays_for_everything(pack_on_sale(request.pack, timezone.now()))
        account = TopUp.objects.filter(holder_id=request.holder_id, credit_type=request.credit_type, ended_at=None)
        account.update(ended_at=timezone.now())
        row = TopUp.objects.create(
            holder_id=request.holder_id,
            credit_type=request.credit_type,
            threshold=request.threshold,
            pack_ref=request.pack,
            packs=request.packs,
            up_to=request.up_to,
            customer_id=customer.pk,
            provider=request.provider,
            method=request.method,
            cap_minor=request.cap_minor,
            cap_period=request.cap_period,
            cooldown_seconds=request.cooldown_seconds,
            declines=request.declines,
            actor=request.actor,
        )
        row.refresh_from_db()
    return row


set_top_up = UseCase(NewTopUp, _set)


def top_up_of(top_up_id: int) -> TopUp:
    """Return the top-up that a path names.

    Raises:
        NotFound: it does not exist.
    """
    return first_of(TopUp.objects.filter(pk=top_up_id), "top-up", top_up_id)


def _charge_other_method(request: NewTopUpMethod) -> TopUp:
    """End a top-up, and declare it again with another method and the same terms; return the new one, which is not paused.

    What its account was charged in the period of the cap still counts.

    Raises:
        NotFound: it does not exist.
        TopUpEnded: it has ended.
        Invalid: the provider keeps no methods.
    """
    able(request.provider, KeepsMethods)
    with locked_transaction(TOP_UP(top_up_of(request.top_up).holder_id)):
        row = _not_ended(request.top_up)
        TopUp.objects.filter(pk=row.pk).update(ended_at=timezone.now())
        made = TopUp.objects.create(
            **{name: getattr(row, name) for name in TERMS}, provider=request.provider, method=request.method, actor=request.actor
        )
        made.refresh_from_db()
    return made


charge_other_method = UseCase(NewTopUpMethod, _charge_other_method)


def _resume(request: NewTopUpChange) -> TopUp:
    """Let a paused top-up go on; declines before now no longer count. Without a pause, nothing changes.

    Raises:
        NotFound: it does not exist.
        TopUpEnded: it has ended.
    """
    with locked_transaction(TOP_UP(top_up_of(request.top_up).holder_id)):
        row = _not_ended(request.top_up)
        if row.paused_at is not None:
            row.paused_at, row.resumed_at = None, timezone.now()
            row.save(update_fields=["paused_at", "resumed_at"])
    return row


resume_top_up = UseCase(NewTopUpChange, _resume)


def _end(request: NewTopUpChange) -> TopUp:
    """End a top-up; a payment that is under way goes on.

    Raises:
        NotFound: it does not exist.
        TopUpEnded: it has ended before.
    """
    with locked_transaction(TOP_UP(top_up_of(request.top_up).holder_id)):
        row = _not_ended(request.top_up)
        row.ended_at = timezone.now()
        row.save(update_fields=["ended_at"])
    return row


end_top_up = UseCase(NewTopUpChange, _end)


def _not_ended(top_up_id: int) -> TopUp:
    row = top_up_of(top_up_id)
    if row.ended_at is not None:
        raise TopUpEnded(top_up=row.pk)
    return row

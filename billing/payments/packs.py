"""Packs: credits on sale for a price. A written version never changes, and the newest one that is valid is on sale."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from django.db.models import Max
from django.utils import timezone

from billing.payments.models import Pack, TopUp
from billing.rating.limits import MAX_MINOR
from billing.rating.names import MAX_NAME_CHARACTERS, Names
from billing.rating.values import Currency, Ref
from ledger.database.lock_names import PACK
from ledger.database.transactions import locked_transaction
from ledger.errors import Invalid
from ledger.records import Record, UseCase
from ledger.values import MAX_AMOUNT, Amount, AppliesTo, CreditType, Integer, Text, Time

MAX_EXPIRES_DAYS = 36_500
MAX_VERSION = 2**31 - 1
MAX_PACKS = 1000
"""How many packs one purchase may have."""


@dataclass(frozen=True, kw_only=True)
class NewPack(Record):
    """A pack of credits, or the next version of it."""

    code: Annotated[str, Ref("Your name for the pack; an existing one gets a new version.", named="ref")]
    name: Annotated[str, Text("For people.", most=MAX_NAME_CHARACTERS, least=1)]
    names: Annotated[dict[str, str] | None, Names("The name in languages in which it differs, by their codes.", null=True)] = None
    credit_type: Annotated[str, CreditType()] = "credits"
    credits: Annotated[int, Amount("The purchased credits, in the smallest unit.")]
    bonus: Annotated[int, Amount("Promotional credits beside them.", least=0)] = 0
    currency: Annotated[str, Currency()]
    price_minor: Annotated[int, Integer("The price, in minor units.", least=1, most=MAX_MINOR)]
    expires_days: Annotated[
        int | None,
        Integer(
            "In how many days the credits expire, once they are added; never by default.",
            least=1,
            most=MAX_EXPIRES_DAYS,
            null=True,
        ),
    ] = None
    applies_to: Annotated[
        dict[str, Any] | None,
        AppliesTo(
            "What the credits and the bonus can pay for, as in a grant. By default they can pay for everything. A pack that an "
            "automatic top-up buys has to.",
            null=True,
        ),
    ] = None
    valid_from: Annotated[datetime | None, Time("When the sale of this version starts; now by default.", null=True)] = None
    valid_until: Annotated[
        datetime | None,
        Time("When its sale ends; a version that ends when it starts takes the pack off sale. No end by default.", null=True),
    ] = None

    def check_whole(self) -> None:
        if self.valid_until is not None and self.valid_until < (self.valid_from or self.valid_until):
            raise Invalid(pointer="/valid_until", rule="before-valid-from", detail="must not be before valid_from")


def _create(request: NewPack) -> Pack:
    """Write a pack, or its next version where the ref exists; or raise and write nothing. Purchases keep their version.

    Raises:
        Invalid: an automatic top-up buys the pack, and its credits could not pay for everything.
    """
    with locked_transaction(PACK(request.code)):
        if request.applies_to is not None:
            _ensure_no_top_up(request.code)
        last = Pack.objects.filter(code=request.code).aggregate(last=Max("version"))["last"]
        now = timezone.now()
        pack = Pack.objects.create(
            code=request.code,
            version=(last or 0) + 1,
            name=request.name,
            names=request.names or {},
            credit_type=request.credit_type,
            credits=request.credits,
            bonus=request.bonus,
            currency=request.currency,
            price_minor=request.price_minor,
            expires_days=request.expires_days,
            applies_to=request.applies_to,
            valid_from=request.valid_from or min(now, request.valid_until or now),
            valid_until=request.valid_until,
        )
        pack.refresh_from_db()
    return pack


create_pack = UseCase(NewPack, _create)


# Note [Top-ups buy what pays for everything]
#
# A top-up compares what every spend can use with its threshold. Credits for some things only would never raise that, so it would
# buy again and again. A pack and a top-up that buys it are written under the same lock, that of the pack: either refuses what the
# other has written.


def _ensure_no_top_up(code: str) -> None:
    """See Note [Top-ups buy what pays for everything]."""
    top_up = TopUp.objects.filter(pack_ref=code, ended_at=None).order_by("pk").first()
    if top_up is not None:
        detail = f"top-up {top_up.pk} of {top_up.holder_id} buys this pack, whose credits have to pay for everything"
        raise Invalid(pointer="/applies_to", rule="in-top-up", detail=detail)


def ensure_pays_for_everything(pack: Pack) -> None:
    """Return if the credits of the version on sale, and of those that come later, can pay for everything, or raise `Invalid`.

    See Note [Top-ups buy what pays for everything].
    """
    limited = Pack.objects.filter(code=pack.code, version__gte=pack.version, applies_to__isnull=False).order_by("version").first()
    if limited is not None:
        detail = f"the credits of pack {pack.code!r} v{limited.version} cannot pay for everything: they would not end the need"
        raise Invalid(pointer="/pack", rule="not-for-everything", detail=detail)


def pack_on_sale(code: str, at: datetime, version: int | None = None) -> Pack:
    """Return the version of a pack that is on sale at an instant, or the version that is named, whether on sale or not.

    Raises:
        Invalid: the pack or version does not exist, or no version is on sale.
    """
    versions = Pack.objects.filter(code=code).order_by("-version")
    if version is not None:
        pack = versions.filter(version=version).first()
        if pack is None:
            raise Invalid(pointer="/version", rule="exists", detail=f"version {version} of pack {code!r} does not exist")
        return pack
    begun = versions.filter(valid_from__lte=at).first()
    if begun is None or (begun.valid_until is not None and begun.valid_until <= at):
        rule = "on-sale" if versions.exists() else "exists"
        raise Invalid(
            pointer="/pack", rule=rule, detail=f"pack {code!r} {'is not on sale' if rule == 'on-sale' else 'does not exist'}"
        )
    return begun


def ensure_quantity(pack: Pack, quantity: int) -> None:
    """Return if this number of packs is an amount of credits and of money, or raise `Invalid`."""
    if max(pack.credits, pack.bonus) * quantity > MAX_AMOUNT or pack.price_minor * quantity > MAX_MINOR:
        raise Invalid(pointer="/quantity", rule="too-large", detail=f"{quantity} packs of {pack.code!r} are too many")

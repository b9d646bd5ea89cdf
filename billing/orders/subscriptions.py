"""Orders and amendments: they insert intent and return at once; the generator reads it on its next run.

Nothing here takes the lock `invoice_gen/<ref>`: amendments and invoices never wait for each other. The separate lock
`subscription_intent/<ref>` puts the amendments of a subscription in order.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final
from zoneinfo import ZoneInfo

from django.db.models import Max, Q

from billing.errors import AlreadyExists, SubscriptionNotStarted
from billing.models import Activation, Amendment, Charge, Customer, ItemVersion, Subscription
from billing.models import Plan as PlanRow
from billing.models import Price as PriceRow
from billing.models.columns import first_of
from billing.orders import plans
from billing.orders.item_versions import (
    AllowanceChange,
    UnusedTime,
    plan_at,
    terms_at,
)
from billing.orders.overrides import PriceOverride, stored
from billing.orders.phases import BegunPhase, Phase, PhaseList, timed
from billing.orders.stored_versions import counting_changes, read_changes, store_timeline
from billing.rating.limits import MAX_HOLD_DAYS, check_instant, check_quantity
from billing.rating.periods import Schedule, first_charged_instant
from billing.rating.prices.overage import METER_PREFIX
from billing.rating.prices.price import TAX_CLASS, TAX_CLASS_RULE, PriceKind
from billing.rating.tax_rules import STANDARD_CLASS
from billing.rating.values import Ref, Units
from ledger.database.lock_names import SUBSCRIPTION_INTENT
from ledger.database.locks import Lock
from ledger.database.transactions import after_commit, locked_transaction
from ledger.errors import Invalid
from ledger.records import Nested, Record, Shape, UseCase, declared_fields, field_of
from ledger.services import time_of
from ledger.values import Amount, Boolean, Choice, Integer, MapOf, Number, Text, Time, Zone, pointer_part

Quantities = dict[str, Decimal]
PAYMENT_TIMEOUT_HOURS = 23
MAX_PAYMENT_TIMEOUT_HOURS = 30 * 24
BESIDE = {"unused_time", "charges_while_paused", "allowance_change"}
"""The fields of an amendment that belong to another one."""


@dataclass(frozen=True, kw_only=True)
class Wish(Record):
    """The change of an amendment: exactly one of these fields, and for two of them what belongs to it."""

    keeps_null = frozenset({"ends_at", "price_override", "hold_days", "consolidated_invoicing"})

    plan: Annotated[str | None, Ref("The newest version of this plan.")] = None
    quantities: Annotated[Quantities | None, MapOf(Units(), "By price key.", max_keys=100)] = None
    price_override: Annotated[
        PriceOverride | None,
        Nested(PriceOverride, "Negotiated prices, until another amendment replaces them; null withdraws them.", null=True),
    ] = None
    ends_at: Annotated[
        datetime | None,
        Time(
            "When the subscription ends; null withdraws a planned end. An ended subscription becomes active again "
            "from `effective_at`; billing skips the time between.",
            null=True,
        ),
    ] = None
    paused: Annotated[bool | None, Boolean("True pauses the subscription, false resumes it.")] = None
    trial_end: Annotated[
        datetime | None, Time("A new end, earlier or later, for a trial that has not ended yet.", named="trial_ends_at")
    ] = None
    anchor_at: Annotated[
        datetime | None,
        Time(
            "Moves the billing day: periods count from this instant. The running period ends at the first of its boundaries "
            "that does not lie before `effective_at`."
        ),
    ] = None
    hold_days: Annotated[
        int | None,
        Integer("Invoice this number of days later than due; null: as the customer.", least=0, most=MAX_HOLD_DAYS, null=True),
    ] = None
    consolidated_invoicing: Annotated[
        bool | None, Boolean("False: its invoices are separate; true: it shares them; null: as the customer.", null=True)
    ] = None
    unused_time: Annotated[
        UnusedTime | None,
        Choice(
            UnusedTime,
            "With `ends_at`: what is charged in advance for the time after the end is given back as credit (the default), is "
            "paid out as far as it was paid in money, or stays charged.",
        ),
    ] = None
    charges_while_paused: Annotated[
        bool | None, Boolean("With `paused` true: fees are charged in the pause; only usage does not count.")
    ] = None
    allowance_change: Annotated[
        AllowanceChange | None,
        Choice(
            AllowanceChange,
            "With `plan`, `quantities` or `anchor_at`: what happens to the credits of the running period. `prorate` (by "
            "default) takes back those of the time that is left, as far as they are unspent, and grants the new share at once; "
            "`keep` leaves them, and the new ones begin with the next period; `full` grants all new ones at once.",
        ),
    ] = None
    phases: Annotated[
        list[Phase] | None,
        PhaseList("Replaces the phases that begin at `effective_at`, a time to come, or later; empty: what counts then goes on."),
    ] = None
    sets_end: bool = False
    """Distinguishes a withdrawn end from no `ends_at`: with it, an `ends_at` of None withdraws the planned end."""
    sets_override: bool = False
    """The same of `price_override`: with it, None withdraws the negotiated prices."""
    sets_hold: bool = False
    """The same of `hold_days`: with it, None follows the customer's choice again."""
    sets_consolidation: bool = False
    """The same of `consolidated_invoicing`."""

    def check_whole(self) -> None:
        changes_allowance = any(one is not None for one in (self.plan, self.quantities, self.anchor_at))
        beside = {
            "unused_time": ("ends_at", self.ends_at is not None),
            "charges_while_paused": ("paused", bool(self.paused)),
            "allowance_change": ("plan, quantities or anchor_at", changes_allowance),
        }
        for name, (change, is_there) in beside.items():
            if getattr(self, name) is not None and not is_there:
                raise Invalid(pointer=f"/{name}", rule="not-alone", detail=f"belongs to an amendment with {change}")

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Wish":
        """Return the wish of the fields that `AMENDMENT` took: a null that was given withdraws something."""
        given = {name: value for name, value in fields.items() if name != "effective_at"}
        sets = {
            "sets_end": "ends_at", "sets_override": "price_override", "sets_hold": "hold_days",
            "sets_consolidation": "consolidated_invoicing",
        }  # fmt: skip
        return AMENDMENT.make({**given, **{flag: name in given for flag, name in sets.items()}})


AMENDMENT = Shape(
    Wish,
    name="NewAmendment",
    text="A change from an instant on.",
    before=[field_of("effective_at", Time("When the change takes effect, in the past or the future."), required=True)],
)


TIMES: Final = {"started_at": "/started_at", "anchor_at": "/anchor_at", "trial_end": "/trial_ends_at", "ends_at": "/ends_at"}
"""The times of an order, and where they stand in its JSON."""


@dataclass(frozen=True, kw_only=True)
class NewSubscription(Record):
    """What a customer orders."""

    ref: Annotated[str, Ref('Your name for it, such as "SUB-1234".')]
    customer: Annotated[str, Ref("Who pays.")]
    plan: Annotated[str, Ref("The newest version of this plan.")]
    started_at: Annotated[datetime, Time("The instant from which the subscription is billed.")]
    anchor_at: Annotated[datetime | None, Time("The instant from which periods count; by default the start.", null=True)] = None
    time_zone: Annotated[
        str | None, Zone("The zone in which days and months are counted; by default the customer's.", null=True)
    ] = None
    quantities: Annotated[Quantities | None, MapOf(Units(), "By price key; 1 by default.", max_keys=100)] = None
    trial_end: Annotated[
        datetime | None,
        Time("The end of the trial; the time before it is free. By default the plan's trial.", null=True, named="trial_ends_at"),
    ] = None
    trial_days: Annotated[
        int | None,
        Integer(
            "Instead of it: how many days of trial from the start, in its time zone; 0: none, whatever the plan has.",
            least=0,
            most=plans.MAX_TRIAL_DAYS,
            null=True,
        ),
    ] = None
    ends_at: Annotated[datetime | None, Time("The end; never by default.", null=True)] = None
    price_override: Annotated[
        PriceOverride | None,
        Nested(PriceOverride, "Negotiated prices, until an amendment replaces or withdraws them.", null=True),
    ] = None
    hold_days: Annotated[
        int | None,
        Integer(
            "Invoice this number of days later than due; by default as the customer.", least=0, most=MAX_HOLD_DAYS, null=True
        ),
    ] = None
    consolidated_invoicing: Annotated[
        bool | None, Boolean("False: its invoices are separate; true: it shares them; by default as the customer.", null=True)
    ] = None
    phases: Annotated[
        list[Phase] | None,
        PhaseList(
            "Terms that follow each other. The first begins at the start, with the terms of the order where it names no others.",
            least=2,
            null=True,
        ),
    ] = None
    starts_when_paid: Annotated[
        bool, Boolean("True: it starts when its first invoice is paid, and is `incomplete` until then. Not with a trial.")
    ] = False
    payment_timeout_hours: Annotated[
        int | None,
        Integer(
            f"With `starts_when_paid`: how long the first invoice may be paid, counted from the order; "
            f"{PAYMENT_TIMEOUT_HOURS} by default.",
            least=1,
            most=MAX_PAYMENT_TIMEOUT_HOURS,
            null=True,
        ),
    ] = None
    actor: str = ""

    def check_whole(self) -> None:
        has_trial_phase = bool(self.phases and self.phases[0].trial)
        if has_trial_phase and self.trial_end is not None:
            raise Invalid(pointer="/trial_ends_at", rule="contradiction", detail="the first phase is the trial already")
        if self.trial_days is not None and (self.phases or self.trial_end is not None):
            detail = "the phases say which of them is a trial" if self.phases else "give either this or `trial_ends_at`"
            raise Invalid(pointer="/trial_days", rule="contradiction", detail=detail)
        if self.starts_when_paid and (has_trial_phase or self.trial_end is not None or self.trial_days):
            detail = "a trial has nothing to pay at its start"
            raise Invalid(pointer="/starts_when_paid", rule="contradiction", detail=detail)
        if self.payment_timeout_hours is not None and not self.starts_when_paid:
            detail = "belongs to an order with starts_when_paid"
            raise Invalid(pointer="/payment_timeout_hours", rule="not-alone", detail=detail)
        for name, pointer in TIMES.items():
            check_instant(pointer, getattr(self, name))


def _create(request: NewSubscription) -> Subscription:
    """Write a subscription to the newest version of a plan, or raise and write nothing.

    The generator makes the first invoice of one that starts when it is paid: `activations.order_subscription` at once, or a run.

    Raises:
        AlreadyExists: a subscription has this ref.
        Invalid: an unknown customer, plan or price key, an end before the start, a time outside the years 2000 to 2200, or a
            quantity above 10^18.
    """
    with locked_transaction(SUBSCRIPTION_INTENT(request.ref)) as lock:
        payer = Customer.objects.filter(ref=request.customer).first()
        if payer is None:
            raise Invalid(pointer="/customer", rule="exists", detail=f"customer {request.customer!r} does not exist")
        version = plans.latest_plan(request.plan)
        _check_quantities(version.pk, request.quantities or {})
        if request.ends_at is not None and request.ends_at <= request.started_at:
            raise Invalid(pointer="/ends_at", rule="after-start", detail="a subscription must end after it starts")
        if Subscription.objects.filter(ref=request.ref).exists():
            raise AlreadyExists(resource="subscription", ref=request.ref)
        anchor_at = request.anchor_at or request.started_at
        time_zone = request.time_zone or payer.time_zone
        phases = _time_phases(request.phases or (), request.started_at, version.pk, anchor_at, time_zone)
        subscription = Subscription.objects.create(
            ref=request.ref,
            customer_id=payer.pk,
            started_at=request.started_at,
            anchor_at=anchor_at,
            time_zone=time_zone,
            trial_end=_trial_end(request, version, phases, ZoneInfo(time_zone)),
            hold_days=request.hold_days,
            consolidated_invoicing=request.consolidated_invoicing,
        )
        quantities = _as_text(request.quantities or {})
        order: dict[str, Any] = {"plan": version.pk, "quantities": quantities, "ends_at": _iso(request.ends_at)}
        if request.price_override is not None:
            order["price_override"] = _override(version.pk, request.price_override)
        if phases:
            first = _phase_change(1, phases[0], 0)
            order |= first | {"quantities": quantities | first.get("quantities", {})}
        _insert_amendment(lock, subscription, request.started_at, order, request.actor)
        for index, begun in enumerate(phases[1:], 1):
            _insert_amendment(lock, subscription, begun.starts_at, _phase_change(index + 1, begun, index), request.actor)
        store_timeline(lock, subscription)
        if request.starts_when_paid:
            expires_at = present(subscription) + timedelta(hours=request.payment_timeout_hours or PAYMENT_TIMEOUT_HOURS)
            check_instant("/payment_timeout_hours", expires_at)
            Activation.objects.create(subscription_id=subscription.pk, expires_at=expires_at)
    tell_followers(subscription)
    subscription.refresh_from_db()
    return subscription


create_subscription = UseCase(NewSubscription, _create)


def _trial_end(request: NewSubscription, plan: PlanRow, phases: Sequence[BegunPhase], zone: ZoneInfo) -> datetime | None:
    """Return the end of the trial that the order names, by its first phase too; else of the plan's; None: there is none.

    Raises:
        Invalid: the plan's trial is taken by an order that starts when it is paid.
    """
    if phases:
        return phases[0].ends_at if phases[0].phase.trial else request.trial_end
    days = plan.trial_days if request.trial_days is None else request.trial_days
    if request.trial_end is not None or not days:
        return request.trial_end
    if request.starts_when_paid:
        detail = f"plan {plan.code!r} has a trial, in which there is nothing to pay: order it with 0 trial_days"
        raise Invalid(pointer="/starts_when_paid", rule="contradiction", detail=detail)
    # In the contract's zone a day of a clock change has 23 or 25 hours.
    return (request.started_at.astimezone(zone) + timedelta(days=days)).astimezone(UTC)


def amend_subscription(*, ref: str, effective_at: datetime, wish: Wish, actor: str = "") -> Amendment:
    """Write an amendment that changes a subscription from an instant on, past or future; or raise and write nothing.

    The next run bills it: it bills the difference between the target and what is billed already.

    Raises:
        NotFound, SubscriptionNotStarted: the subscription does not exist; it waits for its first payment, or waited in vain.
        Invalid: nothing or several things to change, an unknown plan or price key, an instant before the start or outside the
            years 2000 to 2200, a quantity above 10^18, or a new end of a trial that has ended.
    """
    check_instant("/effective_at", effective_at)
    check_instant("/ends_at", wish.ends_at)
    check_instant("/trial_end", wish.trial_end)
    check_instant("/anchor_at", wish.anchor_at)
    with locked_transaction(SUBSCRIPTION_INTENT(ref)) as lock:
        subscription = started(ref)
        if effective_at < subscription.started_at:
            raise Invalid(pointer="/effective_at", rule="after-start", detail="an amendment must take effect after the start")
        if wish.phases is not None:
            amendment = _change_phases(lock, subscription, effective_at, wish, actor)
        else:
            amendment = _change_at_once(lock, subscription, effective_at, wish, actor)
        store_timeline(lock, subscription)
    tell_followers(subscription)
    return amendment


def _change_at_once(lock: Lock, subscription: Subscription, effective_at: datetime, wish: Wish, actor: str) -> Amendment:
    change = _change(subscription, wish, effective_at)
    if wish.allowance_change not in (None, AllowanceChange.PRORATE):
        change["allowance_change"] = wish.allowance_change
    if wish.trial_end is not None:
        Subscription.objects.filter(pk=subscription.pk).update(trial_end=wish.trial_end)
    for name in ("hold_days", "consolidated_invoicing"):
        if name in change:
            Subscription.objects.filter(pk=subscription.pk).update(**{name: change[name]})
    return _insert_amendment(lock, subscription, effective_at, change, actor)


def move_to_plan(
    lock: Lock, subscription: Subscription, instants: Iterable[datetime], change: Mapping[str, Any], actor: str
) -> list[int]:
    """Write the amendments of a plan move, one per instant, under the subscription's lock; return their sequences."""
    made = [_insert_amendment(lock, subscription, instant, dict(change), actor).sequence for instant in instants]
    store_timeline(lock, subscription)
    return made


def never_start(lock: Lock, subscription: Subscription, actor: str) -> None:
    """Write, under the subscription's lock, the amendment that ends a subscription at its start."""
    starts_at = subscription.started_at
    _insert_amendment(lock, subscription, starts_at, {"ends_at": _iso(starts_at)}, actor)
    store_timeline(lock, subscription)


@dataclass(frozen=True, kw_only=True)
class NewCharge(Record):
    """A one-off charge."""

    ref: Annotated[str, Ref()]

    amount_minor: Annotated[int, Amount("In minor units of the customer's currency.")]
    description: Annotated[str, Text("As printed on the invoice.", most=500, least=1)]
    tax_rate: Annotated[Decimal, Number("Percent.", least=0, most=100)] = Decimal(0)
    tax_category: str = "S"
    tax_class: Annotated[str, Text("As of a price.", most=32, least=1, pattern=TAX_CLASS, rule=TAX_CLASS_RULE)] = STANDARD_CLASS
    actor: str = ""


def _charge(request: NewCharge) -> Charge:
    """Write a one-off charge, which the next invoice of the subscription bills; or raise and write nothing.

    Raises:
        NotFound, SubscriptionNotStarted: the subscription does not exist; it waits for its first payment, or waited in vain.
    """
    with locked_transaction(SUBSCRIPTION_INTENT(request.ref)):
        subscription = started(request.ref)
        currency = Customer.objects.values_list("currency", flat=True).get(pk=subscription.customer_id)
        charge = Charge.objects.create(
            subscription_id=subscription.pk,
            sequence=_next(Charge, subscription),
            currency=currency,
            amount_minor=request.amount_minor,
            description=request.description,
            tax_category=request.tax_category,
            tax_rate=request.tax_rate,
            tax_class=request.tax_class,
            actor=request.actor,
        )
        charge.refresh_from_db()
    return charge


charge_once = UseCase(NewCharge, _charge)


def subscription_of(ref: str) -> Subscription:
    """Return the subscription that a path names.

    Raises:
        NotFound: it does not exist.
    """
    return first_of(Subscription.objects.filter(ref=ref), "subscription", ref)


def started(ref: str) -> Subscription:
    """Return the subscription that a path names, if it may be changed: it does not wait for its first payment.

    Raises:
        NotFound, SubscriptionNotStarted: it does not exist; it waits, or waited in vain.
    """
    subscription = subscription_of(ref)
    activation = Activation.objects.filter(subscription_id=subscription.pk).exclude(state=Activation.State.STARTED).first()
    if activation is not None:
        raise SubscriptionNotStarted(subscription=ref, state=activation.state)
    return subscription


def _given_changes(wish: Wish) -> list[bool]:
    """Return for each kind of change whether the wish has it."""
    return [
        wish.plan is not None, wish.quantities is not None, wish.sets_override or wish.price_override is not None, wish.sets_end,
        wish.paused is not None, wish.trial_end is not None, wish.anchor_at is not None,
        wish.sets_hold or wish.hold_days is not None,
        wish.sets_consolidation or wish.consolidated_invoicing is not None, wish.phases is not None,
    ]  # fmt: skip


def _not_one_change() -> Invalid:
    names = ", ".join(field.json_name for field in declared_fields(Wish) if field.name not in BESIDE)
    return Invalid(pointer="", rule="one-change", detail=f"give exactly one of {names}")


def _change(subscription: Subscription, wish: Wish, effective_at: datetime) -> dict[str, Any]:
    """Return the change as stored: with the plan's newest version at this time."""
    if sum(_given_changes(wish)) != 1:
        raise _not_one_change()
    if wish.trial_end is not None:
        _check_trial(subscription, wish.trial_end)
        return {"trial_end": _iso(wish.trial_end)}
    if wish.plan is not None:
        return {"plan": _other_plan(plan_at(read_changes(subscription), effective_at), wish.plan)}
    if wish.quantities is not None:
        _check_quantities(plan_at(read_changes(subscription), effective_at), wish.quantities)
        return {"quantities": _as_text(wish.quantities)}
    if wish.price_override is not None:
        return {"price_override": _override(plan_at(read_changes(subscription), effective_at), wish.price_override)}
    if wish.sets_override:
        return {"price_override": None}
    if wish.anchor_at is not None:
        return {"anchor_at": _iso(wish.anchor_at), "moves_at": _iso(_moves_at(subscription, wish.anchor_at, effective_at))}
    if wish.sets_hold or wish.hold_days is not None:
        return {"hold_days": wish.hold_days}
    if wish.sets_consolidation or wish.consolidated_invoicing is not None:
        return {"consolidated_invoicing": wish.consolidated_invoicing}
    if wish.sets_end:
        if wish.ends_at is not None and wish.ends_at < subscription.started_at:
            raise Invalid(pointer="/ends_at", rule="after-start", detail="a subscription must end after it starts")
        unused = {"unused_time": wish.unused_time.value} if wish.unused_time else {}
        return {"ends_at": _iso(wish.ends_at), **unused}
    charges = {"charges_while_paused": True} if wish.charges_while_paused else {}
    return {"paused": wish.paused, **charges}


def _other_plan(plan_id: int, code: str, pointer: str = "/plan") -> int:
    """Return the newest version of a plan. The amounts of all plans of a subscription include tax, or none do."""
    present = plans.terms_of(plan_id)
    wanted = plans.latest_plan(code, pointer=pointer, present=present.code)
    if wanted.tax_behavior != present.tax_behavior:
        detail = f"the amounts of the present plan are {present.tax_behavior} of tax"
        raise Invalid(pointer=pointer, rule="other-tax-behavior", detail=detail)
    return wanted.pk


# Phases ----------------------------------------------------------------------------------------------


def _time_phases(phases: Sequence[Phase], starts_at: datetime, plan_id: int, anchor_at: datetime, zone: str) -> list[BegunPhase]:
    return timed(
        phases,
        starts_at=starts_at,
        plan_id=plan_id,
        plan_of=lambda code, pointer: _other_plan(plan_id, code, pointer),
        schedule_of=lambda pk: Schedule.anchored_at(anchor_at, ZoneInfo(zone), plans.terms_of(pk).interval),
    )


def _phase_change(number: int, begun: BegunPhase, index: int) -> dict[str, Any]:
    """Return the change of the amendment by which a phase begins.

    Args:
        index: its place in the request, for pointers.
    """
    phase, change = begun.phase, dict[str, Any](phase=number)
    try:
        if phase.plan is not None:
            change["plan"] = begun.plan_id
        if phase.quantities is not None:
            _check_quantities(begun.plan_id, phase.quantities)
            change["quantities"] = _as_text(phase.quantities)
        if phase.price_override is not None:
            change["price_override"] = _override(begun.plan_id, phase.price_override)
    except Invalid as invalid:
        raise Invalid(**{**invalid.facts, "pointer": f"/phases/{index}{invalid.facts['pointer']}"}) from invalid
    return change | ({"price_override": None} if phase.list_prices else {})


def _change_phases(lock: Lock, subscription: Subscription, effective_at: datetime, wish: Wish, actor: str) -> Amendment:
    """Write the amendments of phases in place of those that have not begun; return the first."""
    if sum(_given_changes(wish)) != 1:
        raise _not_one_change()
    if effective_at < present(subscription):
        raise Invalid(pointer="/effective_at", rule="not-begun", detail="phases that have begun stay; give a time to come")
    phases = wish.phases or []
    if phases and phases[0].trial:
        raise Invalid(pointer="/phases/0/trial", rule="first-phase", detail="only an order begins with a trial")
    terms = terms_at(read_changes(subscription), effective_at)
    begun = _time_phases(phases, effective_at, terms.plan_id, terms.anchor_at or subscription.anchor_at, subscription.time_zone)
    rows = list(Amendment.objects.filter(subscription_id=subscription.pk).order_by("sequence"))
    known = {change.sequence for change in counting_changes(rows)}
    of_phases = [row for row in rows if "phase" in row.change and row.sequence in known]
    gone = {row.effective_at for row in of_phases if row.effective_at >= effective_at and row.sequence > 1}
    withdraws = [
        row.sequence
        for row in rows
        if row.sequence in known and row.effective_at in gone and ("phase" in row.change or "plan_move" in row.change)
    ]
    number = max((row.change["phase"] for row in of_phases if row.sequence not in withdraws), default=0)
    changes = [(one.starts_at, _phase_change(number + 1 + index, one, index)) for index, one in enumerate(begun)]
    changes = changes or [(effective_at, {})]
    made = [
        _insert_amendment(lock, subscription, at, change | ({} if index else {"withdraws": withdraws}), actor)
        for index, (at, change) in enumerate(changes)
    ]
    return made[0]


def _check_trial(subscription: Subscription, trial_end: datetime) -> None:
    """Refuse to move the end of a trial that has ended: the time after it may be billed already."""
    subscription.refresh_from_db(fields=["trial_end"])
    if subscription.trial_end is None or subscription.trial_end <= present(subscription):
        raise Invalid(pointer="/trial_end", rule="trial-goes-on", detail="the subscription is not in a trial")
    if trial_end < subscription.started_at:
        raise Invalid(pointer="/trial_end", rule="after-start", detail="a trial must not end before the subscription starts")


def _moves_at(subscription: Subscription, anchor_at: datetime, effective_at: datetime) -> datetime:
    """Return the instant at which a moved billing day begins to count: its first boundary that is not before `effective_at`."""
    interval = plans.terms_of(plan_at(read_changes(subscription), effective_at)).interval
    period = Schedule.anchored_at(anchor_at, ZoneInfo(subscription.time_zone), interval).period_at(effective_at)
    return effective_at if period.start == effective_at else period.end


def present(subscription: Subscription) -> datetime:
    """Return the time of the subscription: that of its holder's test clock, or the present one."""
    holder_id = Customer.objects.values_list("holder_id", flat=True).filter(pk=subscription.customer_id).first()
    return time_of(holder_id or "")


def held_back(subscription: Subscription) -> timedelta:
    """Return by how much invoices of a subscription come later than due."""
    own = Subscription.objects.values_list("hold_days", flat=True).get(pk=subscription.pk)
    days = Customer.objects.values_list("hold_days", flat=True).get(pk=subscription.customer_id) if own is None else own
    return timedelta(days=days)


def is_consolidated(subscription: Subscription) -> bool:
    """Return whether a subscription shares invoices with others of its customer."""
    own = Subscription.objects.values_list("consolidated_invoicing", flat=True).get(pk=subscription.pk)
    customers = Customer.objects.values_list("consolidated_invoicing", flat=True)
    return customers.get(pk=subscription.customer_id) if own is None else own


def _check_quantities(plan_id: int, quantities: Mapping[str, Decimal]) -> None:
    recurring = {price.key for _, price in plans.terms_of(plan_id).prices if price.kind == PriceKind.RECURRING}
    for key, quantity in quantities.items():
        pointer = f"/quantities{pointer_part(key)}"
        check_quantity(pointer, quantity)
        if key not in recurring:
            raise Invalid(pointer=pointer, rule="recurring-price", detail="the plan has no recurring price of this key")


def _override(plan_id: int, override: PriceOverride) -> dict[str, Any]:
    """Return negotiated prices as stored; named amounts belong to this plan."""
    terms = plans.terms_of(plan_id)
    return stored(override, terms.code, {price.key: price for _, price in terms.prices})


def _insert_amendment(
    lock: Lock, subscription: Subscription, effective_at: datetime, change: dict[str, Any], actor: str
) -> Amendment:
    lock.ensure_held(SUBSCRIPTION_INTENT(subscription.ref))
    amendment = Amendment.objects.create(
        subscription_id=subscription.pk,
        sequence=_next(Amendment, subscription),
        effective_at=effective_at,
        change=change,
        actor=actor,
    )
    amendment.refresh_from_db()
    return amendment


def _next(model: type[Amendment] | type[Charge], subscription: Subscription) -> int:
    last: int | None = model.objects.filter(subscription_id=subscription.pk).aggregate(last=Max("sequence"))["last"]
    return (last or 0) + 1


FOLLOWERS: Final[list[Callable[[str], object]]] = []
"""What follows an order about a plan with overage, allowance or budgets, with the reference of the subscription, after COMMIT."""


def follow_at_once(act: Callable[[str], object]) -> None:
    """Register what follows such orders; a second registration changes nothing."""
    if act not in FOLLOWERS:
        FOLLOWERS.append(act)


def tell_followers(subscription: Subscription) -> None:
    """Call what follows after COMMIT, if a plan that the subscription has or had has overage, an allowance or budgets.

    Call it after the order, or after its billing is suspended.
    """
    versions = ItemVersion.objects.filter(subscription_id=subscription.pk)
    if versions.filter(Q(price_id__in=_OVERAGE_PRICES) | Q(plan_id__in=_PLANS_WITH_TERMS)).exists():
        for act in FOLLOWERS:
            after_commit(act, subscription.ref)


_PLANS_WITH_TERMS: Final = PlanRow.objects.filter(Q(allowance__isnull=False) | Q(budgets__isnull=False)).values("id")
_OVERAGE_PRICES: Final = PriceRow.objects.filter(meter__startswith=METER_PREFIX).values("id")


def active_from(subscription: Subscription) -> datetime:
    """Return the start of billing: the start of the subscription, or the end of the trial."""
    return first_charged_instant(subscription.started_at, subscription.trial_end)


def _as_text(quantities: Mapping[str, Decimal]) -> dict[str, str]:
    return {key: format(quantity, "f") for key, quantity in quantities.items()}


def _iso(instant: datetime | None) -> str | None:
    return instant.astimezone(UTC).isoformat() if instant else None

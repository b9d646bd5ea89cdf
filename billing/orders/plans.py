"""The catalogue: plans with their prices. A written version of a plan never changes."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Final

from django.db.models import Max

from billing.models import Plan
from billing.models import Price as PriceRow
from billing.models.columns import first_of
from billing.orders.overrides import Override, overridden
from billing.rating.names import MAX_NAME_CHARACTERS, Names
from billing.rating.periods import Interval, IntervalUnit
from billing.rating.prices.overage import METER_PREFIX, OVERAGE_KEY, OveragePrice, definition, is_overage
from billing.rating.prices.price import Price, PriceKind
from billing.rating.prices.reading import PriceList, parse_price, parse_prices, price_dict
from billing.rating.values import Currency, Money, NewInterval, Ref
from billing.rating.vat import TaxBehavior
from ledger.database.lock_names import PLAN
from ledger.database.transactions import locked_transaction
from ledger.errors import Invalid
from ledger.records import Nested, Record, UseCase
from ledger.services import current_rate
from ledger.services.budgets import HARD, MAX_HOURS, MAX_SUBJECT_CHARACTERS, MODES, SCOPES, WINDOWS, check_budgets
from ledger.values import (
    MAX_AMOUNT,
    MAX_METADATA_KEY_CHARACTERS,
    Amount,
    AppliesTo,
    Boolean,
    BudgetName,
    Choice,
    CreditType,
    Integer,
    ListOf,
    Text,
)

MAX_TRIAL_DAYS: Final = 730
MAX_PLAN_BUDGETS: Final = 10
"""Half of those that an account can have."""
MAX_PRICE_PERIODS = 366
"""How many periods of a price a period of its plan can have."""

BEFORE_TAX: Final = "before tax unless the amounts include it"


@dataclass(frozen=True, slots=True)
class PlanTerms:
    """A version of a plan as the generator reads it."""

    id: int
    code: str
    name: str
    currency: str
    interval: Interval
    minimum: Decimal | None
    maximum: Decimal | None
    usage_threshold: Decimal | None
    tax_behavior: str
    allowance: dict[str, Any] | None
    overage: dict[str, Any] | None
    budgets: tuple[dict[str, Any], ...]
    trial_days: int | None
    on_sale: bool
    prices: tuple[tuple[int, Price], ...]
    """Row id and terms of each price, in the order in which lines are printed."""

    def interval_of(self, price: Price) -> Interval:
        """Return how often a price of the plan is billed: every period of the plan, or more often."""
        return price.interval or self.interval


class IntervalValue(Nested):
    """An interval, which periods are counted by."""

    def made(self, item: Any) -> Interval:
        return Interval(**item)

    def check(self, value: Any) -> Interval:
        return value if isinstance(value, Interval) else self.made(super().check(value).__dict__)


@dataclass(frozen=True, kw_only=True)
class NewAllowance(Record):
    """Credits that the customer's holder gets each period."""

    credit_type: Annotated[str, CreditType("What is granted.")] = "credits"
    interval: Annotated[
        Interval | None,
        IntervalValue(
            NewInterval, "How often they are granted, if more often than the plan is billed: it divides the plan's.", null=True
        ),
    ] = None
    per_quantity_of: Annotated[
        str | None,
        Ref("The key of a recurring price, such as a seat's: the amount and the cap count for each of its units.", null=True),
    ] = None
    in_trial: Annotated[bool, Boolean("True: the time of a trial gets its share too.")] = False
    amount: Annotated[int, Amount("Per full period; a part of a period gets its share of days.")]
    rollover_cap: Annotated[
        int | None,
        Amount(
            "How many unspent credits are carried into the next period; without it, credits expire with their period.",
            least=0,
            null=True,
        ),
    ] = None
    applies_to: Annotated[
        dict[str, Any] | None,
        AppliesTo(
            "What the credits can pay for, as in a grant: then they pay neither invoices nor usage of events. By default they "
            "can pay for everything.",
            null=True,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class NewOverage(Record):
    """Credits that the customer's holder may use beyond those that it has, invoiced at the end of each period."""

    per_quantity_of: Annotated[
        str | None, Ref("The key of a recurring price, such as a seat's: the limit counts for each of its units.", null=True)
    ] = None
    credit_type: Annotated[str, CreditType("What is counted.")] = "credits"
    price: Annotated[dict[str, Any], OveragePrice("The price of the credits of a period.")]
    limit_credits: Annotated[
        int | None, Amount("How many a period; a spend beyond is refused. By default there is no limit.", least=0, null=True)
    ] = None
    limit_minor: Annotated[
        int | None,
        Integer(
            "Instead of it, in money: as many as cost no more than this, in minor units.", least=0, most=MAX_AMOUNT, null=True
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class NewPlanBudget(Record):
    """A budget of the account of the customer's holder, which counts as one that is set by hand."""

    budget: Annotated[str, BudgetName("Its name. A budget of this name that somebody set by hand prevails.")]
    credit_type: Annotated[str, CreditType("What it counts.")] = "credits"
    limit: Annotated[int, Amount("How many credits may be spent in the window; 0 for none.", least=0)]
    per_quantity_of: Annotated[
        str | None, Ref("The key of a recurring price, such as a seat's: the limit counts for each of its units.", null=True)
    ] = None
    window: Annotated[
        str,
        Choice(
            WINDOWS,
            "A calendar day, week (from Monday) or month of the subscription's time zone; or `rolling`: the last `hours`.",
        ),
    ]
    hours: Annotated[
        int | None, Integer("Of a rolling window: its length. It moves in 24 steps.", least=1, most=MAX_HOURS, null=True)
    ] = None
    by: Annotated[
        str,
        Choice(
            SCOPES,
            "Whose spending is counted together: everything of the account, or what has the same actor, reference, or value of "
            "a label in the metadata.",
        ),
    ] = "holder"
    label: Annotated[
        str | None,
        Text("By label: the key in the metadata, such as member.", least=1, most=MAX_METADATA_KEY_CHARACTERS, null=True),
    ] = None
    subject: Annotated[
        str | None,
        Text(
            "The only actor, reference or value of the label that it counts. By default each has the whole limit; a budget by "
            "reference needs one.",
            most=MAX_SUBJECT_CHARACTERS,
            null=True,
        ),
    ] = None
    mode: Annotated[
        str, Choice(MODES, "`hard`: what exceeds the limit is refused. `soft`: it is spent, and the budget shows it.")
    ] = HARD
    parent: Annotated[
        str | None, BudgetName("The budget of the plan in which this one nests; it stands before this one.", null=True)
    ] = None


class PlanBudgets(ListOf):
    """The budgets of a plan, parents first."""

    def __init__(self, text: str) -> None:
        super().__init__(Nested(NewPlanBudget), text, most=MAX_PLAN_BUDGETS, null=True)


@dataclass(frozen=True, kw_only=True)
class NewPlan(Record):
    """A plan, or the next version of it."""

    code: Annotated[str, Ref("Your name for the plan; an existing one gets a new version.", named="ref")]
    name: Annotated[str, Text("For people: documents print it.", most=MAX_NAME_CHARACTERS, least=1)]
    currency: Annotated[str, Currency()]
    interval: Annotated[Interval, IntervalValue(NewInterval, "The billing period.")]
    prices: Annotated[list[Any], PriceList("With distinct keys.")]
    names: Annotated[
        dict[str, str] | None, Names("The name in languages of documents in which it differs, by their codes.", null=True)
    ] = None
    minimum: Annotated[Decimal | None, Money(f"The minimum per subscription and period, {BEFORE_TAX}.", null=True)] = None
    maximum: Annotated[Decimal | None, Money(f"The maximum per subscription and period, {BEFORE_TAX}.", null=True)] = None
    usage_threshold: Annotated[
        Decimal | None,
        Money(
            "Usage of running periods is invoiced as soon as this amount of it is not invoiced yet; above 0.",
            null=True,
        ),
    ] = None
    tax_behavior: Annotated[
        str, Choice(TaxBehavior, "Whether the amounts of its prices, minimum and maximum are without tax, or include it.")
    ] = TaxBehavior.EXCLUSIVE
    allowance: Annotated[NewAllowance | None, Nested(NewAllowance, "Credits granted each period.", null=True)] = None
    overage: Annotated[
        NewOverage | None, Nested(NewOverage, "Credits that may be used beyond those of the holder, and their price.", null=True)
    ] = None
    budgets: Annotated[
        list[NewPlanBudget] | None,
        PlanBudgets("Limits of spending that the account of the customer's holder has while the subscription is on the plan."),
    ] = None

    trial_days: Annotated[
        int | None,
        Integer(
            "How many days from the start nothing is charged, for an order that names no trial of its own; null: no trial. "
            "`allowance.in_trial` says whether credits are granted in it.",
            least=1,
            most=MAX_TRIAL_DAYS,
            null=True,
        ),
    ] = None
    on_sale: Annotated[
        bool, Boolean("False: no order takes the plan any more; subscriptions that have it go on, and can get this version.")
    ] = True

    def check_whole(self) -> None:
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise Invalid(pointer="/minimum", rule="below-maximum", detail="the minimum must not exceed the maximum")
        if self.usage_threshold == 0:
            raise Invalid(pointer="/usage_threshold", rule="above-zero", detail="a threshold is above 0")
        if self.overage is not None and self.overage.limit_credits is not None and self.overage.limit_minor is not None:
            raise Invalid(pointer="/overage/limit_minor", rule="not-both", detail="give either this or limit_credits")
        for index, price in enumerate(self.prices):
            if is_overage(price):
                detail = f"must not begin with {METER_PREFIX}, which is for overage"
                raise Invalid(pointer=f"/prices/{index}/meter", rule="reserved", detail=detail)
            if self.overage is not None and price.key == OVERAGE_KEY:
                detail = f"{OVERAGE_KEY} is the key of the price of the plan's overage"
                raise Invalid(pointer=f"/prices/{index}/key", rule="reserved", detail=detail)
            self._check_interval(price.interval, f"/prices/{index}/interval")
        self._check_meters()
        if self.allowance is not None:
            self._check_interval(self.allowance.interval, "/allowance/interval")
            self._check_key(self.allowance.per_quantity_of, "/allowance/per_quantity_of")
        if self.overage is not None:
            self._check_key(self.overage.per_quantity_of, "/overage/per_quantity_of")
            if self.overage.per_quantity_of and self.overage.limit_credits is None and self.overage.limit_minor is None:
                detail = "belongs to limit_credits or limit_minor"
                raise Invalid(pointer="/overage/per_quantity_of", rule="not-alone", detail=detail)
        check_budgets([(budget.credit_type, budget) for budget in self.budgets or ()], at="/budgets")
        for number, budget in enumerate(self.budgets or ()):
            self._check_key(budget.per_quantity_of, f"/budgets/{number}/per_quantity_of")

    def _check_interval(self, interval: Interval | None, pointer: str) -> None:
        parts = 1 if interval is None else interval.parts_of(self.interval)
        if not 1 <= parts <= MAX_PRICE_PERIODS:
            detail = f"must divide the plan's interval into 1 to {MAX_PRICE_PERIODS} periods"
            raise Invalid(pointer=pointer, rule="divides-the-plans", detail=detail)

    def _check_meters(self) -> None:
        """Return, or raise if the use that a meter counts would be billed by entries and by events."""
        first: dict[str, bool] = {}
        for index, price in enumerate(self.prices):
            by_entries = price.is_billed_by_entries()
            if price.meter is not None and first.setdefault(price.meter, by_entries) != by_entries:
                detail = f"another price of the meter {price.meter} is billed by {'events' if by_entries else 'entries'}"
                raise Invalid(pointer=f"/prices/{index}/billed_by", rule="one-way-of-a-meter", detail=detail)

    def _check_key(self, key: str | None, pointer: str) -> None:
        if key is not None and not any(price.key == key and price.kind == PriceKind.RECURRING for price in self.prices):
            raise Invalid(pointer=pointer, rule="recurring-price", detail="the plan has no recurring price of this key")


def _create(request: NewPlan) -> Plan:
    """Write a plan, or its next version where the code exists; or raise and write nothing.

    Subscriptions keep the version of their order until an amendment names the plan again.

    Raises:
        PriceInvalid: a price is not valid; has every fault with its field.
        Invalid: the minimum is above the maximum, a price's interval does not divide the plan's, or a price that is billed by
            entries names a rate or component that does not exist.
    """
    _ensure_rates(request.prices)
    with locked_transaction(PLAN(request.code)):
        last = Plan.objects.filter(code=request.code).aggregate(last=Max("version"))["last"]
        plan = Plan.objects.create(
            code=request.code,
            version=(last or 0) + 1,
            name=request.name,
            names=request.names or {},
            currency=request.currency,
            interval_unit=request.interval.unit.value,
            interval_count=request.interval.count,
            minimum=request.minimum,
            maximum=request.maximum,
            usage_threshold=request.usage_threshold,
            tax_behavior=request.tax_behavior,
            allowance=asdict(request.allowance) if request.allowance else None,
            overage=asdict(request.overage) if request.overage else None,
            budgets=[asdict(budget) for budget in request.budgets] if request.budgets else None,
            trial_days=request.trial_days,
            on_sale=request.on_sale,
        )
        prices = [*request.prices, *([_overage_price(request.overage)] if request.overage else [])]
        PriceRow.objects.bulk_create(_price_row(plan.pk, position, price) for position, price in enumerate(prices))
        plan.refresh_from_db()
    return plan


def _ensure_rates(prices: Sequence[Price]) -> None:
    """Return, or raise if a price is billed by the entries of a rate that nobody has published: it would bill nothing."""
    for index, price in enumerate(prices):
        if price.entries is None:
            continue
        rate = current_rate(price.entries.rate, price.entries.credit_type)
        if rate is None:
            detail = f"there is no rate {price.entries.rate!r} in {price.entries.credit_type}; publish it first"
            raise Invalid(pointer=f"/prices/{index}/entries/rate", rule="exists", detail=detail)
        if price.entries.component is not None and price.entries.component not in rate.unit_prices:
            detail = f"the rate has no such component; it has {', '.join(rate.unit_prices)}"
            raise Invalid(pointer=f"/prices/{index}/entries/component", rule="exists", detail=detail)


def _overage_price(overage: NewOverage) -> Price:
    return parse_price(definition(overage.price, overage.credit_type), pointer="/overage/price")


create_plan = UseCase(NewPlan, _create)


@dataclass(frozen=True, kw_only=True)
class PlanSale(Record):
    """Whether a plan is on sale from now on."""

    plan: Annotated[str, Ref("The plan.")]
    on_sale: Annotated[bool, Boolean("False retires the plan: no order takes it any more. True puts it on sale again.")]


def _change_sale(request: PlanSale) -> Plan:
    """Write the plan's next version, with the same terms, on sale or not. A plan that is so already stays as it is.

    Raises:
        NotFound: the plan does not exist.
    """
    with locked_transaction(PLAN(request.plan)):
        newest = plan_of(request.plan)
        if newest.on_sale == request.on_sale:
            return newest
        copied = {
            field.attname: getattr(newest, field.attname)
            for field in Plan._meta.concrete_fields
            if field.attname not in {"id", "version", "on_sale", "created_at"}
        }
        plan = Plan.objects.create(**copied, version=newest.version + 1, on_sale=request.on_sale)
        PriceRow.objects.bulk_create(
            PriceRow(
                plan_id=plan.pk,
                position=row.position,
                key=row.key,
                kind=row.kind,
                timing=row.timing,
                model=row.model,
                meter=row.meter,
                definition=row.definition,
            )
            for row in PriceRow.objects.filter(plan_id=newest.pk, subscription=None).order_by("position")
        )
        plan.refresh_from_db()
    return plan


change_plan_sale = UseCase(PlanSale, _change_sale)


def latest_plan(code: str, *, pointer: str = "/plan", present: str | None = None) -> Plan:
    """The newest version of a plan, which an order takes.

    Args:
        present: the plan of the subscription, which it may keep although that plan is not on sale any more.

    Raises:
        Invalid: it does not exist, or is not on sale; nothing was written.
    """
    plan = Plan.objects.filter(code=code).order_by("-version").first()
    if plan is None:
        raise Invalid(pointer=pointer, rule="exists", detail=f"plan {code!r} does not exist")
    if not plan.on_sale and code != present:
        raise Invalid(pointer=pointer, rule="on-sale", detail=f"plan {code!r} is retired: no order takes it any more")
    return plan


def plan_of(code: str) -> Plan:
    """The newest version of a plan that a path names.

    Raises:
        NotFound: it does not exist.
    """
    return first_of(Plan.objects.filter(code=code).order_by("-version"), "plan", code)


@lru_cache(maxsize=4096)
def terms_of(plan_id: int) -> PlanTerms:
    """The terms of a version of a plan; kept in memory, since versions never change."""
    plan = Plan.objects.get(pk=plan_id)
    rows = PriceRow.objects.filter(plan_id=plan_id, subscription=None).order_by("position").values_list("id", "definition")
    parsed = parse_prices([definition for _, definition in rows])
    return PlanTerms(
        id=plan.pk,
        code=plan.code,
        name=plan.name,
        currency=plan.currency,
        interval=Interval(IntervalUnit(plan.interval_unit), plan.interval_count),
        minimum=plan.minimum,
        maximum=plan.maximum,
        usage_threshold=plan.usage_threshold,
        tax_behavior=plan.tax_behavior,
        allowance=plan.allowance,
        overage=plan.overage,
        budgets=tuple(plan.budgets or ()),
        trial_days=plan.trial_days,
        on_sale=plan.on_sale,
        prices=tuple((row_id, price) for (row_id, _), price in zip(rows, parsed, strict=True)),
    )


@lru_cache(maxsize=16384)
def price_of(price_id: int) -> tuple[PlanTerms, Price]:
    """A price and the version of the plan that it belongs to; kept in memory, since neither ever changes."""
    row = PriceRow.objects.only("plan_id", "list_price_id", "definition").get(pk=price_id)
    terms = terms_of(row.plan_id)
    if row.list_price_id is not None:
        return terms, parse_price(row.definition)
    return terms, next(price for known_id, price in terms.prices if known_id == price_id)


@lru_cache(maxsize=16384)
def list_price_of(price_id: int) -> Price | None:
    """The plan's own price that a negotiated price replaces; None for a price that is the plan's own."""
    list_price_id = PriceRow.objects.values_list("list_price_id", flat=True).get(pk=price_id)
    return None if list_price_id is None else price_of(list_price_id)[1]


def negotiated_prices(plan_id: int, override: Override, subscription_id: int, *, creates: bool) -> dict[str, int]:
    """Return the ids of a plan's prices by key, with the negotiated prices of a subscription in place of those they replace.

    Args:
        creates: write the negotiated prices that have no row; False: such a key is left out.
    """
    terms = terms_of(plan_id)
    known = {
        (row.list_price_id, json.dumps(row.definition, sort_keys=True)): row.pk
        for row in PriceRow.objects.filter(subscription_id=subscription_id, plan_id=plan_id)
    }
    ids: dict[str, int] = {}
    for position, (price_id, price) in enumerate(terms.prices):
        paid = overridden(price, terms.code, override)
        if paid == price:
            ids[price.key] = price_id
            continue
        found = known.get((price_id, json.dumps(price_dict(paid), sort_keys=True)))
        if found is None and creates:
            row = _price_row(plan_id, position, paid, subscription_id=subscription_id, list_price_id=price_id)
            row.save(force_insert=True)
            found = row.pk
        if found is not None:
            ids[price.key] = found
    return ids


def _price_row(plan_id: int, position: int, price: Price, **negotiated: int) -> PriceRow:
    return PriceRow(
        **negotiated,
        plan_id=plan_id,
        position=position,
        key=price.key,
        kind=price.kind.value,
        timing=price.timing.value,
        model=price.model,
        meter=price.meter or "",
        definition=price_dict(price),
    )

"""Phases of a subscription: which terms count one after the other, and when each begins. Pure.

Each phase is an amendment at the instant at which it begins, which is known when it is ordered. So runs, previews and later
amendments need no rule for phases.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Final

from billing.orders.overrides import PriceOverride
from billing.rating.limits import check_instant
from billing.rating.periods import Schedule
from billing.rating.values import Ref, Units
from ledger.errors import Invalid
from ledger.records import Nested, Record
from ledger.values import Boolean, Integer, ListOf, MapOf, Time

MAX_PHASES: Final = 50
MAX_INTERVALS: Final = 1200


@dataclass(frozen=True, kw_only=True)
class Phase(Record):
    """A stretch of a subscription at its own terms. What it does not name goes on from the phase before."""

    intervals: Annotated[
        int | None,
        Integer(
            "It ends with this number of periods of its plan; a period in which it begins counts as one. Not of the last phase.",
            least=1,
            most=MAX_INTERVALS,
        ),
    ] = None
    ends_at: Annotated[datetime | None, Time("Or it ends at this time. Not of the last phase.")] = None
    trial: Annotated[bool, Boolean("True: it is free. Only the first phase of an order.")] = False
    plan: Annotated[str | None, Ref("The newest version of this plan.")] = None
    quantities: Annotated[dict[str, Decimal] | None, MapOf(Units(), "By price key.", max_keys=100)] = None
    price_override: Annotated[PriceOverride | None, Nested(PriceOverride, "Negotiated prices.")] = None
    list_prices: Annotated[bool, Boolean("True: the plan's prices, without negotiated ones.")] = False


class PhaseList(ListOf):
    """Phases, in the order in which they follow each other."""

    def __init__(self, text: str, *, least: int = 0, null: bool = False) -> None:
        super().__init__(Nested(Phase), text, least=least, most=MAX_PHASES, null=null)


@dataclass(frozen=True, slots=True)
class BegunPhase:
    """A phase with its times; the last one has no end."""

    phase: Phase
    plan_id: int
    starts_at: datetime
    ends_at: datetime | None


def timed(
    phases: Sequence[Phase],
    *,
    starts_at: datetime,
    plan_id: int,
    plan_of: Callable[[str, str], int],
    schedule_of: Callable[[int], Schedule],
) -> list[BegunPhase]:
    """Return the phases with their times, in their order.

    Args:
        starts_at: when the first one begins.
        plan_id: the version of the plan before them.
        plan_of: the version of a plan that a phase names, from its ref and the pointer of the field.
        schedule_of: the periods of the subscription on a version of a plan.

    Raises:
        Invalid: a phase but the last has not exactly one length, the last has one, a phase ends before it begins, or its terms
            contradict each other.
    """
    begun_phases: list[BegunPhase] = []
    for index, phase in enumerate(phases):
        at = f"/phases/{index}"
        is_last = index == len(phases) - 1
        _check(phase, at, is_first=index == 0, is_last=is_last)
        plan_id = plan_id if phase.plan is None else plan_of(phase.plan, f"{at}/plan")
        ends_at = None if is_last else phase.ends_at or _after(schedule_of(plan_id), starts_at, phase.intervals or 1)
        if ends_at is not None:
            check_instant(f"{at}/ends_at", ends_at)
            if ends_at <= starts_at:
                raise Invalid(pointer=f"{at}/ends_at", rule="after-start", detail="a phase must end after it begins")
        begun_phases.append(BegunPhase(phase, plan_id, starts_at, ends_at))
        starts_at = ends_at or starts_at
    return begun_phases


def _check(phase: Phase, at: str, *, is_first: bool, is_last: bool) -> None:
    lengths = (phase.intervals is not None) + (phase.ends_at is not None)
    if is_last and lengths:
        raise Invalid(pointer=at, rule="last-phase", detail="the last phase has no length; ends_at ends the subscription")
    if not is_last and lengths != 1:
        raise Invalid(pointer=at, rule="one-length", detail="give either intervals or ends_at")
    if phase.trial and not is_first:
        raise Invalid(pointer=f"{at}/trial", rule="first-phase", detail="only the first phase can be a trial")
    if phase.trial and is_last:
        raise Invalid(pointer=f"{at}/trial", rule="last-phase", detail="a trial needs a phase after it")
    if phase.list_prices and phase.price_override is not None:
        raise Invalid(pointer=f"{at}/list_prices", rule="contradiction", detail="give either list_prices or price_override")


def _after(schedule: Schedule, instant: datetime, intervals: int) -> datetime:
    """Return the end of the last of some periods; the one that contains the instant is the first."""
    return schedule.period(schedule.period_at(instant).index + intervals - 1).end

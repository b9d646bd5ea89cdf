"""Where the next run has to look. The cursor is only a hint: the claims say what is billed."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from billing.generator.state.allowance_times import next_allowance
from billing.generator.state.claims import PERIODS_LOOKED_AT
from billing.generator.state.open_claims import OpenClaim
from billing.generator.state.overage import next_overage
from billing.generator.state.plan_budgets import next_budgets
from billing.generator.state.spans import ItemSpan, next_bound, next_due
from billing.generator.state.subscription_state import BillableItems, SubscriptionState
from billing.metering import usage as metering
from billing.models import Claim
from billing.rating.prices.price import PriceKind
from ledger.database.statements import Statement, parameter

# What this run did not look at stays as the cursor has it; without a cursor it is due at once.
MOVE_CURSOR = Statement(
    "move_cursor",
    """
    INSERT INTO billing_cursor AS cursor (subscription_id, recurring_due_at, usage_due_at, recurring_amendments_seen,
        usage_amendments_seen, charges_seen, claims_from, usage_seen_until, looked_at)
    VALUES (%(subscription)s, %(recurring_due_at)s, %(usage_due_at)s, %(recurring_seen)s, %(usage_seen)s, %(charges_seen)s,
        %(claims_from)s, %(usage_seen_until)s, clock_timestamp())
    ON CONFLICT (subscription_id) DO UPDATE SET
        recurring_due_at = excluded.recurring_due_at, usage_due_at = excluded.usage_due_at,
        recurring_amendments_seen = excluded.recurring_amendments_seen,
        usage_amendments_seen = excluded.usage_amendments_seen,
        charges_seen = excluded.charges_seen, claims_from = excluded.claims_from,
        usage_seen_until = excluded.usage_seen_until, looked_at = excluded.looked_at
""",
)


def move_cursor(
    subscription: SubscriptionState,
    items: BillableItems,
    claims: Mapping[Claim.Kind, Mapping[int, Sequence[OpenClaim]]],
    *,
    kinds: set[PriceKind],
    as_of: datetime,
    released: Collection[int],
    written: Sequence[Mapping[str, Any]],
    credits_due_at: Sequence[datetime],
    allowances_are_granted: bool,
    late_is_seen: bool,
) -> None:
    """Record where the next run has to look.

    Args:
        claims: as they were read.
        kinds: the kinds of prices that this run bills, up to `as_of`.
        released: the ids of the claims that this run has released.
        written: the rows of the claims that it has written.
        credits_due_at: the due instant of later credits.
        allowances_are_granted: the run has looked for allowances and granted the due ones.
        late_is_seen: the run has looked for late usage.
    """
    recurring, usage = PriceKind.RECURRING in kinds, PriceKind.USAGE in kinds
    unknown = subscription.recurring_amendments_seen is None
    values: dict[str, datetime | int | None] = {
        "subscription": subscription.id,
        "recurring_due_at": _not_sooner(
            _earliest(
                next_due(items.all_of({PriceKind.RECURRING}), as_of),
                next_allowance(items.allowances, as_of),
                *credits_due_at,
            ),
            subscription.recurring_due_at,
            is_known=(subscription.recurring_amendments_seen, subscription.charges_seen)
            == (subscription.amendments, subscription.charges),
        )
        if recurring
        else (subscription.active_from if unknown else subscription.recurring_due_at),
        "usage_due_at": _not_sooner(
            _earliest(
                next_due(items.all_of({PriceKind.USAGE}), as_of),
                next_bound(items.bounded, as_of),
                next_overage(items, as_of),
                next_budgets(subscription, items, as_of),
                *credits_due_at,
            ),
            subscription.usage_due_at,
            is_known=subscription.usage_amendments_seen == subscription.amendments,
        )
        if usage
        else (subscription.active_from if unknown else subscription.usage_due_at),
        "recurring_seen": subscription.amendments if recurring else subscription.recurring_amendments_seen or 0,
        "usage_seen": subscription.amendments if usage else subscription.usage_amendments_seen or 0,
        "charges_seen": subscription.charges if recurring else subscription.charges_seen or 0,
        "claims_from": _earliest(
            _claims_from(subscription, items, claims, released, written, allowances_are_granted),
            *_not_looked_at(subscription, kinds),
        ),
        "usage_seen_until": subscription.read_at - metering.LONGEST_TRANSACTION
        if usage and late_is_seen
        else subscription.usage_seen_until,
    }
    MOVE_CURSOR.rows({name: parameter(value) for name, value in values.items()})


def _not_sooner(found: datetime | None, known: datetime | None, *, is_known: bool) -> datetime | None:
    """Return when to look next. A run as of an earlier instant keeps what a later run has recorded.

    Args:
        is_known: nothing was ordered or amended since then. Voiding sets the cursor back.
    """
    if not is_known or found is None:
        return found
    return known if known is None or known > found else found


def _earliest(*instants: datetime | None) -> datetime | None:
    return min((instant for instant in instants if instant is not None), default=None)


def _not_looked_at(subscription: SubscriptionState, kinds: set[PriceKind]) -> list[datetime | None]:
    """Return the instant from which something of the kinds that this run does not bill may be due."""
    due_at = {PriceKind.RECURRING: subscription.recurring_due_at, PriceKind.USAGE: subscription.usage_due_at}
    return [due_at[kind] for kind in due_at.keys() - kinds]


def _claims_from(
    subscription: SubscriptionState,
    items: BillableItems,
    claims: Mapping[Claim.Kind, Mapping[int, Sequence[OpenClaim]]],
    released: Collection[int],
    written: Sequence[Mapping[str, Any]],
    allowances_are_granted: bool,
) -> datetime | None:
    """Return the instant from which the next run has to read claims: some of the newest claims of every active item."""
    stretches: dict[tuple[int, int], list[tuple[datetime, datetime]]] = {}
    for kind, held in claims.items():
        for item_id, of_item in held.items():
            stretches[kind, item_id] = [(claim.start, claim.end) for claim in of_item if claim.id not in released]
    for row in written:
        stretch = (datetime.fromisoformat(row["starts_at"]), datetime.fromisoformat(row["ends_at"]))
        stretches.setdefault((row["kind"], row["item_id"]), []).append(stretch)
    live: list[datetime] = []
    ended: list[datetime] = []
    for kind, by_item in ((Claim.Kind.RECURRING, items.recurring), (Claim.Kind.USAGE, items.usage)):
        for item_id, spans in by_item.items():
            known = sorted(stretches.get((kind, item_id), []))
            start = _last_periods(spans[-1], known) if known else min(span.start for span in spans)
            settled = bool(known) and all(span.end is not None and span.end <= known[-1][1] for span in spans)
            (ended if settled else live).append(start)
    # The next run looks for allowances from this instant on, so the instant stays until a run has granted them.
    if items.allowances and not allowances_are_granted:
        live.append(subscription.claims_from or min(one.start for one in items.allowances))
    for span in items.bounded:
        known = sorted(stretches.get((Claim.Kind.BOUND, span.item_id), []))
        if not known and (span.end is None or span.end > min(live, default=span.start)):
            live.append(span.start)
    return min(live or ended, default=None)


def _last_periods(span: ItemSpan, known: Sequence[tuple[datetime, datetime]]) -> datetime:
    """Return the start of the newest billed periods of the plan, counted as full periods, with or without gaps between them."""
    return sorted({span.plan_schedule.period_at(start).start for start, _ in known})[-PERIODS_LOOKED_AT:][0]

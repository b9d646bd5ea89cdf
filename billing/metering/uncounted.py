"""Usage events that no price counts, and why: for the audit and the runs, and for the sender of such an event."""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from billing.metering.filters import PASSES
from ledger.database.statements import fetch_rows

# The prices that count the events of a meter, each with its time; usage in a trial does not count.
_COUNTED: Final = """
    counted AS (
        SELECT v.subscription_id, p.meter, coalesce(p.definition -> 'filters', '{}') AS filters,
            greatest(v.starts_at, s.trial_end) AS starts_at, coalesce(v.ends_at, 'infinity') AS ends_at
        FROM billing_itemversion AS v
        JOIN billing_price AS p ON p.id = v.price_id
        JOIN billing_subscription AS s ON s.id = v.subscription_id
        WHERE v.superseded_at IS NULL AND p.kind = 'usage' AND p.definition ->> 'billed_by' IS DISTINCT FROM 'entries'
            AND (%(subscriptions)s::bigint[] IS NULL OR v.subscription_id = ANY(%(subscriptions)s))
    )
"""
_IS_COUNTED: Final = PASSES.format(event="e", filters="c.filters")

# The end and the pause come from the amendments that hold at the event, because an open pause leaves no version behind it, as an
# end does.
REASON: Final = """
        CASE
            WHEN EXISTS (
                SELECT FROM billing_activation AS activation
                WHERE activation.subscription_id = s.id AND activation.state IN ('expired', 'canceled')) THEN 'not-started'
            WHEN EXISTS (
                SELECT FROM billing_itemversion AS v
                JOIN billing_price AS p ON p.id = v.price_id AND p.meter = e.meter AND p.definition ->> 'billed_by' = 'entries'
                WHERE v.subscription_id = s.id AND v.superseded_at IS NULL
                    AND v.starts_at <= e.occurred_at AND coalesce(v.ends_at, 'infinity') > e.occurred_at) THEN 'billed-by-entries'
            WHEN NOT EXISTS (SELECT FROM counted AS c WHERE c.subscription_id = s.id AND c.meter = e.meter) THEN 'unknown-meter'
            WHEN e.occurred_at < s.started_at THEN 'before-start'
            WHEN e.occurred_at < s.trial_end THEN 'in-trial'
            WHEN e.occurred_at >= (
                SELECT (a.change ->> 'ends_at')::timestamptz FROM billing_amendment AS a
                WHERE a.subscription_id = s.id AND a.change ? 'ends_at'
                    AND least(a.effective_at, (a.change ->> 'ends_at')::timestamptz) <= e.occurred_at
                ORDER BY a.sequence DESC LIMIT 1) THEN 'after-end'
            WHEN (
                SELECT (a.change ->> 'paused')::boolean FROM billing_amendment AS a
                WHERE a.subscription_id = s.id AND a.change ? 'paused' AND a.effective_at <= e.occurred_at
                ORDER BY a.effective_at DESC, a.sequence DESC LIMIT 1) THEN 'in-pause'
            WHEN EXISTS (
                SELECT FROM counted AS c WHERE c.subscription_id = s.id AND c.meter = e.meter
                    AND c.starts_at <= e.occurred_at AND c.ends_at > e.occurred_at) THEN 'filtered-out'
            ELSE 'not-counted-then'
        END
"""
"""Why an event `e` of `left_over` does not count, by its subscription `s`."""

SENTENCES: Final = {
    "not-started": "the subscription never started: its order expired or was canceled",
    "billed-by-entries": "since an amendment, the ledger's entries bill what its meter counts at that time",
    "unknown-meter": "no price of the subscription counts its meter",
    "before-start": "it occurred before the subscription began",
    "in-trial": "it occurred in the trial of the subscription",
    "after-end": "it occurred at or after the end of the subscription",
    "in-pause": "it occurred while the subscription was paused",
    "filtered-out": "it does not pass the filters of any price",
    "not-counted-then": "the plan of the subscription at that time does not count its meter",
}
"""What each reason means, as the end of a sentence about the event."""


def left_over_of(events_sql: str, *, columns: str) -> str:
    """Return the WITH clause with `left_over`: those of some events that no price counts.

    They are found first, as a set; the reason is computed only for these.

    Args:
        events_sql: the query of the events, with the columns of a usage event. The statement has the parameter `subscriptions`:
            an array of ids that contains theirs, or null.
        columns: what `left_over` has of them, such as "e.meter, e.occurred_at"; `REASON` needs these and the subscription's id.
    """
    return f"""
    WITH {_COUNTED}, left_over AS MATERIALIZED (
        SELECT {columns} FROM ({events_sql}) AS e
        WHERE NOT EXISTS (
            SELECT FROM counted AS c
            WHERE c.subscription_id = e.subscription_id AND c.meter = e.meter
                AND c.starts_at <= e.occurred_at AND c.ends_at > e.occurred_at AND {_IS_COUNTED})
    )"""


_OF_SENT: Final = """
    SELECT * FROM jsonb_to_recordset(%(events)s::jsonb) AS sent(
        idempotency_key text, subscription_id bigint, meter text, occurred_at timestamptz, properties jsonb)"""
REASONS: Final = f"""
    {left_over_of(_OF_SENT, columns="e.idempotency_key, e.subscription_id, e.meter, e.occurred_at")}
    SELECT e.idempotency_key, {REASON} FROM left_over AS e JOIN billing_subscription AS s ON s.id = e.subscription_id
"""


class _Uncounted(NamedTuple):
    """A row of REASONS."""

    idempotency_key: str
    reason: str


def reasons_of(events: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return why no invoice will count them, by key, for those of the events for which this is so as the subscription stands now.

    Args:
        events: rows as `row_of` makes them.
    """
    if not events:
        return {}
    subscription_ids = list({event["subscription_id"] for event in events})
    return dict(fetch_rows(_Uncounted, REASONS, {"events": json.dumps(events), "subscriptions": subscription_ids}))


def sentence_of(reason: str) -> str:
    """Return what becomes of an event that does not count, for its sender."""
    return f"no invoice will count this event: {SENTENCES[reason]}"

"""Looking at billing from outside: is everything consistent, and why is a subscription due or not? Reads only."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connection
from django.db.models import Q

from billing.auditing.documents import DOCUMENT_LAWS
from billing.auditing.origins import origin_findings
from billing.documents.chain import DOCUMENTS
from billing.documents.invoices import invoice_key
from billing.errors import NotFound
from billing.generator.generate import LATE_LOOKBACK_PERIODS
from billing.generator.unbilled_usage import NeverBilled, never_billed
from billing.models import Claim, Cursor, ItemVersion, Parking, Subscription
from billing.orders import plans
from billing.rating.periods import Schedule
from ledger import services as ledger
from ledger.database.locks import lock_number
from ledger.services import NamedEntry

# What a finding is called, and how to find it: each row is one finding in words.
CHECKS = {
    "hole in the numbering": """
        SELECT format('%s: %s numbers, the last is %s', series, count(*), max(series_value))
        FROM (
            SELECT series, series_value FROM billing_invoice UNION ALL SELECT series, series_value FROM billing_creditnote
        ) AS document
        WHERE series_value IS NOT NULL GROUP BY series
        HAVING count(*) <> max(series_value)
    """,
    "series does not match its documents": """
        SELECT format('%s stands at %s', s.name, s.last_value) FROM billing_numberseries AS s
        WHERE s.last_value <> greatest(
            (SELECT coalesce(max(i.series_value), 0) FROM billing_invoice AS i WHERE i.series = s.name),
            (SELECT coalesce(max(n.series_value), 0) FROM billing_creditnote AS n WHERE n.series = s.name))
    """,
    "overlapping claims": """
        SELECT format('item %s: claims %s and %s', a.item_id, a.id, b.id)
        FROM billing_claim AS a JOIN billing_claim AS b
            ON b.item_id = a.item_id AND b.kind = a.kind AND b.id > a.id
            AND tstzrange(a.starts_at, a.ends_at) && tstzrange(b.starts_at, b.ends_at)
        WHERE a.released_at IS NULL AND b.released_at IS NULL
    """,
    # Between two claims of an item, in time in which it counted and which the generator has looked at since the last amendment
    # or void. What comes after the last claim is not due yet, or the cursor says so.
    "hole in what is billed": """
        SELECT format('item %s: nothing is billed from %s to %s', gap.item_id, gap.billed_until, gap.billed_from)
        FROM (
            SELECT c.subscription_id, c.item_id, c.kind, c.starts_at AS billed_from,
                lag(c.ends_at) OVER (PARTITION BY c.item_id, c.kind ORDER BY c.starts_at) AS billed_until
            FROM billing_claim AS c
            WHERE c.released_at IS NULL AND c.kind IN (1, 2)
        ) AS gap
        JOIN billing_cursor AS cursor ON cursor.subscription_id = gap.subscription_id
        WHERE gap.billed_until < gap.billed_from
            AND CASE gap.kind WHEN 1 THEN cursor.recurring_amendments_seen ELSE cursor.usage_amendments_seen END
                >= (SELECT max(a.sequence) FROM billing_amendment AS a WHERE a.subscription_id = gap.subscription_id)
            AND EXISTS (
                SELECT FROM billing_itemversion AS v JOIN billing_price AS p ON p.id = v.price_id
                WHERE v.item_id = gap.item_id AND v.superseded_at IS NULL
                    AND v.starts_at < gap.billed_from AND coalesce(v.ends_at, 'infinity') > gap.billed_until
                    AND p.kind = CASE gap.kind WHEN 1 THEN 'recurring' ELSE 'usage' END)
    """,
    "lines do not add up to the invoice": """
        SELECT format('invoice %s', i.id) FROM billing_invoice AS i JOIN billing_line AS l ON l.invoice_id = i.id
        GROUP BY i.id
        HAVING sum(l.amount_minor) <> i.subtotal_minor OR sum(l.discount_minor) <> i.discount_minor
    """,
    "taxes do not add up to the invoice": """
        SELECT format('invoice %s', i.id) FROM billing_invoice AS i
        WHERE i.tax_minor <> (SELECT coalesce(sum(t.amount_minor), 0) FROM billing_invoicetax AS t WHERE t.invoice_id = i.id)
    """,
    "invoice without lines": """
        SELECT format('invoice %s', i.id) FROM billing_invoice AS i
        WHERE NOT EXISTS (SELECT FROM billing_line AS l WHERE l.invoice_id = i.id)
    """,
    "credit notes exceed their invoice": """
        SELECT format('invoice %s: %s of %s credited of category %s at %s', note.invoice_id, sum(credited.base_minor),
            coalesce(billed.base_minor, 0), credited.category, credited.rate::float8)
        FROM billing_creditnotetax AS credited
        JOIN billing_creditnote AS note ON note.id = credited.credit_note_id
        LEFT JOIN billing_invoicetax AS billed
            ON billed.invoice_id = note.invoice_id AND billed.category = credited.category AND billed.rate = credited.rate
        WHERE note.released_at IS NULL
        GROUP BY note.invoice_id, credited.category, credited.rate, billed.base_minor, billed.amount_minor
        HAVING sum(credited.base_minor) > coalesce(billed.base_minor, 0)
            OR sum(credited.amount_minor) > coalesce(billed.amount_minor, 0)
    """,
    "credit note does not add up": """
        SELECT format('credit note %s', n.id) FROM billing_creditnote AS n
        WHERE n.kind = 'requested' AND (n.number IS NULL
            OR n.subtotal_minor <> (SELECT coalesce(sum(l.amount_minor), 0) FROM billing_creditnoteline AS l
                WHERE l.credit_note_id = n.id)
            OR n.tax_minor <> (SELECT coalesce(sum(t.amount_minor), 0) FROM billing_creditnotetax AS t
                WHERE t.credit_note_id = n.id))
    """,
    "more is used of a credit note than it is worth": """
        SELECT format('credit note %s', n.id)
        FROM billing_creditnote AS n JOIN billing_creditnoteuse AS u ON u.credit_note_id = n.id AND u.released_at IS NULL
        GROUP BY n.id HAVING sum(u.amount_minor) > n.amount_minor - n.credits_returned_minor
    """,
    "draft past its grace": """
        SELECT format('invoice %s of %s: grace ended at %s', i.id, i.subscription_ref, i.grace_ends_at) FROM billing_invoice AS i
        WHERE i.state = 'draft' AND i.grace_ends_at <= clock_timestamp()
    """,
    # Every spend on usage is named by the claim that it was made for, and by those that continue it. What the claims that are not
    # released say of it is what the ledger has not given back; where none does, all of it has been.
    "credits spent on usage differ from the ledger": """
        SELECT format('spend %s of %s in %s: the claims say %s, the ledger %s', said.sequence, said.holder_id, said.credit_type,
            said.credits, coalesce(there.credits::text, 'has no such spend'))
        FROM (
            SELECT spend ->> 0 AS holder_id, spend ->> 1 AS credit_type, (spend ->> 2)::bigint AS sequence,
                coalesce(sum((spend ->> 3)::bigint) FILTER (WHERE c.released_at IS NULL), 0) AS credits
            FROM billing_claim AS c CROSS JOIN LATERAL jsonb_array_elements(c.basis -> 'covered' -> 'spends') AS spend
            WHERE c.kind = 2 AND c.basis ? 'covered'
            GROUP BY 1, 2, 3
        ) AS said
        LEFT JOIN LATERAL (
            SELECT -e.amount - coalesce((
                SELECT r.refunded_total FROM ledger_entry AS r
                WHERE r.holder_id = e.holder_id AND r.credit_type = e.credit_type AND r.refers_to = e.sequence
                    AND r.kind = 'refund'
                ORDER BY r.sequence DESC LIMIT 1), 0) AS credits
            FROM ledger_entry AS e
            WHERE e.holder_id = said.holder_id AND e.credit_type = said.credit_type AND e.sequence = said.sequence
                AND e.kind = 'spend'
        ) AS there ON true
        WHERE there.credits IS DISTINCT FROM said.credits
    """,
    "claim of a void invoice": """
        SELECT format('claim %s', c.id) FROM billing_claim AS c JOIN billing_invoice AS i ON i.id = c.invoice_id
        WHERE i.state = 'void' AND c.released_at IS NULL
    """,
    "orphan": """
        SELECT format('invoice %s: no subscription %s', i.id, i.subscription_id) FROM billing_invoice AS i
        WHERE NOT EXISTS (SELECT FROM billing_subscription AS s WHERE s.id = i.subscription_id)
        UNION ALL
        SELECT format('claim %s: no subscription %s', c.id, c.subscription_id) FROM billing_claim AS c
        WHERE NOT EXISTS (SELECT FROM billing_subscription AS s WHERE s.id = c.subscription_id)
        UNION ALL
        SELECT format('subscription %s: no customer %s', s.ref, s.customer_id) FROM billing_subscription AS s
        WHERE NOT EXISTS (SELECT FROM billing_customer AS c WHERE c.id = s.customer_id)
    """,
}

# What billing names of the ledger: whose words they are, and holder, credit type, sequence and kind of the entry.
NAMED_ENTRIES = """
    SELECT format('allowance claim %s', c.id), c.basis ->> 'holder_id', c.basis ->> 'credit_type', (c.basis ->> 'grant')::bigint,
        'grant'
    FROM billing_claim AS c WHERE c.kind = 5 AND c.basis ->> 'grant' IS NOT NULL
    UNION ALL
    SELECT format('payment of invoice %s', p.invoice_id), p.holder_id, p.credit_type, p.spend_sequence, 'spend'
    FROM billing_creditpayment AS p
    UNION ALL
    SELECT format('payment of invoice %s, given back', p.invoice_id), p.holder_id, p.credit_type, p.refund_sequence, 'refund'
    FROM billing_creditpayment AS p WHERE p.refund_sequence IS NOT NULL
    UNION ALL
    SELECT format('credit note %s', n.id), coalesce(p.holder_id, ''), coalesce(p.credit_type, ''), n.refund_sequence, 'refund'
    FROM billing_creditnote AS n LEFT JOIN billing_creditpayment AS p ON p.invoice_id = n.invoice_id
    WHERE n.refund_sequence IS NOT NULL
"""

UNKNOWN_INVOICES = """
    SELECT named.id FROM unnest(%s::text[]) AS named(id)
    WHERE NOT EXISTS (SELECT FROM billing_invoice AS i WHERE i.id::text = named.id)
"""
CLAIM_SHOWN = ("item_id", "kind", "starts_at", "ends_at", "amount_minor", "invoice_id")

WHO_HOLDS = """
    SELECT a.pid, a.application_name, a.client_addr::text, a.xact_start
    FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND (l.classid::bigint << 32) | l.objid::bigint = %s
"""


def check() -> list[dict[str, str]]:
    """Every law of billing that a query can see broken, one finding each; empty when all is well."""
    findings: list[dict[str, str]] = []
    with connection.cursor() as cursor:
        for name, sql in (CHECKS | DOCUMENT_LAWS).items():
            cursor.execute(sql)
            findings += [{"finding": name, "what": what} for (what,) in cursor.fetchall()]
    return [*findings, *_broken_chain(), *origin_findings(), *_missing_in_the_ledger(), *_unknown_to_billing()]


def _broken_chain() -> Iterator[dict[str, str]]:
    """Documents that are not what they were when they got their number, or that follow another one."""
    with connection.cursor() as cursor:
        cursor.execute(DOCUMENTS.broken)
        for series, number, found, expected in cursor.fetchall():
            yield {"finding": "digest of a document", "what": f"{series} {number}: found {found}, expected {expected}"}


def usage_never_billed(as_of: datetime, *, subscription_id: int | None = None) -> list[NeverBilled]:
    """Usage that no run with the usual look-back will bill: of one subscription, or of all."""
    return never_billed(as_of=as_of, lookback=LATE_LOOKBACK_PERIODS, subscription_id=subscription_id)


def _missing_in_the_ledger() -> Iterator[dict[str, str]]:
    """Grants, payments and what was given back that billing names and the ledger does not have."""
    with connection.cursor() as cursor:
        cursor.execute(NAMED_ENTRIES)
        named = {NamedEntry(*row[1:]): row[0] for row in cursor.fetchall()}
    for entry in ledger.missing_entries(named):
        what = f"{named[entry]}: no {entry.kind} {entry.sequence} of {entry.holder_id} in {entry.credit_type}"
        yield {"finding": "missing in the ledger", "what": what}


def _unknown_to_billing() -> Iterator[dict[str, str]]:
    """Entries of the ledger that say they are of an invoice that does not exist.

    Credits that usage took are for the check of usage: a draft that took them may be gone, and they stand with the next one.
    """
    prefix = "invoice "
    references = ledger.references_of(actor="billing", prefix=prefix)
    named = {reference.removeprefix(prefix): (reference, holder) for reference, holder in references}
    with connection.cursor() as cursor:
        cursor.execute(UNKNOWN_INVOICES, [list(named)])
        unknown = sorted(row[0] for row in cursor.fetchall())
    for invoice_id in unknown:
        reference, holder = named[invoice_id]
        yield {"finding": "unknown to billing", "what": f"an entry of {holder} is of {reference}, which does not exist"}


def explain(ref: str, as_of: datetime) -> dict[str, Any]:
    """What the generator would look at: cursor, boundaries, versions, newest claims, parking, and who holds the lock.

    Raises:
        NotFound: there is no such subscription.
    """
    subscription = Subscription.objects.filter(ref=ref).first()
    if subscription is None:
        raise NotFound(resource="subscription", ref=ref)
    cursor_row: Mapping[str, Any] | None = Cursor.objects.filter(pk=subscription.pk).values().first()
    versions = ItemVersion.objects.filter(subscription_id=subscription.pk, superseded_at=None).order_by("item_id", "starts_at")
    claims = Claim.objects.filter(subscription_id=subscription.pk, released_at=None).order_by("-ends_at", "item_id")[:10]
    return {
        "subscription": ref,
        "as_of": as_of,
        "due": _why_due(subscription, cursor_row, as_of),
        "cursor": cursor_row,
        "periods": _periods(subscription, as_of),
        "versions": list(versions.values("item_id", "plan_id", "price_id", "quantity", "starts_at", "ends_at")),
        "newest_claims": [_claim(row) for row in claims.values(*CLAIM_SHOWN, "basis")],
        "usage_never_billed": [one.as_dict() for one in usage_never_billed(as_of, subscription_id=subscription.pk)],
        "parked": Parking.objects.filter(subscription_id=subscription.pk, unparked_at=None).values("reason", "facts").first(),
        "lock": {"name": invoice_key(ref), "number": lock_number(invoice_key(ref)), "held_by": _holders(ref)},
    }


def _claim(row: dict[str, Any]) -> dict[str, Any]:
    """A claim in short, with what of it is paid in credits."""
    basis = row.pop("basis")
    return row | ({"covered": basis["covered"]} if "covered" in basis else {})


def _periods(subscription: Subscription, as_of: datetime) -> list[dict[str, Any]]:
    """The boundaries of the period around an instant, the one before and the one after, on the plan that counts then."""
    whole = ItemVersion.objects.filter(subscription_id=subscription.pk, superseded_at=None, price__isnull=True)
    version = whole.filter(Q(ends_at=None) | Q(ends_at__gt=as_of), starts_at__lte=as_of).first()
    if version is None:
        return []
    interval = plans.terms_of(version.plan_id).interval
    schedule = Schedule.anchored_at(subscription.anchor_at, ZoneInfo(subscription.time_zone), interval)
    index = schedule.index_at(as_of)
    around = [schedule.period(n) for n in range(index - 1, index + 2)]
    return [{"number": period.index, "start": period.start, "end": period.end} for period in around]


def _why_due(subscription: Subscription, cursor_row: Mapping[str, Any] | None, as_of: datetime) -> str:
    if cursor_row is None:
        return "never looked at, or an invoice was voided or deleted"
    for name in ("recurring_due_at", "usage_due_at"):
        if cursor_row[name] is not None and cursor_row[name] <= as_of:
            return f"{name} {cursor_row[name].isoformat()} has come"
    return "not due, unless there are amendments or charges that no run has seen"


def _holders(ref: str) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(WHO_HOLDS, [lock_number(invoice_key(ref))])
        columns = ("pid", "application_name", "client_addr", "since")
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]

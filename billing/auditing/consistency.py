"""Checks of the consistency of billing's data. Reads only."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from django.db import InterfaceError, OperationalError, transaction

from billing import additions
from billing.auditing.activations import ACTIVATION_LAWS
from billing.auditing.allowances import ALLOWANCE_LAWS
from billing.auditing.cursors import SEEN_LAWS, late_cursors
from billing.auditing.documents import DOCUMENT_LAWS
from billing.auditing.entries import ENTRIES_LAWS
from billing.auditing.origins import origin_laws
from billing.auditing.payments import PAYMENT_LAWS
from billing.auditing.plan_budgets import BUDGET_LAWS
from billing.documents.chain import DOCUMENTS, INTENT_LAWS, TRANSITIONS
from billing.models.invoices import of_documents
from ledger.audit import cross_check
from ledger.audit.chains import Chain
from ledger.database.statements import fetch_rows
from ledger.services import holders_time

# The name of a finding and its query; each row is a finding in words.
HOLDER_OF_INVOICE = "(SELECT customer.holder_id FROM billing_customer AS customer WHERE customer.id = i.customer_id)"
CHECKS = {
    "hole in the numbering": f"""
        SELECT format('%s: %s numbers, the last is %s', series, count(*), max(series_value))
        FROM ({of_documents("SELECT series, series_value FROM {table}", between=" UNION ALL ")}) AS document
        WHERE series_value IS NOT NULL GROUP BY series
        HAVING count(*) <> max(series_value)
    """,
    "series is not its seller's": """
        SELECT format('%s is in the series %s, its seller numbers it in %s', document.number, document.series, document.expected)
        FROM (
            SELECT i.number, i.series, concat_ws('-', coalesce(s.details ->> 'invoice_prefix', 'INV'),
                CASE WHEN s.details -> 'numbers_per_year' = 'true' THEN to_char(i.issue_date, 'YYYY') END,
                CASE WHEN s.details -> 'numbers_per_customer' = 'true' THEN i.customer_ref END) AS expected
            FROM billing_invoice AS i LEFT JOIN billing_seller AS s ON s.id = i.seller_id
            WHERE i.number IS NOT NULL
            UNION ALL
            SELECT n.number, n.series, concat_ws('-', coalesce(s.details ->> 'credit_note_prefix', 'CN'),
                CASE WHEN s.details -> 'numbers_per_year' = 'true' THEN to_char(n.issue_date, 'YYYY') END,
                CASE WHEN s.details -> 'numbers_per_customer' = 'true' THEN i.customer_ref END)
            FROM billing_creditnote AS n LEFT JOIN billing_seller AS s ON s.id = n.seller_id
            JOIN billing_invoice AS i ON i.id = n.invoice_id
            WHERE n.number IS NOT NULL
        ) AS document
        WHERE document.series <> document.expected
    """,
    "series does not match its documents": f"""
        SELECT format('the last number of %s is %s', s.name, s.last_value) FROM billing_numberseries AS s
        WHERE s.last_value <> greatest(0, {
        of_documents("(SELECT max(series_value) FROM {table} WHERE series = s.name)", between=", ")
    })
        UNION ALL
        SELECT format('%s has documents and no last number', document.series) FROM (
            {of_documents("SELECT series FROM {table} WHERE series_value IS NOT NULL", between=" UNION ")}
        ) AS document
        WHERE NOT EXISTS (SELECT FROM billing_numberseries AS s WHERE s.name = document.series)
    """,
    "overlapping claims": """
        SELECT format('item %s: claims %s and %s', a.item_id, a.id, b.id)
        FROM billing_claim AS a JOIN billing_claim AS b
            ON b.item_id = a.item_id AND b.kind = a.kind AND b.id > a.id
            AND tstzrange(a.starts_at, a.ends_at) && tstzrange(b.starts_at, b.ends_at)
        WHERE a.released_at IS NULL AND b.released_at IS NULL
    """,
    # Gaps between two claims of an item while it was active and up to the generator's last visit since the last amendment or
    # void. The time after the last claim is not due yet, or the cursor names it.
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
        WHERE i.state = 'draft' AND i.grace_ends_at <= statement_timestamp()
    """,
    # Every subscription of the customer has had its turn on that day, so its invoice could be made.
    "draft that no consolidated invoice took": """
        SELECT format('invoice %s of %s: for the invoice of %s', i.id, i.subscription_ref, i.consolidates_on)
        FROM billing_invoice AS i JOIN billing_customer AS c ON c.id = i.customer_id
        WHERE i.state = 'draft' AND (i.consolidates_on + 2)::timestamp AT TIME ZONE c.time_zone <= statement_timestamp()
    """,
    # The claim of a spend on usage names it, and so do the claims that continue it. Open claims of a spend have the credits that
    # the ledger has not given back; without open claims, the ledger has given back all of them.
    "credits spent on usage differ from the ledger": """
        WITH claimed AS MATERIALIZED (
            SELECT spend ->> 0 AS holder_id, spend ->> 1 AS credit_type, (spend ->> 2)::bigint AS sequence,
                coalesce(sum((spend ->> 3)::bigint) FILTER (WHERE c.released_at IS NULL), 0) AS credits
            FROM billing_claim AS c CROSS JOIN LATERAL jsonb_array_elements(c.snapshot -> 'covered' -> 'spends') AS spend
            WHERE c.kind = 2 AND c.snapshot ? 'covered'
            GROUP BY 1, 2, 3
        ), there AS MATERIALIZED (
            SELECT e.holder_id, e.credit_type, e.sequence, -e.amount - coalesce(max(r.refunded_total), 0) AS credits
            FROM claimed JOIN ledger_entry AS e USING (holder_id, credit_type, sequence)
            LEFT JOIN ledger_entry AS r ON r.holder_id = e.holder_id AND r.credit_type = e.credit_type
                AND r.refers_to = e.sequence AND r.kind = 'refund'
            WHERE e.kind = 'spend'
            GROUP BY e.holder_id, e.credit_type, e.sequence, e.amount
        )
        SELECT format('spend %s of %s in %s: the claims say %s, the ledger %s', claimed.sequence, claimed.holder_id,
            claimed.credit_type, claimed.credits, coalesce(there.credits::text, 'has no such spend'))
        FROM claimed LEFT JOIN there USING (holder_id, credit_type, sequence)
        WHERE there.credits IS DISTINCT FROM claimed.credits
    """,
    # Counted again from what took credits of the ledger's postpaid grants, and what gave them back, up to the claim.
    "overage billed differs from the ledger": """
        WITH claimed AS MATERIALIZED (
            SELECT c.id, s.ref, owner.holder_id, substr(p.meter, 9) AS credit_type, c.starts_at, c.ends_at, c.created_at,
                (c.snapshot ->> 'quantity')::numeric AS quantity
            FROM billing_claim AS c
            JOIN billing_price AS p ON p.id = c.price_id
            JOIN billing_subscription AS s ON s.id = c.subscription_id
            JOIN billing_customer AS owner ON owner.id = s.customer_id
            WHERE c.kind = 2 AND c.released_at IS NULL AND starts_with(p.meter, 'overage:')
        ), moved AS MATERIALIZED (
            SELECT e.holder_id, e.credit_type, (part ->> 0)::bigint AS sequence, e.recorded_at,
                CASE e.kind WHEN 'refund' THEN -(part ->> 1)::numeric ELSE (part ->> 1)::numeric END AS credits
            FROM (SELECT DISTINCT holder_id, credit_type FROM claimed) AS account
            JOIN ledger_entry AS e USING (holder_id, credit_type)
            CROSS JOIN LATERAL json_array_elements(e.drawn) AS part
            WHERE e.kind IN ('spend', 'capture', 'refund') AND e.postpaid IS NOT NULL
        ), there AS MATERIALIZED (
            SELECT claimed.id, coalesce(sum(moved.credits), 0) AS quantity
            FROM claimed
            LEFT JOIN ledger_entry AS g ON g.holder_id = claimed.holder_id AND g.credit_type = claimed.credit_type
                AND g.kind = 'grant' AND g.postpaid IS NOT NULL AND g.overage ->> 10 = claimed.ref
                AND coalesce(g.effective_at, g.recorded_at) >= claimed.starts_at
                AND coalesce(g.effective_at, g.recorded_at) < claimed.ends_at
            LEFT JOIN moved ON moved.holder_id = g.holder_id AND moved.credit_type = g.credit_type
                AND moved.sequence = g.sequence AND moved.recorded_at <= claimed.created_at
            GROUP BY claimed.id
        )
        SELECT format('claim %s of %s: %s credits are billed, the ledger has %s', claimed.id, claimed.ref, claimed.quantity,
            there.quantity)
        FROM claimed JOIN there USING (id)
        WHERE there.quantity <> claimed.quantity
    """,
    "claim of a void invoice": """
        SELECT format('claim %s', c.id) FROM billing_claim AS c JOIN billing_invoice AS i ON i.id = c.invoice_id
        WHERE i.state = 'void' AND c.released_at IS NULL
    """,
    "orphan": """
        SELECT format('invoice %s: no subscription %s', i.id, i.subscription_id) FROM billing_invoice AS i
        WHERE i.subscription_id IS NOT NULL
            AND NOT EXISTS (SELECT FROM billing_subscription AS s WHERE s.id = i.subscription_id)
        UNION ALL
        SELECT format('invoice %s: no customer %s', i.id, i.customer_id) FROM billing_invoice AS i
        WHERE NOT EXISTS (SELECT FROM billing_customer AS c WHERE c.id = i.customer_id)
        UNION ALL
        SELECT format('claim %s: no subscription %s', c.id, c.subscription_id) FROM billing_claim AS c
        WHERE NOT EXISTS (SELECT FROM billing_subscription AS s WHERE s.id = c.subscription_id)
        UNION ALL
        SELECT format('%s %s: no customer %s', owned.what, owned.id, owned.customer_id)
        FROM (
            SELECT 'credit note' AS what, id, customer_id FROM billing_creditnote
            UNION ALL SELECT 'refund', id, customer_id FROM billing_creditrefund
        ) AS owned
        WHERE NOT EXISTS (SELECT FROM billing_customer AS c WHERE c.id = owned.customer_id)
        UNION ALL
        SELECT format('plan move %s: no subscription %s', m.move_id, m.subscription_id) FROM billing_movedsubscription AS m
        WHERE NOT EXISTS (SELECT FROM billing_subscription AS s WHERE s.id = m.subscription_id)
        UNION ALL
        SELECT format('subscription %s: no customer %s', s.ref, s.customer_id) FROM billing_subscription AS s
        WHERE NOT EXISTS (SELECT FROM billing_customer AS c WHERE c.id = s.customer_id)
    """,
}

# The entries of the ledger that billing names: the record that names each, and its holder, credit type, sequence and kind.
NAMED_ENTRIES = """
    SELECT format('allowance claim %s', c.id), c.snapshot ->> 'holder_id', c.snapshot ->> 'credit_type',
        (c.snapshot ->> 'grant')::bigint, 'grant'
    FROM billing_claim AS c WHERE c.kind = 5 AND c.snapshot ->> 'grant' IS NOT NULL
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


class _BrokenDigest(NamedTuple):
    """A link of a chain whose digest is not that of its content."""

    series: str
    number: int
    found: str
    expected: str


class _NamedEntry(NamedTuple):
    """A row of NAMED_ENTRIES."""

    whose: str
    holder_id: str
    credit_type: str
    sequence: int
    kind: str

    @property
    def entry(self) -> cross_check.EntryRef:
        """The named entry."""
        return cross_check.EntryRef(self.holder_id, self.credit_type, self.sequence, self.kind)


def check(progress: Callable[[int, int], None] = lambda done, total: None) -> list[dict[str, str]]:
    """Return every violation of a law of billing, as a finding; empty if there are no violations.

    Args:
        progress: takes how many laws are checked, and of how many; called after each.
    """
    every, found = list(laws()), list[dict[str, str]]()
    for number, (name, findings) in enumerate(every, 1):
        found += [{"finding": name, "what": what} for what in findings]
        progress(number, len(every))
    return found


def laws() -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the name of each law's violation with its findings in words. A law is checked when its findings are read."""
    for name, findings in _all_laws():
        yield name, _even_if_it_fails(findings)


def _even_if_it_fails(findings: Iterable[str]) -> Iterator[str]:
    """Yield the findings, and one more if a row makes the computation impossible: somebody changed it."""
    failure: str | None = None
    with transaction.atomic():
        try:
            yield from findings
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            failure = f"this cannot be worked out: {type(error).__name__}: {str(error).strip()[:300]}"
            # Roll back to the state before the law: it may have failed in the server.
            transaction.set_rollback(True)
    if failure is not None:
        yield failure


def _all_laws() -> Iterator[tuple[str, Iterable[str]]]:
    laws = CHECKS | DOCUMENT_LAWS | INTENT_LAWS | SEEN_LAWS | PAYMENT_LAWS | ACTIVATION_LAWS
    laws |= ALLOWANCE_LAWS | ENTRIES_LAWS | BUDGET_LAWS
    laws |= additions.laws()
    for name, sql in laws.items():
        yield name, _findings_of(holders_time(sql, holder=HOLDER_OF_INVOICE))
    yield "digest of a document", _broken_links(DOCUMENTS, "{} {}")
    yield "digest of a transition", _broken_links(TRANSITIONS, "{}, transition {}")
    yield "cursor is later than what is due", late_cursors()
    yield from origin_laws()
    yield "missing in the ledger", _missing_in_the_ledger()
    yield "unknown to billing", _unknown_to_billing()


def _findings_of(sql: str) -> Iterator[str]:
    yield from fetch_rows(str, sql)


def _broken_links(chain: Chain, what: str) -> Iterator[str]:
    """Yield the links of a chain whose digest is not that of their content."""
    for row in fetch_rows(_BrokenDigest, chain.broken):
        yield f"{what.format(row.series, row.number)}: found {row.found}, expected {row.expected}"


def _missing_in_the_ledger() -> Iterator[str]:
    """Yield the grants, payments and refunds that billing names and the ledger lacks."""
    sql = " UNION ALL ".join((NAMED_ENTRIES, *additions.named_entries()))
    named = {row.entry: row.whose for row in fetch_rows(_NamedEntry, sql)}
    for entry in cross_check.missing_entries(named):
        yield f"{named[entry]}: no {entry.kind} {entry.sequence} of {entry.holder_id} in {entry.credit_type}"


def _unknown_to_billing() -> Iterator[str]:
    """Yield the entries of the ledger that name an invoice that does not exist.

    Another check covers credits that paid usage: their draft may be deleted, and then the next draft has them.
    """
    prefix = "invoice "
    references = cross_check.references_of(actor="billing", prefix=prefix)
    named = {reference.removeprefix(prefix): (reference, holder) for reference, holder in references}
    for invoice_id in sorted(fetch_rows(str, UNKNOWN_INVOICES, [list(named)])):
        reference, holder = named[invoice_id]
        yield f"an entry of {holder} is of {reference}, which does not exist"

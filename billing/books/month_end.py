"""The credits that paid invoices, or usage on them, by the documents and by the ledger's entries of a month."""

from collections.abc import Collection
from typing import Final

from billing.models import Invoice
from ledger.totals.ties import TieSource

# Two steps make the parts before the join: on a cluster, entries are on other nodes than billing.

NAME: Final = "invoices paid with credits"

# From the entries, found by the key of an invoice's payment; and from the payments, each with its entry by the primary key.
PAYMENTS: Final = """
    WITH entry AS MATERIALIZED (
        SELECT credit_type, split_part(idempotency_key, '/', 2) AS document, sum(-amount) AS credits FROM ledger_entry
        WHERE kind = 'spend' AND actor = 'billing' AND idempotency_key LIKE 'invoice/%%/pay'
            AND ledger_slot(recorded_at) BETWEEN ledger_slot(%(start)s) AND ledger_slot(%(end)s)
            AND recorded_at >= %(start)s AND recorded_at < %(end)s
        GROUP BY 1, 2
    ), payment AS MATERIALIZED (
        SELECT invoice_id, holder_id, credit_type, spend_sequence AS sequence, credits FROM billing_creditpayment
    ), document AS MATERIALIZED (
        SELECT payment.credit_type, payment.invoice_id::text AS document, sum(payment.credits) AS credits
        FROM payment
        JOIN ledger_entry AS e USING (holder_id, credit_type, sequence)
        WHERE e.recorded_at >= %(start)s AND e.recorded_at < %(end)s
        GROUP BY 1, 2
    )
    SELECT credit_type, document, coalesce(document.credits, 0) AS documents, coalesce(entry.credits, 0) AS entries
    FROM entry FULL JOIN document USING (credit_type, document)
"""

NAME_OF_USAGE: Final = "usage on invoices paid with credits"

# By the entries, whose key is `usage/<invoice>/<item>/<start>`, and by the lines, each with the entries that it names. Credits
# that a voided invoice gave back have another key, `usage/<invoice>/undone/...`; a deleted draft has no lines any more. A line is
# written with its entries, so an invoice more than a day outside of the month has no entries in it.
USAGE: Final = """
    WITH entry_of_invoice AS MATERIALIZED (
        SELECT credit_type, split_part(idempotency_key, '/', 2)::bigint AS invoice_id, sum(-amount) AS credits
        FROM ledger_entry
        WHERE kind IN ('spend', 'refund') AND actor = 'billing' AND idempotency_key ~ '^usage/[0-9]+/[0-9]+/'
            AND ledger_slot(recorded_at) BETWEEN ledger_slot(%(start)s) AND ledger_slot(%(end)s)
            AND recorded_at >= %(start)s AND recorded_at < %(end)s
        GROUP BY 1, 2
    ), entry AS (
        SELECT credit_type, invoice_id, credits
        FROM entry_of_invoice
        WHERE EXISTS (SELECT FROM billing_invoice AS i WHERE i.id = invoice_id)
    ), line AS MATERIALIZED (
        SELECT l.rating -> 'covered' ->> 'holder_id' AS holder_id, l.rating -> 'covered' ->> 'credit_type' AS credit_type,
            (l.rating -> 'covered' -> 'entries' ->> 0)::bigint AS sequence,
            (l.rating -> 'covered' ->> 'credits')::numeric AS credits, i.created_at, i.id AS invoice_id
        FROM billing_invoice AS i
        JOIN billing_line AS l ON l.invoice_id = i.id
        WHERE i.created_at >= %(start)s - interval '1 day' AND i.created_at < %(end)s + interval '1 day'
            AND l.rating -> 'covered' IS NOT NULL AND l.rating -> 'covered' ->> 'credits' <> '0'
    ), named AS MATERIALIZED (
        SELECT DISTINCT e.holder_id, e.credit_type, e.sequence, e.recorded_at
        FROM line
        JOIN ledger_entry AS e USING (holder_id, credit_type, sequence)
    ), document AS (
        SELECT line.credit_type, line.invoice_id, sum(line.credits) AS credits
        FROM line
        LEFT JOIN named USING (holder_id, credit_type, sequence)
        WHERE coalesce(named.recorded_at, line.created_at) >= %(start)s AND coalesce(named.recorded_at, line.created_at) < %(end)s
        GROUP BY 1, 2
    )
    SELECT credit_type, invoice_id::text AS document, coalesce(document.credits, 0) AS documents,
        coalesce(entry.credits, 0) AS entries
    FROM entry FULL JOIN document USING (credit_type, invoice_id)
"""


def _numbers(invoices: Collection[int]) -> dict[int, str]:
    numbers = Invoice.objects.filter(pk__in=invoices).values_list("pk", "number")
    return {pk: number or f"draft {pk}" for pk, number in numbers}


PAYMENT_TIES: Final = TieSource(NAME, PAYMENTS, "billing_invoice_change", _numbers)
USAGE_TIES: Final = TieSource(NAME_OF_USAGE, USAGE, "billing_invoice_change", _numbers)

"""The chain of numbered documents: each has a digest over the one before it in its series and its own canonical form.

The digests are made by the triggers that freeze invoices and credit notes (migrations/schema.sql); docs/BILLING.md has the form.
The ledger's audit verifies them and its anchor holds the last of each series: see `ledger.audit.chains`.
"""

from typing import Final

from ledger.audit.chains import Chain

HEADS = """
    SELECT series.name, last.series_value, encode(last.digest, 'hex')
    FROM billing_numberseries AS series CROSS JOIN LATERAL (
        (SELECT series_value, digest FROM billing_invoice
         WHERE series = series.name AND series_value IS NOT NULL ORDER BY series_value DESC LIMIT 1)
        UNION ALL
        (SELECT series_value, digest FROM billing_creditnote
         WHERE series = series.name AND series_value IS NOT NULL ORDER BY series_value DESC LIMIT 1)
    ) AS last
    ORDER BY series.name COLLATE "C"
"""

FOUND_AT = """
    SELECT anchored.series, anchored.number, encode(coalesce(invoice.digest, note.digest), 'hex'), greatest(
        (SELECT max(series_value) FROM billing_invoice WHERE series = anchored.series),
        (SELECT max(series_value) FROM billing_creditnote WHERE series = anchored.series))
    FROM unnest(%s::text[], %s::bigint[]) AS anchored(series, number)
    LEFT JOIN billing_invoice AS invoice ON invoice.series = anchored.series AND invoice.series_value = anchored.number
    LEFT JOIN billing_creditnote AS note ON note.series = anchored.series AND note.series_value = anchored.number
"""

BROKEN = """
    SELECT series, series_value, coalesce(encode(digest, 'hex'), 'none'), encode(billing_invoice_digest(invoice), 'hex')
    FROM billing_invoice AS invoice
    WHERE state <> 'draft' AND digest IS DISTINCT FROM billing_invoice_digest(invoice)
    UNION ALL
    SELECT series, series_value, coalesce(encode(digest, 'hex'), 'none'), encode(billing_creditnote_digest(note), 'hex')
    FROM billing_creditnote AS note
    WHERE number IS NOT NULL AND digest IS DISTINCT FROM billing_creditnote_digest(note)
    ORDER BY 1, 2
"""

DOCUMENTS: Final = Chain(
    name="documents",
    law="The digest of an invoice or credit note is SHA-256 over the digest of the document before it in its series, 32 zero "
    "bytes for the first, and its own canonical form.",
    heads=HEADS,
    found_at=FOUND_AT,
    broken=BROKEN,
)

"""Laws of payments of invoices: what they pay, what went back, and the state and credit that follow from both."""

from typing import Final

PAYMENT_LAWS: Final = {
    "amount paid does not follow from the payments": """
        SELECT format('invoice %s: %s is paid by %s changes, the invoice says %s by %s', i.id, paid.minor, paid.changes,
            i.amount_paid_minor, i.payment_changes)
        FROM billing_invoice AS i
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(p.applied_minor), 0) - coalesce(sum(gone.minor), 0) AS minor,
                count(*) FILTER (WHERE p.applied_minor > 0) + coalesce(sum(gone.changes), 0) AS changes
            FROM billing_invoicepayment AS p
            CROSS JOIN LATERAL (
                SELECT coalesce(sum(r.reopened_minor), 0) AS minor, count(*) FILTER (WHERE r.reopened_minor > 0) AS changes
                FROM billing_paymentreturn AS r WHERE r.invoice_payment_id = p.id
            ) AS gone
            WHERE p.invoice_id = i.id
        ) AS paid
        WHERE (i.amount_paid_minor, i.payment_changes) <> (paid.minor, paid.changes)
    """,
    "payment is not of its invoice": """
        SELECT format('payment %s of invoice %s', p.id, p.invoice_id)
        FROM billing_invoicepayment AS p LEFT JOIN billing_invoice AS i ON i.id = p.invoice_id
        WHERE (i.customer_id, i.currency) IS DISTINCT FROM (p.customer_id, p.currency) OR i.state = 'draft'
    """,
    "rest of a payment is not its deposit": """
        SELECT format('payment %s: %s of %s paid the invoice, the deposit is %s', p.id, p.applied_minor, p.amount_minor,
            n.amount_minor)
        FROM billing_invoicepayment AS p LEFT JOIN billing_creditnote AS n ON n.id = p.deposit_id AND n.kind = 'deposit'
        WHERE p.amount_minor - p.applied_minor <> coalesce(n.amount_minor, 0)
            OR (n.customer_id, n.currency) <> (p.customer_id, p.currency)
            OR EXISTS (SELECT FROM billing_invoicepayment AS other WHERE other.deposit_id = p.deposit_id AND other.id <> p.id)
    """,
    "payment by credit is not its refund": """
        SELECT format('payment %s of %s', p.id, p.amount_minor)
        FROM billing_invoicepayment AS p LEFT JOIN billing_creditrefund AS refund ON refund.id = p.credit_refund_id
        WHERE (p.provider = 'credit') <> (p.credit_refund_id IS NOT NULL) OR (p.credit_refund_id IS NOT NULL
            AND (refund.customer_id, refund.currency, refund.amount_minor, p.payment)
                IS DISTINCT FROM (p.customer_id, p.currency, p.applied_minor, 'credit-refund-' || refund.id))
    """,
    "return of a payment does not add up": """
        SELECT format('return %s of payment %s', r.id, r.invoice_payment_id)
        FROM billing_paymentreturn AS r
        LEFT JOIN billing_invoicepayment AS p ON p.id = r.invoice_payment_id
        LEFT JOIN billing_creditrefund AS refund ON refund.id = r.credit_refund_id
        WHERE p.id IS NULL OR r.credit_minor <> coalesce(refund.amount_minor, 0)
            OR (refund.customer_id, refund.currency) <> (p.customer_id, p.currency)
            OR EXISTS (SELECT FROM billing_creditnoteuse AS u JOIN billing_creditnote AS n ON n.id = u.credit_note_id
                WHERE u.refund_id = refund.id AND n.id IS DISTINCT FROM p.deposit_id
                    AND n.invoice_id IS DISTINCT FROM p.invoice_id)
    """,
    "more of a payment went back than came in": """
        SELECT format('payment %s', p.id)
        FROM billing_invoicepayment AS p JOIN billing_paymentreturn AS r ON r.invoice_payment_id = p.id
        GROUP BY p.id HAVING sum(r.amount_minor) > p.amount_minor OR sum(r.reopened_minor) > p.applied_minor
    """,
}
"""The name of a finding and its query; each row is a finding in words."""

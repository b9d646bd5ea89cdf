"""The laws of payment intents: what succeeded, and nothing else, made its purchase or payment, and nothing open is forgotten."""

from typing import Final

PROVIDER_LAWS: Final = {
    "payment that succeeded without its purchase": """
        SELECT format('payment intent %s', i.id) FROM billing_paymentintent AS i
        WHERE i.state = 'succeeded' AND i.pack_id IS NOT NULL AND NOT EXISTS (
            SELECT FROM billing_purchase AS p
            WHERE p.provider = i.provider AND p.payment = i.payment AND p.holder_id = i.holder_id AND p.pack_id = i.pack_id
                AND (p.paid_minor, p.currency, p.quantity) = (i.amount_minor, i.currency, i.quantity))
    """,
    "purchase of a payment that did not succeed": """
        SELECT format('payment intent %s: purchase %s', i.id, p.id)
        FROM billing_paymentintent AS i JOIN billing_purchase AS p ON p.provider = i.provider AND p.payment = i.payment
        WHERE i.state <> 'succeeded' AND i.payment <> ''
    """,
    "payment that succeeded without the payment of its invoice": """
        SELECT format('payment intent %s of invoice %s', i.id, i.invoice_id) FROM billing_paymentintent AS i
        WHERE i.state = 'succeeded' AND i.invoice_id IS NOT NULL AND i.provider <> 'manual' AND NOT EXISTS (
            SELECT FROM billing_invoicepayment AS p
            WHERE p.provider = i.provider AND p.payment = i.payment AND p.invoice_id = i.invoice_id
                AND (p.amount_minor, p.currency) = (i.amount_minor, i.currency))
    """,
    # Transfers pay an invoice in parts, and other means may pay the rest; later a return may make it due again.
    "payment by transfer that succeeded although its invoice was not paid": """
        SELECT format('payment intent %s of invoice %s', i.id, i.invoice_id)
        FROM billing_paymentintent AS i LEFT JOIN billing_invoice AS invoice ON invoice.id = i.invoice_id
        WHERE i.state = 'succeeded' AND i.invoice_id IS NOT NULL AND i.provider = 'manual' AND (
            (invoice.state IS DISTINCT FROM 'paid' AND NOT EXISTS (
                SELECT FROM billing_invoicepayment AS p JOIN billing_paymentreturn AS r ON r.invoice_payment_id = p.id
                WHERE p.invoice_id = i.invoice_id AND r.reopened_minor > 0))
            OR (i.payment <> '' AND NOT EXISTS (
                SELECT FROM billing_invoicepayment AS p
                WHERE p.provider = i.provider AND p.payment = i.payment AND p.invoice_id = i.invoice_id)))
    """,
    "payment of an invoice by a payment that did not succeed": """
        SELECT format('payment intent %s: payment %s', i.id, p.id)
        FROM billing_paymentintent AS i JOIN billing_invoicepayment AS p ON p.provider = i.provider AND p.payment = i.payment
        WHERE i.state <> 'succeeded' AND i.payment <> ''
    """,
    "payment of a top-up that is not of its account": """
        SELECT format('payment intent %s', i.id)
        FROM billing_paymentintent AS i LEFT JOIN billing_topup AS t ON t.id = i.top_up_id
        LEFT JOIN billing_pack AS pack ON pack.id = i.pack_id
        WHERE i.top_up_id IS NOT NULL
            AND (t.holder_id, t.credit_type, t.customer_id, t.provider, t.method, t.pack_ref)
                IS DISTINCT FROM (i.holder_id, pack.credit_type, i.customer_id, i.provider, i.method, pack.code)
    """,
    "top-up buys credits that cannot pay for everything": """
        SELECT format('top-up %s', t.id) FROM billing_topup AS t
        WHERE t.ended_at IS NULL AND EXISTS (
            SELECT FROM billing_pack AS pack WHERE pack.code = t.pack_ref AND pack.applies_to IS NOT NULL
                AND pack.version >= coalesce((
                    SELECT max(begun.version) FROM billing_pack AS begun
                    WHERE begun.code = t.pack_ref AND begun.valid_from <= now()), 0))
    """,
    "open payment that nobody asks about": """
        SELECT format('payment intent %s', id) FROM billing_paymentintent
        WHERE state IN ('requested', 'waiting', 'processing') AND due_at IS NULL
        UNION ALL
        SELECT format('refund %s of payment intent %s', id, intent_id) FROM billing_providerrefund
        WHERE state IN ('requested', 'processing') AND due_at IS NULL
        UNION ALL
        SELECT format('event %s of %s', event, provider) FROM billing_providerevent WHERE handled_at IS NULL AND due_at IS NULL
    """,
    "more is to be refunded than was paid": """
        SELECT format('payment intent %s', i.id)
        FROM billing_paymentintent AS i JOIN billing_providerrefund AS r ON r.intent_id = i.id
        WHERE r.state <> 'failed' GROUP BY i.id HAVING sum(r.amount_minor) > i.amount_minor
    """,
}
"""The name of a finding and its query; each row is a finding in words."""

"""The laws of subscriptions that start when they are paid: each waits, starts or expires together with its first invoice."""

from typing import Final

ACTIVATION_LAWS: Final = {
    "subscription waits for an invoice that does not": """
        SELECT format('activation %s: invoice %s is %s', a.id, a.invoice_id, coalesce(i.state, 'missing'))
        FROM billing_activation AS a LEFT JOIN billing_invoice AS i ON i.id = a.invoice_id
        WHERE a.state = 'waiting' AND a.invoice_id IS NOT NULL AND coalesce(i.state, '') NOT IN ('open', 'uncollectible')
    """,
    # A paid invoice is due again when its money goes back, and may be voided then.
    "subscription started although its invoice was not paid": """
        SELECT format('activation %s: invoice %s is %s', a.id, a.invoice_id, coalesce(i.state, 'missing'))
        FROM billing_activation AS a LEFT JOIN billing_invoice AS i ON i.id = a.invoice_id
        WHERE a.state = 'started' AND a.invoice_id IS NOT NULL
            AND NOT coalesce(i.state = 'paid' OR i.total_minor = 0 OR EXISTS (
                SELECT FROM billing_invoicepayment AS p JOIN billing_paymentreturn AS r ON r.invoice_payment_id = p.id
                WHERE p.invoice_id = i.id AND r.reopened_minor > 0), false)
    """,
    "order that never started is billed": """
        SELECT format('activation %s is %s: invoice %s is %s', a.id, a.state, i.id, i.state)
        FROM billing_activation AS a JOIN billing_invoice AS i ON i.subscription_id = a.subscription_id AND i.state <> 'void'
        WHERE a.state IN ('expired', 'canceled') AND NOT (i.id IS NOT DISTINCT FROM a.invoice_id AND EXISTS (
            SELECT FROM billing_creditnote AS n WHERE n.invoice_id = i.id AND n.kind = 'requested' AND n.released_at IS NULL))
        UNION ALL
        SELECT format('activation %s is %s: claim %s', a.id, a.state, c.id)
        FROM billing_activation AS a JOIN billing_claim AS c ON c.subscription_id = a.subscription_id AND c.released_at IS NULL
        WHERE a.state <> 'started' AND (c.kind = 5 OR c.invoice_id <> a.invoice_id)
        UNION ALL
        SELECT format('activation %s is %s: version %s', a.id, a.state, v.id)
        FROM billing_activation AS a JOIN billing_itemversion AS v
            ON v.subscription_id = a.subscription_id AND v.superseded_at IS NULL
        WHERE a.state IN ('expired', 'canceled')
    """,
    "order that does not exist": """
        SELECT format('activation %s: subscription %s', a.id, a.subscription_id) FROM billing_activation AS a
        WHERE NOT EXISTS (SELECT FROM billing_subscription AS s WHERE s.id = a.subscription_id)
    """,
}
"""The name of a finding and its query; each row is a finding in words."""

"""Laws of reminders, for the audit of billing."""

from typing import Final

LAWS: Final = {
    "fee of a reminder is not its charge": """
        SELECT format('reminder %s of invoice %s', r.step, r.invoice_id)
        FROM billing_reminder AS r
        LEFT JOIN billing_invoice AS i ON i.id = r.invoice_id
        LEFT JOIN billing_charge AS c ON c.id = r.charge_id
        WHERE i.customer_id IS DISTINCT FROM r.customer_id OR r.fee_minor <> coalesce(c.amount_minor, 0)
            OR c.currency <> i.currency OR c.subscription_id <> coalesce(i.subscription_id, (
                SELECT min(billed.subscription_id) FROM billing_invoicedsubscription AS billed WHERE billed.invoice_id = i.id), 0)
    """,
    "reminder during a hold": """
        SELECT format('reminder %s of invoice %s', r.step, r.invoice_id)
        FROM billing_reminder AS r
        JOIN billing_reminderhold AS h ON h.customer_id = r.customer_id AND (h.invoice_id IS NULL OR h.invoice_id = r.invoice_id)
        WHERE h.recorded_at < r.recorded_at AND r.recorded_at < coalesce(h.released_at, 'infinity')
            AND r.reminded_on < coalesce(h.until, 'infinity')
    """,
}
"""The name of a finding and its query; each row is a finding in words."""

"""Reminders of overdue invoices, by the steps of the seller: one for each step, with a fee and a suspension by choice."""

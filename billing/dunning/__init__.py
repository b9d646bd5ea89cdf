"""Mails with documents, and reminders of overdue invoices: by the steps of the seller, with a fee and a suspension by choice."""

"""The operators' pages of mails, and what the pages of invoices and customers show about reminders."""

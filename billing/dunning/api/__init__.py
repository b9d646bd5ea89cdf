"""Calls about mails with documents and about reminders."""

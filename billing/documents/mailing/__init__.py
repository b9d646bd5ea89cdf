"""Mails with documents: queued by the database when a document is finalised, handed to a mail server once, and their outcome."""

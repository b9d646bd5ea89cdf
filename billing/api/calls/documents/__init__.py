"""Calls about invoices and credit notes."""

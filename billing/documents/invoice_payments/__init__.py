"""Payments of invoices: recorded when the money is in, matched by the invoice's number, and returned."""

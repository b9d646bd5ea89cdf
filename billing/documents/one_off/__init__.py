"""One-off invoices: documents of a customer without a subscription."""

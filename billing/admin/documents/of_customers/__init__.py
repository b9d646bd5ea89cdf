"""What operators do for a customer without a document to begin from: pay credit out, make a one-off invoice."""

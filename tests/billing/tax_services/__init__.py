"""VAT ids that are looked up in VIES."""

"""VAT ids of customers, looked up in VIES: the client (`vies`), what is kept (`lookups`), what is asked again (`checking`)."""

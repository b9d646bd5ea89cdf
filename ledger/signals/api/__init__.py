"""The calls about signals: webhooks, deliveries, alerts."""

"""Calls about signals: webhooks, what they got, and alerts."""

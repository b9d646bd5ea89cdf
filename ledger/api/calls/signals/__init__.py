"""Calls about signals: webhooks, and what they got."""

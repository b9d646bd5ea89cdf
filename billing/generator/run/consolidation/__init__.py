"""Consolidated invoices: one document of the drafts that subscriptions of a customer have for the same day."""

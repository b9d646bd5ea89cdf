"""Monitoring for people on call: /metrics, the spans, and `manage.py doctor`."""

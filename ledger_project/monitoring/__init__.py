"""Monitoring for people on call: /metrics, the spans, and `manage.py doctor`."""

from typing import Final

VERSION: Final = "0.1.0"
"""The version of the ledger."""

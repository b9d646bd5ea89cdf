"""The badge at the top of each page: whether this ledger is live or a test."""

from django.conf import settings
from django.http import HttpRequest


def environment(request: HttpRequest) -> list[str]:
    """The badge's text and colour. UNFOLD["ENVIRONMENT"]."""
    return ["LIVE", "danger"] if settings.LEDGER_ENVIRONMENT == "live" else ["TEST", "warning"]

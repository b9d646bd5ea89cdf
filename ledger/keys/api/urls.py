"""The paths of the calls about API keys."""

from django.urls import URLPattern, path

from ledger.keys.api import calls
from ledger.rest import paths  # noqa: F401 - registers the converters

urlpatterns: list[URLPattern] = [
    path("key", calls.OwnKey.as_view()),
    path("keys", calls.Keys.as_view()),
    path("keys/<sequence:key_id>", calls.OneKey.as_view()),
    path("keys/<sequence:key_id>/rotate", calls.KeyRotation.as_view()),
    path("keys/<sequence:key_id>/revoke", calls.Revocation.as_view()),
]

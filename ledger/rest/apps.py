"""The REST API as a Django application."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, register
from django.core.checks import Warning as CheckWarning

from ledger import applications


class RestConfig(applications.LedgerApplication):
    """The calls over credits, what every call is made of, and the front that serves them from an event loop."""

    name = "ledger.rest"
    label = "ledger_rest"
    verbose_name = "REST API"

    def ready(self) -> None:
        """Register the check that something authenticates the calls."""
        super().ready()
        register(check_authentication, "ledger")


def check_authentication(app_configs: Sequence[AppConfig] | None, **options: Any) -> list[CheckMessage]:
    """Report calls that nobody can make, since nothing authenticates them (ledger.W008)."""
    from ledger import authentication

    if authentication.registered() is not None or not getattr(settings, "ROOT_URLCONF", ""):
        return []
    import_module(settings.ROOT_URLCONF)
    if "ledger.rest.urls" not in sys.modules:
        return []
    what = "The URLs have the ledger's calls, and nothing authenticates them: each gets 401."
    hint = "Put 'ledger.keys' into INSTALLED_APPS, or register a function of your own: ledger.authentication.register."
    return [CheckWarning(what, hint=hint, id="ledger.W008")]

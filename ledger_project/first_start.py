"""What a ledger that nobody has used yet gets at its first start: demo data, an operator, an API key."""

import hashlib
import secrets
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command, get_commands

from ledger import services
from ledger.models import SCOPES, ApiKey

OPERATOR = "admin"


@dataclass(frozen=True)
class Secrets:
    """What is shown once, because it is nowhere kept in clear. None where it existed before."""

    admin_password: str | None
    api_key: str | None


def furnish() -> Secrets:
    """Make what is missing, as the application's role: demo data, then the operator, then the API key.

    The key is made last: as long as there is none, this was not finished, and all of it is done again. Nothing is doubled by
    that; the demo's requests have fixed idempotency keys.
    """
    is_unused = not ApiKey.objects.exists()
    if is_unused and "demo" in get_commands():
        call_command("demo", verbosity=0)
    return Secrets(admin_password=_make_operator(), api_key=_make_api_key(is_unused))


def _make_operator() -> str | None:
    """Have a superuser; the new one's password is returned."""
    users = get_user_model()._default_manager
    if users.filter(is_superuser=True).exists():
        return None
    password = secrets.token_urlsafe(15)
    users.create_superuser(OPERATOR, "", password)
    return password


def ensure_bootstrap_key() -> None:
    """Have the key of LEDGER_BOOTSTRAP_API_KEY, with all scopes; nothing happens when none is set or it is there."""
    given = settings.LEDGER_BOOTSTRAP_API_KEY
    if given and services.find_api_key(given) is None:
        services.create_api_key(
            name=f"bootstrap-{hashlib.sha256(given.encode()).hexdigest()[:8]}", scopes=SCOPES, key=given, actor="serve"
        )


def _make_api_key(is_unused: bool) -> str | None:
    """Have the key of LEDGER_BOOTSTRAP_API_KEY; without one given, make the first key and return it."""
    ensure_bootstrap_key()
    if is_unused and not settings.LEDGER_BOOTSTRAP_API_KEY:
        return services.create_api_key(name="first", scopes=SCOPES, actor="serve")[1]
    return None

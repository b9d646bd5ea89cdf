"""What a ledger that nobody has used yet gets at its first start: demo data, an operator, an API key."""

import hashlib
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password
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
    password = _password_for_operator()
    with ThreadPoolExecutor(max_workers=1) as aside:
        # Hashing a password is meant to take long; it needs neither the database nor the interpreter.
        hashed = None if password is None else aside.submit(make_password, password)
        if is_unused and "demo" in get_commands():
            call_command("demo", verbosity=0)
    if hashed is not None:
        get_user_model().objects.create(username=OPERATOR, password=hashed.result(), is_staff=True, is_superuser=True)
    return Secrets(admin_password=password, api_key=_make_api_key(is_unused))


def _password_for_operator() -> str | None:
    """A new password, if there is no superuser."""
    has_operator = get_user_model().objects.filter(is_superuser=True).exists()
    return None if has_operator else secrets.token_urlsafe(15)


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

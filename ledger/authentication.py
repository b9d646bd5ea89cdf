"""Who finds the API key of a call: the application of API keys, or a project's own function. Without one, calls get 401.

A project that leaves out `ledger.keys` and serves the calls registers its function in the `ready` of an application of its own.
"""

from typing import NamedTuple

from django.core.exceptions import ImproperlyConfigured


class Authentication(NamedTuple):
    """The functions that authenticate a call, by their dotted paths: they are loaded by the first call."""

    find_key: str
    """Takes the text behind `Authorization: Bearer`; returns a `ledger.rest.kit.authentication.Key`, or None if it is unknown."""
    check_secret: str = ""
    """Takes the same before each call, and raises an `Unauthenticated` for a text that no key can have. It reads no database."""


_registered: list[Authentication] = []


def register(authentication: Authentication) -> None:
    """Have the calls authenticated by these functions.

    Raises:
        ImproperlyConfigured: others are registered, such as those of `ledger.keys`.
    """
    if _registered and authentication not in _registered:
        other = _registered[0].find_key
        raise ImproperlyConfigured(f"{authentication.find_key!r} cannot authenticate calls: {other!r} does".replace("'", '"'))
    _registered[:] = [authentication]


def registered() -> Authentication | None:
    """Return the functions that authenticate calls, or None."""
    return _registered[0] if _registered else None

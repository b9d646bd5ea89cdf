"""The providers that this deployment has, by settings.PAYMENT_PROVIDERS: `{"stripe": {"api_key": …, "event_secret": …}}`.

`manual` needs no settings, so each deployment has it.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeVar, cast

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.signals import setting_changed
from django.dispatch import receiver

from billing.payments.providers.interface import STRIPE, KeepsMethods, Provider, SendsEvents, SendsMoneyBack
from billing.payments.providers.manual_transfers import ManualProvider
from billing.rating.values import MANUAL
from ledger.errors import Invalid

Able = TypeVar("Able", bound=SendsMoneyBack | SendsEvents | KeepsMethods)
KNOWN: Final = {STRIPE: ("stripe", ("api_key", "event_secret"), ("api_base",))}
"""By name: the package that it needs, and the settings that it must and may have."""


def provider(name: str, pointer: str = "/provider") -> Provider:
    """Return a provider by its name.

    Raises:
        Invalid: this deployment does not have it.
    """
    if not is_configured(name):
        detail = f"this deployment has no provider {name!r}"
        raise Invalid(pointer=pointer, rule="configured", detail=detail)
    return _made(name)


def able(name: str, ability: Callable[..., Able], pointer: str = "/provider") -> Able:
    """Return a provider by its name, which can do what an optional part of the interface says.

    Raises:
        Invalid: this deployment does not have it, or it cannot.
    """
    found = provider(name, pointer)
    # A class is a Callable here because mypy takes no abstract one as a type of Able.
    if not isinstance(found, cast("type", ability)):
        raise Invalid(pointer=pointer, rule="not-supported", detail=f"the provider {name} {CANNOT[cast('type', ability)]}")
    return cast("Able", found)


CANNOT: Final[dict[type, str]] = {
    SendsMoneyBack: "sends no money: send it yourself, and record the return of the purchase or payment",
    SendsEvents: "sends no events",
    KeepsMethods: "saves and charges no methods",
}
"""What is said of a provider without that part of the interface."""


def is_configured(name: str, ability: type = Provider) -> bool:
    """Return whether this deployment has the provider, and it can do what that part of the interface says."""
    return (name == MANUAL or (name in given() and not _complaints(name))) and isinstance(_made(name), ability)


def is_local(name: str) -> bool:
    """Return whether the answers of a provider are read from this database, so that nobody waits for them."""
    return is_configured(name) and not _made(name).is_remote


@cache
def _made(name: str) -> Provider:
    if name == MANUAL:
        return ManualProvider()
    # The package of a provider is optional.
    from billing.payments.providers.stripe_payments import StripeProvider

    return StripeProvider(**given()[name])


def load_packages() -> None:
    """Import the packages of the configured providers, for a process that forks others; connect to nobody."""
    for name in given():
        if not _complaints(name):
            import_module(KNOWN[name][0])


def given() -> dict[str, Any]:
    """Return the settings of each provider."""
    return getattr(settings, "PAYMENT_PROVIDERS", {})


def check_providers(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Report a provider that is unknown, lacks a setting (billing.E002), or whose package is not installed (E003)."""
    return [message for name in given() for message in _complaints(name)]


def _complaints(name: str) -> list[CheckMessage]:
    if name not in KNOWN:
        what = f"settings.PAYMENT_PROVIDERS has {name!r}; known are {', '.join(KNOWN)}."
        return [Error(what, id="billing.E002")]
    package, required, optional = KNOWN[name]
    found: list[CheckMessage] = []
    if set(given()[name]) - {*required, *optional} or not all(given()[name].get(each) for each in required):
        what = f"settings.PAYMENT_PROVIDERS[{name!r}] must have {' and '.join(required)}, and may have {' and '.join(optional)}."
        found.append(Error(what, id="billing.E002"))
    if find_spec(package) is None:
        hint = 'pip install "credit-ledger[payments]" installs it.'
        found.append(Error(f"The provider {name!r} needs the package {package!r}.", hint=hint, id="billing.E003"))
    return found


@receiver(setting_changed)
def _forget(*, setting: str, **_: Any) -> None:
    if setting == "PAYMENT_PROVIDERS":
        _made.cache_clear()

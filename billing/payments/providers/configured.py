"""The providers that this deployment has, by settings.PAYMENT_PROVIDERS: a name, the class at a dotted path, and its arguments.

    {"acme": {"class": "shop.payments.Acme", "api_key": …}}

The class is a subclass of `interface.Provider`; the members beside `class` are the arguments with which it is made. `manual`
needs no settings, so each deployment has it.
"""

import inspect
import os
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar, cast

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.utils.module_loading import import_string

from billing.payments.providers.interface import KeepsMethods, Provider, SendsEvents, SendsMoneyBack
from billing.rating.values import MANUAL
from ledger.errors import Invalid

Able = TypeVar("Able", bound=SendsMoneyBack | SendsEvents | KeepsMethods)
CLASS: Final = "class"
PROVIDERS: Final = {MANUAL: {CLASS: "billing.payments.providers.manual_transfers.ManualProvider"}}
"""What each deployment has; the settings add to it."""


def provider(name: str, pointer: str = "/provider") -> Provider:
    """Return a provider by its name.

    Raises:
        Invalid: this deployment does not have it.
        ImproperlyConfigured: its declaration is wrong, which `check_providers` reports at the start.
    """
    if name not in declared_providers():
        detail = f"this deployment has no provider {name!r}"
        raise Invalid(pointer=pointer, rule="configured", detail=detail)
    return _make_provider(name, os.getpid())


def able(name: str, ability: Callable[..., Able], pointer: str = "/provider") -> Able:
    """Return a provider by its name, which can do what an optional part of the interface says.

    Raises:
        Invalid: this deployment does not have it, or it cannot.
    """
    adapter = provider(name, pointer)
    # A class is a Callable here because mypy takes no abstract one as a type of Able.
    if not isinstance(adapter, cast("type", ability)):
        raise Invalid(pointer=pointer, rule="not-supported", detail=f"the provider {name} {CANNOT[cast('type', ability)]}")
    return cast("Able", adapter)


CANNOT: Final[dict[type, str]] = {
    SendsMoneyBack: "sends no money: send it yourself, and record the return of the purchase or payment",
    SendsEvents: "sends no events",
    KeepsMethods: "saves and charges no methods",
}
"""What is said of a provider without that part of the interface."""


def is_configured(name: str, ability: type = Provider) -> bool:
    """Return whether this deployment has the provider, and it can do what that part of the interface says."""
    return name in declared_providers() and isinstance(_make_provider(name, os.getpid()), ability)


def is_local(name: str) -> bool:
    """Return whether the answers of a provider are read from this database, so that nobody waits for them."""
    return is_configured(name) and not provider(name).is_remote


@cache
def _make_provider(name: str, process: int) -> Provider:
    """Make the provider, in each process: the turns of a worker are forks, which must share no connection.

    Raises:
        ImproperlyConfigured: the declaration is wrong. Its text has no secrets: it names no values.
    """
    given = dict(declared_providers()[name])
    where = f"settings.PAYMENT_PROVIDERS[{name!r}]"
    if not isinstance(path := given.pop(CLASS, None), str):
        raise ImproperlyConfigured(f"{where} has no {CLASS!r}: the dotted path of its class.")
    made_by = import_string(path)
    if not (isinstance(made_by, type) and issubclass(made_by, Provider)):
        raise ImproperlyConfigured(f"{where}: {path} is no subclass of Provider.")
    if missing := sorted(getattr(made_by, "__abstractmethods__", ())):
        raise ImproperlyConfigured(f"{where}: {path} lacks {', '.join(missing)}.")
    if getattr(made_by, "name", None) != name:
        raise ImproperlyConfigured(f"{where}: the name of {path} must be {name!r}.")
    try:
        inspect.signature(made_by).bind(**given)
    except TypeError as error:
        raise ImproperlyConfigured(f"{where}: {path}: {error}.") from None
    adapter: Provider = made_by(**given)
    return adapter


def load_packages() -> None:
    """Import the classes of the configured providers, for a process that forks others; connect to nobody."""
    for each in declared_providers().values():
        import_string(each[CLASS])


def declared_providers() -> dict[str, Any]:
    """Return the declaration of each provider, by its name."""
    return PROVIDERS | getattr(settings, "PAYMENT_PROVIDERS", {})


def check_providers(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Report a provider that cannot be made (billing.E002), or not be imported, as without its package (billing.E003)."""
    return [message for name in declared_providers() for message in _complaints(name)]


def _complaints(name: str) -> list[CheckMessage]:
    try:
        _make_provider(name, os.getpid())
    except ImproperlyConfigured as error:
        return [Error(str(error), id="billing.E002")]
    except ImportError as error:
        hint = 'pip install "credit-ledger[payments]" installs the package of Stripe.'
        return [Error(f"settings.PAYMENT_PROVIDERS[{name!r}] cannot be imported: {error}", hint=hint, id="billing.E003")]
    except Exception as error:
        # Its secrets are among the arguments, so the error's text is not shown.
        what = f"settings.PAYMENT_PROVIDERS[{name!r}] cannot be made: {type(error).__name__}."
        return [Error(what, id="billing.E002")]
    return []


@receiver(setting_changed)
def _forget(*, setting: str, **_: Any) -> None:
    if setting == "PAYMENT_PROVIDERS":
        _make_provider.cache_clear()

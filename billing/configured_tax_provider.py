"""The provider of taxes that this deployment has, by settings.TAX_PROVIDER: `{"class": "shop.taxes.Avalara", …}`.

The class is a subclass of `billing.rating.tax_sales.TaxProvider`; the other members are the arguments with which it is made.
"""

import os
from functools import cache
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.utils.module_loading import import_string

from billing.errors import TaxesUnavailable
from billing.rating.tax_sales import TaxProvider

CLASS: Final = "class"
NONE: Final = "this deployment has no provider of taxes: see settings.TAX_PROVIDER"


def tax_provider() -> TaxProvider:
    """Return the provider of taxes.

    Raises:
        TaxesUnavailable: this deployment has none, or it cannot be made.
    """
    if not is_configured():
        raise TaxesUnavailable(why=NONE)
    try:
        return _make_provider(os.getpid())
    except Exception as error:
        raise TaxesUnavailable(why=f"settings.TAX_PROVIDER: {type(error).__name__}") from error


def is_configured() -> bool:
    """Return whether this deployment has a provider of taxes."""
    return bool(_given_arguments())


@cache
def _make_provider(process: int) -> TaxProvider:
    """Make the provider, in each process: the workers of a run are forks, which must share no connection."""
    given = dict(_given_arguments())
    made: TaxProvider = import_string(given.pop(CLASS))(**given)
    return made


def _given_arguments() -> dict[str, Any]:
    given: dict[str, Any] = getattr(settings, "TAX_PROVIDER", {})
    return given


def check_tax_provider(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Report a provider that cannot be made, or that is no TaxProvider (billing.E005)."""
    if not is_configured():
        return []
    try:
        made: Any = _make_provider(os.getpid())
    except Exception as error:
        # Its secrets are among the arguments, so the error's text is not shown.
        return [Error(f"settings.TAX_PROVIDER cannot be made: {type(error).__name__}.", id="billing.E005")]
    if not isinstance(made, TaxProvider):
        return [Error(f"settings.TAX_PROVIDER: {type(made).__name__} is no subclass of TaxProvider.", id="billing.E005")]
    return []


@receiver(setting_changed)
def _forget(*, setting: str, **_: Any) -> None:
    if setting == "TAX_PROVIDER":
        _make_provider.cache_clear()

"""The parameters of the paths of purchases, payment intents, top-ups and providers, declared once as in `billing.api.paths`."""

from typing import ClassVar

from django.urls import register_converter
from django.urls.converters import StringConverter

from billing.api.paths import PathParameter, RowIdConverter, Schema


class ProviderConverter(StringConverter):
    """A provider of payments in a path."""

    name: ClassVar = "provider"
    regex = "[a-z0-9_]{1,32}"
    schema: ClassVar[Schema] = {"type": "string", "pattern": f"^{regex}$"}


class MethodConverter(StringConverter):
    """A provider's id of a saved method in a path."""

    name: ClassVar = "payment_method"
    regex = "[A-Za-z0-9_-]{1,200}"
    schema: ClassVar[Schema] = {"type": "string", "pattern": f"^{regex}$"}


for each in (ProviderConverter, MethodConverter):
    register_converter(each, each.name)

PROVIDER_PATH = PathParameter("provider", ProviderConverter, "The provider.", "stripe")
METHOD_PATH = PathParameter("method", MethodConverter, "The provider's id of the method.", "pm_1Qx7")
PURCHASE_PATH = PathParameter("purchase_id", RowIdConverter, "The id of the purchase.", 1)
INTENT_PATH = PathParameter("intent_id", RowIdConverter, "The id of the payment intent.", 1, resource="payment intent")
TOP_UP_PATH = PathParameter("top_up_id", RowIdConverter, "The id of the top-up.", 1, titled="top-up")

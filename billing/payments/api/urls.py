"""The paths of the calls about packs, purchases, payment intents, top-ups and providers."""

from django.urls import URLPattern, path

from billing.api.paths import REF_PATH
from billing.payments.api import packs, payment_intents, providers, purchases, top_ups
from billing.payments.api.paths import INTENT_PATH, METHOD_PATH, PROVIDER_PATH, PURCHASE_PATH, TOP_UP_PATH

urlpatterns: list[URLPattern] = [
    path(f"customers/{REF_PATH}/payment-methods", providers.PaymentMethods.as_view()),
    path(f"customers/{REF_PATH}/payment-methods/{METHOD_PATH}", providers.OnePaymentMethod.as_view()),
    path("packs", packs.Packs.as_view()),
    path(f"packs/{REF_PATH}", packs.OnePack.as_view()),
    path("purchases", purchases.Purchases.as_view()),
    path(f"purchases/{PURCHASE_PATH}", purchases.OnePurchase.as_view()),
    path(f"purchases/{PURCHASE_PATH}/returns", purchases.PurchaseReturns.as_view()),
    path("payment-intents", payment_intents.PaymentIntents.as_view()),
    path(f"payment-intents/{INTENT_PATH}", payment_intents.OnePaymentIntent.as_view()),
    path(f"payment-intents/{INTENT_PATH}/cancel", payment_intents.CancelPaymentIntent.as_view()),
    path(f"payment-intents/{INTENT_PATH}/transfers", payment_intents.PaymentIntentTransfers.as_view()),
    path(f"payment-intents/{INTENT_PATH}/refunds", payment_intents.PaymentIntentRefunds.as_view()),
    path("top-ups", top_ups.TopUps.as_view()),
    path(f"top-ups/{TOP_UP_PATH}", top_ups.OneTopUp.as_view()),
    path(f"top-ups/{TOP_UP_PATH}/resume", top_ups.ResumeTopUp.as_view()),
    path(f"top-ups/{TOP_UP_PATH}/end", top_ups.EndTopUp.as_view()),
    path(f"providers/{PROVIDER_PATH}/events", providers.ProviderEvents.as_view()),
]

"""The paths of the calls of the shadow."""

from django.urls import URLPattern, path

from ledger.shadow import calls

urlpatterns: list[URLPattern] = [
    path("observations", calls.Observations.as_view()),
    path("observations/holders", calls.ObservedAccounts.as_view()),
    path("observations/promotions", calls.HolderPromotions.as_view()),
    path("observations/returns", calls.HolderReturns.as_view()),
]

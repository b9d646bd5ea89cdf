"""The shop's pages, and the ledger's API for its other programs."""

from django.urls import include, path
from shop import views

urlpatterns = [
    path("teams/<int:team>/", views.team_page, name="team"),
    path("teams/<int:team>/credits/", views.credits_page, name="credits"),
    path("teams/<int:team>/orders/", views.order, name="order"),
    path("teams/<int:team>/upgrade/", views.Upgrade.as_view(), name="upgrade"),
    path("teams/<int:team>/bonus/", views.bonus, name="bonus"),
    path("teams/<int:team>/questions/", views.ask, name="ask"),
    path("payments/", views.payment_received, name="payment"),
    path("v1/", include("ledger.rest.urls")),
    path("c/", include("ledger.portal.urls")),
]

"""The addresses of the page; a project includes them where it wants."""

from django.urls import path

from ledger.portal import views

app_name = "customer_page"
urlpatterns = [
    path("", views.page, name="page"),
    path("data", views.data, name="data"),
    path("documents/<slug:name>.pdf", views.document, name="document"),
    path("actions/<slug:name>", views.action, name="action"),
    path("steps/<slug:name>", views.step, name="step"),
]

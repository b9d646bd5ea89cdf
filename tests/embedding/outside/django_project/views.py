"""Orders over HTTP: each is a row of the project and a spend, both or neither, and a line for those who analyse them."""

import orders
import tasks
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from ledger import reads


def holder() -> str:
    """The customer whose credits pay: a user of the project, by the key."""
    return str(get_user_model().objects.get(username="ada").pk)


def healthz(request: HttpRequest) -> HttpResponse:
    """Say that the project serves."""
    return HttpResponse("ok")


def order(request: HttpRequest, number: int) -> HttpResponse:
    """Place an order of one credit, now; asked again, it says the same."""
    with transaction.atomic():
        Group.objects.get_or_create(name=f"order-{number}")
        balance = orders.place_order(holder(), number, 1)
    Group.objects.using("analytics").get_or_create(name=f"order-{number}")
    return JsonResponse({"balance": balance})


def order_later(request: HttpRequest, number: int) -> HttpResponse:
    """Have a worker place an order of one credit."""
    tasks.place.delay(holder(), number)
    return JsonResponse({}, status=202)


def balance(request: HttpRequest) -> HttpResponse:
    """Show what is left."""
    return JsonResponse({"available": reads.balance(holder()).available})


urlpatterns = [
    path("healthz", healthz),
    path("orders/<int:number>/", order),
    path("orders/<int:number>/later/", order_later),
    path("balance/", balance),
]

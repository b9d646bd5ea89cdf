"""Views that do next to nothing: what the server and the framework cost by themselves."""

from django.http import HttpRequest, HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from ledger.rest.kit import rendering
from ledger.rest.kit.authentication import LEDGER_SPEND
from ledger.rest.kit.endpoint import Endpoint, requires
from tests.benchmarks.competitors.keys import KeyedView


class KeyOnly(KeyedView):
    """A DRF view that checks the key, and nothing else."""

    scopes = {"post": LEDGER_SPEND}

    def post(self, request: Request, holder: str) -> Response:
        """Answer at once."""
        return Response({"holder_id": holder}, status=201)


class LeanKeyOnly(Endpoint):
    """The same in the way of the ledger's own calls."""

    @requires(LEDGER_SPEND)
    def post(self, request: HttpRequest, holder: str) -> rendering.Response:
        """Answer at once."""
        return rendering.Response(b'{"holder_id":"x"}', 201, {"Content-Type": "application/json"})


def nothing(request: HttpRequest, holder: str) -> HttpResponse:
    """Not even the key: what granian and Django's handler cost."""
    return HttpResponse(b'{"holder_id":"x"}', status=201, content_type="application/json")

"""The call that makes a link to the customer's page, and its path."""

from typing import Any, Final

from django.http import HttpRequest
from django.urls import URLPattern, path
from rest_framework import serializers

from ledger.portal import links
from ledger.portal.links import LinkRequest
from ledger.records import Shape
from ledger.responses import ResponseSchema
from ledger.rest import paths  # noqa: F401 - registers the converters
from ledger.rest.kit.authentication import BILLING_WRITE, PAGES_WRITE
from ledger.rest.kit.endpoint import Endpoint
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.request_errors import NotFound, ScopeMissing
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation
from ledger.rest.schemas.parameters import HOLDER_PATH
from ledger.rest.schemas.request_schemas import HOLDER

PAGE_LINK: Final = Shape(LinkRequest, name="NewPageLink", without={HOLDER})
BODY: dict[str, Any] = {"expires_in": 900, "language": "de"}
LINK: dict[str, Any] = {
    "url": "https://ledger.example/c/?link=eyJoIjoi.c2lnbmF0dXJl",
    "data_url": "https://ledger.example/c/data?link=eyJoIjoi.c2lnbmF0dXJl",
    "expires_at": "2026-01-31T12:15:00.000000Z",
}


class PageLinkSerializer(ResponseSchema):
    """A link to a customer's page."""

    url = serializers.CharField(help_text="The address of the page. Anyone who has it sees the page until the link ends.")
    data_url = serializers.CharField(help_text="The address of what the page shows, as JSON.")
    expires_at = serializers.DateTimeField(help_text="When the link ends.")


class PageLinks(Endpoint):
    """Makes links to the page of a holder."""

    in_loop = frozenset({"post"})

    @operation(
        "createPageLink",
        "Make a link to the customer's page",
        "The link shows the holder's balance, expiring credits, history, usage by day, and invoices, and nothing else, to anyone "
        "who has it. The call stores nothing, so it needs no Idempotency-Key; each call makes another link. The holder need not "
        "have credits yet. With `allow_payments` the reader may pay and buy there, with `allow_plan_changes` cancel and change "
        "subscriptions, and the key needs the scope `billing:write` too. 404 on a server that does not serve the page.",
        tag="Customer's page",
        scope=PAGES_WRITE,
        parameters=[HOLDER_PATH],
        takes=RequestBody(PAGE_LINK, {"15 minutes, in German": BODY}),
        responses={200: ResponseBody(PageLinkSerializer, LINK, "The link.")},
    )
    def post(self, request: HttpRequest, holder: str) -> Response:
        fields = self.body(request, PAGE_LINK)
        if not links.is_served():
            raise NotFound
        asked = PAGE_LINK.make(fields | {"holder_id": holder})
        if (asked.allow_payments or asked.allow_plan_changes) and not self.key.may(BILLING_WRITE):
            raise ScopeMissing(scope=BILLING_WRITE)
        made = links.link_of(asked, request)
        return json_response(PageLinkSerializer.body(made))


urlpatterns: list[URLPattern] = [path("holders/<holder:holder>/page-links", PageLinks.as_view())]

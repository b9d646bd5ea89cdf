"""The call that makes a link to the customer's page."""

from django.http import HttpRequest

from ledger import customer_page
from ledger.api.kit.authentication import PAGES_WRITE
from ledger.api.kit.endpoint import Endpoint
from ledger.api.kit.request_errors import NotFound
from ledger.api.kit.schema import RequestBody, ResponseBody, operation
from ledger.api.kit.writing.rendering import Response, json_response
from ledger.api.schemas import examples
from ledger.api.schemas.parameters import HOLDER_PATH
from ledger.api.schemas.request_schemas import PAGE_LINK
from ledger.api.schemas.response_schemas import PageLinkSerializer


class PageLinks(Endpoint):
    """Makes links to the page of a holder."""

    in_loop = frozenset({"post"})

    @operation(
        "createPageLink",
        "Make a link to the customer's page",
        "The link shows the holder's balance, expiring credits, history, usage by day, and invoices, and nothing else, to anyone "
        "who has it. The call stores nothing, so it needs no Idempotency-Key; each call makes another link. The holder need not "
        "have credits yet. 404 on a server that does not serve the page.",
        tag="Customer's page",
        scope=PAGES_WRITE,
        parameters=[HOLDER_PATH],
        takes=RequestBody(PAGE_LINK, {"15 minutes, in German": examples.PAGE_LINK_BODY}),
        responses={200: ResponseBody(PageLinkSerializer, examples.PAGE_LINK, "The link.")},
    )
    def post(self, request: HttpRequest, holder: str) -> Response:
        fields = self.body(request, PAGE_LINK)
        if not customer_page.is_served():
            raise NotFound
        made = customer_page.link_of(PAGE_LINK.make(fields | {"holder_id": holder}), request)
        return json_response(PageLinkSerializer.body(made))

"""Calls about rates: named prices in credits, and the price of a quantity."""

from django.http import HttpRequest

from ledger import reads, services
from ledger.models import Rate
from ledger.rest.etags import refuse_condition
from ledger.rest.kit import cursors
from ledger.rest.kit.authentication import LEDGER_ADMIN, LEDGER_READ
from ledger.rest.kit.endpoint import Endpoint
from ledger.rest.kit.queries import DryRunQuery, read_query
from ledger.rest.kit.rendering import Response, json_response, write_response
from ledger.rest.kit.request_errors import NotFound
from ledger.rest.kit.requests import dry_run_key, idempotency_key
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation, page_response
from ledger.rest.schemas import examples, request_schemas, response_schemas
from ledger.rest.schemas.parameters import RATE_PATH
from ledger.rest.writes import RATE_PROBLEMS
from ledger.rules.requests import QuoteRequest, RateRequest

RATES = "Rates"
RATE = request_schemas.body_of(RateRequest)
QUOTE = request_schemas.body_of(QuoteRequest)


class Rates(Endpoint):
    """Publishes versions, and lists the newest of each rate."""

    location = "/v1/rates/{ref}?credit_type={credit_type}"

    @operation(
        "publishRate",
        "Publish a rate",
        "Creates the next version of a rate, effective immediately: one price, or a price for each of its components. "
        "Entries keep the version that priced them. A key of one holder cannot publish rates. All rates share one space of "
        "Idempotency-Keys.",
        tag=RATES,
        scope=LEDGER_ADMIN,
        takes=RequestBody(
            RATE, {"3 per 1,000 tokens": examples.RATE_BODY, "a price for each component": examples.RATE_OF_COMPONENTS}
        ),
        responses={201: ResponseBody(response_schemas.RateBodySerializer, examples.RATE, "The version.")},
        idempotent=True,
        dry_run=True,
    )
    def post(self, request: HttpRequest) -> Response:
        if self.key.holder_id is not None:
            raise NotFound
        dry_run = read_query(DryRunQuery, request)["dry_run"]
        key = dry_run_key(request) if dry_run else idempotency_key(request)
        refuse_condition(request)
        body = self.body(request, RATE)
        body |= {"actor": self.key.actor, "idempotency_key": key, "dry_run": dry_run}
        published = services.publish_rate.execute(RATE.make(body))
        rate = response_schemas.RateBodySerializer.body(published.rate)
        return write_response(rate, replayed=published.replayed, status=200 if dry_run else 201, location=self.location)

    @operation(
        "listRates",
        "List rates",
        "Every rate in its newest version, by credit type and code.",
        tag=RATES,
        scope=LEDGER_READ,
        with_labels=True,
        query=request_schemas.RatesQuery,
        responses=page_response(response_schemas.RateBodySerializer, examples.RATE, path="/v1/rates", text="A page of rates."),
    )
    def get(self, request: HttpRequest) -> Response:
        filters = read_query(request_schemas.RatesQuery, request)
        page = cursors.requested_page(request, filters)
        rates = reads.rates(**filters, **page.ascending(), limit=page.rows_wanted)
        return json_response(page.response_body(rates, keyset=_rate_keyset, body=response_schemas.RateBodySerializer.body))


def _rate_keyset(rate: Rate) -> cursors.Keyset:
    return rate.credit_type, rate.code


class RateVersions(Endpoint):
    """Lists a rate's versions."""

    @operation(
        "listRateVersions",
        "List the versions of a rate",
        "The newest version first; it is the current one.",
        tag=RATES,
        scope=LEDGER_READ,
        with_labels=True,
        parameters=[RATE_PATH],
        query=request_schemas.RateVersionsQuery,
        responses=page_response(
            response_schemas.RateBodySerializer, examples.RATE, path="/v1/rates/gpt-4o.output", text="A page of versions."
        ),
    )
    def get(self, request: HttpRequest, code: str) -> Response:
        query = read_query(request_schemas.RateVersionsQuery, request)
        page = cursors.requested_page(request, query)
        versions = reads.rate_versions(code, query["credit_type"], **page.newest_first(), limit=page.rows_wanted)
        if not versions and page.keyset is None:
            raise NotFound
        return json_response(page.response_body(versions, keyset=_version_keyset, body=response_schemas.RateBodySerializer.body))


def _version_keyset(rate: Rate) -> cursors.Keyset:
    return (rate.version,)


class Quotes(Endpoint):
    """Computes the price of quantities."""

    @operation(
        "quoteRate",
        "Quote quantities",
        "The price of quantities at the current rate: of one `quantity`, or of `quantities` by component, whose exact costs "
        "are added up and rounded up once. The call stores nothing, so it needs no Idempotency-Key.",
        tag=RATES,
        scope=LEDGER_READ,
        with_labels=True,
        takes=RequestBody(QUOTE, {"1,250 tokens": examples.QUOTE_BODY, "by component": examples.QUOTE_OF_COMPONENTS}),
        responses={200: ResponseBody(response_schemas.QuoteBodySerializer, examples.QUOTE, "The quote.")},
        problems=RATE_PROBLEMS,
    )
    def post(self, request: HttpRequest) -> Response:
        amount, rating = services.quote.execute(QUOTE.make(self.body(request, QUOTE)))
        return json_response(response_schemas.QuoteBodySerializer.body(rating, amount=amount))

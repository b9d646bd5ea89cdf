"""Rate cards: named prices of things in credits, and what a quantity would cost."""

from django.http import HttpRequest, HttpResponse

from ledger import selectors, services
from ledger.api import bodies, examples, shapes
from ledger.api.kit import cursors
from ledger.api.kit.authentication import LEDGER_ADMIN, LEDGER_READ
from ledger.api.kit.endpoint import Endpoint
from ledger.api.kit.etags import refuse_condition
from ledger.api.kit.idempotency import idempotency_key, preview_key
from ledger.api.kit.inputs import read_query
from ledger.api.kit.rendering import json_answer, recorded_answer
from ledger.api.kit.request_errors import NotFound
from ledger.api.kit.schema import RATE_PATH, Answer, Taken, operation, page_example, page_of
from ledger.api.views import RATE_PROBLEMS
from ledger.models import Rate

RATES = "Rates"
RATE_PAGE = page_of(shapes.RateBodySerializer)


class Rates(Endpoint):
    """Versions are published; the newest of each rate are listed."""

    scopes = {"post": LEDGER_ADMIN, "get": LEDGER_READ}

    @operation(
        "publishRate",
        "Publish a rate",
        "Creates the next version of a rate, effective immediately. Entries keep the version that priced them. A key of one "
        "holder cannot publish rates. All rates share one space of Idempotency-Keys.",
        tag=RATES,
        scope=LEDGER_ADMIN,
        takes=Taken(bodies.RateSerializer, {"3 per 1,000 tokens": examples.RATE_BODY}),
        answers={201: Answer(shapes.RateBodySerializer, examples.RATE, "The version.")},
        keyed=True,
        previewed=True,
    )
    def post(self, request: HttpRequest) -> HttpResponse:
        """Publish the next version of a rate."""
        if self.key.holder_id is not None:
            raise NotFound
        dry_run = read_query(bodies.WriteQuery, request)["dry_run"]
        key = preview_key(request) if dry_run else idempotency_key(request)
        refuse_condition(request)
        body = self.body(request, bodies.RateSerializer)
        published = services.publish_rate(**body, actor=self.key.actor, idempotency_key=key, dry_run=dry_run)
        rate = shapes.rate_body(published.rate)
        return recorded_answer(rate, replayed=published.replayed, status=200 if dry_run else 201)

    @operation(
        "listRates",
        "List rates",
        "Every rate in its newest version, by credit type and code.",
        tag=RATES,
        scope=LEDGER_READ,
        query=bodies.RatesQuery,
        answers={200: Answer(RATE_PAGE, page_example(examples.RATE, path="/v1/rates"), "A page of rates.")},
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        """List the rates."""
        filters = read_query(bodies.RatesQuery, request)
        window = cursors.open_window(request, filters)
        rates = selectors.rates(**filters, **window.ascending(), limit=window.rows_wanted)
        return json_answer(window.page(rates, keyset=_rate_keyset, body=shapes.rate_body))


def _rate_keyset(rate: Rate) -> cursors.Keyset:
    return rate.credit_type, rate.code


class RateVersions(Endpoint):
    """A rate's versions."""

    scopes = {"get": LEDGER_READ}

    @operation(
        "listRateVersions",
        "List the versions of a rate",
        "The newest version first; it is the current one.",
        tag=RATES,
        scope=LEDGER_READ,
        parameters=[RATE_PATH],
        query=bodies.RateVersionsQuery,
        answers={
            200: Answer(
                RATE_PAGE,
                page_example(examples.RATE, path="/v1/rates/gpt-4o.output"),
                "A page of versions.",
            )
        },
    )
    def get(self, request: HttpRequest, code: str) -> HttpResponse:
        """List the rate's versions."""
        query = read_query(bodies.RateVersionsQuery, request)
        window = cursors.open_window(request, query)
        versions = selectors.rate_versions(code, query["credit_type"], **window.newest_first(), limit=window.rows_wanted)
        if not versions and window.keyset is None:
            raise NotFound
        return json_answer(window.page(versions, keyset=_version_keyset, body=shapes.rate_body))


def _version_keyset(rate: Rate) -> cursors.Keyset:
    return (rate.version,)


class Quotes(Endpoint):
    """What a quantity would cost."""

    scopes = {"post": LEDGER_READ}

    @operation(
        "quoteRate",
        "Quote a quantity",
        "The price of a quantity at the current rate. The call stores nothing, so it needs no Idempotency-Key.",
        tag=RATES,
        scope=LEDGER_READ,
        takes=Taken(bodies.QuoteSerializer, {"1,250 tokens": examples.QUOTE_BODY}),
        answers={200: Answer(shapes.QuoteBodySerializer, examples.QUOTE, "The quote.")},
        problems=RATE_PROBLEMS,
    )
    def post(self, request: HttpRequest) -> HttpResponse:
        """Quote a quantity."""
        amount, rating = services.quote(**self.body(request, bodies.QuoteSerializer))
        return json_answer({"amount": amount, "rating": shapes.rating_body(rating)})

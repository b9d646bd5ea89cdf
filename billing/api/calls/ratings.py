"""The calls that compute what a quantity or events cost at a price, and what another price would have brought."""

from fractions import Fraction
from typing import Any

from django.http import HttpRequest

from billing.api.endpoints import CATALOGUE, BillingEndpoint
from billing.api.schemas import examples, request_schemas, response_schemas
from billing.api.schemas import price_trials as trials
from billing.errors import NotFound
from billing.generator.run.price_trials import NewPriceTrial, try_price
from billing.rating.aggregation import KEPT, Event, RatingInput
from billing.rating.limits import MAX_MINOR
from billing.rating.money import decimal_text
from billing.rating.prices.prepaid_units import quote_covered, units_of
from billing.rating.prices.price import Price
from billing.rating.prices.pricing import Rating, quote, rate_groups, usage_of_quantity
from billing.rating.prices.reading import parse_price
from ledger.records import shape_of
from ledger.rest.kit.authentication import BILLING_READ
from ledger.rest.kit.parsing import BATCH_LIMIT_BYTES
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.request_errors import FieldError, InvalidRequest
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation


class Ratings(BillingEndpoint):
    """Computes a price, and stores nothing."""

    body_limit_bytes = BATCH_LIMIT_BYTES

    @operation(
        "rate", "Rate usage", "Computes what a quantity or events would cost at a price. The call stores nothing, so it needs "
        "no Idempotency-Key.",
        tag=CATALOGUE, scope=BILLING_READ,
        takes=RequestBody(
            shape_of(request_schemas.NewRating),
            {"a quantity": examples.RATING_BODY, "with this many credits": examples.RATING_IN_CREDITS_BODY},
        ),
        responses={200: ResponseBody(response_schemas.RatingSerializer, examples.RATING, "The amount and its calculation.")},
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        fields = self.body(request, shape_of(request_schemas.NewRating))
        price = parse_price(fields["price"])
        known = _usage(fields, price)
        billed = price.usage_of_amount(price.converted(RatingInput(Fraction(fields.get("already_billed", 0)))).quantity)
        if "credits_available" in fields:
            rated = _rated_in_credits(fields, price, known, billed.quantity)
        else:
            rated = _within_limit(quote(price, known, fields["currency"], billed if billed.quantity else None)).as_dict()
        if known.groups:
            rated |= {"groups": _groups(price, known, fields["currency"])}
        return json_response(rated | price.conversion_facts(known))


class PriceTrials(BillingEndpoint):
    """Rates the usage of invoiced periods at another price, and stores nothing."""

    @operation(
        "tryPrice", "Ask what another price would have brought",
        "Rates the usage of the plans' invoiced periods of the last months again at another price, exactly as invoices are: "
        "money before and after, by version of the plans and for the customers for whom most would change, before coupons, tax, "
        "and the minimum and maximum of a plan. Nothing is written, so the call needs no Idempotency-Key.",
        tag=CATALOGUE, scope=BILLING_READ,
        takes=RequestBody(shape_of(NewPriceTrial), {"three cents a call": trials.PRICE_TRIAL_BODY}),
        responses={200: ResponseBody(trials.PriceTrialSerializer, trials.PRICE_TRIAL, "What it would have brought.")},
        problems=[NotFound(resource="plan", ref="basic")],
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        trial = shape_of(NewPriceTrial).make(self.body(request, shape_of(NewPriceTrial)))
        return json_response(trials.price_trial(try_price.execute(trial)))


def _groups(price: Price, known: RatingInput, currency: str) -> list[dict[str, Any]]:
    """Return the rating of each group of the events."""
    quantities = dict(known.groups)
    return [
        {
            "group": price.named(group),
            "quantity": decimal_text(quantities[group].quantity),
            **_within_limit(rating).as_dict(),
            **price.conversion_facts(quantities[group]),
        }
        for group, rating in rate_groups(price, known, currency).items()
    ]


def _within_limit(rating: Rating) -> Rating:
    """Return the rating if its amount fits on an invoice line.

    Raises:
        InvalidRequest: the amount exceeds 2^53 - 1 minor units.
    """
    if abs(rating.amount_minor) > MAX_MINOR:
        detail = f"The amount exceeds {MAX_MINOR} minor units, the limit of one line."
        raise InvalidRequest([FieldError("", "amount-too-large", detail)])
    return rating


def _rated_in_credits(fields: dict[str, Any], price: Price, known: RatingInput, billed: Fraction) -> dict[str, Any]:
    if price.credits is None:
        raise InvalidRequest([FieldError("/credits_available", "not-used", "The price does not take credits.")])
    available = fields["credits_available"]
    rating, coverage = quote_covered(price, known, fields["currency"], billed=billed, available=available)
    _within_limit(rating)
    covered = {"units": decimal_text(units_of(price, coverage)), "credits": coverage.credits}
    return rating.as_dict() | {"covered": covered | {"credit_type": price.credits.credit_type}}


def _usage(fields: dict[str, Any], price: Price) -> RatingInput:
    if ("quantity" in fields) == ("events" in fields):
        raise InvalidRequest([FieldError("/quantity", "one-of", "Give either quantity or events.")])
    if "quantity" in fields:
        return usage_of_quantity(price, fields["quantity"])
    if price.aggregation is None:
        raise InvalidRequest([FieldError("/events", "not-used", "A recurring price has no events; give quantity.")])
    if price.group_by and "already_billed" in fields:
        detail = "A quantity does not say how much of which group is billed."
        raise InvalidRequest([FieldError("/already_billed", "not-with-groups", detail)])
    if price.aggregation in KEPT:
        raise InvalidRequest([FieldError("/events", "needs-period", "An average over time needs its period; give quantity.")])
    events = [
        Event(one["value"], one["occurred_at"], one.get("properties", {}), sequence)
        for sequence, one in enumerate(fields["events"])
    ]
    return price.usage_of(events)

"""The calls about taxes: those that are declared, what VIES said about VAT ids, and the sums of a month."""

from dataclasses import dataclass
from typing import Annotated, Any

from django.http import HttpRequest

from billing import reads
from billing.api.endpoints import CATALOGUE, NO_CUSTOMER, BillingEndpoint, WriteEndpoint, list_operation
from billing.api.paths import LOOKUP_PATH, REF_PATH
from billing.api.schemas import examples, request_schemas, response_schemas
from billing.errors import NotFound
from billing.orders import tax_declarations
from billing.rating.values import Country, Ref
from billing.rating.vat import LookupOutcome
from ledger.rest.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.rest.kit.queries import ListQuery
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation
from ledger.values import Choice


@dataclass(frozen=True, kw_only=True)
class TaxesQuery(ListQuery):
    """Filters of a list of taxes."""

    code: Annotated[str | None, Ref("All versions of this tax.")] = None
    country: Annotated[str | None, Country("Due in this country.")] = None


class Taxes(BillingEndpoint):
    """All taxes."""

    get = list_operation(
        "listTaxes", "List taxes",
        "In their newest versions, or all versions of one; the one that was recorded last comes first.",
        tag=CATALOGUE, path="/v1/taxes", query=TaxesQuery, shape=response_schemas.TaxSerializer, example=examples.TAX,
        rows=reads.taxes,
    )  # fmt: skip


class OneTax(WriteEndpoint):
    """One tax."""

    collection = "taxes"

    @operation(
        "readTax", "Read a tax", "In its newest version.", tag=CATALOGUE, scope=BILLING_READ, parameters=[REF_PATH],
        responses={200: ResponseBody(response_schemas.TaxSerializer, examples.TAX, "The tax.")},
        problems=[NotFound(resource="tax", ref="ca-gst")],
    )  # fmt: skip
    def get(self, request: HttpRequest, ref: str) -> Response:
        return json_response(response_schemas.TaxSerializer.body(tax_declarations.tax_of(ref)))

    @operation(
        "declareTax", "Declare a tax",
        "Declares a tax, or its next version, whole. Lines of sellers with other `tax_rules` than `price` bear it, by the "
        "address of the customer, their tax class and the last day of their period: the version that began last by then applies. "
        "The same terms again record nothing. Documents keep the version with which they were made.",
        tag=CATALOGUE, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[REF_PATH],
        takes=RequestBody(request_schemas.TAX, {"a tax": examples.TAX_BODY}),
        responses={200: ResponseBody(response_schemas.TaxSerializer, examples.TAX, "The tax.")},
    )  # fmt: skip
    def put(self, request: HttpRequest, ref: str) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            tax = tax_declarations.declare(request_schemas.TAX.make(fields | {"code": ref}), actor=self.key.actor)
            tax.refresh_from_db()
            return 200, response_schemas.TaxSerializer.body(tax)

        return self.once(request, request_schemas.TAX, act)


@dataclass(frozen=True, kw_only=True)
class VatLookupsQuery(ListQuery):
    """Filters of a list of VAT lookups."""

    customer: request_schemas.OfCustomer = None
    outcome: Annotated[str | None, Choice(LookupOutcome, "Only lookups with this outcome.")] = None
    since: request_schemas.CreatedSince = None
    until: request_schemas.CreatedUntil = None


class VatLookups(BillingEndpoint):
    """What VIES said about the VAT ids of customers."""

    get = list_operation(
        "listVatLookups", "List lookups of VAT ids",
        "What VIES, the EU's service, said about VAT ids of customers; newest first. Empty unless the deployment looks them up.",
        tag=CATALOGUE, path="/v1/vat-lookups", query=VatLookupsQuery, shape=response_schemas.VatLookupSerializer,
        example=examples.VAT_LOOKUP, rows=reads.vat_lookups, problems=[NO_CUSTOMER],
    )  # fmt: skip


class OneVatLookup(BillingEndpoint):
    """What VIES said once."""

    @operation(
        "readVatLookup", "Read a lookup of a VAT id", tag=CATALOGUE, scope=BILLING_READ, parameters=[LOOKUP_PATH],
        responses={200: ResponseBody(response_schemas.VatLookupSerializer, examples.VAT_LOOKUP, "The lookup.")},
        problems=[LOOKUP_PATH.missing],
    )  # fmt: skip
    def get(self, request: HttpRequest, lookup_id: int) -> Response:
        return json_response(response_schemas.VatLookupSerializer.body(reads.vat_lookup(lookup_id)))

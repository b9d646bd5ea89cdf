"""The call that makes the invoices of one subscription."""

from typing import Any

from django.http import HttpRequest

from billing import reads
from billing.api.endpoints import BUSY, INVOICES, NO_SUBSCRIPTION, NO_TAXES, WriteEndpoint
from billing.api.paths import REF_PATH
from billing.api.schemas import examples, request_schemas, response_schemas
from billing.errors import BillingSuspended, BillingWouldBeSuspended, InvoiceGenerationBusy, PeriodAlreadyBilled
from billing.generator.options import Options, Scope
from billing.generator.run import generate
from ledger.database.lock_names import INVOICE_GENERATION
from ledger.database.locking import locked, on
from ledger.database.locks import Lock
from ledger.records import shape_of
from ledger.rest.kit.authentication import BILLING_WRITE
from ledger.rest.kit.queries import DryRunQuery, read_query
from ledger.rest.kit.rendering import Response
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation


class SubscriptionInvoices(WriteEndpoint):
    """Makes invoices for one subscription."""

    collection = "subscription-invoices"
    location = "/v1/invoices?subscription={invoices[0][subscription]}"

    @operation(
        "generateInvoices", "Generate the invoices of a subscription",
        "Does the same as `manage.py generate_invoices`, for one subscription, up to `as_of`: 400 if that lies in the "
        "future, by the test clock of the customer's holder if there is one, except in a dry run. The response is 409 at once "
        "if another process is generating its invoices; try again later.",
        tag=INVOICES, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[REF_PATH],
        takes=RequestBody(shape_of(request_schemas.Generation), {"everything due": examples.GENERATION_BODY}),
        responses={
            201: ResponseBody(
                response_schemas.GeneratedInvoicesSerializer, examples.GENERATED, "The new invoices."
            ),
            200: ResponseBody(
                response_schemas.GeneratedInvoicesSerializer, examples.NOTHING_GENERATED,
                "An empty list if nothing is due; for a dry run, the invoices that a run would make.",
            ),
        },
        problems=[
            NO_SUBSCRIPTION,
            BUSY,
            BillingSuspended(subscription="SUB-1234", reason="too-many-periods"),
            BillingWouldBeSuspended(subscription="SUB-1234", reason="too-many-periods"),
            PeriodAlreadyBilled(subscription="SUB-1234"),
            *NO_TAXES,
        ],
    )  # fmt: skip
    def post(self, request: HttpRequest, ref: str) -> Response:
        dry_run = read_query(DryRunQuery, request)["dry_run"]

        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            fields["dry_run"] |= dry_run
            generate.check_as_of(fields["as_of"], dry_run=fields["dry_run"], refs=[ref])
            return self.make(ref=ref, fields=fields)

        return self.once(request, request_schemas.Generation, act, dry_run=dry_run, on_refusal=generate.suspend_refused)

    @staticmethod
    @locked(on(INVOICE_GENERATION, "{ref}"), wait=False, busy=InvoiceGenerationBusy)
    def make(lock: Lock, *, ref: str, fields: dict[str, Any]) -> tuple[int, Any]:
        """Make the due invoices, or those that a dry run would make, under the lock of the subscription."""
        options = Options(
            as_of=fields["as_of"],
            only=Scope(fields["only"]) if "only" in fields else None,
            running_usage=fields["running_usage"],
            finalize=fields["finalize"],
            dry_run=fields["dry_run"],
            note=fields["note"],
            render=reads.invoice_document,
        )
        generated = generate.generate_held(lock, ref=ref, options=options)
        made = bool(generated.documents) and not options.dry_run
        return 201 if made else 200, response_schemas.generated_invoices(generated)

"""Calls about holds: they set credits aside for something of unknown price, then capture, release or extend them."""

from django.http import HttpRequest

from ledger import reads
from ledger.errors import CaptureExceedsHold, HoldClosed, HoldLimit, NotAHold
from ledger.rest.kit import cursors
from ledger.rest.kit.authentication import LEDGER_HOLD, LEDGER_READ
from ledger.rest.kit.queries import read_query
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.schema import operation, page_response
from ledger.rest.schemas import examples, request_schemas, response_schemas
from ledger.rest.schemas.parameters import HOLDER_PATH
from ledger.rest.writes import BUDGET_PROBLEMS, FROZEN, NO_SUCH_ENTRY, NOT_ENOUGH, RATE_PROBLEMS, Write, write
from ledger.rules.requests import CaptureRequest, ExtendRequest, HoldRequest, ReleaseRequest

HOLDS = "Holds"

CLOSED = (NO_SUCH_ENTRY, NotAHold(sequence=1, kind="grant"), HoldClosed(sequence=5, how="captured", closed_by=6))


class Holds(Write):
    """Sets credits aside, and lists holds."""

    reads_quickly = True

    post = write(
        HoldRequest,
        "holdCredits",
        "Hold credits",
        "Sets credits aside: out of the balance, into `held`. The entry's sequence names the hold. From `expires_at` on it "
        "holds nothing any more; no job has to run. A hold never uses an overdraft. Instead of an amount, a rate "
        "with a quantity or with quantities by component may be given.",
        tag=HOLDS,
        scope=LEDGER_HOLD,
        examples={
            "a call of unknown length": examples.HOLD_BODY,
            "the least": {"amount": 1},
            "an AI call": examples.QUOTE_OF_COMPONENTS,
        },
        response=examples.HOLD,
        problems=[NOT_ENOUGH, FROZEN, *BUDGET_PROBLEMS, HoldLimit(held_lots=500, limit=500), *RATE_PROBLEMS],
    )

    @operation(
        "listHolds",
        "List holds",
        "The open holds, oldest first; `held` is their sum. An expired hold (`state` is `expired`) holds nothing; the list "
        "contains it until the ledger books its expiry.",
        tag=HOLDS,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH],
        query=request_schemas.HoldsQuery,
        responses=page_response(
            response_schemas.HoldBodySerializer, examples.OPEN_HOLD, path="/v1/holders/customer-42/holds", text="A page of holds."
        ),
    )
    def get(self, request: HttpRequest, holder: str) -> Response:
        query = read_query(request_schemas.HoldsQuery, request)
        page = cursors.requested_page(request, query)
        balance = reads.balance(holder, query["credit_type"])
        holds = reads.page_of_holds(balance, **page.ascending(), limit=page.rows_wanted)
        return json_response(page.response_body(holds, keyset=_hold_keyset, body=response_schemas.HoldBodySerializer.body))


def _hold_keyset(hold: reads.ShownHold) -> cursors.Keyset:
    return (hold.hold,)


class Captures(Write):
    """Spends held credits."""

    post = write(
        CaptureRequest,
        "captureHold",
        "Capture a hold",
        "Spends the held credits, or a part of them. The rest returns to its lots, or stays held for more captures with "
        "`final`: false. A capture can also use a lot that expired during the hold. You refund a capture like a spend. Instead "
        "of "
        "an amount, the quantities that were used may be given: they are priced by the version of the rate that priced the hold.",
        tag=HOLDS,
        scope=LEDGER_HOLD,
        examples={
            "what it came to": examples.CAPTURE_BODY,
            "all": {},
            "in parts": {"amount": 5, "final": False},
            "more than is held": {"amount": 45, "over_capture": "if_available"},
            "what an AI call used": {
                "quantities": {"input": 1200, "cached": 3000, "output": 350},
                "over_capture": "if_available",
            },
        },
        response=examples.CAPTURE,
        problems=[
            *CLOSED,
            CaptureExceedsHold(sequence=5, held=30, requested=31),
            NOT_ENOUGH,
            FROZEN,
            *BUDGET_PROBLEMS,
            *RATE_PROBLEMS,
        ],
    )


class Release(Write):
    """Gives held credits back."""

    post = write(
        ReleaseRequest,
        "releaseHold",
        "Release a hold",
        "Returns all held credits to their lots. Credits of a lot that expired during the hold expire at once.",
        tag=HOLDS,
        scope=LEDGER_HOLD,
        examples={"cancelled": examples.RELEASE_BODY, "the least": {}},
        response=examples.RELEASE,
        problems=CLOSED,
    )


class Extension(Write):
    """Changes the expiry of a hold."""

    post = write(
        ExtendRequest,
        "extendHold",
        "Extend a hold",
        "Changes when an open hold expires, by an entry of kind `hold` and amount 0 that refers to the first entry of the hold.",
        tag=HOLDS,
        scope=LEDGER_HOLD,
        examples={"it takes longer": examples.EXTENSION_BODY},
        response=examples.EXTENSION,
        problems=CLOSED,
    )

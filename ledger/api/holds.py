"""Holds: credits are set aside for something whose price is not known yet, then captured, released or extended."""

from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse

from ledger import selectors
from ledger.api import bodies, examples, shapes
from ledger.api.kit import cursors
from ledger.api.kit.authentication import LEDGER_READ, LEDGER_SPEND
from ledger.api.kit.endpoint import InThread, Queued
from ledger.api.kit.inputs import StrictSerializer, read_query
from ledger.api.kit.rendering import json_answer
from ledger.api.kit.schema import HOLDER_PATH, SEQUENCE_PATH, Answer, operation, page_example, page_of
from ledger.api.views import RATE_PROBLEMS
from ledger.api.writes import NO_SUCH_ENTRY, NOT_ENOUGH, Write, write
from ledger.errors import CaptureExceedsHold, HoldClosed, HoldLimit, NotAHold
from ledger.rules import CaptureRequest, ExtendRequest, Hold, HoldRequest, ReleaseRequest
from ledger.rules.instants import to_us

HOLDS = "Holds"

CLOSED = (NO_SUCH_ENTRY, NotAHold(sequence=1, kind="grant"), HoldClosed(sequence=5, how="captured", closed_by=6))


class Holds(Write):
    """Credits are set aside; what is set aside is listed."""

    scopes = {"post": LEDGER_SPEND, "get": LEDGER_READ}

    @write(
        "holdCredits",
        "Hold credits",
        "Sets credits aside: out of the balance, into `held`. The entry's sequence names the hold. From `expires_at` on it "
        "holds nothing any more, without anybody doing anything. An overdraft is not drawn upon. Instead of an amount, a rate "
        "and a quantity may be given.",
        tag=HOLDS,
        scope=LEDGER_SPEND,
        takes=bodies.HoldSerializer,
        examples={"a call of unknown length": examples.HOLD_BODY, "the least": {"amount": 1}},
        answer=examples.HOLD,
        problems=[NOT_ENOUGH, HoldLimit(held_lots=500, limit=500), *RATE_PROBLEMS],
    )
    def post(self, request: HttpRequest, holder: str) -> Queued | InThread:
        """Hold credits of the holder."""
        return self.ask(HoldRequest, self.arguments(request, holder, bodies.HoldSerializer))

    @operation(
        "listHolds",
        "List holds",
        "The open holds, oldest first; `held` is their sum. An expired hold (`state` is `expired`) holds nothing; the list "
        "contains it until the ledger books its expiry.",
        tag=HOLDS,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH],
        query=bodies.HoldsQuery,
        answers={
            200: Answer(
                page_of(shapes.HoldBodySerializer),
                page_example(examples.OPEN_HOLD, path="/v1/holders/customer-42/holds"),
                "A page of holds.",
            )
        },
    )
    def get(self, request: HttpRequest, holder: str) -> HttpResponse:
        """List the holder's holds."""
        query = read_query(bodies.HoldsQuery, request)
        window = cursors.open_window(request, query)
        found = selectors.balance(holder, query["credit_type"])
        holds = selectors.page_of_holds(found, **window.ascending(), limit=window.rows_wanted)
        return json_answer(window.page(holds, keyset=_hold_keyset, body=partial(shapes.hold_body, as_of_us=to_us(found.as_of))))


def _hold_keyset(hold: Hold) -> cursors.Keyset:
    return (hold.sequence,)


class _OfAHold(Write):
    """A call on one hold."""

    scopes = {"post": LEDGER_SPEND}

    def arguments_of(self, request: HttpRequest, holder: str, sequence: int, shape: type[StrictSerializer]) -> dict[str, Any]:
        """Return what the use-case is called with, or raise."""
        return {**self.arguments(request, holder, shape), "hold": sequence}


class Captures(_OfAHold):
    """What is held is spent."""

    @write(
        "captureHold",
        "Capture a hold",
        "Spends the held credits, or a part of them. The rest returns to its lots, or stays held for more captures with "
        "`final`: false. A capture can also use a lot that expired during the hold. You refund a capture like a spend.",
        tag=HOLDS,
        scope=LEDGER_SPEND,
        parameters=[SEQUENCE_PATH],
        takes=bodies.CaptureSerializer,
        examples={
            "what it came to": examples.CAPTURE_BODY,
            "all": {},
            "in parts": {"amount": 5, "final": False},
            "more than is held": {"amount": 45, "over_capture": "if_available"},
        },
        answer=examples.CAPTURE,
        problems=[*CLOSED, CaptureExceedsHold(sequence=5, held=30, requested=31), NOT_ENOUGH],
    )
    def post(self, request: HttpRequest, holder: str, sequence: int) -> Queued | InThread:
        """Capture a hold of the holder."""
        return self.ask(CaptureRequest, self.arguments_of(request, holder, sequence, bodies.CaptureSerializer))


class Release(_OfAHold):
    """What is held is given back."""

    @write(
        "releaseHold",
        "Release a hold",
        "Returns all held credits to their lots. Credits of a lot that expired during the hold expire at once.",
        tag=HOLDS,
        scope=LEDGER_SPEND,
        parameters=[SEQUENCE_PATH],
        takes=bodies.ReleaseSerializer,
        examples={"cancelled": examples.RELEASE_BODY, "the least": {}},
        answer=examples.RELEASE,
        problems=CLOSED,
    )
    def post(self, request: HttpRequest, holder: str, sequence: int) -> Queued | InThread:
        """Release a hold of the holder."""
        return self.ask(ReleaseRequest, self.arguments_of(request, holder, sequence, bodies.ReleaseSerializer))


class Extension(_OfAHold):
    """A hold gets another expiry."""

    @write(
        "extendHold",
        "Extend a hold",
        "Lets an open hold expire at another instant: an entry of kind `hold` and amount 0 that refers to the first one.",
        tag=HOLDS,
        scope=LEDGER_SPEND,
        parameters=[SEQUENCE_PATH],
        takes=bodies.ExtensionSerializer,
        examples={"it takes longer": examples.EXTENSION_BODY},
        answer=examples.EXTENSION,
        problems=CLOSED,
    )
    def post(self, request: HttpRequest, holder: str, sequence: int) -> Queued | InThread:
        """Extend a hold of the holder."""
        return self.ask(ExtendRequest, self.arguments_of(request, holder, sequence, bodies.ExtensionSerializer))

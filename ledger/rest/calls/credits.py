"""Credits are granted, spent, refunded, revoked and transferred; overage and overdraft are agreed, budgets are set."""

from typing import Any, Final

from django.http import HttpRequest
from django.urls import URLPattern, path

from ledger import reads, services
from ledger.errors import (
    BudgetLimit,
    BudgetNotFound,
    ClocksDiffer,
    ClocksOff,
    LotClosed,
    LotLimit,
    NothingToVoid,
    NotRefundable,
    NotReversible,
    NotRevocable,
    OverageNotFound,
    OverageTaken,
    RecurringGrantDue,
    RecurringGrantLimit,
    RecurringGrantNotFound,
    RefundExceedsSpend,
    ReversalExceedsTransfer,
    RevocationExceedsGrant,
    TransfersRefused,
)
from ledger.rest import paths  # noqa: F401 - registers the converters
from ledger.rest.kit import cursors
from ledger.rest.kit.authentication import LEDGER_ADMIN, LEDGER_GRANT, LEDGER_READ, LEDGER_REFUND, LEDGER_SPEND, LEDGER_TRANSFER
from ledger.rest.kit.endpoint import Endpoint
from ledger.rest.kit.queries import read_query
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.request_errors import NotFound
from ledger.rest.kit.schema import ResponseBody, operation, page_response
from ledger.rest.schemas import examples, request_schemas, response_schemas
from ledger.rest.schemas.parameters import BUDGET_PATH, HOLDER_PATH, RECURRING_PATH
from ledger.rest.writes import (
    BALANCE_LIMIT,
    BUDGET_PROBLEMS,
    FROZEN,
    LOT_LIMIT,
    NO_SUCH_ENTRY,
    NOT_ENOUGH,
    RATE_PROBLEMS,
    Write,
    write,
)
from ledger.rules.entries import Entry
from ledger.rules.recurring_terms import MAX_RECURRING_GRANTS
from ledger.rules.requests import (
    BudgetRequest,
    ClockRequest,
    FreezeRequest,
    GrantRequest,
    IncomingTransfersRequest,
    OverageRequest,
    OverdraftRequest,
    RecurringGrantRequest,
    RefundRequest,
    ReissueRequest,
    ReversalRequest,
    RevokeRequest,
    SpendRequest,
    TransferRequest,
    VoidRequest,
)

CLOCKS_DIFFER = ClocksDiffer(holder_id="customer-42", to="team-7")
NO_OVERAGE = OverageNotFound(credit_type="credits")
OVERAGE_TAKEN = OverageTaken(reference="SUB-1234")
CREDITS = "Credits"
BUDGETS = "Budgets"
RECURRING = "Recurring grants"


class Grants(Write):
    """Puts credits in."""

    post = write(
        GrantRequest,
        "grantCredits",
        "Grant credits",
        "Adds credits as a new lot, which can expire. The first grant creates the holder. New credits repay the overdraft first, "
        "unless `applies_to` limits what they can pay for: then spends and holds by other rates or with other labels pass the "
        "lot over, and it is neither transferred nor used for a debt.",
        tag=CREDITS,
        scope=LEDGER_GRANT,
        examples={
            "a purchase": examples.GRANT_BODY,
            "with what was paid": examples.SALE_BODY,
            "for some things only": examples.RESTRICTED_BODY,
            "the least": {"amount": 100},
        },
        response=examples.GRANT,
        problems=[LOT_LIMIT],
    )

    @operation(
        "listGrants",
        "List grants",
        "The grants of an account, newest first, each with what is left of it. Lots of transfers and refunds are in `/lots`.",
        tag=CREDITS,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH],
        query=request_schemas.HoldsQuery,
        responses=page_response(
            response_schemas.GrantedSerializer,
            examples.GRANT | {"lot": examples.BALANCE["lots"][0]},
            path="/v1/holders/customer-42/grants",
            text="A page of grants.",
        ),
    )
    def get(self, request: HttpRequest, holder: str) -> Response:
        query = read_query(request_schemas.HoldsQuery, request)
        page = cursors.requested_page(request, query)
        credit_type = query["credit_type"]
        grants = reads.entries(holder, credit_type=credit_type, kind="grant", **page.newest_first(), limit=page.rows_wanted)
        lots = {lot.grant: response_schemas.LotSerializer.body(lot) for lot in reads.balance(holder, credit_type).shown_lots}

        def body(grant: reads.ShownEntry) -> dict[str, Any]:
            return response_schemas.GrantedSerializer.body(grant, lot=lots.get(grant.sequence))

        return json_response(page.response_body(grants, keyset=lambda grant: grant.position, body=body))


class Spends(Write):
    """Takes credits out."""

    post = write(
        SpendRequest,
        "spendCredits",
        "Spend credits",
        "Takes credits, all or nothing, from the lots by priority, soonest expiry, promotional before purchased, oldest; then "
        "on overage, then from the overdraft, if the account has them. Give an amount, or a rate with a quantity or with "
        "quantities by component. With `partial`, it takes what can be used if that is less; `requested` then says how many "
        "credits it "
        "asked for.",
        tag=CREDITS,
        scope=LEDGER_SPEND,
        examples={
            "a use": examples.SPEND_BODY,
            "the least": {"amount": 1},
            "by a rate": {"rate": "gpt-4o.output", "quantity": 1250},
            "by the components of a rate": examples.QUOTE_OF_COMPONENTS,
            "what is there": {"amount": 5000, "partial": True},
        },
        response=examples.SPEND,
        problems=[NOT_ENOUGH, FROZEN, *BUDGET_PROBLEMS, *RATE_PROBLEMS],
    )


class Refunds(Write):
    """Gives credits of a spend back."""

    post = write(
        RefundRequest,
        "refundSpend",
        "Refund a spend",
        "Gives credits of a spend or capture back to the lots that they came from: whole, or in parts; never more than was "
        "spent.",
        tag=CREDITS,
        scope=LEDGER_REFUND,
        examples={"a part": examples.REFUND_BODY, "all that is left": {"spend": 2}},
        response=examples.REFUND,
        problems=[
            NO_SUCH_ENTRY,
            NotRefundable(sequence=1, kind="grant"),
            RefundExceedsSpend(sequence=2, refundable=2, requested=3),
            LOT_LIMIT,
            BALANCE_LIMIT,
        ],
    )


class Revocations(Write):
    """Takes back the unspent rest of a grant."""

    post = write(
        RevokeRequest,
        "revokeGrant",
        "Revoke a grant",
        "Takes back unspent credits of a grant: all of them, or a part.",
        tag=CREDITS,
        scope=LEDGER_GRANT,
        examples={"the unspent rest": examples.REVOCATION_BODY, "a part": {"grant": 1, "amount": 5}},
        response=examples.REVOCATION,
        problems=[
            NO_SUCH_ENTRY,
            NotRevocable(sequence=2, kind="spend"),
            RevocationExceedsGrant(sequence=1, revocable=98, requested=100),
        ],
    )


class Voids(Write):
    """All unspent credits are taken back."""

    post = write(
        VoidRequest,
        "voidCredits",
        "Take back all unspent credits",
        "Takes back the unspent credits of every lot of the account, even of lots that are not yet effective, by an entry of "
        "kind `revoke` that refers to no grant. Credits of open holds remain held: release the holds first. A debt on an "
        "overdraft remains.",
        tag=CREDITS,
        scope=LEDGER_GRANT,
        examples={"the account ends": {"reason": "Account closed"}, "the least": {}},
        response=examples.entry(
            sequence=4,
            kind="revoke",
            amount=-98,
            balance=0,
            drawn=[{"grant": 1, "amount": 98}],
            reason="Account closed",
            idempotency_key="close-42",
        ),
        problems=[NothingToVoid(held=0)],
    )


class Reissues(Write):
    """A lot gets other terms."""

    post = write(
        ReissueRequest,
        "reissueLot",
        "Change the terms of a lot",
        "Gives what is left of a lot another expiry or priority. The lot closes, and its credits form a new lot, named by the "
        "sequence of this entry; source and effective time stay. Credits of the lot that are held, or that a refund returns, "
        "keep the terms that they had.",
        tag=CREDITS,
        scope=LEDGER_GRANT,
        examples={
            "another month": {"lot": 1, "expires_at": "2027-02-28T00:00:00Z", "reason": "Goodwill"},
            "never": {"lot": 1, "never_expires": True},
            "used first": {"lot": 1, "priority": 10},
        },
        response=examples.entry(
            sequence=4,
            kind="reissue",
            amount=0,
            balance=98,
            drawn=[{"grant": 1, "amount": 98}],
            refers_to=1,
            reason="Goodwill",
            idempotency_key="longer-1",
        ),
        problems=[NO_SUCH_ENTRY, LotClosed(sequence=1), LOT_LIMIT],
    )


class Freeze(Write):
    """A holder is frozen, or no longer."""

    reads_quickly = True

    put = write(
        FreezeRequest,
        "freezeHolder",
        "Freeze or unfreeze a holder",
        "Sets whether the holder is frozen, in all credit types. While it is, spends, holds, transfers from and to the holder, "
        "and captures beyond what is held are a 409 `holder-frozen`. Grants, refunds, revocations, expiries, releases and "
        "captures of what is held still work. The entry belongs to the account of the credit type.",
        tag=CREDITS,
        scope=LEDGER_ADMIN,
        examples={"freeze": {"frozen": True, "reason": "Stolen card"}, "unfreeze": {"frozen": False}},
        response=examples.entry(
            sequence=4, kind="adjust", amount=0, balance=98, reason="Stolen card", idempotency_key="freeze-1", frozen=True
        ),
    )

    @operation(
        "readFreeze",
        "Read whether a holder is frozen",
        "Whether the holder is frozen, and which entry set it; null if no entry ever did.",
        tag=CREDITS,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH],
        responses={
            200: ResponseBody(
                response_schemas.FreezeBodySerializer,
                {
                    "holder_id": "customer-42",
                    "frozen": True,
                    "credit_type": "credits",
                    "changed_by": 4,
                    "changed_at": "2026-01-31T09:30:45.000000Z",
                },
                "Whether the holder is frozen.",
            )
        },
    )
    def get(self, request: HttpRequest, holder: str) -> Response:
        return json_response(response_schemas.FreezeBodySerializer.body(reads.freeze(holder)))


class HolderClock(Write):
    """The test clock of a holder."""

    reads_quickly = True

    put = write(
        ClockRequest,
        "setTestClock",
        "Move a holder's test clock",
        "Sets the time of the holder, in all credit types. From then on time stands still for the holder: lots and holds expire, "
        "budgets start over and recurring grants come due by this clock, until another call moves it. It only goes forward. "
        "`recorded_at` of entries remains the server's time. In deployments with LEDGER_TEST_CLOCKS alone.",
        tag=CREDITS,
        scope=LEDGER_ADMIN,
        examples={"a month later": {"now": "2026-03-01T00:00:00Z"}},
        response=examples.entry(
            sequence=4,
            kind="adjust",
            amount=0,
            balance=98,
            idempotency_key="clock-1",
            test_clock="2026-03-01T00:00:00.000000Z",
        ),
        problems=[ClocksOff()],
    )

    @operation(
        "readTestClock",
        "Read a holder's test clock",
        "The time of the holder's test clock, and which entry moved it; null if the holder follows the server's time.",
        tag=CREDITS,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH],
        responses={
            200: ResponseBody(
                response_schemas.HolderClockBodySerializer,
                {
                    "holder_id": "customer-42",
                    "now": "2026-03-01T00:00:00.000000Z",
                    "credit_type": "credits",
                    "changed_by": 4,
                    "changed_at": "2026-01-31T09:30:45.000000Z",
                },
                "The test clock.",
            )
        },
    )
    def get(self, request: HttpRequest, holder: str) -> Response:
        return json_response(response_schemas.HolderClockBodySerializer.body(reads.clock(holder)))


class Transfers(Write):
    """Moves credits to another holder."""

    post = write(
        TransferRequest,
        "transferCredits",
        "Transfer credits",
        "Moves credits to another holder, lot by lot, with their expiry, priority and source. At the receiver, credits "
        "with equal terms share a lot. The ledger writes both sides, or neither. A transfer never uses an overdraft. "
        "A key confined to a holder may transfer credits from it to any other.",
        tag=CREDITS,
        scope=LEDGER_TRANSFER,
        examples={"to a team": examples.TRANSFER_BODY},
        response=examples.TRANSFER,
        problems=[
            NOT_ENOUGH,
            FROZEN,
            *BUDGET_PROBLEMS,
            TransfersRefused(to="team-7"),
            CLOCKS_DIFFER,
            LotLimit(open_lots=100, limit=100),
            BALANCE_LIMIT,
        ],
    )


class Reversals(Write):
    """Credits of a transfer come back."""

    post = write(
        ReversalRequest,
        "reverseTransfer",
        "Reverse a transfer",
        "Takes the credits of a transfer, or a part of them, back from the holder who received them, and returns them to the "
        "lots that they came from: at most what that holder still has in the lots in which they arrived. The response is the "
        "last of one or more `transfer_in` entries. A key that is confined to a holder cannot reverse a transfer.",
        tag=CREDITS,
        scope=LEDGER_ADMIN,
        examples={
            "all that is left": {"transfer": 4, "to": "team-7", "reason": "Sent to the wrong team"},
            "a part": {"transfer": 4, "to": "team-7", "amount": 5},
        },
        response=examples.entry(
            sequence=5,
            kind="transfer_in",
            amount=10,
            balance=98,
            drawn=[{"grant": 1, "amount": 10}],
            refers_to=4,
            reason="Sent to the wrong team",
            idempotency_key="undo-4",
            counterpart={"holder_id": "team-7", "sequence": 2, "grant": 1},
        ),
        problems=[
            NO_SUCH_ENTRY,
            NotReversible(sequence=1, kind="grant"),
            ReversalExceedsTransfer(sequence=4, reversible=3, requested=10),
            CLOCKS_DIFFER,
            LOT_LIMIT,
        ],
    )


class IncomingTransfers(Write):
    """Accepts or refuses transfers from others."""

    reads_quickly = True

    put = write(
        IncomingTransfersRequest,
        "setIncomingTransfers",
        "Accept or refuse incoming transfers",
        "Sets whether others may transfer credits into the account; by default they may. A transfer to an account that "
        "refuses them is a 409 `transfers-refused`. Grants and refunds still work, and credits that arrived before "
        "stay.",
        tag=CREDITS,
        scope=LEDGER_TRANSFER,
        examples={
            "refuse": {"accepts_transfers": False, "reason": "Gets credits from nobody else"},
            "accept again": {"accepts_transfers": True},
        },
        response=examples.INCOMING_TRANSFERS,
    )

    @operation(
        "readIncomingTransfers",
        "Read whether transfers are accepted",
        "Whether others may transfer credits into the account, and which entry set it; null if no entry ever did.",
        tag=CREDITS,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH],
        query=request_schemas.EntryQuery,
        responses={
            200: ResponseBody(
                response_schemas.IncomingTransfersBodySerializer,
                {
                    "holder_id": "customer-42",
                    "credit_type": "credits",
                    "accepts_transfers": False,
                    "changed_by": 4,
                    "changed_at": "2026-01-31T09:30:45.000000Z",
                },
                "Whether the account accepts transfers.",
            )
        },
    )
    def get(self, request: HttpRequest, holder: str) -> Response:
        query = read_query(request_schemas.EntryQuery, request)
        incoming_transfers = reads.incoming_transfers(holder, query["credit_type"])
        return json_response(response_schemas.IncomingTransfersBodySerializer.body(incoming_transfers))


class Budgets(Endpoint):
    """The budgets of an account."""

    reads_quickly = True

    @operation(
        "listBudgets",
        "List budgets",
        "The budgets of the account by name, each with what is used in its current window.",
        tag=BUDGETS,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH],
        query=request_schemas.BudgetsQuery,
        responses=page_response(
            response_schemas.BudgetBodySerializer,
            examples.BUDGET,
            path="/v1/holders/customer-42/budgets",
            text="A page of budgets.",
        ),
    )
    def get(self, request: HttpRequest, holder: str) -> Response:
        query = read_query(request_schemas.BudgetsQuery, request)
        page = cursors.requested_page(request, query)
        page_rows = reads.page_by_name(reads.budgets(holder, query["credit_type"]), **page.ascending(), limit=page.rows_wanted)
        return json_response(page.response_body(page_rows, keyset=_name_keyset, body=response_schemas.BudgetBodySerializer.body))


class BudgetUsage(Endpoint):
    """What the subjects of a budget have used."""

    reads_quickly = True

    @operation(
        "listBudgetUsage",
        "List the usage of a budget",
        "What each subject has used in the budget's current window, by subject. The call takes no lock. A key that is bound to "
        "labels sees what its own labels have used, in a budget by these labels; any other budget is a 404 for it.",
        tag=BUDGETS,
        scope=LEDGER_READ,
        with_labels=True,
        parameters=[HOLDER_PATH, BUDGET_PATH],
        query=request_schemas.BudgetUsageQuery,
        responses=page_response(
            response_schemas.BudgetUseSerializer,
            examples.BUDGET_USE,
            path="/v1/holders/customer-42/budgets/daily/usage",
            text="A page of subjects.",
        ),
        problems=[NotFound()],
    )
    def get(self, request: HttpRequest, holder: str, budget: str) -> Response:
        query = read_query(request_schemas.BudgetUsageQuery, request)
        page = cursors.requested_page(request, query)
        budget_usage = reads.budget_usage(
            holder,
            query["credit_type"],
            budget,
            subject=query.get("subject"),
            labels=self.key.labels,
            **page.ascending(),
            limit=page.rows_wanted,
        )
        if budget_usage is None:
            raise NotFound
        return json_response(page.response_body(budget_usage, keyset=_key_keyset, body=response_schemas.BudgetUseSerializer.body))


def _key_keyset(use: reads.BudgetUse) -> cursors.Keyset:
    return (use.key,)


def _name_keyset(named: reads.ShownBudget | reads.ShownRecurringGrant) -> cursors.Keyset:
    return (named.name,)


class OneBudget(Write):
    """A budget is set, read and ended."""

    reads_quickly = True

    put = write(
        BudgetRequest,
        "setBudget",
        "Set a budget",
        "Limits what may be spent in a window of time: by the whole account, or by each value of a label in the metadata (the "
        "members of a team that share a pool), by each API key, or by one of them. Spends, holds and transfers count when they "
        "are made; a release gives back what its hold counted, a refund gives nothing back. A `hard` budget refuses what "
        "exceeds it with 402 `budget-exceeded`; a `soft` budget only shows it. A budget for one `subject` counts it instead of "
        "those that count each one in the same window; with a `parent`, each subject counts once for each subject of the "
        "parent. The number of subjects is not limited. The budget counts from now on, or from `starts_at` on; if it is set "
        "again with the same window and scope, it continues counting. What is set for later is in force from its instant on, "
        "without another call: the budget shows it in `later`.",
        tag=BUDGETS,
        scope=LEDGER_ADMIN,
        examples={
            "each member of a team": examples.BUDGET_BODY,
            "the account": {"limit": 1000, "window": "month"},
            "an API key": {"limit": 50, "window": "rolling", "hours": 24, "by": "actor", "subject": "key:shop"},
            "one member": {"limit": 500, "window": "day", "by": "label", "label": "member", "subject": "ann"},
            "each agent of a member": {"limit": 20, "window": "day", "by": "label", "label": "agent", "parent": "daily"},
            "from March on": {"limit": 2000, "window": "month", "starts_at": "2026-03-01T00:00:00Z"},
        },
        response=examples.BUDGET_SET,
        problems=[BudgetLimit(what="budgets", limit=20), BudgetNotFound(budget="team")],
    )

    @operation(
        "readBudget",
        "Read a budget",
        "What the budget allows, and what is used in its current window. The call takes no lock.",
        tag=BUDGETS,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH, BUDGET_PATH],
        query=request_schemas.EntryQuery,
        responses={200: ResponseBody(response_schemas.BudgetBodySerializer, examples.BUDGET, "The budget.")},
        problems=[NotFound()],
    )
    def get(self, request: HttpRequest, holder: str, budget: str) -> Response:
        query = read_query(request_schemas.EntryQuery, request)
        for found in reads.budgets(holder, query["credit_type"]):
            if found.name == budget:
                return json_response(response_schemas.BudgetBodySerializer.body(found))
        raise NotFound

    @operation(
        "endBudget",
        "End a budget",
        "Removes the limit, now or at `ends_at`, and forgets what the budget has counted. Takes no body.",
        tag=BUDGETS,
        scope=LEDGER_ADMIN,
        parameters=[HOLDER_PATH, BUDGET_PATH],
        query=request_schemas.EndOneBudgetQuery,
        responses={200: ResponseBody(response_schemas.EntrySerializer, examples.BUDGET_ENDED, "The entry.")},
        problems=[BudgetNotFound(budget="daily")],
        idempotent=True,
        dry_run=True,
    )
    def delete(self, request: HttpRequest, holder: str, budget: str) -> Response:
        return self.end(request, services.end_budget, request_schemas.EndOneBudgetQuery, holder_id=holder, budget=budget)


class RecurringGrants(Endpoint):
    """The recurring grants of an account."""

    @operation(
        "listRecurringGrants",
        "List recurring grants",
        "The recurring grants of the account that have not ended, by name, each with its next grants.",
        tag=RECURRING,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH],
        query=request_schemas.RecurringGrantsQuery,
        responses=page_response(
            response_schemas.RecurringGrantBodySerializer,
            examples.RECURRING_GRANT,
            path="/v1/holders/customer-42/recurring-grants",
            text="A page of recurring grants.",
        ),
    )
    def get(self, request: HttpRequest, holder: str) -> Response:
        query = read_query(request_schemas.RecurringGrantsQuery, request)
        page = cursors.requested_page(request, query)
        known = reads.recurring_grants(holder, query["credit_type"])
        page_rows = reads.page_by_name(known, **page.ascending(), limit=page.rows_wanted)
        body = response_schemas.RecurringGrantBodySerializer.body
        return json_response(page.response_body(page_rows, keyset=_name_keyset, body=body))


class OneRecurringGrant(Write):
    """A recurring grant is set, read and ended."""

    queues = False

    put = write(
        RecurringGrantRequest,
        "setRecurringGrant",
        "Set a recurring grant",
        "Grants credits every day, week, month or year from a start on, in a time zone; month ends clamp to the day of the "
        "start. A worker makes each grant within a minute; however late it runs, it grants each period as of its start. The "
        "first period is the one of this instant, or the first one if the start is later. Set again, the new terms begin with "
        "the first period that was not granted; grants that are due are made before.",
        tag=RECURRING,
        scope=LEDGER_ADMIN,
        examples={
            "100 a month that expire with it": examples.RECURRING_BODY,
            "filled up to 50 each day": {"up_to": 50, "interval": "day", "expiry": "never"},
            "what is unspent rolls over": {"amount": 100, "interval": "month", "expiry": "rollover", "rollover_cap": 50},
        },
        response=examples.RECURRING_SET,
        problems=[
            RecurringGrantDue(recurring_grant="monthly", due_at="2026-02-01T00:00:00.000000Z"),
            RecurringGrantLimit(limit=MAX_RECURRING_GRANTS),
        ],
    )

    def execute_alone(self, request: RecurringGrantRequest) -> Entry:
        """Set the recurring grant, after the grants that are due by its present terms."""
        return services.set_recurring_grant.execute(request)

    @operation(
        "readRecurringGrant",
        "Read a recurring grant",
        "The terms, and the next grants. What it has granted is found by `GET /v1/entries?holder=…&reference=recurring grant "
        "monthly`. The call takes no lock.",
        tag=RECURRING,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH, RECURRING_PATH],
        query=request_schemas.RecurringGrantQuery,
        responses={
            200: ResponseBody(response_schemas.RecurringGrantBodySerializer, examples.RECURRING_GRANT, "The recurring grant.")
        },
        problems=[NotFound()],
    )
    def get(self, request: HttpRequest, holder: str, recurring_grant: str) -> Response:
        query = read_query(request_schemas.RecurringGrantQuery, request)
        found = reads.recurring_grant(holder, query["credit_type"], name=recurring_grant, upcoming=query["upcoming"])
        if found is None:
            raise NotFound
        return json_response(response_schemas.RecurringGrantBodySerializer.body(found))

    @operation(
        "endRecurringGrant",
        "End a recurring grant",
        "Nothing is granted any more; what was granted stays. Takes no body.",
        tag=RECURRING,
        scope=LEDGER_ADMIN,
        parameters=[HOLDER_PATH, RECURRING_PATH],
        query=request_schemas.EndRecurringGrantQuery,
        responses={200: ResponseBody(response_schemas.EntrySerializer, examples.RECURRING_ENDED, "The entry.")},
        problems=[
            RecurringGrantNotFound(recurring_grant="monthly"),
            RecurringGrantDue(recurring_grant="monthly", due_at="2026-02-01T00:00:00.000000Z"),
        ],
        idempotent=True,
        dry_run=True,
    )
    def delete(self, request: HttpRequest, holder: str, recurring_grant: str) -> Response:
        named = {"holder_id": holder, "recurring_grant": recurring_grant}
        return self.end(request, services.end_recurring_grant, request_schemas.EndRecurringGrantQuery, **named)


class OneOverage(Write):
    """An overage is set, read and ended."""

    reads_quickly = True

    put = write(
        OverageRequest,
        "setOverage",
        "Set an overage",
        "Sets how many credits may be used in each period beyond those that the account has. A spend or hold takes the lots "
        "first; the ledger grants what they lack at that moment, as credits of the source `postpaid`, and the entry's `postpaid` "
        "says how many. No later grant repays them: they are invoiced under the agreement about the overage. "
        "A refund or release gives them "
        "back while the period lasts. Beyond the limit, the answer is 402 with `overage`. A plan with `overage` sets the terms "
        "of its subscribers by itself. Transfers never use it.",
        tag=CREDITS,
        scope=LEDGER_ADMIN,
        examples={"500 a month": examples.OVERAGE_BODY, "no limit": {"reason": "Enterprise"}},
        response=examples.OVERAGE_SET,
        problems=[OVERAGE_TAKEN],
    )

    @operation(
        "readOverage",
        "Read an overage",
        "How many credits may be used beyond those that the account has, and how many are used in this period. The call takes no "
        "lock.",
        tag=CREDITS,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH],
        query=request_schemas.EntryQuery,
        responses={200: ResponseBody(response_schemas.OverageBodySerializer, examples.OVERAGE, "The overage.")},
        problems=[NO_OVERAGE],
    )
    def get(self, request: HttpRequest, holder: str) -> Response:
        query = read_query(request_schemas.EntryQuery, request)
        balance = reads.balance(holder, query["credit_type"])
        if balance.overage is None:
            raise OverageNotFound(credit_type=query["credit_type"])
        return json_response(response_schemas.OverageBodySerializer.body(balance))

    @operation(
        "endOverage",
        "End an overage",
        "From now on nothing more can be used beyond the credits of the account. What was used stays used. Takes no body.",
        tag=CREDITS,
        scope=LEDGER_ADMIN,
        parameters=[HOLDER_PATH],
        query=request_schemas.EndOverageQuery,
        responses={200: ResponseBody(response_schemas.EntrySerializer, examples.OVERAGE_ENDED, "The entry.")},
        problems=[NO_OVERAGE, OVERAGE_TAKEN],
        idempotent=True,
        dry_run=True,
    )
    def delete(self, request: HttpRequest, holder: str) -> Response:
        return self.end(request, services.end_overage, request_schemas.EndOverageQuery, holder_id=holder)


class Overdraft(Write):
    """Sets an overdraft."""

    put = write(
        OverdraftRequest,
        "setOverdraft",
        "Set an overdraft",
        "Sets how far below zero spends may take the balance from now on; 0 ends the overdraft. A debt stays, and later "
        "grants repay it first. Holds and transfers never use the overdraft.",
        tag=CREDITS,
        scope=LEDGER_ADMIN,
        examples={"trusted": examples.OVERDRAFT_BODY, "end of the overdraft": {"limit": 0}},
        response=examples.OVERDRAFT,
    )


urlpatterns: Final[list[URLPattern]] = [
    path("holders/<holder:holder>/grants", Grants.as_view()),
    path("holders/<holder:holder>/spends", Spends.as_view(), name="ledger-spends"),
    path("holders/<holder:holder>/refunds", Refunds.as_view()),
    path("holders/<holder:holder>/revocations", Revocations.as_view()),
    path("holders/<holder:holder>/voids", Voids.as_view()),
    path("holders/<holder:holder>/reissues", Reissues.as_view()),
    path("holders/<holder:holder>/freeze", Freeze.as_view()),
    path("holders/<holder:holder>/test-clock", HolderClock.as_view()),
    path("holders/<holder:holder>/transfers", Transfers.as_view()),
    path("holders/<holder:holder>/reversals", Reversals.as_view()),
    path("holders/<holder:holder>/incoming-transfers", IncomingTransfers.as_view()),
    path("holders/<holder:holder>/overage", OneOverage.as_view()),
    path("holders/<holder:holder>/overdraft", Overdraft.as_view()),
    path("holders/<holder:holder>/budgets", Budgets.as_view()),
    path("holders/<holder:holder>/budgets/<budget:budget>", OneBudget.as_view()),
    path("holders/<holder:holder>/budgets/<budget:budget>/usage", BudgetUsage.as_view()),
    path("holders/<holder:holder>/recurring-grants", RecurringGrants.as_view()),
    path("holders/<holder:holder>/recurring-grants/<budget:recurring_grant>", OneRecurringGrant.as_view()),
]

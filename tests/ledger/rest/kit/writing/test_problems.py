"""Whatever goes wrong is answered as a problem with the right status, and says whether anything took effect."""

import json
from string import Formatter
from typing import Any

import psycopg
import pytest
from django.core import exceptions as django_errors
from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, InternalError, OperationalError, ProgrammingError
from django.http import Http404
from django.http.request import UnreadablePostError
from django.test import RequestFactory
from django.urls import NoReverseMatch
from psycopg import errors as postgres

from billing import errors as billing_errors
from ledger import errors
from ledger.rest.kit import problems, server_errors
from ledger.values import annotations_of
from tests.asgi_client import AsgiClient
from tests.ledger.rest.conftest import ApiClient, nothing_written


def wrapped_error(wrapper: type[Exception], cause: Exception) -> Exception:
    """A driver's error as Django raises it."""
    error = wrapper(str(cause))
    error.__cause__ = cause
    return error


DATABASE: list[tuple[str, Exception, int, str, str | None]] = [
    ("lock timeout", wrapped_error(OperationalError, postgres.LockNotAvailable()), 503, "holder-busy", "1 2 3 4"),
    ("statement timeout", wrapped_error(OperationalError, postgres.QueryCanceled()), 503, "database-busy", "1"),
    ("deadlock", wrapped_error(OperationalError, postgres.DeadlockDetected()), 503, "database-busy", "1"),
    ("serialization failure", wrapped_error(OperationalError, postgres.SerializationFailure()), 503, "database-busy", "1"),
    ("too many connections", wrapped_error(OperationalError, postgres.TooManyConnections()), 503, "database-unavailable", "2"),
    (
        "no connection",
        wrapped_error(OperationalError, psycopg.OperationalError("connection refused")),
        503,
        "database-unavailable",
        "2",
    ),
    (
        "connection closed",
        wrapped_error(InterfaceError, psycopg.InterfaceError("the connection is closed")),
        503,
        "database-unavailable",
        "2",
    ),
    (
        "bytes that are no message",
        wrapped_error(DatabaseError, psycopg.DatabaseError("lost synchronization with server")),
        503,
        "database-unavailable",
        "2",
    ),
    (
        "more responses than statements",
        wrapped_error(InternalError, psycopg.InternalError("received 2 results from command 'BEGIN'")),
        503,
        "database-unavailable",
        "2",
    ),
    ("administrator's shutdown", wrapped_error(OperationalError, postgres.AdminShutdown()), 503, "database-unavailable", "2"),
    ("crash of another backend", wrapped_error(OperationalError, postgres.CrashShutdown()), 503, "database-unavailable", "2"),
    ("starting up", wrapped_error(OperationalError, postgres.CannotConnectNow()), 503, "database-unavailable", "2"),
    ("connection failure", wrapped_error(OperationalError, postgres.ConnectionFailure()), 503, "database-unavailable", "2"),
    (
        "read-only after a failover",
        wrapped_error(InternalError, postgres.ReadOnlySqlTransaction()),
        503,
        "database-unavailable",
        "2",
    ),
    ("input/output error", wrapped_error(OperationalError, postgres.IoError()), 503, "database-unavailable", "2"),
    (
        "stood still in a transaction",
        wrapped_error(InternalError, postgres.IdleInTransactionSessionTimeout()),
        503,
        "database-busy",
        "1",
    ),
    ("disk full", wrapped_error(OperationalError, postgres.DiskFull()), 503, "disk-full", "60"),
    ("the ledger's own: sequence", errors.SequenceTaken(holder_id="x"), 503, "sequence-taken", "1"),
    ("look-alike of a database", errors.UnsafeDatabase(what="x", why="y"), 503, "unsafe-database", "60"),
]


@pytest.mark.parametrize(
    ("error", "status", "slug", "retry_after"), [case[1:] for case in DATABASE], ids=[case[0] for case in DATABASE]
)
def test_trouble_with_the_database_is_a_503_to_be_retried(
    api: ApiClient, holder: str, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, slug: str, retry_after: str
) -> None:
    def fail(*arguments: Any, **about: Any) -> None:
        raise error

    monkeypatch.setattr("ledger.services.execute.in_transaction", fail)
    with nothing_written(holder):
        response = api.post(f"/v1/holders/{holder}/spends", {"amount": 1})
    problem = json.loads(response.content)
    assert (response.status_code, problem["type"]) == (status, problems.TYPE_BASE + slug)
    assert response["Retry-After"] in retry_after.split()
    assert (problem["outcome"], response["Content-Type"]) == ("not_executed", "application/problem+json")


def test_those_who_waited_for_a_busy_holder_are_told_to_come_back_at_different_times(
    api: ApiClient, holder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **about: Any) -> None:
        raise errors.HolderBusy(key=f"ledger/{holder}")

    monkeypatch.setattr("ledger.services.execute.in_transaction", fail)
    with nothing_written(holder):
        responses = [api.post(f"/v1/holders/{holder}/spends", {"amount": 1}) for _ in range(60)]
    assert {response.status_code for response in responses} == {503}
    # That 60 choices leave one of four out: one time in eight million.
    assert {response["Retry-After"] for response in responses} == {"1", "2", "3", "4"}
    problem = json.loads(responses[0].content)
    assert (problem["type"], problem["outcome"]) == (problems.TYPE_BASE + "holder-busy", "not_executed")


def test_those_who_waited_for_a_holder_that_stays_busy_are_told_when_to_come_back(
    api: ApiClient, holder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **about: Any) -> None:
        raise errors.HolderBusy(key=f"ledger/{holder}", retry_after_seconds=17)

    monkeypatch.setattr("ledger.services.execute.in_transaction", fail)
    with nothing_written(holder):
        response = api.post(f"/v1/holders/{holder}/spends", {"amount": 1})
    problem = json.loads(response.content)
    assert (response.status_code, response["Retry-After"]) == (503, "17")
    assert (problem["key"], problem["retry_after_seconds"]) == (f"ledger/{holder}", 17)


def test_a_connection_that_breaks_during_commit_leaves_the_outcome_unknown(
    api: ApiClient, holder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **about: Any) -> None:
        raise errors.OutcomeUnknown(holder_id=holder)

    monkeypatch.setattr("ledger.services.execute.in_transaction", fail)
    response = api.post(f"/v1/holders/{holder}/spends", {"amount": 1}, X_Request_Id="r-1")
    assert (response.status_code, response["Retry-After"]) == (503, "1")
    assert json.loads(response.content) == {
        "type": "https://credit-ledger.example/problems/outcome-unknown",
        "title": "The outcome is unknown",
        "status": 503,
        "detail": "The connection broke during COMMIT. Send the same request with the same key to learn the outcome.",
        "request_id": "r-1",
        "outcome": "unknown",
        "holder_id": holder,
    }


UNFORESEEN = [
    ValueError("secret detail"),
    wrapped_error(ProgrammingError, postgres.UndefinedTable("secret detail")),
    wrapped_error(IntegrityError, postgres.CheckViolation("secret detail")),
    errors.LockNotHeld(key="secret detail"),
    NoReverseMatch("secret detail"),
    RecursionError("secret detail"),
]


@pytest.mark.parametrize("error", UNFORESEEN, ids=[type(error).__name__ for error in UNFORESEEN])
def test_an_unforeseen_error_is_logged_and_not_shown_to_the_caller(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fail(*arguments: Any, **named: Any) -> None:
        raise error

    monkeypatch.setattr("ledger.reads.account_state.balance_of", fail)
    response = api.get("/v1/holders/x/balance", X_Request_Id="r-1")
    assert response.status_code == 500
    assert json.loads(response.content) == {
        "type": "https://credit-ledger.example/problems/internal-error",
        "title": "The server failed",
        "status": 500,
        "detail": "The log has the details under this request_id.",
        "request_id": "r-1",
        "outcome": "unknown",
    }
    logged = [record for record in caplog.records if record.name == "ledger.problems"]
    assert [(record.levelname, record.facts == {"request_id": "r-1"}, record.exc_info is not None) for record in logged] == [
        ("ERROR", True, True)
    ]


FOREIGN: list[tuple[Exception, int, str]] = [
    (Http404("secret"), 404, "not-found"),
    (django_errors.PermissionDenied(), 403, "forbidden"),
    (django_errors.RequestDataTooBig(), 413, "body-too-large"),
    (django_errors.TooManyFieldsSent(), 400, "malformed-request"),
    (django_errors.DisallowedHost("secret"), 400, "malformed-request"),
    (django_errors.BadRequest("secret"), 400, "malformed-request"),
    (UnreadablePostError("secret"), 400, "malformed-request"),
    (wrapped_error(DataError, postgres.NumericValueOutOfRange()), 400, "invalid-request"),
    (billing_errors.NotFound(resource="plan", ref="x"), 404, "not-found"),
    (billing_errors.InvoiceGenerationBusy(key="x", subscription="SUB-1"), 409, "invoice-generation-busy"),
    (billing_errors.InvalidTransition(invoice=1, state="paid", wanted="void"), 409, "invalid-transition"),
    (errors.LockBusy(key="x"), 409, "lock-busy"),
    (errors.Invalid(pointer="/x", rule="order", detail="why"), 400, "invalid-request"),
]


@pytest.mark.parametrize(
    ("error", "status", "slug"), FOREIGN, ids=[f"{type(error).__module__}.{type(error).__name__}" for error, _, _ in FOREIGN]
)
def test_every_error_has_its_status(error: Exception, status: int, slug: str) -> None:
    response = problems.problem_response(error, RequestFactory().get("/v1/x"))
    assert (response.status_code, response.problem["type"]) == (status, problems.TYPE_BASE + slug)
    assert response.problem["outcome"] == "not_executed"
    assert b"secret" not in response.content


def test_what_the_ledger_finds_invalid_is_named_by_field_and_rule() -> None:
    response = problems.problem_response(
        errors.Invalid(pointer="/expires_at", rule="order", detail="must be later"), RequestFactory().post("/v1/x")
    )
    assert response.problem["errors"] == [{"pointer": "/expires_at", "code": "order", "detail": "must be later"}]
    assert "rule" not in response.problem


def test_a_body_lists_its_facts_by_name_so_that_it_is_always_the_same() -> None:
    one = problems.body(errors.InsufficientCredits(available=3, balance=4, requested=5, shortfall=2), "r")
    two = problems.body(errors.InsufficientCredits(shortfall=2, requested=5, balance=4, available=3), "r")
    golden = (
        '{"type": "https://credit-ledger.example/problems/insufficient-credits", '
        '"title": "The account has too few credits", "status": 402, '
        '"detail": "The request needs 5 credits; 3 are available.", "request_id": "r", "outcome": "not_executed", '
        '"available": 3, "balance": 4, "requested": 5, "shortfall": 2}'
    )
    assert [json.dumps(one), json.dumps(two)] == [golden, golden]


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (errors.InsufficientCredits(available=0, requested=1), "The request needs 1 credit; 0 are available."),
        (errors.InsufficientCredits(available=1, requested=1_200), "The request needs 1200 credits; 1 is available."),
        (
            errors.RefundExceedsSpend(sequence=1, refundable=1, requested=2),
            "Spend 1 has 1 credit left to refund; the request asks for 2.",
        ),
        (
            errors.RevocationExceedsGrant(sequence=1, revocable=0, requested=1),
            "Grant 1 has 0 credits left to revoke; the request asks for 1.",
        ),
        (errors.CaptureExceedsHold(sequence=1, held=1, requested=2), "Hold 1 holds 1 credit; the request asks for 2."),
        (errors.LotLimit(open_lots=1, limit=1), "The account has 1 open lot; the limit is 1."),
        (errors.LotLimit(limit=1), "The account has ? open lots; the limit is 1."),
    ],
)
def test_a_detail_has_the_noun_of_its_number(error: errors.LedgerError, detail: str) -> None:
    assert problems.body(error, "r")["detail"] == detail


def test_a_fact_cannot_take_the_place_of_a_member() -> None:
    body = problems.body(errors.NotRefundable(sequence=1, kind="grant", status="x", type="y", outcome="z"), "r")
    assert (body["status"], body["type"][-14:], body["outcome"]) == (409, "not-refundable", "not_executed")


PRODUCT = ("ledger", "billing", "ledger_project")


def every_error_class(base: type[errors.LedgerError] = errors.LedgerError) -> list[type[errors.LedgerError]]:
    """The error class and all its subclasses in the product."""
    found = [base]
    for subclass in base.__subclasses__():
        found += every_error_class(subclass)
    return [error_class for error_class in found if error_class.__module__.partition(".")[0] in PRODUCT]


def test_only_bugs_are_a_500() -> None:
    bugs = {errors.LedgerError, errors.Misuse, errors.LockNotHeld, errors.NotInTransaction, server_errors.InternalError}
    for error_class in every_error_class():
        is_bug = error_class in bugs or (issubclass(error_class, errors.Misuse) and "answer" not in vars(error_class))
        assert (error_class.answer.status == 500) == is_bug, error_class


@pytest.mark.parametrize("slug", ["insufficient-credits", "database-busy", "too-many-requests", "internal-error"])
def test_a_problem_can_be_looked_up(slug: str) -> None:
    response = AsgiClient().get(f"/problems/{slug}")
    page = json.loads(response.content)
    assert (response.status_code, page["type"]) == (200, problems.TYPE_BASE + slug)
    assert page["description"]
    assert set(page) == {"type", "title", "status", "outcome", "description"}


def test_texts_name_only_facts_that_the_class_says_it_has() -> None:
    for error_class in every_error_class():
        texts = [error_class.answer.detail]
        if issubclass(error_class, errors.Refused) and error_class in errors.REFUSALS.values():
            texts += [error_class.text, *(text for _, _, text in error_class.text_if), *(error_class.remedy or ())[1:2]]
            assert error_class.text or error_class is errors.InsufficientCredits
        named = {name for text in texts for _, name, _, _ in Formatter().parse(text) if name} - {"over"}
        assert named <= annotations_of(error_class).keys(), error_class


# Errors of other apps --------------------------------------------------------------------------------


class TeapotOnly(errors.LedgerError):
    """An error of some other app."""

    code = "teapot-only"
    title = "This is a teapot"


class NoCoffee(TeapotOnly):
    """Another one, which says how it is answered."""

    answer = errors.Answer(418, "Coffee is made elsewhere.")


def test_an_app_says_the_status_of_its_error_on_its_class() -> None:
    request = RequestFactory().get("/v1/x")
    assert problems.problem_response(TeapotOnly(), request).status_code == 500
    response = problems.problem_response(NoCoffee(), request)
    assert (response.status_code, response.problem["detail"]) == (418, "Coffee is made elsewhere.")


def test_another_process_with_the_lock_says_when_to_come_back() -> None:
    response = problems.problem_response(
        billing_errors.InvoiceGenerationBusy(key="invoice_gen/SUB-1", subscription="SUB-1"), RequestFactory().get("/")
    )
    assert response.status_code == 409
    assert 1 <= int(response["Retry-After"]) <= 4


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (errors.Invalid(pointer="/prices/0/tiers", rule="too-many", detail="This must have at most 100 items."),
         "prices.0.tiers: This must have at most 100 items (too-many)."),
        (errors.Invalid(pointer="", rule="order", detail="must be in order"), "the request: must be in order (order)."),
        (errors.InsufficientCredits(available=3, balance=3, requested=5, shortfall=2, lots=[]),
         "The account has too few credits: available 3, balance 3, requested 5, shortfall 2."),
        (errors.NothingToVoid(held=0), "The account has no unspent credits: held 0."),
    ],
)  # fmt: skip
def test_an_error_as_text_is_one_sentence_with_its_facts(error: errors.LedgerError, sentence: str) -> None:
    assert str(error) == sentence


def test_a_problem_is_what_a_response_can_have_no_base_and_no_bug() -> None:
    classes = {error_class for found in problems.problems_by_slug().values() for error_class in found}
    assert classes & set(problems.BASES) == set()
    assert {error_class.__module__.partition(".")[0] for error_class in classes} == {"ledger", "billing"}
    assert [error_class.code for error_class in classes if error_class.answer.status == 500] == ["internal-error"]

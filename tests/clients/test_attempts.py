"""What a client does after each attempt of a call, and when it stops."""

import json
from typing import Any

import pytest

from credit_ledger.attempts import Again, Attempts, Done, Lost, Retries
from credit_ledger.call import Answer, Call
from credit_ledger.generated import calls
from credit_ledger.problem import OutcomeUnknown, Problem, Unreachable
from credit_ledger.problems import (
    HolderBusy,
    IdempotencyKeyReused,
    InsufficientCredits,
    InternalError,
    InvoiceGenerationBusy,
    ServerBusy,
    Unauthenticated,
)

LOST = Lost("cut", may_be_stored=True)
NOT_SENT = Lost("refused", may_be_stored=False)
SPEND = calls.spend("jane", amount=3, idempotency_key="job-1")
READ = calls.balance("jane")
DRY_RUN = calls.spend("jane", amount=3, dry_run=True)
STORED = Answer(201, {}, b'{"sequence":1}')


def problem(status: int, slug: str, outcome: str = "not_executed", headers: dict[str, str] | None = None, **facts: Any) -> Answer:
    body = {
        "type": f"https://credit-ledger.example/problems/{slug}",
        "title": "No",
        "status": status,
        "outcome": outcome,
        **facts,
    }
    return Answer(status, headers or {}, json.dumps(body).encode())


UNKNOWN = problem(503, "outcome-unknown", "unknown", {"Retry-After": "1"})
BUSY = problem(503, "holder-busy", headers={"Retry-After": "2"})
REFUSED = problem(402, "insufficient-credits", available=1, shortfall=2)
NO_KEY = problem(401, "unauthenticated")
BAD_GATEWAY = Answer(502, {}, b"<html>")
BUG = problem(500, "internal-error", "unknown")
TRUNCATED = Answer(201, {}, b'{"seq')


def play(call: Call[Any], *outcomes: Answer | Lost, at_s: float = 0.0) -> Done[Any] | Again:
    """What comes after the last of these; all others must ask for another attempt."""
    attempts = Attempts(call, Retries())
    for outcome in outcomes[:-1]:
        assert isinstance(attempts.judge(outcome, 0.0, 0.5), Again)
    return attempts.judge(outcomes[-1], at_s, 0.5)


@pytest.mark.parametrize("before", [LOST, NOT_SENT, UNKNOWN, BUSY, BAD_GATEWAY])
def test_a_success_settles_whatever_was_before(before: Answer | Lost) -> None:
    assert play(SPEND, before, STORED) == Done({"sequence": 1})


@pytest.mark.parametrize("before", [LOST, UNKNOWN, BAD_GATEWAY])
def test_a_refusal_by_the_rules_settles_an_unknown_write(before: Answer | Lost) -> None:
    with pytest.raises(InsufficientCredits) as caught:
        play(SPEND, before, REFUSED)
    assert (caught.value.available, caught.value.shortfall, caught.value.balance) == (1, 2, None)


@pytest.mark.parametrize(
    "before", [LOST, UNKNOWN, BAD_GATEWAY, problem(500, "internal-error", "unknown"), Answer(201, {}, b'{"seq')]
)
@pytest.mark.parametrize(
    ("after", "last"),
    [
        (NO_KEY, Unauthenticated),
        (problem(422, "idempotency-key-reused"), IdempotencyKeyReused),
        (Answer(404, {}, b"<html>no such site</html>"), Problem),
    ],
)
def test_any_other_refusal_leaves_it_unknown(before: Answer | Lost, after: Answer, last: type[Problem]) -> None:
    with pytest.raises(OutcomeUnknown) as caught:
        play(SPEND, before, after)
    assert caught.value.idempotency_key == "job-1"
    assert type(caught.value.last) is last
    assert caught.value.attempts == 2


@pytest.mark.parametrize("after", [BUSY, problem(429, "too-many-requests"), NOT_SENT, problem(409, "invoice-generation-busy")])
def test_an_unknown_write_is_sent_again_and_stays_unknown_at_the_end_of_the_time(after: Answer | Lost) -> None:
    assert isinstance(play(SPEND, LOST, after), Again)
    with pytest.raises(OutcomeUnknown):
        play(SPEND, LOST, after, at_s=29.99)


@pytest.mark.parametrize(
    ("outcome", "error"),
    [(BUSY, HolderBusy), (NOT_SENT, Unreachable), (problem(503, "server-busy"), ServerBusy)],
)
def test_what_was_not_executed_is_no_unknown_outcome(outcome: Answer | Lost, error: type[Exception]) -> None:
    with pytest.raises(error):
        play(SPEND, outcome, at_s=29.99)


@pytest.mark.parametrize("call", [READ, DRY_RUN])
@pytest.mark.parametrize("outcome", [LOST, BAD_GATEWAY, Answer(200, {}, b"{")])
def test_what_writes_nothing_is_repeated_and_never_unknown(call: Call[Any], outcome: Answer | Lost) -> None:
    assert isinstance(play(call, outcome), Again)
    with pytest.raises((Unreachable, Problem)):
        play(call, outcome, at_s=29.99)


def test_a_refusal_is_raised_at_once() -> None:
    for answer, error in (
        (REFUSED, InsufficientCredits),
        (NO_KEY, Unauthenticated),
        (problem(409, "invoice-generation-busy"), InvoiceGenerationBusy),
    ):
        with pytest.raises(error):
            play(SPEND, answer)
    with pytest.raises(InternalError):
        play(READ, BUG)


def test_retry_after_is_obeyed() -> None:
    assert play(SPEND, BUSY) == Again(2.0)
    date = {"Date": "Mon, 23 Nov 2026 09:00:00 GMT", "retry-after": "Mon, 23 Nov 2026 09:00:07 GMT"}
    assert play(SPEND, problem(503, "server-busy", headers=date)) == Again(7.0)
    # Beyond the time there is no use in waiting.
    with pytest.raises(ServerBusy):
        play(SPEND, problem(503, "server-busy", headers={"Retry-After": "30"}))


def test_a_server_that_names_no_time_to_wait_is_not_asked_without_a_pause() -> None:
    once = Attempts(SPEND, Retries(first_wait_s=0.1))
    assert once.judge(problem(503, "server-busy", headers={"Retry-After": "0"}), 0.0, 1.0) == Again(0.1)


def test_waits_are_doubled_up_to_a_limit_and_half_of_each_is_random() -> None:
    attempts = Attempts(SPEND, Retries(first_wait_s=0.1, longest_wait_s=1.0))
    waits = [attempts.judge(LOST, 0.0, chance) for chance in (0.0, 1.0, 1.0, 1.0, 1.0, 0.0)]
    assert waits == [Again(0.05), Again(0.2), Again(0.4), Again(0.8), Again(1.0), Again(0.5)]


def test_an_attempt_takes_no_longer_than_the_time_that_is_left() -> None:
    attempts = Attempts(SPEND, Retries(total_s=30, attempt_s=10))
    assert [attempts.time_of_attempt_s(elapsed) for elapsed in (0, 25, 31)] == [10, 5, 0]


def test_an_unknown_problem_is_a_general_one_with_its_facts() -> None:
    with pytest.raises(Problem) as caught:
        play(SPEND, problem(409, "brand-new", colour="red"))
    assert type(caught.value) is Problem
    assert (caught.value.slug, caught.value.facts, caught.value.status) == ("brand-new", {"colour": "red"}, 409)


def test_a_redirect_is_no_answer() -> None:
    with pytest.raises(Problem):
        play(READ, Answer(302, {"Location": "http://elsewhere"}, b""))


def test_a_problem_as_text_is_one_sentence_with_each_field_and_rule() -> None:
    fault = {"pointer": "/price/tiers", "code": "too-many", "detail": "This must have at most 100 items."}
    body = {
        "title": "The request is not valid",
        "detail": "`errors` lists every fault.",
        "errors": [fault, fault | {"pointer": ""}],
    }
    items = "This must have at most 100 items (too-many)"
    assert str(Problem(400, body)) == f"The request is not valid: price.tiers: {items}; the request: {items}."
    assert str(Problem(409, {"title": "The rate does not exist", "detail": "Rate r does not exist."})) == (
        "The rate does not exist: Rate r does not exist."
    )
    assert str(Problem(502, "bad gateway")) == "HTTP 502."

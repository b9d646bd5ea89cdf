"""Records observations: each once for its key, in their order, under the locks of their holders; enforces nothing."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from django.db import transaction

from ledger import journal
from ledger.database.batch_slots import take_slots
from ledger.database.locks import holder_key, wait_seconds, waits_bounded
from ledger.database.statements import fetch_rows
from ledger.database.transactions import in_transaction
from ledger.errors import Invalid
from ledger.rules.accounts import AccountState
from ledger.rules.instants import SECOND_US, to_text, to_us
from ledger.rules.lots import Lots, decode, encode
from ledger.shadow import deciding
from ledger.shadow.deciding import Decision, Subject
from ledger.shadow.requests import MAX_OBSERVATIONS, ObservationRequest
from ledger.values import encode_json

AccountRef = tuple[str, str]

RECORDED, DUPLICATE, CONFLICT, INVALID, PROMOTED = "recorded", "duplicate", "conflict", "invalid", "promoted"
RESULTS: Final = {
    RECORDED: "It is on record.",
    DUPLICATE: "It was on record before.",
    CONFLICT: "The key was used for another observation of the holder. Nothing was recorded.",
    INVALID: "A field is wrong. Nothing was recorded.",
    PROMOTED: "The holder's credits are in the ledger. Nothing was recorded.",
}
"""What became of an observation that was sent."""
AHEAD_US: Final = 300 * SECOND_US
"""How far the other system's clock may be ahead."""

# The last row of each account, by its numbers.
LAST: Final = """
    SELECT wanted.holder_id, wanted.credit_type, last.number, last.differences, last.first_difference, last.state::text
    FROM unnest(%s::text[], %s::text[]) AS wanted (holder_id, credit_type)
    CROSS JOIN LATERAL (
        SELECT number, differences, first_difference, state
        FROM ledger_observation AS o
        WHERE o.holder_id = wanted.holder_id AND o.credit_type = wanted.credit_type
        ORDER BY o.number DESC
        LIMIT 1
    ) AS last
"""
ARE_PROMOTED: Final = """
    SELECT wanted.holder_id
    FROM unnest(%s::text[]) AS wanted (holder_id)
    CROSS JOIN LATERAL (
        SELECT is_return FROM ledger_promotion AS p WHERE p.holder_id = wanted.holder_id ORDER BY p.number DESC LIMIT 1
    ) AS last
    WHERE NOT last.is_return
"""
# What has these keys already, and what is about it.
BY_KEYS: Final = """
    SELECT o.holder_id, o.idempotency_key, o.id, o.credit_type, o.request_digest, o.operation, o.sequence, o.parts::text,
        o.amount, o.is_allowed, o.balance, o.difference, o.ledger_allows, o.ledger_balance, o.refusal::text, (
        SELECT sum(r.amount)::bigint
        FROM ledger_observation AS r
        WHERE r.holder_id = o.holder_id AND r.of_key = o.idempotency_key AND r.operation = 'refund' AND r.sequence IS NOT NULL
    )
    FROM unnest(%s::text[], %s::text[]) AS wanted (holder_id, key)
    JOIN ledger_observation AS o ON o.holder_id = wanted.holder_id AND o.idempotency_key = wanted.key
"""
COLUMNS: Final = {
    "holder_id": "text", "credit_type": "text", "number": "bigint", "idempotency_key": "text", "request_digest": "text",
    "operation": "text", "amount": "bigint", "is_allowed": "boolean", "balance": "bigint", "of_key": "text", "reference": "text",
    "occurred_at": "timestamptz", "ledger_allows": "boolean", "ledger_balance": "bigint", "refusal": "text", "difference": "text",
    "differences": "bigint", "first_difference": "bigint", "sequence": "bigint", "parts": "text", "state": "text",
    "actor": "text", "request_id": "text",
}  # fmt: skip
STORED_AS: Final = {
    "request_digest": "decode(r.request_digest, 'hex')",
    **{name: f"r.{name}::json" for name in ("refusal", "parts", "state")},
}
RECORD: Final = f"""
    INSERT INTO ledger_observation ({", ".join(COLUMNS)})
    SELECT {", ".join(STORED_AS.get(name, f"r.{name}") for name in COLUMNS)}
    FROM jsonb_to_recordset(%s::jsonb) AS r ({", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())})
    RETURNING id
"""


@dataclass(frozen=True, slots=True)
class ObservationResult:
    """What became of an observation that was sent.

    Args:
        result: one of RESULTS.
        id: of the observation that has the key; None if nothing was recorded, and in a dry run.
        difference: as of `deciding.DIFFERENCES`; None if both agree, or nothing was compared.
        ledger_allows, ledger_balance: what the ledger would have done, and had.
        detail: why nothing was recorded, or how both differ.
    """

    idempotency_key: str | None
    result: str
    id: int | None = None
    difference: str | None = None
    ledger_allows: bool | None = None
    ledger_balance: int | None = None
    detail: str = ""


class _Known(NamedTuple):
    """An observation that is on record, or was decided before in this transaction."""

    credit_type: str
    digest: bytes
    subject: Subject
    answer: ObservationResult


@dataclass(slots=True)
class Shadow:
    """An account as its last observation left it."""

    number: int
    differences: int
    first_difference: int | None
    state: AccountState | None


def observe(**fields: Any) -> ObservationResult:
    """Record what another system of balances decided, and what the ledger would have decided; change no credits.

    Inside a transaction of the caller it joins that: so the decision and its observation are both there, or neither.

    Args:
        fields: of `ObservationRequest`.

    Raises:
        Invalid: a field is wrong; nothing was recorded.
        HolderBusy, OutcomeUnknown: send it again with the same key.
    """
    (result,) = observe_all([ObservationRequest(**fields)])
    return result


def observe_all(requests: Sequence[ObservationRequest], *, dry_run: bool = False) -> list[ObservationResult]:
    """As `observe`, for up to 1,000 observations of any holders in one transaction, each after the effects of those before it.

    Returns:
        A result for each, in their order.

    Raises:
        Invalid: there are too many.
        HolderBusy, OutcomeUnknown: send all of them again with the same keys.
    """
    if len(requests) > MAX_OBSERVATIONS:
        raise Invalid(pointer="/observations", rule="length", detail=f"must be at most {MAX_OBSERVATIONS} observations")
    if not requests:
        return []
    refs = list(dict.fromkeys((request.holder_id, request.credit_type) for request in requests))
    holders = list(dict.fromkeys(holder_id for holder_id, _ in refs))

    def once() -> list[ObservationResult]:
        take_slots(len(holders) + 1)
        with journal.open(accounts=refs) as accounts:
            times = {ref: accounts.account(*ref).state.now_us for ref in refs}
            recording = _Recording(requests, times, load(refs), promoted_among(holders))
            results = recording.record(dry_run=dry_run)
        if dry_run:
            transaction.set_rollback(True)
        return results

    with waits_bounded(wait_seconds(len(refs))):
        return in_transaction(once, locks=[holder_key(holder_id) for holder_id in holders])


def load(refs: Collection[AccountRef]) -> dict[AccountRef, tuple[int, int, int | None, str]]:
    """Return the number, the differences, the first difference and the state of the last observation of each account."""
    holders, types = zip(*refs, strict=True)
    rows = fetch_rows(lambda *row: row, LAST, [list(holders), list(types)])
    return {(holder, kind): (number, count, first, state) for holder, kind, number, count, first, state in rows}


def promoted_among(holders: Sequence[str]) -> set[str]:
    """Return the holders whose credits are in the ledger."""
    return set(fetch_rows(str, ARE_PROMOTED, [list(holders)]))


class _Recording:
    """One transaction of observations, under the locks of all its holders."""

    def __init__(
        self,
        requests: Sequence[ObservationRequest],
        times: dict[AccountRef, int],
        last: dict[AccountRef, tuple[int, int, int | None, str]],
        promoted: set[str],
    ) -> None:
        self._requests = requests
        self._times = times
        self._promoted = promoted
        self._shadows = {ref: Shadow(0, 0, None, None) for ref in times}
        for ref, (number, count, first, text) in last.items():
            self._shadows[ref] = Shadow(number, count, first, deciding.decode_state(*ref, text, 0))
        self._read_known = _read_known(requests)
        self._rows: list[dict[str, Any]] = []

    def record(self, *, dry_run: bool) -> list[ObservationResult]:
        """Decide all of them, store those that are new, and return what became of each."""
        results = [self._result_of(request) for request in self._requests]
        if not self._rows or dry_run:
            return results
        ids = iter(fetch_rows(int, RECORD, [json.dumps(self._rows)]))
        stored = {(row["holder_id"], row["idempotency_key"]): next(ids) for row in self._rows}
        return [
            _with_id(result, stored.get((request.holder_id, request.idempotency_key)))
            for request, result in zip(self._requests, results, strict=True)
        ]

    def _result_of(self, request: ObservationRequest) -> ObservationResult:
        key = request.idempotency_key
        known = self._read_known.get((request.holder_id, key))
        if known is not None:
            if known.digest != request.digest():
                return ObservationResult(key, CONFLICT, detail=RESULTS[CONFLICT])
            return replace(known.answer, result=DUPLICATE)
        if request.holder_id in self._promoted:
            return ObservationResult(key, PROMOTED, detail=RESULTS[PROMOTED])
        ref = (request.holder_id, request.credit_type)
        now_us = self._times[ref]
        at_us = now_us if request.occurred_at is None else to_us(request.occurred_at)
        if at_us > now_us + AHEAD_US:
            return ObservationResult(key, INVALID, detail="/occurred_at: lies in the future")
        return self._decide_observation(request, self._shadows[ref], at_us)

    def _decide_observation(self, request: ObservationRequest, shadow: Shadow, at_us: int) -> ObservationResult:
        if shadow.state is None:
            state = deciding.opened(request, at_us)
        else:
            state = shadow.state._replace(now_us=max(at_us, shadow.state.now_us))
        about = None if request.of is None else self._read_known.get((request.holder_id, request.of))
        subject = None if about is None or about.credit_type != request.credit_type else about.subject
        decision = deciding.decide(state, request, subject)
        answer = self._keep(request, shadow, decision, at_us)
        if about is not None and request.operation == "refund" and decision.sequence is not None:
            refunded = about.subject._replace(refunded=about.subject.refunded + (request.amount or 0))
            self._read_known[request.holder_id, request.of or ""] = about._replace(subject=refunded)
        return answer

    def _keep(self, request: ObservationRequest, shadow: Shadow, decision: Decision, at_us: int) -> ObservationResult:
        differs = decision.difference is not None
        shadow.number += 1
        shadow.differences += differs
        if differs and shadow.first_difference is None:
            shadow.first_difference = shadow.number
        shadow.state = decision.state
        subject = Subject(request.operation, decision.sequence, decision.parts)
        answer = ObservationResult(
            request.idempotency_key, RECORDED, None, decision.difference, decision.is_allowed, decision.balance,
            difference_text(request, decision),
        )  # fmt: skip
        known = _Known(request.credit_type, request.digest(), subject, answer)
        self._read_known[request.holder_id, request.idempotency_key] = known
        self._rows.append({
            **row_of(request.holder_id, request.credit_type, shadow),
            "idempotency_key": request.idempotency_key,
            "request_digest": request.digest().hex(),
            "operation": request.operation,
            "amount": request.amount,
            "is_allowed": request.is_allowed,
            "balance": request.balance,
            "of_key": request.of,
            "reference": request.reference,
            "occurred_at": to_text(at_us),
            "ledger_allows": decision.is_allowed,
            "ledger_balance": decision.balance,
            "refusal": None if decision.refusal is None else encode_json(decision.refusal),
            "difference": decision.difference,
            "sequence": decision.sequence,
            "parts": encode(decision.parts) if decision.parts else None,
            "actor": request.actor,
            "request_id": request.request_id,
        })  # fmt: skip
        return answer


def row_of(holder_id: str, credit_type: str, shadow: Shadow) -> dict[str, Any]:
    """Return the columns that say where an account stands after an observation."""
    assert shadow.state is not None
    return {
        "holder_id": holder_id,
        "credit_type": credit_type,
        "number": shadow.number,
        "differences": shadow.differences,
        "first_difference": shadow.first_difference,
        "state": deciding.encode_state(shadow.state),
    }


def _read_known(requests: Iterable[ObservationRequest]) -> dict[tuple[str, str], _Known]:
    """Return what is on record with the keys of the requests, and with the keys of what they are about."""
    wanted = {(request.holder_id, request.idempotency_key) for request in requests}
    wanted |= {(request.holder_id, request.of) for request in requests if request.of is not None}
    holders, keys = zip(*sorted(wanted), strict=True)
    return dict(fetch_rows(_known_row, BY_KEYS, [list(holders), list(keys)]))


def _known_row(
    holder_id: str, key: str, number: int, credit_type: str, digest: bytes, operation: str, sequence: int | None,
    parts: str | None, amount: int | None, is_allowed: bool, balance: int, difference: str | None, ledger_allows: bool | None,
    ledger_balance: int | None, refusal: str | None, refunded: int | None,
) -> tuple[tuple[str, str], _Known]:  # fmt: skip
    detail = sentence(
        operation=operation, amount=amount, is_allowed=is_allowed, balance=balance, difference=difference,
        ledger_allows=ledger_allows, ledger_balance=ledger_balance, refusal=None if refusal is None else json.loads(refusal),
    )  # fmt: skip
    answer = ObservationResult(key, RECORDED, number, difference, ledger_allows, ledger_balance, detail)
    subject = Subject(operation, sequence, _lots(parts), refunded or 0)
    return (holder_id, key), _Known(credit_type, bytes(digest), subject, answer)


def _lots(text: str | None) -> Lots:
    return () if text is None else decode(text)


def _with_id(result: ObservationResult, number: int | None) -> ObservationResult:
    if result.result not in (RECORDED, DUPLICATE) or result.id is not None:
        return result
    return replace(result, id=number)


def difference_text(request: ObservationRequest, decision: Decision) -> str:
    """Return how both differ, in one sentence; empty if they do not."""
    return sentence(
        operation=request.operation,
        amount=request.amount,
        is_allowed=request.is_allowed,
        balance=request.balance,
        difference=decision.difference,
        ledger_allows=decision.is_allowed,
        ledger_balance=decision.balance,
        refusal=decision.refusal,
    )


def sentence(
    *, operation: str, amount: int | None, is_allowed: bool, balance: int, difference: str | None, ledger_allows: bool | None,
    ledger_balance: int | None, refusal: dict[str, Any] | None,
) -> str:  # fmt: skip
    """Return how both sides of an observation differ, in one sentence; empty if they do not."""
    if difference is None or ledger_balance is None:
        return ""
    what = "the balance" if amount is None else f"{_article(operation)} {operation} of {amount:,}"
    if difference == deciding.OF_BALANCE:
        both = "states" if amount is None else "allows" if is_allowed else "refuses"
        return f"The other system {both} {what} and has {balance:,} after it; the ledger would have {ledger_balance:,}."
    if ledger_allows:
        theirs = f"The other system refuses {what} and has {balance:,}"
        return f"{theirs}; the ledger would allow it and have {ledger_balance:,} after it."
    why = "" if refusal is None else f" ({refusal['code']})"
    return (
        f"The other system allows {what} and has {balance:,} after it; the ledger would refuse it{why}, with {ledger_balance:,} "
        "to spend."
    )


def _article(operation: str) -> str:
    return "an" if operation.startswith("e") else "a"

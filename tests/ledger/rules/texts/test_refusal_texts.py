"""A refusal as a sentence, made by the rules alone, and what would have helped."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ledger.errors import REFUSALS, InsufficientCredits, Refused
from ledger.rules.accounts import AccountState
from ledger.rules.credit_units import CreditUnit, plain_unit
from ledger.rules.decisions.credit_rules import grant, spend
from ledger.rules.decisions.hold_rules import capture, hold
from ledger.rules.instants import to_us
from ledger.rules.refusal_texts import Remedy, refusal_text, remedies, when
from ledger.rules.requests import CaptureRequest, GrantRequest, HoldRequest, Request, SpendRequest

NOW = datetime(2026, 11, 22, 14, 3, tzinfo=UTC)
CREDITS = plain_unit("credits")
DOLLARS = CreditUnit("usd_cents", "US dollars", "USD", 2)


def after_grant(account: AccountState, amount: int, **terms: Any) -> AccountState:
    """The account after a grant."""
    request = GrantRequest(holder_id="ada", idempotency_key="g", amount=amount, **terms)
    return account.after_all(grant(account, request))


def after_hold(account: AccountState, amount: int, until: datetime) -> AccountState:
    """The account after a hold."""
    return account.after_all(hold(account, HoldRequest(holder_id="ada", idempotency_key="h", amount=amount, expires_at=until)))


def recorded_refusal(account: AccountState, request: Request, use_case: Any) -> dict[str, Any]:
    """The facts that a refusal by the rules records, with the effective times that the journal fills in."""
    with pytest.raises(InsufficientCredits) as raised:
        use_case(account, request)
    return {"operation": request.operation, "code": raised.value.code, "facts": raised.value.facts, "request": request.content()}


def spend_request(amount: int, **more: Any) -> SpendRequest:
    """A request of ada to spend that amount."""
    return SpendRequest(holder_id="ada", idempotency_key="s", amount=amount, **more)


@pytest.fixture
def account() -> AccountState:
    """Ada's account before its first entry."""
    return AccountState("ada", "credits", to_us(NOW))


def test_a_request_for_all_that_is_left_is_refused_in_words_where_nothing_is_left():
    facts = {"sequence": 1, "revocable": 0, "requested": None}
    refusal = {"operation": "revoke", "code": "revocation-exceeds-grant", "facts": facts, "request": {}}
    assert refusal_text(refusal, at=NOW, unit=CREDITS) == "Refused: nothing is left of grant #1."
    assert remedies(refusal, at=NOW, unit=CREDITS) == []


def test_the_sentence_says_what_was_asked_what_there_was_and_what_kept_the_rest_away(account):
    account = after_grant(account, 322)
    account = after_grant(account, 1_000, effective_at=datetime(2027, 1, 1, tzinfo=UTC))
    account = after_hold(account, 60, NOW.replace(hour=21, minute=34))
    refusal = recorded_refusal(account, spend_request(700), spend)

    assert refusal_text(refusal, at=NOW, unit=CREDITS) == (
        "Refused: 700 requested, 262 spendable. 60 are held until 21:34, 1,000 start on 1 Jan. Short by 438."
    )
    assert remedies(refusal, at=NOW, unit=CREDITS) == [
        Remedy("grant", "Grant 438 credits", 438),
        Remedy("release", "Release hold #3: 60 until 21:34", 60, 3),
        Remedy("", "Wait: enough is spendable on 1 Jan if nothing else is spent"),
    ]


def test_of_several_holds_and_later_grants_the_first_is_named_and_an_expired_lot_too(account):
    account = after_grant(account, 40, effective_at=NOW - timedelta(days=9), expires_at=NOW + timedelta(hours=2))
    account = after_grant(account, 10)
    account = after_grant(account, 5, effective_at=NOW + timedelta(days=2))
    account = after_grant(account, 6, effective_at=NOW + timedelta(days=3))
    account = after_hold(account, 3, NOW + timedelta(days=1))
    account = after_hold(account, 2, NOW + timedelta(days=4))
    later = NOW + timedelta(hours=3)
    refusal = recorded_refusal(account._replace(now_us=to_us(later)), spend_request(50), spend)

    assert refusal_text(refusal, at=later, unit=CREDITS) == (
        "Refused: 50 requested, 10 spendable. 5 are held, the first until 23 Nov, 11 start later, the first on 24 Nov, "
        "35 expired at 16:03. Short by 40."
    )


def test_a_hold_that_has_expired_withholds_nothing(account):
    account = after_hold(after_grant(account, 10), 4, NOW + timedelta(hours=1))
    refusal = recorded_refusal(account._replace(now_us=to_us(NOW + timedelta(hours=2))), spend_request(50), spend)
    text = refusal_text(refusal, at=NOW, unit=CREDITS)
    assert text == "Refused: 50 requested, 10 spendable. Short by 40."
    assert [remedy.action for remedy in remedies(refusal, at=NOW, unit=CREDITS)] == ["grant"]


def test_a_type_with_decimals_is_written_with_them(account):
    refusal = recorded_refusal(after_grant(account, 262), spend_request(700), spend)
    assert refusal_text(refusal, at=NOW, unit=DOLLARS) == "Refused: 7.00 requested, 2.62 spendable. Short by 4.38."
    assert remedies(refusal, at=NOW, unit=DOLLARS) == [Remedy("grant", "Grant 4.38 USD", 438)]


def test_a_capture_and_a_rated_spend_say_what_they_are(account):
    account = after_hold(after_grant(account, 10), 4, NOW + timedelta(hours=1))
    hold_entry = hold(
        after_grant(AccountState("ada", "credits", to_us(NOW)), 10),
        HoldRequest(holder_id="ada", idempotency_key="h", amount=4, expires_at=NOW + timedelta(hours=1)),
    )[0]
    request = CaptureRequest(holder_id="ada", idempotency_key="c", hold=2, amount=50, over_capture="if_available")
    refusal = recorded_refusal(account, request, lambda a, r: capture(a, r, hold_entry=hold_entry, last_closing=None))
    assert refusal_text(refusal, at=NOW, unit=CREDITS).startswith("Refused: 50 requested, 10 held and spendable. 4 are held")

    rated = SpendRequest(holder_id="ada", idempotency_key="r", rate="gpt.output", quantity=12_000)
    refusal = recorded_refusal(account, rated, lambda a, r: spend(a, r, amount=36))
    assert refusal_text(refusal, at=NOW, unit=CREDITS).startswith("Refused: 36 requested for 12,000 of gpt.output, 6 spendable.")


def test_one_credit_is_singular(account):
    account = after_grant(account, 2)
    account = after_hold(account, 1, NOW.replace(hour=21, minute=34))
    refusal = recorded_refusal(account, spend_request(2), spend)
    assert refusal_text(refusal, at=NOW, unit=CREDITS) == (
        "Refused: 2 requested, 1 spendable. 1 is held until 21:34. Short by 1."
    )
    texts = [each.text for each in remedies(refusal, at=NOW, unit=CREDITS)]
    assert texts[:2] == ["Grant 1 credit", "Release hold #2: 1 until 21:34"]
    assert remedies(refusal, at=NOW, unit=DOLLARS)[0].text == "Grant 0.01 USD"
    facts = {"sequence": 2, "refundable": 1, "requested": 9}
    assert [each.text for each in remedies(refusal_of("refund-exceeds-spend", facts), at=NOW, unit=CREDITS)] == [
        "Refund the 1 that is left"
    ]


@pytest.mark.parametrize(
    ("unit", "one", "two"),
    [
        ("credits", "1 credit", "2 credits"),
        ("api calls", "1 api call", "2 api calls"),
        ("messages", "1 message", "2 messages"),
        ("USD", "1 USD", "2 USD"),
        ("sms", "1 sms", "2 sms"),
        ("status", "1 status", "2 status"),
        ("MB", "1 MB", "2 MB"),
        ("€", "1 €", "2 €"),
    ],
)
def test_only_a_plain_english_plural_becomes_singular(unit, one, two):
    shown = CreditUnit("x", "X", unit)
    assert [shown.amount(1), shown.amount(2), shown.amount(0)] == [one, two, f"0 {unit}"]
    assert (shown.amount(-1), shown.signed_amount(1)) == (f"−{one}", f"+{one}")
    assert CreditUnit("x", "X", unit, 2).amount(100) == f"1.00 {unit}"


SENTENCES = {
    "entry-not-found": ({"sequence": 9, "credit_type": "sms"}, "the account has no entry #9 in sms."),
    "not-refundable": ({"sequence": 1, "kind": "grant"}, "entry #1 is a grant. Only a spend or a capture can be refunded."),
    "refund-exceeds-spend": (
        {"sequence": 2, "refundable": 30, "requested": 31},
        "31 requested, 30 are left of spend #2. Over by 1.",
    ),
    "not-revocable": ({"sequence": 2, "kind": "expire"}, "entry #2 is an expire. Only a grant can be revoked."),
    "revocation-exceeds-grant": (
        {"sequence": 1, "revocable": 1, "requested": 100},
        "100 to be revoked, 1 is left of grant #1. Over by 99.",
    ),
    "budget-exceeded": (
        {
            "budget": "daily",
            "subject": "ann",
            "requested": 1_050,
            "resets_at": "2090-01-01T00:00:00.000000Z",
            "limit": 1_000,
            "used": 40,
            "remaining": 960,
        },
        "1,050 requested, 960 left of the budget daily of ann: 40 of 1,000 used until 1 Jan 2090.",
    ),
    "budget-limit": ({"what": "budgets", "limit": 20}, "an account can have at most 20 budgets."),
    "recurring-grant-not-found": ({"recurring_grant": "monthly"}, "the account has no recurring grant monthly."),
    "recurring-grant-limit": ({"limit": 50}, "an account can have at most 50 recurring grants."),
    "recurring-grant-due": (
        {"recurring_grant": "monthly", "due_at": "2026-02-01T00:00:00.000000Z"},
        "the recurring grant monthly has a grant due since 2026-02-01T00:00:00.000000Z, which has to be made first.",
    ),
    "overage-not-found": ({"credit_type": "credits"}, "the account of credits has no overage."),
    "overage-taken": ({"reference": "SUB-1"}, "the account has an overage of SUB-1."),
    "budget-not-found": ({"budget": "daily"}, "the account has no budget daily."),
    "lot-limit": ({"open_lots": 500, "limit": 500}, "the account has 500 open lots; the limit is 500."),
    "test-clocks-off": ({}, "this deployment has no test clocks."),
    "test-clocks-differ": ({"holder_id": "ada", "to": "bob"}, "ada and bob do not have the same time."),
    "balance-limit": ({"limit": 5000}, "an account can have at most 5,000 credits that others sent."),
    "lot-closed": ({"sequence": 2}, "lot #2 has no credits left outside holds."),
    "not-reversible": (
        {"sequence": 2, "kind": "transfer_in"},
        "entry #2 is a transfer in. Only a transfer to another holder can be reversed; a reversal cannot.",
    ),
    "reversal-exceeds-transfer": (
        {"sequence": 2, "reversible": 3, "requested": 5},
        "5 requested, the other holder has 3 left of transfer #2. Over by 2.",
    ),
    "holder-frozen": ({"holder_id": "ada"}, "ada is frozen."),
    "nothing-to-void": ({"held": 3}, "the account has no unspent credits. Open holds set aside 3 credits."),
    "transfers-refused": ({"to": "team-7"}, "team-7 refuses transfers from others."),
    "hold-limit": ({"held_lots": 499, "limit": 500}, "the open holds set aside 499 lots; the limit is 500."),
    "not-a-hold": (
        {"sequence": 2, "kind": "transfer_out"},
        "entry #2 is a transfer out. Only a hold can be captured, released or extended.",
    ),
    "hold-closed": ({"sequence": 4, "how": "captured", "closed_by": 6}, "hold #4 was already captured by entry #6."),
    "capture-exceeds-hold": (
        {"sequence": 4, "held": 40, "requested": 1_050},
        "1,050 to be captured, 40 are left of hold #4. Over by 1,010.",
    ),
    "unknown-rate": ({"rate": "gpt.out", "credit_type": "credits"}, "no rate for credits is called gpt.out."),
    "amount-limit": (
        {"rate": "gpt.out", "quantity": 10**15, "limit": 9_007_199_254_740_991},
        "1,000,000,000,000,000 of gpt.out cost more than 9,007,199,254,740,991 credits, the limit of one operation.",
    ),
}


def refusal_of(code: str, facts: dict[str, Any]) -> dict[str, Any]:
    """A refused spend as it is stored."""
    return {"operation": "spend", "code": code, "facts": facts, "request": {}}


@pytest.mark.parametrize("code", [code for code in REFUSALS if code != InsufficientCredits.code])
def test_every_other_refusal_has_its_sentence(code):
    facts, expected = SENTENCES[code]
    assert refusal_text(refusal_of(code, facts), at=NOW, unit=CREDITS) == f"Refused: {expected}"


def test_the_sentence_about_an_expired_hold_names_no_entry_that_closed_it():
    refusal = refusal_of("hold-closed", {"sequence": 4, "how": "expired", "closed_by": None})
    assert refusal_text(refusal, at=NOW, unit=CREDITS) == "Refused: hold #4 had expired."


def test_a_refusal_of_a_later_version_is_named_by_its_code():
    assert refusal_text(refusal_of(Refused.code, {}), at=NOW, unit=CREDITS) == "Refused: refused."
    assert remedies(refusal_of(Refused.code, {}), at=NOW, unit=CREDITS) == []


@pytest.mark.parametrize(
    ("code", "facts", "expected"),
    [
        ("refund-exceeds-spend", {"sequence": 2, "refundable": 30, "requested": 31}, [("refund", 30, 2)]),
        ("refund-exceeds-spend", {"sequence": 2, "refundable": 0, "requested": 31}, []),
        ("capture-exceeds-hold", {"sequence": 4, "held": 40, "requested": 50}, [("", 40, 4)]),
        ("lot-limit", {"open_lots": 500, "limit": 500}, []),
    ],
)
def test_what_would_have_helped(code, facts, expected):
    found = remedies(refusal_of(code, facts), at=NOW, unit=CREDITS)
    assert [(remedy.action, remedy.amount, remedy.sequence) for remedy in found] == expected


@pytest.mark.parametrize(
    ("instant", "words"),
    [
        (datetime(2026, 11, 22, 0, 5, tzinfo=UTC), "00:05"),
        (datetime(2026, 11, 23, tzinfo=UTC), "23 Nov"),
        (datetime(2027, 1, 1, tzinfo=UTC), "1 Jan"),
        (datetime(2027, 11, 22, tzinfo=UTC), "22 Nov 2027"),
        (datetime(2025, 3, 1, tzinfo=UTC), "1 Mar 2025"),
    ],
)
def test_a_time_is_written_as_short_as_it_is_clear(instant, words):
    assert when(instant, at=NOW) == words


@pytest.mark.parametrize(
    ("scale", "amount", "number", "signed"),
    [
        (0, 0, "0", "0"),
        (0, 12_345, "12,345", "+12,345"),
        (0, -7, "−7", "−7"),
        (2, 5, "0.05", "+0.05"),
        (2, -123_450, "−1,234.50", "−1,234.50"),
        (12, 2**53 - 1, "9,007.199254740991", "+9,007.199254740991"),
    ],
)
def test_amounts_have_their_decimals_exactly(scale, amount, number, signed):
    unit = CreditUnit("t", "Type", "T", scale)
    assert (unit.number(amount), unit.signed(amount), unit.amount(amount)) == (number, signed, f"{number} T")

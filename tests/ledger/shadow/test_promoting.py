"""Promotions and returns: credits move once, with their terms, and what does not fit stays where it is."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from ledger import services
from ledger.database.statements import fetch_rows, fetch_value
from ledger.errors import Invalid
from ledger.reads import account_state
from ledger.shadow import reads
from ledger.shadow.observing import observe
from ledger.shadow.promoting import Move, MoveResult, bring_back, promote

pytestmark = pytest.mark.django_db

LATER = datetime.now(UTC) + timedelta(days=30)


def seen(key: str, operation: str, amount: int | None, balance: int, **fields: Any) -> None:
    given = {"holder_id": "ada", **fields}
    observe(idempotency_key=key, operation=operation, amount=amount, balance=balance, **given)


def move(holder: str = "ada", *, reason: str = "", **balances: int) -> MoveResult:
    (result,) = promote([Move(holder_id=holder, balances=balances)], reason=reason, actor="key:ops")
    return result


def back(holder: str = "ada") -> MoveResult:
    (result,) = bring_back([holder])
    return result


def rows() -> int:
    """How many rows there are of promotions, observations and entries."""
    tables = ("promotion", "observation", "entry")
    return fetch_value(int, f"SELECT {' + '.join(f'(SELECT count(*) FROM ledger_{table})' for table in tables)}")


def test_an_account_begins_with_the_other_balance_and_its_terms_exactly_once() -> None:
    seen("1", "grant", 70, 70, expires_at=LATER, source="promotional", priority=7)
    seen("2", "grant", 30, 100)
    seen("3", "spend", 20, 80)
    moved = move(credits=80)
    assert (moved.result, moved.accounts) == ("moved", [{"credit_type": "credits", "balance": 80, "sequence": 2}])
    grants = fetch_rows(
        lambda *row: row,
        "SELECT amount, idempotency_key, actor, reference FROM ledger_entry WHERE kind = 'grant' ORDER BY sequence",
    )
    assert grants == [
        (50, "promotion/1/credits/1", "key:ops", "promotion 1"),
        (30, "promotion/1/credits/2", "key:ops", "promotion 1"),
    ]
    state = account_state.balance("ada", "credits")
    assert [(lot.remaining, lot.expires_at, lot.priority, lot.source) for lot in state.lots] == [
        (50, LATER, 7, "promotional"),
        (30, None, 100, "purchased"),
    ]
    before = rows()
    again = move(credits=80)
    assert (again.result, again.accounts) == ("moved before", moved.accounts)
    assert rows() == before
    late = observe(holder_id="ada", idempotency_key="4", operation="spend", amount=1, balance=79)
    assert late.result == "promoted"
    assert rows() == before
    assert [each.state for each in reads.accounts()] == ["promoted"]


def test_a_holder_with_nothing_is_promoted_too() -> None:
    seen("1", "spend", 5, 0)
    assert move().accounts == [{"credit_type": "credits", "balance": 0, "sequence": 0}]
    assert move().result == "moved before"


def _held() -> None:
    seen("1", "hold", 5, 10)


def _in_use() -> None:
    seen("1", "balance", None, 10)
    services.grant(holder_id="ada", amount=1, idempotency_key="own")


def _different() -> None:
    seen("1", "balance", None, 10)
    seen("2", "spend", 1, 10)


@pytest.mark.parametrize(
    ("prepare", "balances", "result"),
    [
        (lambda: None, {}, "not observed"),
        (lambda: seen("1", "balance", None, 10), {"sms": 1}, "not observed"),
        (lambda: seen("1", "balance", None, 10), {"credits": 9}, "other balance"),
        (lambda: seen("1", "balance", None, -1), {}, "negative"),
        (_held, {}, "held"),
        (_in_use, {}, "in use"),
        (_different, {}, "different"),
    ],
)
def test_who_cannot_move_stays_and_keeps_nobody_back(prepare: Callable[[], None], balances: dict[str, int], result: str) -> None:
    prepare()
    seen("b1", "balance", None, 3, holder_id="bob")
    before = rows()
    ada, bob = promote([Move(holder_id="ada", balances=balances), Move(holder_id="bob")])
    assert (ada.result, ada.accounts, bob.result) == (result, [], "moved")
    assert ada.detail
    # Bob's grant, and his promotion.
    assert rows() == before + 2


def test_a_reason_accepts_differences() -> None:
    _different()
    assert move(reason="A refund by hand").result == "moved"
    assert fetch_rows(str, "SELECT reason FROM ledger_promotion") == ["A refund by hand"]


def test_a_holder_goes_back_with_what_is_left_and_is_observed_again() -> None:
    _different()
    move(reason="Looked at")
    services.spend(holder_id="ada", amount=4, idempotency_key="s")
    services.grant(holder_id="ada", amount=20, idempotency_key="g", expires_at=LATER, effective_at=None)
    services.grant(holder_id="ada", amount=5, idempotency_key="f", effective_at=LATER)
    done = back()
    (account,) = done.accounts
    assert (done.result, account["balance"]) == ("moved", 26)
    assert account["since"] == {"grant": {"entries": 2, "amount": 25}, "spend": {"entries": 1, "amount": -4}}
    assert [lot["amount"] for lot in account["lots"]] == [20, 6, 5]
    assert account_state.balance("ada", "credits").balance == 0
    before = rows()
    again = back()
    assert (again.result, again.accounts) == ("moved before", done.accounts)
    assert rows() == before
    # The shadow goes on with it, and without the differences of before.
    assert observe(holder_id="ada", idempotency_key="9", operation="spend", amount=26, balance=0).difference is None
    assert [(each.state, each.differences) for each in reads.accounts()] == [("same", 0)]
    assert move().accounts == [{"credit_type": "credits", "balance": 0, "sequence": account["sequence"] + 1}]


def test_who_was_never_promoted_or_has_an_open_hold_does_not_go_back() -> None:
    assert back().result == "not observed"
    seen("1", "balance", None, 10)
    move()
    services.hold(holder_id="ada", amount=3, idempotency_key="h")
    before = rows()
    assert back().result == "held"
    assert rows() == before


def test_a_holder_is_named_once() -> None:
    with pytest.raises(Invalid):
        promote([Move(holder_id="ada"), Move(holder_id="ada")])
    with pytest.raises(Invalid):
        bring_back([" ada"])


def test_the_command_moves_all_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(5):
        seen(f"k{number}", "balance", None, 10 * number, holder_id=f"user-{number}")
    _different()
    with pytest.raises(SystemExit) as ended:
        call_command("shadow_report")
    assert ended.value.code == 1
    report = capsys.readouterr().out
    assert "5 accounts agree" in report
    assert "ada, credits: The other system allows a spend of 1 and has 10 after it; the ledger would have 9." in report
    with pytest.raises(SystemExit) as ended:
        call_command("promote_holders", everybody=True, batch=2)
    assert ended.value.code == 1
    assert "5 holders moved into the ledger" in (report := capsys.readouterr().out)
    assert "1 holders stay: different" in report
    call_command("promote_holders", everybody=True, batch=2, reason="Looked at")
    assert "5 holders had moved before" in capsys.readouterr().out
    services.spend(holder_id="user-4", amount=7, idempotency_key="s")
    out = tmp_path / "back.csv"
    call_command("promote_holders", everybody=True, back=True, out=out)
    lines = out.read_text().splitlines()
    assert [line.split(",")[:3] for line in lines] == [
        ["holder", "credit_type", "balance"], ["ada", "credits", "10"], ["user-0", "credits", "0"], ["user-1", "credits", "10"],
        ["user-2", "credits", "20"], ["user-3", "credits", "30"], ["user-4", "credits", "33"],
    ]  # fmt: skip
    first = out.read_bytes()
    call_command("promote_holders", everybody=True, back=True, out=out)
    assert out.read_bytes() == first


def test_the_command_takes_a_file_with_balances(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen("1", "balance", None, 10)
    seen("2", "balance", None, 7, credit_type="sms")
    file = tmp_path / "holders.csv"
    file.write_text("holder,credit_type,balance\nada,credits,10\nada,sms,8\n")
    with pytest.raises(SystemExit):
        call_command("promote_holders", file)
    assert "7 was observed, and 8 is given" in capsys.readouterr().out
    file.write_text("holder,credit_type,balance\nada,credits,10\nada,sms,7\n")
    call_command("promote_holders", file)
    assert fetch_value(int, "SELECT sum(balance)::int FROM ledger_entry") == 17


@pytest.mark.parametrize("text", ["holder,balance\nada,1.5\n", "holder,balance\n,1\n", "holder,balance\nada,1,2\n", "who\nada\n"])
def test_a_wrong_file_moves_nobody(tmp_path: Path, text: str) -> None:
    seen("1", "balance", None, 10)
    file = tmp_path / "holders.csv"
    file.write_text(text)
    before = rows()
    with pytest.raises(CommandError, match="Nothing moved"):
        call_command("promote_holders", file)
    assert rows() == before

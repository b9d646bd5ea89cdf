"""Operators see what became of holds, where transfers went, what is owed; they release, transfer and agree overdrafts."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.admin.utils import quote
from django.db import connection
from django.utils import timezone

from ledger import reads, services
from ledger.errors import HoldClosed, HolderFrozen, InsufficientCredits, TransfersRefused
from ledger.staff.related_entries import RELATED_ENTRIES
from tests.ledger.staff.admin_site import (
    cost_of,
    entries_and_refusals,
    hidden_key,
    operator,
    shown_entries,
    shown_time,
    submit_form,
    text_of,
)

pytestmark = pytest.mark.django_db

ENTRIES = "/admin/ledger/entrylisting/"
ACCOUNTS = "/admin/ledger/account/"


def entry_url(sequence, holder="ada", page="change"):
    """The address of a page about an entry, or of a form that changes something about it."""
    return f"{ENTRIES}{quote(f'{holder}/credits/{sequence}')}/{page}/"


def account_url(holder="ada", page=""):
    """The address of an account's page, or of a form about the account."""
    if not page:
        return f"{ACCOUNTS}holders/{holder}/?type=credits"
    return f"{ACCOUNTS}{quote(f'{holder}/credits')}/{page}/"


def get_page(client, address):
    """The page at the address, as HTML."""
    response = client.get(address)
    assert response.status_code == 200
    return response.content.decode()


@pytest.fixture
def hold_of_30():
    """A grant of 100 and a hold of 30, which is entry 2."""
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.hold(holder_id="ada", amount=30, idempotency_key="h", expires_at=timezone.now() + timedelta(hours=2))


# What is shown ---------------------------------------------------------------------------------------


def test_an_open_hold_says_what_is_held_until_when_and_what_was_captured(client, hold_of_30):
    services.capture(holder_id="ada", hold=2, amount=10, final=False, idempotency_key="c")
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    services.extend(holder_id="ada", hold=2, expires_at=until, idempotency_key="x")
    page = get_page(client, entry_url(2))
    assert "20 still held, 10 captured" in text_of(page)
    assert f"Hold expires {shown_time(until)}" in text_of(page)
    assert "What became of the hold: 10 captured" in text_of(page)
    assert [f'href="{entry_url(sequence)}"' in page for sequence in (3, 4)] == [True, True]
    assert entry_url(2, page="release") in page
    for sequence in (3, 4):
        assert f'href="{entry_url(2)}">hold #2</a>' in get_page(client, entry_url(sequence))
    assert f"until {shown_time(until)}" in text_of(get_page(client, f"{ENTRIES}?q=ada"))


@pytest.mark.parametrize(
    ("end", "state", "amounts"),
    [
        (
            lambda: services.capture(holder_id="ada", hold=2, amount=10, idempotency_key="c"),
            "captured",
            "10 captured, 20 released",
        ),
        (lambda: services.release(holder_id="ada", hold=2, idempotency_key="r"), "released", "30 released"),
    ],
)
def test_a_closed_hold_says_how_it_was_closed_and_offers_no_release(client, hold_of_30, end, state, amounts):
    end()
    page = get_page(client, entry_url(2))
    assert f"Hold {state} Outcome {amounts}" in text_of(page)
    assert entry_url(2, page="release") not in page


def test_an_expired_hold_says_so_before_and_after_it_is_booked(client):
    from ledger import journal
    from ledger.database.locks import holder_lock
    from ledger.rules.accounts import AccountState
    from ledger.rules.decisions import credit_rules, hold_rules
    from ledger.rules.instants import DAY_US, to_us
    from ledger.rules.requests import GrantRequest, HoldRequest

    start_us = to_us(timezone.now()) - DAY_US
    state = AccountState("ada", "credits", start_us)
    [grant] = credit_rules.grant(state, GrantRequest(holder_id="ada", amount=100, idempotency_key="g"))
    [hold] = hold_rules.hold(state.after(grant), HoldRequest(holder_id="ada", amount=30, idempotency_key="h"))
    with holder_lock("ada") as lock:
        journal.append(lock, [grant, hold])
    page = get_page(client, entry_url(2))
    assert "Hold expired, not booked yet" in text_of(page)
    assert entry_url(2, page="release") not in page
    assert "expired, not booked yet" in text_of(get_page(client, account_url()))
    services.book_expirations(holder_id="ada")
    assert "Hold expired Outcome 30 released" in text_of(get_page(client, entry_url(2)))
    assert "Open holds" not in text_of(get_page(client, account_url()))


def test_the_account_shows_its_open_holds_with_their_lots(client, hold_of_30):
    services.hold(holder_id="ada", amount=5, idempotency_key="h2")
    page = text_of(get_page(client, account_url()))
    assert re.search(r"Open holds #2 30 credits until .* Release #2 #3 5 credits until .* Release #3", page)


def test_a_transfer_leads_to_the_other_side_and_back(client):
    services.grant(holder_id="ada", amount=60, idempotency_key="g", expires_at=timezone.now() + timedelta(days=1))
    services.grant(holder_id="ada", amount=40, idempotency_key="g2")
    services.transfer(holder_id="ada", to="bob", amount=70, idempotency_key="t")
    page = get_page(client, entry_url(3))
    assert "Arrived at bob as" in page
    assert f'href="{account_url("bob")}"' in page
    assert [f'href="{entry_url(sequence, "bob")}"' in page for sequence in (1, 2, 3)] == [True, True, False]
    assert f'href="{entry_url(3)}">ada #3</a>' in get_page(client, entry_url(1, "bob"))


def test_what_a_spend_took_on_the_overdraft_and_what_is_owed(client):
    services.grant(holder_id="ada", amount=10, idempotency_key="g")
    services.set_overdraft(holder_id="ada", limit=50, idempotency_key="o")
    services.spend(holder_id="ada", amount=35, idempotency_key="s")
    page = text_of(get_page(client, entry_url(3)))
    assert "Overdraft limit 50 Owed after 25" in page
    assert "#1 10 the overdraft 25" in page
    assert "25 owed; overdraft limit 50." in text_of(get_page(client, account_url()))
    services.grant(holder_id="ada", amount=30, idempotency_key="g2")
    assert "0 25 repaid" in text_of(get_page(client, f"{ENTRIES}?q=ada&kind=adjust"))
    assert "nothing owed; overdraft limit 50." in text_of(get_page(client, account_url()))


def test_a_rated_spend_leads_to_the_version_that_priced_it(client):
    services.publish_rate(code="tokens", price=3, per=1_000)
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.spend(holder_id="ada", rate="tokens", quantity=1_500, idempotency_key="s")
    page = get_page(client, entry_url(2))
    assert "1,500 of tokens v1" in text_of(page)
    assert f'href="/admin/ledger/ratelisting/{quote("credits/tokens/1")}/change/"' in page


@pytest.mark.parametrize(("kind", "expected"), [("hold", ["2"]), ("capture", ["4"]), ("release", ["3"]), ("transfer_out", [])])
def test_entries_are_filtered_by_the_kinds_of_holds_and_transfers(client, hold_of_30, kind, expected):
    services.capture(holder_id="ada", hold=2, amount=10, idempotency_key="c")
    assert [number for _, number in shown_entries(get_page(client, f"{ENTRIES}?q=ada&kind={kind}"))] == expected


def test_a_refusal_shows_the_lots_and_holds_that_made_it_so(client, hold_of_30):
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=90, idempotency_key="s")
    page = get_page(client, f"/admin/ledger/refusallisting/{quote('ada/credits/3')}/change/")
    facts = r"available 70, balance 70, earliest sufficient at \d+\s\w+\s\d+, [\d:]+\sUTC, held 30, requested 90, shortfall 20"
    assert re.search(facts, text_of(page.replace("&nbsp;", " ")))
    assert re.search(r"Lots then .* #1 70 spendable .* Open holds then .* #2 30 ", text_of(page))


@pytest.mark.slow
def test_a_hold_with_many_captures_costs_no_more_queries_and_shows_the_latest(client):
    services.grant(holder_id="ada", amount=1_000, idempotency_key="g")
    services.hold(holder_id="ada", amount=500, idempotency_key="h")

    def capture(count, first):
        for number in range(first, first + count):
            services.capture(holder_id="ada", hold=2, amount=1, final=False, idempotency_key=f"c{number}")

    capture(1, 0)
    few = len(cost_of(client, entry_url(2)).statements)
    capture(RELATED_ENTRIES + 10, 1)
    with connection.cursor() as cursor:
        # The table is small here, and read whole where that is cheaper; now it is only where no index serves.
        cursor.execute("SET LOCAL enable_seqscan = off")
    cost = cost_of(client, entry_url(2))
    assert len(cost.statements) == few <= 10
    page = text_of(get_page(client, entry_url(2)))
    assert f"What became of the hold: the latest {RELATED_ENTRIES}" in page
    assert f"{500 - RELATED_ENTRIES - 11} still held" in page
    assert all("Seq Scan on ledger_entry" not in plan for plan in cost.plans)


# What is done ----------------------------------------------------------------------------------------


def test_a_release_is_recorded_with_the_operators_name_and_reason(client, hold_of_30):
    response = submit_form(client, entry_url(2, page="release"), reason="the job was lost", reference="ticket 9")
    assert response["Location"] == entry_url(3)
    released = reads.entry("ada", "credits", 3)
    assert (released.kind, released.amount, released.refers_to, released.actor, released.reason, released.reference) == (
        "release", 30, 2, "admin:mara", "the job was lost", "ticket 9",
    )  # fmt: skip
    assert "Release #3 is done: +30 credits for ada." in text_of(get_page(client, response["Location"]))


def test_a_double_click_releases_once_and_says_so(client, hold_of_30):
    values = {"idempotency_key": hidden_key(get_page(client, entry_url(2, page="release"))), "confirmed": "yes", "reason": "x"}
    first, second = (client.post(entry_url(2, page="release"), values) for _ in range(2))
    assert (first.status_code, second.status_code, first["Location"]) == (302, 302, second["Location"])
    assert entries_and_refusals() == (3, 0)
    assert "was already done by the first click" in get_page(client, second["Location"])


def test_a_release_that_comes_too_late_is_refused_with_its_facts(client, hold_of_30):
    key = hidden_key(get_page(client, entry_url(2, page="release")))
    services.capture(holder_id="ada", hold=2, idempotency_key="c")
    response = client.post(entry_url(2, page="release"), {"idempotency_key": key, "confirmed": "yes", "reason": "x"})
    assert response.status_code == 422
    assert "The hold is closed: sequence 2, how captured, closed by 3" in response.content.decode()
    assert "The hold is already captured." in response.content.decode()
    assert entries_and_refusals() == (3, 1)
    with pytest.raises(HoldClosed):
        services.release(holder_id="ada", hold=2, idempotency_key=key, reason="x")


@pytest.mark.parametrize("sequence", [1, 3, 99])
def test_only_what_made_a_hold_can_be_released(client, hold_of_30, sequence):
    services.extend(holder_id="ada", hold=2, expires_at=timezone.now() + timedelta(days=1), idempotency_key="x")
    address = entry_url(sequence, page="release")
    assert client.get(address).status_code == 403
    assert client.post(address, {"reason": "x", "idempotency_key": "k"}).status_code == 403
    assert entries_and_refusals() == (3, 0)


def test_a_capture_can_be_refunded(client, hold_of_30):
    services.capture(holder_id="ada", hold=2, idempotency_key="c")
    assert "The entry took 30 credits. You can refund 30." in get_page(client, entry_url(3, page="refund"))
    assert submit_form(client, entry_url(3, page="refund"), reason="failed after all").status_code == 302
    assert reads.balance("ada").balance == 100
    page = get_page(client, entry_url(3))
    assert "Referred to by: 30 refunded" in text_of(page)
    # There is nothing left to give back.
    assert entry_url(3, page="refund") not in page


def test_an_overdraft_is_agreed_and_lifted(client, hold_of_30):
    address = account_url(page="set-overdraft")
    assert submit_form(client, address, limit="500", reason="good customer").status_code == 302
    assert (reads.balance("ada").overdraft, reads.balance("ada").available) == (500, 570)
    agreed = reads.entry("ada", "credits", 3)
    assert (agreed.kind, agreed.overdraft, agreed.actor, agreed.reason) == ("adjust", 500, "admin:mara", "good customer")
    assert 'value="500"' in get_page(client, address)
    assert submit_form(client, address, limit="0", reason="no longer").status_code == 302
    assert reads.balance("ada").available == 70


@pytest.mark.slow
def test_a_lot_gets_other_terms(client, hold_of_30):
    address = entry_url(1, page="reissue")
    assert address in get_page(client, entry_url(1))
    assert "70 credits are left in the lot, which never expires and has priority 100." in get_page(client, address)
    assert submit_form(client, address, expires_at="2150-01-01T00:00", priority="7", reason="goodwill").status_code == 302
    entry = reads.entry("ada", "credits", 3)
    assert (entry.kind, entry.refers_to, entry.drawn, entry.actor) == ("reissue", 1, ((1, 70),), "admin:mara")
    assert "70 of lot #1 form a new lot with other terms" in text_of(get_page(client, account_url()))
    assert "with new terms" in text_of(get_page(client, ENTRIES))
    # Nothing is left of lot 1; the rest of lot 3 can be revoked.
    assert submit_form(client, address, priority="8", reason="x").status_code == 422
    assert "The reissue added 70 credits; 70 are unspent." in get_page(client, entry_url(3, page="revoke"))
    assert submit_form(client, entry_url(3, page="revoke"), amount="20", reason="x").status_code == 302
    assert reads.balance("ada").balance == 50
    assert client.get(entry_url(2, page="reissue")).status_code == 403


@pytest.mark.slow
def test_a_transfer_is_reversed(client, hold_of_30):
    services.transfer(holder_id="ada", to="bob", amount=10, idempotency_key="t")
    address = entry_url(3, page="reverse")
    assert address in get_page(client, entry_url(3))
    assert "A reversal takes back what bob still has of it" in get_page(client, address)
    assert submit_form(client, address, amount="4", reason="wrong team").status_code == 302
    assert (reads.balance("ada").balance, reads.balance("bob").balance) == (64, 6)
    entry = reads.entry("ada", "credits", 4)
    assert (entry.kind, entry.refers_to, entry.actor, entry.reason) == ("transfer_in", 3, "admin:mara", "wrong team")
    page = text_of(get_page(client, account_url()))
    assert "4 of transfer #3 came back from bob" in page
    assert "4 of receipt #1 went back to ada" in text_of(get_page(client, account_url("bob")))
    assert submit_form(client, address, amount="7", reason="x").status_code == 422
    assert reads.balance("bob").balance == 6
    # Neither the reversal nor a receipt can be reversed.
    for other in (entry_url(4, page="reverse"), entry_url(1, "bob", page="reverse")):
        assert client.get(other).status_code == 403


def test_a_holder_is_frozen_and_unfrozen(client, hold_of_30):
    address = account_url(page="freeze")
    assert "ada is not frozen." in get_page(client, address)
    assert submit_form(client, address, frozen="yes", reason="stolen card").status_code == 302
    entry = reads.entry("ada", "credits", 3)
    assert (entry.kind, entry.freezes, entry.actor, entry.reason) == ("adjust", True, "admin:mara", "stolen card")
    with pytest.raises(HolderFrozen):
        services.spend(holder_id="ada", amount=1, idempotency_key="s")
    page = text_of(get_page(client, account_url()))
    assert "frozen: nothing can be spent, held or transferred" in page
    assert "frozen: no spends, holds or transfers" in page
    assert "frozen: no spends, holds or transfers" in text_of(get_page(client, ENTRIES))
    assert submit_form(client, address, frozen="no", reason="solved").status_code == 302
    assert services.spend(holder_id="ada", amount=1, idempotency_key="s2").amount == -1


def test_all_unspent_credits_are_revoked(client, hold_of_30):
    address = account_url(page="void")
    page = get_page(client, address)
    assert "in each of the open lots (1)" in page
    assert "30 credits are held until their holds are released." in page
    assert submit_form(client, address, reason="closed").status_code == 302
    entry = reads.entry("ada", "credits", 3)
    assert (entry.kind, entry.amount, entry.refers_to, entry.actor) == ("revoke", -70, None, "admin:mara")
    assert "all unspent credits taken back: 70" in text_of(get_page(client, account_url()))
    response = submit_form(client, address, reason="again")
    assert (response.status_code, entries_and_refusals()) == (422, (3, 1))


def test_transfers_from_others_are_refused_and_accepted_again(client, hold_of_30):
    address = account_url(page="incoming-transfers")
    services.grant(holder_id="bob", amount=10, idempotency_key="g")
    assert "ada accepts transfers of Credits from others." in get_page(client, address)
    assert submit_form(client, address, accepted="no", reason="asked for it").status_code == 302
    entry = reads.entry("ada", "credits", 3)
    assert (entry.kind, entry.accepts_transfers, entry.actor, entry.reason) == ("adjust", False, "admin:mara", "asked for it")
    with pytest.raises(TransfersRefused):
        services.transfer(holder_id="bob", to="ada", amount=1, idempotency_key="t1")
    assert "ada refuses transfers of Credits from others." in get_page(client, address)
    assert "refuses transfers from others" in text_of(get_page(client, entry_url(3)))
    assert "refuses transfers from others" in text_of(get_page(client, "/admin/ledger/account/holders/ada/"))
    assert submit_form(client, address, accepted="yes", reason="asked again").status_code == 302
    assert services.transfer(holder_id="bob", to="ada", amount=1, idempotency_key="t2").amount == -1


def test_a_transfer_moves_credits_and_a_double_click_moves_them_once(client, hold_of_30):
    address = account_url(page="transfer")
    key = hidden_key(get_page(client, address))
    values = {"idempotency_key": key, "confirmed": "yes", "to": "bob", "amount": "40", "reason": "merger"}
    assert "70 credits are available" in get_page(client, address)
    asked_again = client.post(address, values)
    assert (asked_again.status_code, entries_and_refusals()) == (422, (2, 0))
    assert "bob is a new holder without credits." in asked_again.content.decode()
    values |= {"holder_again": "bob"}
    assert [client.post(address, values).status_code for _ in range(2)] == [302, 302]
    assert (reads.balance("ada").balance, reads.balance("bob").balance) == (30, 40)
    assert reads.entry("bob", "credits", 1).actor == "admin:mara"
    assert entries_and_refusals() == (4, 0)


def test_a_transfer_of_too_much_is_refused_with_its_facts(client, hold_of_30):
    response = submit_form(client, account_url(page="transfer"), to="bob", holder_again="bob", amount="71", reason="x")
    assert response.status_code == 422
    page = response.content.decode()
    assert "The account has too few credits: available 70, balance 70, requested 71, shortfall 1, held 30" in page
    assert entries_and_refusals() == (2, 1)


@pytest.mark.parametrize(
    ("address", "values"),
    [
        (entry_url(2, page="release"), {}),
        (account_url(page="set-overdraft"), {"limit": "5"}),
        (account_url(page="incoming-transfers"), {"accepted": "no"}),
        (account_url(page="transfer"), {"to": "bob", "amount": "5"}),
    ],
)
@pytest.mark.parametrize("reason", ["", "   "])
def test_without_a_reason_nothing_is_written(client, hold_of_30, address, values, reason):
    response = submit_form(client, address, reason=reason, **values)
    assert response.status_code == 422
    assert "This field is required." in response.content.decode()
    assert entries_and_refusals() == (2, 0)


@pytest.mark.parametrize(
    ("address", "values", "message"),
    [
        (account_url(page="transfer"), {"to": "ada", "amount": "5"}, "Must be another holder"),
        (account_url(page="transfer"), {"to": "a b", "amount": "5"}, "1 to 64 characters"),
        (account_url(page="transfer"), {"to": "bob", "amount": "0"}, "Amount must be at least 1 credit."),
        (account_url(page="set-overdraft"), {"limit": "-1"}, "Limit must be at least 0 credits."),
        (account_url(page="set-overdraft"), {"limit": str(2**53)}, "Limit must be at most 9,007,199,254,740,991 credits."),
    ],
)
def test_a_wrong_form_shows_what_is_wrong_and_writes_nothing(client, hold_of_30, address, values, message):
    response = submit_form(client, address, reason="x", **values)
    assert response.status_code == 422
    assert message in response.content.decode()
    assert entries_and_refusals() == (2, 0)


@pytest.mark.slow
@pytest.mark.check
def test_each_permission_allows_only_its_own_operation(hold_of_30):
    look = ("ledger.view_entrylisting", "ledger.view_account")
    doors = {
        "ledger.release_hold": entry_url(2, page="release"),
        "ledger.set_overdraft": account_url(page="set-overdraft"),
        "ledger.transfer_credits": account_url(page="transfer"),
        "ledger.freeze_holder": account_url(page="freeze"),
        "ledger.revoke_grant": account_url(page="void"),
    }
    for number, own in enumerate(doors):
        client = operator(*look, own, name=f"operator-{number}")
        offered = get_page(client, entry_url(2)) + get_page(client, account_url())
        for permission, address in doors.items():
            expected = 200 if permission == own else 403
            assert client.get(address).status_code == expected, (own, address)
            assert (address in offered) is (permission == own)
            if permission != own:
                assert client.post(address, {"reason": "x", "idempotency_key": "k"}).status_code == 403
    assert entries_and_refusals() == (2, 0)


@pytest.mark.parametrize("page", ["set-overdraft", "transfer", "incoming-transfers", "freeze", "void"])
def test_an_account_that_is_not_there_is_not_found(client, page):
    for address in (account_url("nobody", page), f"{ACCOUNTS}a_00b_2Fcredits/{page}/"):
        assert client.get(address).status_code == 404

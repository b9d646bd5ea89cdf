"""Forms in two steps: the form, what will happen by a dry run that writes nothing, then done."""

import re
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.contrib.admin.utils import quote
from django.urls import reverse

from ledger import reads, services
from ledger.errors import InsufficientCredits
from ledger.models import Entry
from ledger.staff.operations import end_of_day_in
from tests.ledger.staff.admin_site import hidden_key, hidden_values, text_of

pytestmark = pytest.mark.django_db

GRANT = "/admin/ledger/account/grant-credits/"
ASKED = {
    "holder_id": "ada",
    "credit_type": "credits",
    "amount": "50",
    "source": "promotional",
    "priority": "100",
    "reason": "goodwill",
}


@pytest.fixture
def ada():
    """Two lots, 100 and 40, of which 110 are spent and 10 held: 20 are left, and the next entry is #5."""
    services.grant(holder_id="ada", amount=100, idempotency_key="g1", expires_at=datetime(2999, 1, 1, tzinfo=UTC))
    services.grant(holder_id="ada", amount=40, idempotency_key="g2")
    services.spend(holder_id="ada", amount=110, idempotency_key="s")
    services.hold(holder_id="ada", amount=10, idempotency_key="h")


def send_first_step(client, address, **values):
    """Open the form and send it filled in; the response says what would happen."""
    key = hidden_key(client.get(address).content.decode())
    return client.post(address, {"idempotency_key": key, **values})


def entry_form_url(sequence, action):
    """The address of a form about one of Ada's entries."""
    return f"/admin/ledger/entrylisting/{quote(f'ada/credits/{sequence}')}/{action}/"


def account_form_url(action):
    """The address of a form about Ada's credits."""
    return f"/admin/ledger/account/{quote('ada/credits')}/{action}/"


@pytest.mark.slow
def test_the_first_click_says_what_will_happen_and_writes_nothing(client, ada):
    before = Entry.objects.count()
    response = send_first_step(client, account_form_url("grant"), **ASKED, expires_at="2199-12-31T23:59")
    page = response.content.decode()
    assert response.status_code == 200
    text = text_of(page)
    assert "50 added, for ada (Credits)." in text
    assert "A new promotional lot of 50, which expires 31 Dec 2199, 23:59 UTC." in text
    assert "Balance 20 70 Available 20 70" in text
    assert Entry.objects.count() == before

    done = client.post(account_form_url("grant"), hidden_values(page) | {"confirmed": "yes"})
    assert done.status_code == 302
    assert Entry.objects.count() == before + 1
    [lot] = [lot for lot in reads.entry("ada", "credits", 5).lots if lot.grant == 5]
    assert lot.expires_at.isoformat() == "2199-12-31T23:59:00+00:00"


def test_a_grant_for_some_things_only_is_made_and_shown(client, ada):
    typed = {
        "applies_to-0-rate": "gpt-4o.output", "applies_to-1-label": "member", "applies_to-1-value": "ada",
        "applies_to-2-label": "member", "applies_to-2-value": "bob",
    }  # fmt: skip
    page = send_first_step(client, account_form_url("grant"), **ASKED, **typed).content.decode()
    words = "only for the rate gpt-4o.output with member ada, bob"
    assert f"A new promotional lot of 50, {words}" in text_of(page)
    assert client.post(account_form_url("grant"), hidden_values(page) | {"confirmed": "yes"}).status_code == 302
    applies_to = {"rates": ["gpt-4o.output"], "labels": {"member": ["ada", "bob"]}}
    assert [lot.applies_to.shown() for lot in reads.balance("ada").lots if lot.applies_to] == [applies_to]
    shown = text_of(client.get(reverse("admin:ledger_holder", args=["ada"])).content.decode())
    assert words in shown
    assert "For some things only 50" in shown
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=21, idempotency_key="t")
    assert f"50 are {words}" in text_of(client.get(reverse("admin:ledger_refusallisting_changelist")).content.decode())
    for wrong, fault in (
        ({"applies_to-0-rate": "No rate"}, "Row 1"),
        ({"applies_to-0-rate": "gpt", "applies_to-0-label": "member"}, "Type a rate or a label in a row, not both."),
        ({"applies_to-1-label": "member"}, "A label and its value belong together."),
        ({"applies_to-1-value": "ada"}, "A label and its value belong together."),
    ):
        refused = send_first_step(client, account_form_url("grant"), **ASKED, **wrong)
        assert refused.status_code == 422, wrong
        assert fault in text_of(refused.content.decode()), wrong


def test_a_double_click_on_the_second_page_does_it_once(client, ada):
    values = hidden_values(send_first_step(client, account_form_url("grant"), **ASKED).content.decode()) | {"confirmed": "yes"}
    assert [client.post(account_form_url("grant"), values).status_code for _ in range(2)] == [302, 302]
    assert reads.balance("ada").balance == 70


def test_a_form_can_be_changed_after_its_dry_run(client, ada):
    values = hidden_values(send_first_step(client, account_form_url("grant"), **ASKED).content.decode())
    response = client.post(account_form_url("grant"), values | {"edit": "yes"})
    page = response.content.decode()
    assert response.status_code == 200
    assert re.search(r'name="amount"[^>]*value="50"|value="50"[^>]*name="amount"', page)
    assert hidden_key(page) == values["idempotency_key"]
    assert reads.balance("ada").balance == 20


@pytest.mark.parametrize(
    ("address", "asked", "expected"),
    [
        (
            entry_form_url(3, "refund"),
            {"amount": "25"},
            "25 of spend #3 returned, for ada (Credits). 10 back to lot #2, which never expires.",
        ),
        (entry_form_url(3, "refund"), {"amount": "25"}, "Balance 20 45 Available 20 45"),
        (entry_form_url(2, "revoke"), {}, "20 of grant #2 taken back, for ada (Credits). 20 from lot #2, which never expires."),
        (entry_form_url(4, "release"), {}, "Balance 20 30 Available 20 30 Held 10 0"),
        (
            account_form_url("transfer"),
            {"to": "bob", "holder_again": "bob", "amount": "5"},
            "5 sent to bob, for ada (Credits). 5 from lot #2",
        ),
        (account_form_url("incoming-transfers"), {"accepted": "no"}, "for ada (Credits)."),
        (account_form_url("set-overdraft"), {"limit": "70"}, "Balance 20 20 Available 20 90 Overdraft limit 0 70"),
    ],
)
def test_the_dry_run_of_each_operation_shows_its_lots(client, ada, address, asked, expected):
    before = Entry.objects.count()
    response = send_first_step(client, address, reason="x", **asked)
    assert expected in text_of(response.content.decode())
    assert Entry.objects.count() == before
    done = client.post(address, hidden_values(response.content.decode()) | {"confirmed": "yes"})
    assert done.status_code == 302, text_of(done.content.decode())
    assert Entry.objects.count() > before


def test_what_would_be_refused_is_said_at_once_and_not_put_on_record(client, ada):
    before = Entry.objects.count()
    response = send_first_step(client, entry_form_url(3, "refund"), reason="oops", amount="111")
    assert response.status_code == 422
    assert "The refund exceeds the spend: sequence 3, refundable 110, requested 111" in text_of(response.content.decode())
    assert Entry.objects.count() == before


def test_a_new_holder_stays_confirmed_in_the_second_step(client):
    values = hidden_values(send_first_step(client, GRANT, **ASKED | {"holder_again": "ada"}).content.decode())
    assert client.post(GRANT, values | {"confirmed": "yes"}).status_code == 302
    assert reads.balance("ada").balance == 50


@pytest.mark.slow
def test_an_expiry_can_be_chosen_in_days_and_is_worked_out_before_it_is_confirmed(client, ada):
    with time_machine.travel(datetime(2040, 1, 31, 14, 3, tzinfo=UTC), tick=False):
        assert end_of_day_in(30, now=datetime.now(UTC)) == datetime(2040, 3, 2, tzinfo=UTC)
    values = hidden_values(send_first_step(client, account_form_url("grant"), **ASKED, expires_in="30").content.decode())
    expected = end_of_day_in(30, now=datetime.now(UTC))
    assert (values["expires_in"], values["expires_at"]) == ("", f"{expected:%Y-%m-%dT%H:%M:%S}")
    assert expected - datetime.now(UTC) > timedelta(days=30)
    both = send_first_step(client, account_form_url("grant"), **ASKED, expires_in="30", expires_at="2199-12-31T23:59")
    assert (both.status_code, "not both" in both.content.decode()) == (422, True)


def test_what_is_seldom_needed_is_folded_and_unfolded_where_it_is_filled_in(client, ada):
    def folded(page):
        return re.search(r'<details class="folded"( open)?>(.*?)</details>', page, re.DOTALL)

    closed = folded(client.get(GRANT).content.decode())
    assert closed[1] is None
    names = dict.fromkeys(name for name in re.findall(r'name="(\w+)[-"]', closed[2]) if name != "more")
    assert list(names) == [
        "reference", "expires_at", "effective_at", "priority", "applies_to", "paid", "currency", "sold_at", "document",
    ]  # fmt: skip
    assert folded(client.get(f"{GRANT}?reference=job-19").content.decode())[1] == " open"
    wrong = send_first_step(client, account_form_url("grant"), **ASKED | {"priority": "-1"}).content.decode()
    assert folded(wrong)[1] == " open"


def test_an_address_fills_the_form_in_but_never_its_key(client, ada):
    page = client.get(f"{GRANT}?amount=438&holder_id=ada&idempotency_key=mine&nonsense=1").content.decode()
    assert re.search(r'name="amount"[^>]*value="438"|value="438"[^>]*name="amount"', page)
    assert hidden_key(page).startswith("admin-")
    assert '<option value="goodwill">' in page

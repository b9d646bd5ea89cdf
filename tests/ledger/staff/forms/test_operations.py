"""Granting, refunding and revoking by an operator; making and revoking API keys."""

import hashlib
import re
from datetime import UTC, datetime

import pytest
from django.contrib.admin.utils import quote
from django.test import Client

from ledger import reads, services
from ledger.errors import HolderBusy, OutcomeUnknown
from ledger.keys import api_keys
from ledger.keys.models import ApiKey
from ledger.models import StaffEvent
from tests.ledger.staff.admin_site import entries_and_refusals, hidden_key, operator, submit_form

pytestmark = pytest.mark.django_db

GRANT = "/admin/ledger/account/grant-credits/"
NEW_KEY = "/admin/ledger_keys/apikey/add/"
CALLS = {"path": r"'http://testserver(/[^']+)'", "body": r"-d '([^']+)'", "key": r"Idempotency-Key: ([^']+)'"}
PAST, FUTURE = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)


def form_url(action, sequence, holder="ada"):
    """The address of a form about an entry."""
    return f"/admin/ledger/entrylisting/{quote(f'{holder}/credits/{sequence}')}/{action}/"


@pytest.fixture
def spend_of_30():
    """A grant of 100 and a spend of 30, which is entry 2."""
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.spend(holder_id="ada", amount=30, idempotency_key="s")


GRANTED = {
    "confirmed": "yes",
    "holder_id": "ada",
    "holder_again": "ada",
    "credit_type": "credits",
    "amount": "50",
    "source": "promotional",
    "priority": "10",
    "reason": "sorry for the outage",
    "reference": "ticket 4711",
    "expires_at": "2199-12-31T23:59",
}


def test_a_grant_is_recorded_with_the_operators_name_and_reason(client):
    response = submit_form(client, GRANT, **GRANTED)
    assert response.status_code == 302
    assert response["Location"] == f"/admin/ledger/entrylisting/{quote('ada/credits/1')}/change/"
    entry = reads.entry("ada", "credits", 1)
    assert (entry.kind, entry.amount, entry.actor, entry.reason, entry.reference) == (
        "grant", 50, "admin:mara", "sorry for the outage", "ticket 4711",
    )  # fmt: skip
    [lot] = entry.lots
    assert (lot.source, lot.priority, lot.expires_at.isoformat()) == ("promotional", 10, "2199-12-31T23:59:00+00:00")
    assert "is done" in client.get(response["Location"]).content.decode()


def test_a_double_click_grants_once(client):
    values = GRANTED | {"idempotency_key": hidden_key(client.get(GRANT).content.decode())}
    first, second = client.post(GRANT, values), client.post(GRANT, values)
    assert (first.status_code, second.status_code) == (302, 302)
    assert first["Location"] == second["Location"]
    assert entries_and_refusals() == (1, 0)
    assert "was already done by the first click" in client.get(second["Location"]).content.decode()


def test_two_forms_are_two_grants(client):
    submit_form(client, GRANT, **GRANTED)
    submit_form(client, GRANT, **GRANTED)
    assert reads.balance("ada").balance == 100


def test_a_form_that_was_changed_after_it_was_sent_says_so(client):
    values = GRANTED | {"idempotency_key": hidden_key(client.get(GRANT).content.decode())}
    client.post(GRANT, values)
    response = client.post(GRANT, values | {"amount": "51"})
    assert response.status_code == 422
    assert "Another request has used this idempotency key" in response.content.decode()
    assert hidden_key(response.content.decode()) != values["idempotency_key"]
    assert entries_and_refusals() == (1, 0)


@pytest.mark.products(most=4)
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"reason": ""}, "This field is required."),
        ({"reason": "   "}, "This field is required."),
        ({"reason": "x" * 501}, "at most 500 characters"),
        ({"amount": "0"}, "Amount must be at least 1 credit."),
        ({"amount": "1.5"}, "Amount must be a whole number of credits."),
        ({"amount": str(2**53)}, "Amount must be at most 9,007,199,254,740,991 credits."),
        ({"holder_id": "a b"}, "1 to 64 characters"),
        ({"credit_type": "SMS"}, "1 to 32 characters"),
        ({"expires_at": "2001-01-01T00:00"}, "Must be"),
        ({"expires_at": "2999-12-31T23:59"}, "This must be in the years 2000 to 2200, in UTC."),
        ({"expires_at": "soon"}, "Enter a valid date/time."),
        ({"source": "stolen"}, "Select a valid choice."),
        ({"idempotency_key": ""}, "required"),
    ],
)
def test_a_wrong_grant_shows_what_is_wrong_and_writes_nothing(client, changed, message):
    response = client.post(GRANT, GRANTED | {"idempotency_key": "k1"} | changed)
    assert response.status_code == 422
    assert message in response.content.decode()
    assert entries_and_refusals() == (0, 0)


@pytest.mark.slow
def test_a_grant_to_a_new_holder_is_asked_for_twice_and_one_to_a_known_holder_is_not(client):
    mistyped = GRANTED | {"holder_again": ""}
    response = submit_form(client, GRANT, **mistyped)
    page = response.content.decode()
    assert response.status_code == 422
    assert "ada is a new holder without credits. Type the id again to confirm it." in page
    assert 'name="holder_again"' in page
    assert submit_form(client, GRANT, **mistyped | {"holder_again": "adda"}).status_code == 422
    assert entries_and_refusals() == (0, 0)

    assert submit_form(client, GRANT, **GRANTED).status_code == 302
    assert submit_form(client, GRANT, **mistyped).status_code == 302, "ada is known now"
    assert 'name="holder_again"' not in client.get(GRANT).content.decode()
    assert submit_form(client, GRANT, **mistyped | {"holder_id": "ad"}).status_code == 422, (
        "whose id begins a known one is new too"
    )
    assert submit_form(client, GRANT, **mistyped | {"holder_id": "ada", "credit_type": "sms"}).status_code == 302
    assert entries_and_refusals() == (3, 0)


def test_whether_credits_were_paid_for_is_not_assumed(client):
    page = client.get(GRANT).content.decode()
    chosen = re.search(r'<select name="source".*?</select>', page, re.DOTALL)[0]
    assert re.findall(r'<option value="(\w*)"( selected)?', chosen) == [("", " selected"), ("purchased", ""), ("promotional", "")]
    response = submit_form(client, GRANT, **GRANTED | {"source": ""})
    assert (response.status_code, "This field is required." in response.content.decode()) == (422, True)
    assert entries_and_refusals() == (0, 0)


@pytest.mark.slow
def test_a_refund_offers_what_is_left_of_a_spend_and_a_revocation_what_is_unspent_of_a_grant(client, spend_of_30):
    def offered(address):
        page = client.get(address).content.decode()
        amount = re.search(r'<input[^>]*name="amount"[^>]*>', page)[0]
        found = re.search(r'value="(\d+)"', amount)
        return re.sub(r"\s+", " ", page), found and found[1]

    page, amount = offered(form_url("refund", 2))
    assert ("The entry took 30 credits. You can refund 30." in page, amount) == (True, "30")
    page, amount = offered(form_url("revoke", 1))
    assert ("The grant added 100 credits; 70 are unspent." in page, amount) == (True, "70")

    services.refund(holder_id="ada", spend=2, amount=10, idempotency_key="r")
    page, amount = offered(form_url("refund", 2))
    assert ("The entry took 30 credits; earlier refunds returned 10. You can refund 20." in page, amount) == (True, "20")
    assert offered(form_url("revoke", 1))[1] == "80"

    services.refund(holder_id="ada", spend=2, idempotency_key="rest")
    services.revoke(holder_id="ada", grant=1, idempotency_key="v")
    page, amount = offered(form_url("refund", 2))
    assert ("You can refund 0." in page, amount) == (True, None)
    assert offered(form_url("revoke", 1))[1] is None


def test_a_refund_gives_back_a_part_or_all(client, spend_of_30):
    assert submit_form(client, form_url("refund", 2), reason="half failed", amount="10").status_code == 302
    assert submit_form(client, form_url("refund", 2), reason="the rest, too").status_code == 302
    first, second = reads.entry("ada", "credits", 3), reads.entry("ada", "credits", 4)
    assert [(e.kind, e.amount, e.refers_to, e.actor, e.reason) for e in (first, second)] == [
        ("refund", 10, 2, "admin:mara", "half failed"),
        ("refund", 20, 2, "admin:mara", "the rest, too"),
    ]


def test_a_refund_of_too_much_is_refused_with_its_facts_and_the_form_can_be_mended(client, spend_of_30):
    response = submit_form(client, form_url("refund", 2), reason="oops", amount="31")
    page = response.content.decode()
    assert response.status_code == 422
    assert "The refund exceeds the spend: sequence 2, refundable 30, requested 31" in page
    assert entries_and_refusals() == (2, 1)
    [refusal] = reads.refusals("ada")
    assert (refusal.code, refusal.actor) == ("refund-exceeds-spend", "admin:mara")
    mended = client.post(
        form_url("refund", 2), {"idempotency_key": hidden_key(page), "confirmed": "yes", "reason": "oops", "amount": "30"}
    )
    assert mended.status_code == 302
    assert reads.balance("ada").balance == 100


def test_a_revocation_takes_back_what_is_unspent(client, spend_of_30):
    assert submit_form(client, form_url("revoke", 1), reason="chargeback").status_code == 302
    entry = reads.entry("ada", "credits", 3)
    assert (entry.kind, entry.amount, entry.balance, entry.actor, entry.reason) == ("revoke", -70, 0, "admin:mara", "chargeback")


@pytest.mark.parametrize(("action", "sequence"), [("refund", 2), ("revoke", 1)])
def test_without_a_reason_nothing_is_refunded_or_revoked(client, spend_of_30, action, sequence):
    response = submit_form(client, form_url(action, sequence), reason="", amount="10")
    assert response.status_code == 422
    assert "This field is required." in response.content.decode()
    assert entries_and_refusals() == (2, 0)


@pytest.mark.parametrize(("action", "sequence"), [("refund", 1), ("revoke", 2), ("refund", 99)])
def test_only_a_spend_can_be_refunded_and_only_a_grant_revoked(client, spend_of_30, action, sequence):
    assert client.get(form_url(action, sequence)).status_code == 403
    assert client.post(form_url(action, sequence), {"reason": "x", "idempotency_key": "k"}).status_code == 403
    assert entries_and_refusals() == (2, 0)


@pytest.mark.parametrize("error", [HolderBusy(key="ledger/ada"), OutcomeUnknown(holder_id="ada")])
def test_what_may_be_tried_again_keeps_its_key(client, monkeypatch, error):
    def fail(_):
        raise error

    key = hidden_key(client.get(GRANT).content.decode())
    with monkeypatch.context() as patched:
        patched.setattr(services.grant, "execute", fail)
        page = client.post(GRANT, GRANTED | {"idempotency_key": key}).content.decode()
    assert hidden_key(page) == key
    assert re.search("[Pp]ress the button again", page)
    assert client.post(GRANT, GRANTED | {"idempotency_key": key}).status_code == 302
    assert entries_and_refusals() == (1, 0)


# Permissions -----------------------------------------------------------------------------------------

LOOK = ("ledger.view_entrylisting", "ledger.view_account", "ledger_keys.view_apikey")


@pytest.mark.slow
def test_an_operator_who_may_only_look_is_offered_nothing_and_can_do_nothing(spend_of_30):
    client = operator(*LOOK)
    for address, sequence in ((form_url("refund", 2), 2), (form_url("revoke", 1), 1), (GRANT, None)):
        assert client.get(address).status_code == 403
        assert client.post(address, GRANTED | {"idempotency_key": "k"}).status_code == 403
        if sequence:
            page = client.get(f"/admin/ledger/entrylisting/{quote(f'ada/credits/{sequence}')}/change/").content.decode()
            assert address not in page
    assert client.get(NEW_KEY).status_code == 403
    assert client.post(NEW_KEY, {"name": "mine", "scopes": ["ledger:read"]}).status_code == 403
    assert entries_and_refusals() == (2, 0)
    assert not ApiKey.objects.exists()


@pytest.mark.slow
def test_each_permission_allows_only_its_own_operation(spend_of_30):
    client = operator(*LOOK, "ledger.refund_spend")
    assert form_url("refund", 2) in client.get(f"/admin/ledger/entrylisting/{quote('ada/credits/2')}/change/").content.decode()
    assert submit_form(client, form_url("refund", 2), reason="x").status_code == 302
    assert client.get(form_url("revoke", 1)).status_code == 403
    assert client.get(GRANT).status_code == 403


def test_without_logging_in_nothing_is_done(spend_of_30):
    assert Client().post(form_url("refund", 2), {"reason": "x", "idempotency_key": "k"})["Location"].startswith("/admin/login/")
    assert entries_and_refusals() == (2, 0)


def test_a_form_from_another_site_is_refused(spend_of_30):
    client = operator()
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = client.cookies
    assert strict.post(form_url("refund", 2), {"reason": "x", "idempotency_key": "k"}).status_code == 403
    assert entries_and_refusals() == (2, 0)


# API keys --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_key_is_shown_once_and_kept_nowhere(client):
    response = client.post(NEW_KEY, {"name": "shop", "scopes": ["ledger:read", "ledger:spend"], "holder_id": "ada"})
    secret = re.search(r'id="api-key"[^>]*>([^<]+)<', response.content.decode())[1]
    assert "no-store" in response["Cache-Control"]
    key = api_keys.find_api_key(secret)
    assert (key.name, key.scopes, key.holder_id, key.created_by) == ("shop", ["ledger:read", "ledger:spend"], "ada", "admin:mara")
    assert bytes(key.key_digest) == hashlib.sha256(secret.encode()).digest()
    for page in ("/admin/ledger_keys/apikey/", f"/admin/ledger_keys/apikey/{key.pk}/change/"):
        assert secret not in client.get(page).content.decode()
        assert secret[:8] in client.get(page).content.decode()
    assert secret not in str(dict(client.session.items()))


def test_a_holders_page_leads_to_a_key_for_it_and_the_page_of_the_key_has_calls_that_work(client):
    services.grant(holder_id="ada", amount=100, idempotency_key="g", credit_type="sms")
    assert "Spend by a call" in client.get("/admin/ledger/account/holders/ada/?type=sms").content.decode()
    form = client.get(f"/admin/ledger/account/{quote('ada/sms')}/spend-by-call/")["Location"]
    begun = client.get(form).context_data["form"]
    assert (begun["holder_id"].value(), begun["scopes"].value()) == ("ada", ["ledger:spend", "ledger:read"])
    made = client.post(form, {"name": "first", "scopes": begun["scopes"].value(), "holder_id": "ada"})
    spend, balance = made.context_data["calls"]
    assert (spend.words, balance.words) == ("Spend 1 sms of ada", "Read the balance of ada")
    sent = {name: re.search(pattern, spend.text)[1] for name, pattern in CALLS.items()}
    program = Client(headers={"Authorization": f"Bearer {made.context_data['secret']}"})
    headers = {"Idempotency-Key": sent["key"]}
    answer = program.post(sent["path"], sent["body"], content_type="application/json", headers=headers)
    assert (answer.status_code, answer.json()["balance"]) == (201, 99)
    assert program.get(re.search(CALLS["path"], balance.text)[1]).json()["balance"] == 99


def test_the_calls_of_a_key_are_those_of_its_scopes_and_name_a_holder_only_if_it_is_confined(client):
    made = client.post(NEW_KEY, {"name": "all", "scopes": ["ledger:read"]})
    assert [call.words for call in made.context_data["calls"]] == ["Read the balance of HOLDER"]
    assert "put a holder" in made.content.decode()
    other = client.post(NEW_KEY, {"name": "other", "scopes": ["billing:read"]})
    assert other.context_data["calls"] == []
    assert "Try it in a terminal" not in other.content.decode()


def label_rows(*labels: tuple[str, str]) -> dict[str, str]:
    """The rows of labels, as a browser sends them."""
    rows = ({f"labels-{number}-name": name, f"labels-{number}-value": value} for number, (name, value) in enumerate(labels))
    return {name: text for row in rows for name, text in row.items()}


def test_the_form_of_a_rotation_begins_with_a_day_from_now_as_a_browser_takes_it(client):
    key, _ = api_keys.create_api_key(name="first", scopes=["ledger:read"])
    form = client.get(f"/admin/ledger_keys/apikey/{key.pk}/rotate/").content.decode()
    assert re.search(r'name="former_until" value="\d{4}-\d\d-\d\dT\d\d:\d\d"', form)


def test_a_key_gets_the_labels_of_the_form_and_the_page_shows_them(client):
    form = {"name": "red.ada", "scopes": ["ledger:spend"]} | label_rows(("team", "red"), ("", ""), (" member", "ada"))
    assert client.post(NEW_KEY, form).status_code == 200
    key = ApiKey.objects.get()
    assert key.labels == {"team": "red", "member": "ada"}
    assert "member=ada, team=red" in client.get(f"/admin/ledger_keys/apikey/{key.pk}/change/").content.decode()
    assert "with the keys that it has made" in client.get(f"/admin/ledger_keys/apikey/{key.pk}/revoke/").content.decode()
    more = client.post(NEW_KEY, form | {"name": "other", "more": "labels"})
    assert more.content.decode().count('-value"') > client.get(NEW_KEY).content.decode().count('-value"')
    for wrong in ([("team", "")], [("team", "red"), ("team", "blue")], [("", "red")]):
        form = {"name": "other", "scopes": ["ledger:spend"]} | label_rows(*wrong)
        assert client.post(NEW_KEY, form).status_code == 422, wrong
    assert client.post(NEW_KEY, form | {"name": "other", "scopes": ["ledger:admin"]}).status_code == 422
    assert ApiKey.objects.count() == 1


def test_a_key_gets_the_expiry_and_the_limits_of_the_form_and_the_list_shows_them(client):
    life = {"expires_at": "2100-01-31T12:00", "requests_per_second": "50", "concurrent_requests": "4"}
    assert client.post(NEW_KEY, {"name": "shop", "scopes": ["ledger:read"], **life}).status_code == 200
    key = ApiKey.objects.get()
    assert (key.expires_at, key.requests_per_second, key.concurrent_requests) == (datetime(2100, 1, 31, 12, tzinfo=UTC), 50, 4)
    api_keys.create_api_key(name="old", scopes=["ledger:read"])
    ApiKey.objects.filter(name="old").update(expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    for page in ("/admin/ledger_keys/apikey/", f"/admin/ledger_keys/apikey/{key.pk}/change/"):
        shown = client.get(page).content.decode()
        assert "50 a second, 4 at the same time" in shown
        assert "2100-01-31" in shown
    assert "expired" in client.get("/admin/ledger_keys/apikey/").content.decode()
    ApiKey.objects.filter(pk=key.pk).update(last_used_at=datetime(2026, 3, 4, 5, 6, tzinfo=UTC))
    for page in ("/admin/ledger_keys/apikey/", f"/admin/ledger_keys/apikey/{key.pk}/change/"):
        assert "2026-03-04 05:06" in client.get(page).content.decode()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"expires_at": "2020-01-01T00:00"}, "must be in the future"),
        ({"requests_per_second": "0"}, "must be at least 1"),
        ({"concurrent_requests": "10001"}, "must be at most 10000"),
        ({"name": ""}, "required"),
        ({"scopes": []}, "required"),
        ({"scopes": ["root"]}, "Select a valid choice"),
        ({"holder_id": "a b"}, "1 to 64 characters"),
        ({"name": "taken"}, "Another API key is called taken."),
    ],
)
def test_a_wrong_api_key_shows_what_is_wrong_and_is_not_made(client, changed, message):
    api_keys.create_api_key(name="taken", scopes=["ledger:read"])
    response = client.post(NEW_KEY, {"name": "shop", "scopes": ["ledger:read"], "holder_id": ""} | changed)
    assert response.status_code == 422
    assert message in response.content.decode()
    assert ApiKey.objects.count() == 1


def test_a_key_whose_outcome_is_unknown_is_not_reported_as_made_or_as_failed(client, monkeypatch):
    """Its text is lost either way, so the operator is told what to do about a key that was made."""

    def lose(**_: object) -> None:
        raise OutcomeUnknown

    monkeypatch.setattr(api_keys, "create_api_key", lose)
    response = client.post(NEW_KEY, {"name": "shop", "scopes": ["ledger:read"], "holder_id": ""})
    assert response.status_code == 422
    assert "the outcome is unknown. If the list has a new key of this name, revoke it" in response.content.decode()


def test_a_revocation_whose_outcome_is_unknown_does_not_say_that_the_key_is_revoked(client, monkeypatch):
    def lose(key: ApiKey, actor: str) -> None:
        raise OutcomeUnknown

    key, _ = api_keys.create_api_key(name="shop", scopes=["ledger:read"])
    monkeypatch.setattr(api_keys, "revoke_api_key", lose)
    shown = client.post(f"/admin/ledger_keys/apikey/{key.pk}/revoke/", follow=True).content.decode()
    assert "the outcome is unknown. If this page does not say that the key is revoked" in shown
    assert "The key shop is revoked." not in shown


def test_a_revoked_key_is_worthless_and_stays_on_record_with_who_did_it(client):
    key, secret = api_keys.create_api_key(name="shop", scopes=["ledger:read"])
    address = f"/admin/ledger_keys/apikey/{key.pk}/revoke/"
    assert "Revoke API key shop" in client.get(address).content.decode()
    assert api_keys.find_api_key(secret) is not None
    assert client.post(address).status_code == 302
    assert api_keys.find_api_key(secret) is None
    client.post(address)
    events = StaffEvent.objects.filter(object="key shop").order_by("id").values_list("actor", "action")
    assert list(events) == [("command", "key-created"), ("admin:mara", "key-revoked")]
    assert client.post(f"/admin/ledger_keys/apikey/{key.pk}/delete/", {"post": "yes"}).status_code == 403
    assert operator(*LOOK, name="ben").post(address).status_code == 403


def rotation_url(key):
    """The address of the form that rotates the key."""
    return f"/admin/ledger_keys/apikey/{key.pk}/rotate/"


def test_a_rotated_keys_secret_is_shown_once_and_the_former_one_works_until_the_chosen_instant(client):
    key, former = api_keys.create_api_key(name="shop", scopes=["ledger:read"])
    assert 'value="' in client.get(rotation_url(key)).content.decode()
    response = client.post(rotation_url(key), {"former_until": "2100-01-31T12:00"})
    secret = re.search(r'id="api-key"[^>]*>([^<]+)<', response.content.decode())[1]
    assert "no-store" in response["Cache-Control"]
    assert api_keys.find_api_key(secret) == api_keys.find_api_key(former) == key
    shown = client.get(f"/admin/ledger_keys/apikey/{key.pk}/change/").content.decode()
    assert secret not in shown
    assert "2100-01-31" in shown
    event = StaffEvent.objects.get(action="key-rotated")
    assert (event.actor, event.object) == ("admin:mara", "key shop")
    assert event.details == "the former secret is valid until 2100-01-31 12:00 UTC"


@pytest.mark.parametrize(
    ("ended", "typed", "message"),
    [
        ({"revoked_at": PAST}, "", "The API key is revoked."),
        ({"expires_at": PAST}, "", "The API key is expired."),
        ({"former_digest": b"x", "former_until": FUTURE}, "2100-01-31T12:00", "a key has at most two secrets"),
        ({}, "2020-01-01T00:00", "must be in the future"),
        ({}, "soon", "Enter a valid date/time."),
    ],
)
def test_a_refused_rotation_says_why_and_changes_nothing(client, ended, typed, message):
    key, _ = api_keys.create_api_key(name="shop", scopes=["ledger:read"])
    ApiKey.objects.filter(pk=key.pk).update(**ended)
    before = ApiKey.objects.values().get()
    response = client.post(rotation_url(key), {"former_until": typed})
    assert response.status_code == 422
    assert message in response.content.decode()
    assert ApiKey.objects.values().get() == before
    assert not StaffEvent.objects.filter(action="key-rotated").exists()


def test_a_key_that_has_ended_has_no_button_that_rotates_it(client):
    key, _ = api_keys.create_api_key(name="shop", scopes=["ledger:read"])
    page = f"/admin/ledger_keys/apikey/{key.pk}/change/"
    assert rotation_url(key) in client.get(page).content.decode()
    ApiKey.objects.update(expires_at=PAST)
    assert rotation_url(key) not in client.get(page).content.decode()
    assert f"/admin/ledger_keys/apikey/{key.pk}/revoke/" in client.get(page).content.decode()


def test_only_who_is_permitted_rotates_a_key(client):
    key, secret = api_keys.create_api_key(name="shop", scopes=["ledger:read"])
    assert operator(*LOOK, name="ben").post(rotation_url(key), {"former_until": ""}).status_code == 403
    assert api_keys.find_api_key(secret) == key


def test_a_rotation_whose_outcome_is_unknown_is_not_reported_as_done_or_as_failed(client, monkeypatch):
    def lose(**_: object) -> None:
        raise OutcomeUnknown

    key, _ = api_keys.create_api_key(name="shop", scopes=["ledger:read"])
    monkeypatch.setattr(api_keys, "rotate_api_key", lose)
    response = client.post(rotation_url(key), {"former_until": ""})
    assert response.status_code == 422
    assert "the outcome is unknown. If this page says that the key was rotated" in response.content.decode()

"""The operators' pages: read-only for everyone, searched by an index, and no dearer with a longer history."""

import re
from datetime import timedelta

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from ledger import reads, services
from ledger.database.locks import try_advisory_lock
from ledger.errors import InsufficientCredits
from ledger.staff import history
from ledger.staff.entry_search import search
from tests.ledger.staff.admin_site import cost_of, entries_and_refusals, load_history, older_url, operator, shown_entries, text_of

pytestmark = pytest.mark.django_db

ENTRIES = "/admin/ledger/entrylisting/"
REFUSALS = "/admin/ledger/refusallisting/"
ACCOUNTS = "/admin/ledger/account/"


def entry_url(holder, sequence, credit_type="credits"):
    """The address of an entry's page."""
    return f"{ENTRIES}{quote(f'{holder}/{credit_type}/{sequence}')}/change/"


@pytest.fixture
def ada():
    """A grant, a spend, a refund of part of it, and a refusal."""
    services.grant(holder_id="ada", amount=100, idempotency_key="g", reason="top-up", reference="pay_1", actor="key:shop")
    services.spend(holder_id="ada", amount=30, idempotency_key="s", reason="job 1", reference="job_1", actor="key:shop")
    services.refund(holder_id="ada", spend=2, amount=10, idempotency_key="r", reason="half failed", actor="key:shop")
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=500, idempotency_key="too-much")


# Read-only -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("listing", "key"), [(ENTRIES, "ada/credits/2"), (REFUSALS, "ada/credits/4"), (ACCOUNTS, "ada/credits")])
def test_a_superuser_can_look_at_the_ledger_and_change_nothing(client, ada, listing, key):
    page = f"{listing}{quote(key)}/"
    before = entries_and_refusals()
    assert client.get(listing).status_code == 200
    assert client.get(f"{page}change/", follow=True).status_code == 200
    for url in (f"{page}change/", f"{page}delete/", f"{listing}add/"):
        assert client.post(url, {"post": "yes", "reason": "x", "amount": "1"}).status_code == 403, url
    client.post(listing, {"action": "delete_selected", "_selected_action": [key], "post": "yes"})
    assert entries_and_refusals() == before
    assert [entry.reason for entry in reads.entries("ada")] == ["half failed", "job 1", "top-up"]


@pytest.mark.parametrize("listing", [ENTRIES, REFUSALS, ACCOUNTS, f"{ACCOUNTS}locks/", "/admin/ledger_keys/apikey/"])
def test_an_operator_with_another_permission_sees_nothing_of_it(ada, listing):
    assert operator("ledger.grant_credits").get(listing).status_code == 403


@pytest.mark.products(most=2)
@pytest.mark.parametrize("key", ["nobody/credits/1", "ada/credits/99", "ada/credits/x", "ada", "ada/credits/2/2"])
def test_an_entry_that_is_not_there_is_not_found(client, ada, key):
    response = client.get(f"{ENTRIES}{quote(key)}/change/", follow=True)
    assert b"Perhaps it was deleted" in response.content


# What is shown ---------------------------------------------------------------------------------------


def test_a_refund_leads_to_its_spend_and_the_spend_to_its_refunds(client, ada):
    refund = client.get(entry_url("ada", 3)).content.decode()
    assert f'href="{entry_url("ada", 2)}">spend #2</a>' in refund
    spend = client.get(entry_url("ada", 2)).content.decode()
    assert "Referred to by: 10 refunded" in spend
    assert f'href="{entry_url("ada", 3)}">#3</a>' in spend
    assert f'href="{entry_url("ada", 1)}">#1</a>' in spend


def test_an_entry_says_who_why_and_with_which_key_and_that_its_digest_is_right(client, ada):
    page = client.get(entry_url("ada", 2)).content.decode()
    for fact in ("key:shop", "job 1", "job_1", "<code", reads.entry("ada", "credits", 2).digest.hex(), "right"):
        assert fact in page
    assert "WRONG" not in page
    assert f'href="{ACCOUNTS}holders/ada/?type=credits"' in page
    assert f'href="{REFUSALS}?q=ada"' in page


def test_a_refusal_about_an_entry_stands_on_its_page(client, ada):
    from ledger.errors import RefundExceedsSpend

    with pytest.raises(RefundExceedsSpend):
        services.refund(holder_id="ada", spend=2, amount=21, idempotency_key="r2")
    page = client.get(entry_url("ada", 2)).content.decode()
    assert "refund-exceeds-spend" in page
    refusal = client.get(f"{REFUSALS}{quote('ada/credits/5')}/change/").content.decode()
    assert f'href="{entry_url("ada", 2)}">spend #2</a>' in refusal
    assert "refundable&nbsp;20" in refusal
    assert "refund-exceeds-spend" not in client.get(entry_url("ada", 1)).content.decode()


def test_the_list_of_holders_shows_what_can_be_spent_now(client, ada):
    effective_at = timezone.now() + timedelta(days=1)
    services.grant(holder_id="ada", amount=1_000, idempotency_key="later", effective_at=effective_at)
    services.grant(holder_id="bob", amount=5, credit_type="sms", idempotency_key="g")
    page = client.get(ACCOUNTS).content.decode()
    cells = re.findall(r'field-(available|balance_now)[^>]*>\s*<span class="figure">([^<]+)</span>', page)
    assert cells == [("available", "80"), ("balance_now", "1,080"), ("available", "5"), ("balance_now", "5")]
    assert "bob" not in client.get(f"{ACCOUNTS}?q=a").content.decode()
    assert re.findall(r"holders/(\w+)/\?type=sms", client.get(f"{ACCOUNTS}?credit_type=sms").content.decode()) == ["bob"]


def test_the_page_of_locks_names_who_holds_what(client):
    with try_advisory_lock("invoice_gen/SUB-1234"):
        page = client.get(f"{ACCOUNTS}locks/").content.decode()
    assert "exclusive" in page
    assert "1 held or awaited, 0 waiting" in page


# Search and filters ----------------------------------------------------------------------------------


@pytest.mark.products(most=6)
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("q=ada", ["3", "2", "1"]),
        ("q=ad*", ["3", "2", "1"]),
        ("q=ad", []),
        ("q=ada/credits/2", ["2"]),
        ("q=job_1", ["2"]),
        ("q=r", ["3"]),
        ("q=ada&kind=refund", ["3"]),
        ("q=ada&kind=spend", ["2"]),
        ("q=ada&credit_type=sms", []),
        ("q=ada&since=2999-01-01", []),
        ("q=ada&until=2999-01-01T10:00", ["3", "2", "1"]),
        ("q=ada&until=2001-01-01", []),
        ("q=job_1&kind=grant", []),
        ("kind=grant", ["1"]),
        ("credit_type=credits&kind=spend", ["2"]),
        ("since=2999-01-01", []),
        ("", ["3", "2", "1"]),
    ],
)
def test_entries_are_found_by_holder_reference_key_kind_type_and_time(client, ada, query, expected):
    page = client.get(f"{ENTRIES}?{query}").content.decode()
    assert [number for _, number in shown_entries(page)] == expected


@pytest.fixture
def actors(db):
    """Entries of two actors; `ada` is a holder and a reference."""
    services.grant(holder_id="ada", amount=5, idempotency_key="g", actor="key:shop", metadata={"order": 7781})
    services.spend(holder_id="ada", amount=1, idempotency_key="s", actor="key:till", metadata={"order": "7781", "a:b": 1})
    services.grant(holder_id="bob", amount=5, idempotency_key="g", actor="key:shop", reference="ada", metadata={"order": 7})


@pytest.mark.products(most=4)
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("actor=key:shop", [("bob", "1"), ("ada", "1")]),
        ("actor=key", []),
        ("metadata=order:7781", [("ada", "2"), ("ada", "1")]),
        ("metadata=order:778", []),
        ("metadata=order:", []),
        ("actor=key:till&metadata=order:7781&kind=spend", [("ada", "2")]),
        ("q=ada&actor=key:shop", [("bob", "1"), ("ada", "1")]),
        ("q=ad*&actor=key:shop", [("ada", "1")]),
        ("q=ada&metadata=order:7781&since=2999-01-01", []),
    ],
)
def test_entries_are_found_by_actor_and_metadata(client, actors, query, expected):
    page = client.get(f"{ENTRIES}?{query}").content.decode()
    assert shown_entries(page) == expected


def test_of_a_holder_only_so_many_entries_are_searched_and_the_page_says_so(client, actors, monkeypatch):
    services.spend(holder_id="ada", amount=1, idempotency_key="s2", actor="key:till")
    monkeypatch.setattr("ledger.staff.entry_search.WINDOW_ROWS", 2)
    found = search("ada", {"actor": "key:shop"}, "", most=1)
    assert [row.id for row in found.rows] == ["bob/credits/1"]
    assert "recorded before" in found.note
    assert search("ada", {"kind": "grant"}, "", most=5).note == ""


@pytest.mark.parametrize("metadata", ["order", ":7781"])
def test_metadata_without_a_key_and_a_value_are_refused_in_words(client, actors, metadata):
    assert "write it as order:7781" in client.get(f"{ENTRIES}?metadata={metadata}", follow=True).content.decode()


def test_a_word_that_is_a_holder_and_a_reference_finds_both_once(client, ada):
    services.grant(holder_id="bob", amount=5, idempotency_key="ada", reference="ada")
    services.grant(holder_id="ada", amount=5, idempotency_key="g2", reference="ada")
    page = client.get(f"{ENTRIES}?q=ada").content.decode()
    assert shown_entries(page) == [("ada", "5"), ("bob", "1"), ("ada", "3"), ("ada", "2"), ("ada", "1")]


@pytest.mark.parametrize(
    ("query", "count"),
    [("q=ada", 1), ("q=too-much", 1), ("q=a*", 1), ("q=b*", 0), ("operation=spend", 1), ("code=lot-limit", 0), ("q=bob", 0)],
)
def test_refusals_are_found_by_holder_key_operation_and_code(client, ada, query, count):
    page = client.get(f"{REFUSALS}?{query}").content.decode()
    assert page.count("field-sentence") == count


@pytest.mark.parametrize("query", ["since=yesterday", "p=x", "p=1/2/3", "kind=nonsense", "credit_type=%00", "until=2026-99-99"])
def test_a_wrong_filter_says_so_and_shows_nothing(client, ada, query):
    page = client.get(f"{ENTRIES}?{query}").content.decode()
    assert shown_entries(page) == []


@pytest.mark.slow
def test_pages_follow_one_another_without_gap_or_repetition(client, monkeypatch):
    made = load_history(holders=7, entries=230)
    expected = [(entry.holder_id, str(entry.sequence)) for entry in reversed(made)]
    seen, query = [], "?"
    while query:
        page = client.get(ENTRIES + query).content.decode()
        seen += shown_entries(page)
        query = older_url(page)
    assert seen == expected


def test_a_list_leads_to_other_pages_only_where_there_are_some(client, ada):
    def ways(query):
        nav = re.search(r'<nav[^>]*aria-label="Pages">(.*?)</nav>', client.get(ENTRIES + query).content.decode(), re.DOTALL)
        return nav and text_of(nav[1]).split()

    assert ways("") is None
    load_history(holders=7, entries=80)
    assert ways("") == ["Older", "›"]
    assert ways(older_url(client.get(ENTRIES).content.decode())) == ["Newest"]


@pytest.mark.parametrize("window_rows", [40, 100, 10_000])
def test_a_filter_without_an_index_looks_on_from_window_to_window_and_misses_nothing(client, monkeypatch, window_rows):
    made = load_history(holders=7, entries=400)
    monkeypatch.setattr(history, "WINDOW_ROWS", window_rows)
    expected = [(entry.holder_id, str(entry.sequence)) for entry in reversed(made) if entry.kind == "grant"]
    seen, query, clicks = [], "?kind=grant", 0
    while query:
        page = client.get(ENTRIES + query).content.decode()
        seen += shown_entries(page)
        query, clicks = older_url(page), clicks + 1
    assert seen == expected
    assert clicks == 400 // window_rows + 1


@pytest.mark.slow
def test_an_account_is_paged_by_its_numbers(client):
    made = load_history(holders=2, entries=240)
    holder = made[0].holder_id
    expected = [str(entry.sequence) for entry in reversed(made) if entry.holder_id == holder]
    seen, query = [], f"?q={holder}"
    while query:
        page = client.get(ENTRIES + query).content.decode()
        seen += [number for _, number in shown_entries(page)]
        query = older_url(page)
    assert seen == expected


# What a page costs -----------------------------------------------------------------------------------


def pages_of_the_ledger(holder, reference, key, older):
    """The address of every list and page about this holder, by name."""
    return {
        "entries": ENTRIES,
        "entries older": f"{ENTRIES}?p={older}",
        "entries of a kind": f"{ENTRIES}?kind=grant",
        "entries of a day": f"{ENTRIES}?since=2025-01-01&until=2025-01-02",
        "entries of a holder": f"{ENTRIES}?q={holder}",
        "grants of a holder": f"{ENTRIES}?q={holder}&kind=grant",
        "entries of holders": f"{ENTRIES}?q={holder[:-1]}*",
        "entries by reference": f"{ENTRIES}?q={reference}",
        "entries by key": f"{ENTRIES}?q={key}",
        "entry": entry_url(holder, 2),
        "holders": ACCOUNTS,
        "holders by prefix": f"{ACCOUNTS}?q={holder[:-1]}",
        "holders who are low": f"{ACCOUNTS}?at_most=100000000&credit_type=credits",
        "holders whose credits expire": f"{ACCOUNTS}?expires_before=2999-01-01",
        "month-end": f"{ACCOUNTS}month-end/",
        "rates": "/admin/ledger/ratelisting/",
        "batches": "/admin/ledger/batchlisting/",
        "staff log": "/admin/ledger/staffevent/",
        "find anything": f"/admin/search/?s={reference}",
        "holder": f"{ACCOUNTS}holders/{holder}/",
        "refusals": REFUSALS,
    }


def page_costs(client, made):
    """What each page of the ledger costs, by the page's name."""
    spend = next(entry for entry in made if entry.kind == "spend")
    older = f"{spend.recorded_us}/{spend.holder_id}/credits/{spend.sequence}"
    urls = pages_of_the_ledger(spend.holder_id, spend.reference, spend.idempotency_key, older)
    return {name: cost_of(client, url) for name, url in urls.items()}


@pytest.mark.slow
@pytest.mark.one_node("reads the plans of one server")
def test_twenty_thousand_entries_cost_no_more_queries_than_two_hundred_and_no_page_reads_a_whole_table(client):
    few = page_costs(client, load_history(holders=30, entries=200))
    many = page_costs(client, load_history(holders=30, entries=20_000, first_holder=101))
    statements = {name: len(cost.statements) for name, cost in many.items()}
    assert statements == {name: len(cost.statements) for name, cost in few.items()}
    assert max(statements.values()) <= 36
    for name, cost in many.items():
        assert cost.plans, name
        for statement in cost.statements:
            # What is counted has been read already, and is bounded.
            read = ("(SELECT count(*) FROM looked_at)", "(SELECT count(*) FROM known)")
            assert "COUNT(" not in statement.upper() or any(each in statement for each in read), name
        for plan in cost.plans:
            assert "Seq Scan on ledger_entry" not in plan, f"{name}:\n{plan}"
    assert "ledger_entry_reference" in "".join(many["entries by reference"].plans)
    assert "ledger_entry_recorded_at" in "".join(many["entries"].plans)


@pytest.mark.parametrize(("asked", "shown"), [("", "/admin/"), ("?next=/admin/locks/", "/admin/locks/")])
def test_an_operator_who_logs_in_comes_to_the_page_asked_for_or_the_first_one(asked, shown):
    User.objects.create_superuser("mara", password="a good password")
    answer = Client().post(f"/admin/login/{asked}", {"username": "mara", "password": "a good password"})
    assert (answer.status_code, answer["Location"]) == (302, shown)

"""The operators' page of the shadow: first differences, and what was observed of their accounts."""

from ledger.database.statements import fetch_value
from ledger.shadow.observing import observe
from tests.ledger.staff.admin_site import operator


def test_the_page_lists_first_differences_with_both_sides(db: None) -> None:
    for name, balance in (("ada", 40), ("bob", 41)):
        observe(holder_id=name, idempotency_key="1", operation="balance", balance=41)
        observe(holder_id=name, idempotency_key="2", operation="balance", balance=balance)
        observe(holder_id=name, idempotency_key="3", operation="spend", amount=1, balance=39)
    client = operator("ledger_shadow.view_observation")
    page = client.get("/admin/ledger_shadow/observation/").content.decode()
    assert "The other system states the balance and has 40 after it; the ledger would have 41." in page
    assert page.count("the ledger would have") == 2
    number = fetch_value(int, "SELECT id FROM ledger_observation WHERE holder_id = 'ada' AND first_difference = number")
    one_page = client.get(f"/admin/ledger_shadow/observation/{number}/change/")
    assert one_page.status_code == 200
    assert "spend of 1" in one_page.content.decode()

"""The page of a holder says where the credits went, by a label or by rate, and sends it as a file."""

import pytest

from ledger import services
from ledger.models import StaffEvent
from tests.ledger.staff.admin_site import text_of

pytestmark = pytest.mark.django_db

HOLDER = "/admin/ledger/account/holders/ada/?type=credits"


@pytest.fixture
def used(client):
    services.grant(holder_id="ada", amount=1_000, idempotency_key="g")
    for number, (model, member) in enumerate((("large", "ann"), ("large", "ben"), ("small", "ann"))):
        services.spend(holder_id="ada", amount=100, metadata={"model": model, "member": member}, idempotency_key=f"{number}")
    services.spend(holder_id="ada", amount=100, idempotency_key="last")


def test_use_is_shown_by_model_and_by_any_label_that_there_is(client, used):
    page = text_of(client.get(HOLDER).content.decode())
    assert "Where 400 credits went, last 30 days" in page
    assert "large 200 50 % 2" in page
    assert "not named 100 25 % 1" in page
    by_member = text_of(client.get(f"{HOLDER}&by=label:member&days=90").content.decode())
    assert "last 90 days" in by_member
    assert "ann 200 50 % 2" in by_member
    # What is no label of the account shows the first again.
    assert "large 200 50 % 2" in text_of(client.get(f"{HOLDER}&by=label:nothing").content.decode())


def test_a_holder_who_used_nothing_has_no_such_section(client):
    services.grant(holder_id="ada", amount=1_000, idempotency_key="g")
    assert "went, last" not in text_of(client.get(HOLDER).content.decode())


def test_the_file_has_each_day_and_value_and_the_staff_log_says_who_took_it(client, used):
    response = client.get(f"{HOLDER}&by=label:member&format=usage-csv")
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    lines = b"".join(response.streaming_content).decode("utf-8-sig").splitlines()
    assert lines[0] == "Day,Member,Used,On overage,Entries"
    assert [line.split(",")[1:] for line in lines[1:]] == [
        ["ann", "200", "0", "2"],
        ["ben", "100", "0", "1"],
        ["not named", "100", "0", "1"],
    ]
    event = StaffEvent.objects.get(action="exported")
    assert event.object == "usage-ada-credits.csv"


def test_use_is_by_a_label_and_rate_together_on_the_page_and_in_the_file(client, used):
    services.publish_rate(credit_type="credits", code="chat", price=2, per=1, idempotency_key="p")
    for number, labels in enumerate(({"member": "ann"}, {})):
        services.spend(holder_id="ada", rate="chat", quantity=30, metadata=labels, idempotency_key=f"rated-{number}")
    page = text_of(client.get(f"{HOLDER}&by=label:member").content.decode())
    assert "member and rate" in page
    by_both = text_of(client.get(f"{HOLDER}&by=label:member,rate").content.decode())
    assert "ann no rate 200 38 % 2" in by_both
    assert "ann chat 60 12 % 1" in by_both
    assert "not named chat 60 12 % 1" in by_both
    response = client.get(f"{HOLDER}&by=label:member,rate&format=usage-csv")
    lines = b"".join(response.streaming_content).decode("utf-8-sig").splitlines()
    assert lines[0] == "Day,Member,Rate,Used,On overage,Entries"
    assert [line.split(",")[1:] for line in lines[1:]] == [
        ["ann", "no rate", "200", "0", "2"],
        ["ben", "no rate", "100", "0", "1"],
        ["ann", "chat", "60", "0", "1"],
        ["not named", "no rate", "100", "0", "1"],
        ["not named", "chat", "60", "0", "1"],
    ]

"""The books over REST: a month, an instant, and what is refused."""

import pytest

from ledger import services
from ledger.months import month_of
from ledger.totals.counting import count_entries

pytestmark = pytest.mark.django_db


def test_a_month_and_an_instant_have_deferred_revenue(api):
    services.grant(holder_id="ann", amount=3, paid_minor=100, currency="EUR", idempotency_key="g")
    spend = services.spend(holder_id="ann", amount=1, idempotency_key="s")
    count_entries()
    month = f"{spend.recorded_at:%Y-%m}"
    book = api.get(f"/v1/books/{month}").json()
    assert (book["month"], book["is_closed"]) == (month, False)
    (section,) = [each for each in book["sections"] if each["credit_type"] == "credits"]
    assert section == {
        "credit_type": "credits", "currency": "EUR", "opening_minor": 0,
        "lines": {"sold": 100, "recognised": -33, "breakage": 0, "revoked": 0, "transferred": 0}, "late": {},
        "closing_minor": 67, "by_expiry": [{"expires": "never", "opening_minor": 0, "closing_minor": 67}],
    }  # fmt: skip
    now = api.get("/v1/deferred-revenue").json()
    assert now["results"] == [{"credit_type": "credits", "currency": "EUR", "expires": "never", "deferred_minor": 67}]
    assert api.get("/v1/deferred-revenue?at=2020-01-01T00:00:00Z").json() == {"at": "2020-01-01T00:00:00.000000Z", "results": []}


@pytest.mark.parametrize(
    "path",
    [
        "books/2999-01",
        "books/9999-12",
        "books/1999-12",
        "books/0001-01",
        "books/2026-13",
        "books/2026",
        "months/9999-12",
        "months/9999-12.pdf",
    ],
)
def test_a_month_without_books_is_a_404(api, path):
    count_entries()
    assert api.get(f"/v1/{path}").status_code == 404


def test_a_wrong_instant_names_its_parameter(api):
    response = api.get("/v1/deferred-revenue?at=yesterday")
    assert response.status_code == 400
    assert response.json()["errors"][0]["pointer"] == "/at"


@pytest.mark.parametrize(
    ("text", "day"),
    [("2026-01", "2026-01-01"), ("2026-1", None), ("2026-13", None), ("0001-01", None), ("9999-12", None), ("", None)],
)
def test_months_have_one_spelling(text, day):
    found = month_of(text)
    assert (found and found.isoformat()) == day

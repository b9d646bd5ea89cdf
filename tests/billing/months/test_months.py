"""The figures of a month: each is the sum of its rows, months tie to each other, and one that is over never changes."""

import csv
import io
from datetime import date
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from billing.documents.invoice_payments.recording import record_payment
from billing.documents.invoice_payments.returns import record_payment_return
from billing.months.receivables import amount_of
from billing.reads.months.documents import Receivable, receivables_of
from ledger.errors import Invalid
from ledger.statements.months import month_pdf
from ledger.totals.figures import Month, amounts_of, month_figures, rows_of
from tests.billing.documents.issued import add_seller
from tests.billing.months.history import BEFORE, LAST, NOW, noon, sell, settle, write_months
from tests.ledger.admin.admin_site import operator
from tests.ledger.conftest import ledger_clock
from tests.ledger.totals.test_totals import at_noon_of

__all__ = ["at_noon_of", "ledger_clock"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def made(at_noon_of):
    return write_months(at_noon_of)


def values(month: Month, section: str) -> dict[tuple[str, str], int | Decimal]:
    """The amounts of a section that are not 0, by figure and column."""
    [found] = [each for each in month.sections if each.key == section]
    return {(figure.key, column.key): amount.value for figure, column, amount in amounts_of(found) if amount.value}


def column(month: Month, section: str, key: str) -> dict[str, int | Decimal]:
    return {figure: value for (figure, of), value in values(month, section).items() if of == key}


def test_two_months_by_hand(made):
    found = month_figures(LAST)
    assert found.is_final
    assert column(found, "sales", "EUR/net") == {"invoiced": 280_00, "credited": -40_00, "voided": -20_00, "all": 220_00}
    assert column(found, "sales", "EUR/total") == {
        "invoiced": 333_20, "credited": -47_60, "voided": -23_80, "all": 261_80, "invoices": 3,
    }  # fmt: skip
    assert column(found, "sales", "USD/total") == {"invoiced": 35_70, "all": 35_70, "invoices": 1}
    assert column(found, "taxes", "EUR/tax") == {"default/BE/19/S": 32_30, "default/FR/19/S": 9_50, "all": 41_80}
    assert column(found, "taxes", "USD/tax") == {"default/US/19/S": 5_70, "all": 5_70}
    before, found = month_figures(BEFORE), month_figures(LAST)
    assert column(before, "unpaid", "EUR") == {"issued": 202_30, "closing": 202_30}
    assert column(found, "unpaid", "EUR") == {
        "opening": 202_30, "issued": 333_20, "paid": -59_50, "credited": -47_60, "void": -23_80, "written_off": -11_90,
        "closing": 392_70,
    }  # fmt: skip
    assert column(found, "unpaid", "USD") == {"issued": 35_70, "closing": 35_70}
    assert sum(column(found, "unpaid_by_age", "EUR").values()) == 2 * 392_70
    tokens = column(found, "credits", "tokens")
    assert (tokens["granted_purchased"], tokens["spent"], tokens["revoked"]) == (10, -1, -100)
    assert column(found, "deferred", "tokens/EUR") == {
        "opening": 32_50, "recognised": -5, "revoked": -5_00, "closing": 27_45, "revenue": 5,
    }  # fmt: skip
    assert column(found, "deferred", "tokens/JPY")["revenue"] == 100
    assert column(found, "recurring", "EUR/mrr") == {
        "opening": 200_00, "new": 210_00, "churn": -100_00, "closing": 310_00, "gross_churn": Decimal("50.0"),
        "net_churn": Decimal("50.0"),
    }  # fmt: skip
    assert column(found, "recurring", "EUR/customers") == {
        "opening": 2, "new": 1, "churn": 1, "closing": 2, "customer_churn": Decimal("50.0"),
    }  # fmt: skip
    assert column(found, "recurring", "USD/mrr") == {"new": 30_00, "closing": 30_00}
    assert column(found, "cohorts", "EUR/kept") == {f"{BEFORE:%Y-%m}": 1, f"{LAST:%Y-%m}": 1}


@pytest.mark.parametrize(
    ("month", "figure"),
    [
        (date(2026, 9, 1), "not_due"), (date(2026, 10, 1), "not_due"), (date(2026, 11, 1), "days_1_30"),
        (date(2026, 12, 1), "days_61_90"), (date(2027, 1, 1), "days_91"),
    ],
)  # fmt: skip
def test_the_age_of_an_invoice_is_counted_on_the_last_day_of_the_month(month, figure):
    row = Receivable(1, "INV-1", "C", "EUR", date(2026, 9, 1), date(2026, 10, 31), True, "", 100, 0, 0)
    ages = ("not_due", "days_1_30", "days_31_60", "days_61_90", "days_91")
    assert [age for age in ages if amount_of(row, age, month)] == [figure]


def test_every_number_is_the_sum_of_its_rows_and_months_tie(made):
    opened = 0
    for month in (BEFORE, LAST, NOW):
        for section in month_figures(month).sections:
            for figure, _, amount in amounts_of(section):
                if not amount.value or amount.rows is None or amount.rows.page != "ledger_month_rows":
                    continue
                query = amount.rows.query
                found = rows_of(month, query["section"], query["figure"], query["column"], may=lambda permission: True)
                assert found is not None, query
                if (query["section"], query["figure"]) == (section.key, figure.key):
                    assert found.total == amount.value, query
                opened += 1
    assert opened > 150
    before, found = month_figures(BEFORE), month_figures(LAST)
    for section in ("unpaid", "credits", "deferred", "recurring"):
        ended, begun = ({of: value for (figure, of), value in values(month, section).items() if figure == end}
                        for month, end in ((before, "closing"), (found, "opening")))  # fmt: skip
        assert ended == begun
    found = month_figures(LAST)
    rows = list(csv.DictReader(io.StringIO(found.as_csv(), newline="")))
    assert len(rows) == sum(len(amounts_of(section)) for section in found.sections)
    expected = {
        "month": f"{LAST:%Y-%m}", "state": "final", "section": "sales", "figure": "all", "title": "Sales", "column": "EUR/total",
        "amount": "26180", "unit": "EUR minor units",
    }  # fmt: skip
    assert expected in rows
    for month in (date(1, 1, 1), date(1999, 12, 1), date(2199, 12, 1), date(9999, 12, 1)):
        with pytest.raises(Invalid):
            month_figures(month)


def test_a_month_that_is_over_has_the_same_bytes_whatever_comes_later(made, at_noon_of):
    before = month_figures(LAST)
    files = before.as_csv(), month_pdf(before)
    sell(noon(NOW, 1), "5.00")
    with CaptureQueriesContext(connection) as few:
        month_figures(NOW)
    settle(made["late"], "pay", noon(NOW, 2))
    settle(made["dollars"], "void", noon(NOW, 3))
    sell(noon(NOW, 4), "5.00")
    later = month_figures(LAST)
    assert (later.as_csv(), month_pdf(later)) == files
    assert files[1].startswith(b"%PDF")
    with CaptureQueriesContext(connection) as more:
        current = month_figures(NOW)
    assert len(more) == len(few) < 50
    assert not current.is_final
    assert column(current, "unpaid", "USD") == {"opening": 35_70, "void": -35_70}


def test_what_is_paid_in_parts_and_sent_back_is_unpaid_for_the_rest():
    add_seller()
    invoice = sell(noon(LAST, 3), "100.00")
    paid = record_payment(invoice=invoice.pk, payment="p1", amount_minor=119_00)
    record_payment_return(invoice_payment=paid.pk, kind="dispute", payment="d1", amount_minor=20_00)
    [row] = receivables_of(NOW)
    assert (row.due_minor, row.paid_minor, row.unpaid_minor) == (119_00, 99_00, 20_00)
    [before] = receivables_of(LAST)
    assert (before.is_new, before.unpaid_minor) == (True, 119_00)


# The page --------------------------------------------------------------------------------------------

PAGE = "/admin/ledger/account/month-end/"


def test_the_page_has_all_sections_and_each_number_opens_its_rows(made):
    client = operator()
    page = client.get(f"{PAGE}?month={LAST:%Y-%m}").content.decode()
    for words in ("This month is final", "Sales", "Unpaid at the end, by age", "Recurring revenue (MRR)", "261.80", "50.0 %"):
        assert words in page, words
    addresses = {each.split('"')[0].replace("&amp;", "&") for each in page.split('href="')[1:]}
    links = sorted(each for each in addresses if "month-end/rows" in each or "entrylisting/?" in each)
    assert len(links) > 60
    for address in links[:: len(links) // 12]:
        assert client.get(address).status_code == 200, address
    query = {"month": f"{LAST:%Y-%m}", "section": "sales", "figure": "all", "column": "EUR/total"}
    page = client.get(f"{PAGE}rows/", query).content.decode()
    for words in (
        "Sales: total in EUR",
        made["late"].number,
        "261.80",
        reverse("admin:billing_invoice_change", args=[made["late"].pk]),
    ):
        assert words in page, words
    sent = b"".join(client.get(f"{PAGE}rows/", {**query, "format": "csv"}).streaming_content).decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(sent, newline="")))
    assert sum(Decimal(row["EUR"]) for row in rows) == Decimal("261.80")
    assert {row["What"] for row in rows} == {"Invoices issued", "Credit notes issued", "Voided"}
    restricted = operator("ledger.view_dailytotal", name="credits only")
    page = restricted.get(f"{PAGE}?month={LAST:%Y-%m}").content.decode()
    assert 'id="credits"' in page
    assert 'id="sales"' not in page
    query = {"month": f"{LAST:%Y-%m}", "section": "sales", "figure": "all", "column": "EUR/total"}
    assert restricted.get(f"{PAGE}rows/", query).status_code == 404
    assert operator("ledger.view_account", name="nobody").get(f"{PAGE}rows/", query).status_code == 403
    assert client.get("/admin/billing/run/journal/", {"month": f"{LAST:%Y-%m}"}).content.startswith(b"date,")
    for month in (f"{NOW:%Y-%m}", "x", "0001-01", "9999-12"):
        page = client.get("/admin/billing/run/journal/", {"month": month}, follow=True)
        assert "There is no journal of" in page.content.decode()


@pytest.mark.parametrize(
    "query",
    [
        {"figure": "all"}, {"month": "2026-13", "figure": "all"}, {"month": "0001-01", "figure": "all"},
        {"month": "9999-12", "figure": "all"}, {"month": f"{LAST:%Y-%m}", "figure": "all"},
        {"month": f"{LAST:%Y-%m}", "section": "sales", "figure": "none", "column": "EUR/total"},
        {"month": f"{LAST:%Y-%m}", "section": "sales", "figure": "all", "column": "EUR"},
        {"month": f"{LAST:%Y-%m}", "section": "sales", "figure": "all", "column": "x\x00/total"},
        {"month": f"{LAST:%Y-%m}", "section": "taxes", "figure": "all", "column": "EUR/total"},
        {"month": f"{LAST:%Y-%m}", "section": "unpaid", "figure": "all", "column": "EUR"},
        {"month": f"{LAST:%Y-%m}", "section": "credits", "figure": "spent", "column": "\x00"},
        {"month": f"{LAST:%Y-%m}", "section": "deferred", "figure": "sold", "column": "tokens"},
        {"month": f"{LAST:%Y-%m}", "section": "recurring", "figure": "new", "column": "EUR/x"},
        {"month": f"{LAST:%Y-%m}", "section": "cohorts", "figure": "new", "column": "/"},
    ],
)  # fmt: skip
def test_rows_that_do_not_exist_are_not_found(query):
    assert operator().get(f"{PAGE}rows/", query).status_code == 404


def test_the_address_of_the_rows_without_a_figure_leads_to_the_month():
    assert operator().get(f"{PAGE}rows/").headers["Location"] == PAGE


# The API ---------------------------------------------------------------------------------------------


def test_the_call_has_the_same_figures_as_the_file_and_sends_the_pdf(made, api):
    body = api.get(f"/v1/months/{LAST:%Y-%m}").json()
    assert (body["month"], body["is_final"], body["as_of"]) == (f"{LAST:%Y-%m}", True, None)
    rows = csv.DictReader(io.StringIO(month_figures(LAST).as_csv(), newline=""))
    in_body = [
        [section["section"], *(each[name] for name in ("figure", "title", "column", "amount", "unit"))]
        for section in body["sections"]
        for each in section["figures"]
    ]
    names = ("section", "figure", "title", "column", "amount", "unit")
    assert in_body == [[row[name] for name in names] for row in rows]
    assert api.get(f"/v1/months/{NOW:%Y-%m}").json()["is_final"] is False
    sent = api.get(f"/v1/months/{LAST:%Y-%m}.pdf")
    assert (sent.status_code, sent.headers["Content-Type"]) == (200, "application/pdf")
    assert sent.content == month_pdf(month_figures(LAST))


@pytest.mark.parametrize("month", ["1999-12", "0001-01", "9999-12", "2026-13", "2199-12"])
def test_a_month_that_there_is_not_is_not_found(api, month):
    for path in (f"months/{month}", f"months/{month}.pdf", f"books/{month}"):
        assert api.get(f"/v1/{path}").status_code == 404, path

"""The figures of a month: each is the sum of its rows, months tie to each other, and one that is over never changes."""

import csv
import io
from datetime import date
from decimal import Decimal
from typing import NamedTuple

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from billing.books.month_deferred import ELSEWHERE
from billing.books.month_documents import Receivable, receivables_of
from billing.books.month_receivables import amount_of
from billing.documents.invoice_payments import record_payment
from billing.documents.payment_returns import record_payment_return
from ledger.errors import Invalid
from ledger.rules.credit_units import plain_unit
from ledger.totals.figures import LATE, Figure, FigureColumn, FigureRow, FigureSection, Month, Rows, amounts_of, money
from ledger.totals.month_figures import month_figures, rows_of
from ledger.totals.month_pdf import month_pdf
from tests.billing.books.history import BEFORE, LAST, NOW, noon, sell, settle, write_late_entries, write_months, write_more
from tests.billing.documents.issued import add_seller
from tests.ledger.conftest import ledger_clock
from tests.ledger.staff.admin_site import operator
from tests.ledger.totals.test_totals import TYPE, at_noon_of

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


class Summed(NamedTuple):
    """How many figures are the sum of their rows, and the rows that take off later entries: section, figure and amount."""

    figures: int
    late: set[tuple[str, str, int]]


def ensure_summed_by_rows(month: date) -> Summed:
    """Fail unless each figure of a month that is not a rate is the sum of its rows."""
    summed, late = 0, set()
    for section in month_figures(month).sections:
        for figure, of, amount in amounts_of(section):
            found = rows_of(month, section.key, figure.key, of.key)
            if not amount.is_sum:
                assert found is None
                continue
            place = f"{month:%Y-%m} {section.key} {figure.key} {of.key}"
            assert found is not None, place
            assert found.total == amount.value, place
            keys = [row.key for row in found.rows]
            assert keys == sorted(set(keys)), place
            assert all(len(row.cells) == len(found.headings) - 1 for row in found.rows), place
            late |= {(section.key, figure.key, row.amount) for row in found.rows if row.cells[0] in (LATE, ELSEWHERE)}
            summed += 1
    return Summed(summed, late)


@pytest.mark.slow
@pytest.mark.check
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


@pytest.mark.slow
@pytest.mark.check
def test_every_number_is_the_sum_of_its_rows_and_months_tie(made):
    assert sum(ensure_summed_by_rows(month).figures for month in (BEFORE, LAST, NOW)) > 300
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


@pytest.mark.slow
def test_rows_of_sellers_yearly_plans_debts_and_late_entries_add_up_too(at_noon_of):
    write_more(at_noon_of)
    write_months(at_noon_of)
    before = month_figures(LAST).as_csv()
    found = ensure_summed_by_rows(LAST)
    assert found.figures > 150
    assert found.late == set()
    tied = rows_of(LAST, "credits", "invoices paid with credits by entries", TYPE)
    assert tied is not None
    assert [(row.cells[1].amount, row.amount) for row in tied.rows] == [(40, 40), (0, 5)]
    assert tied.rows[1].cells[0] == "no document 999999999"
    write_late_entries(at_noon_of)
    assert month_figures(LAST).as_csv() == before
    assert ensure_summed_by_rows(LAST).late == {
        ("deferred", "sold", -9_00), ("deferred", "recognised", 2_00), ("deferred", "revenue", -2_00),
        ("deferred_by_expiry", "never", -7_00), ("credits_by_expiry", "never purchased", -7),
    }  # fmt: skip
    assert ensure_summed_by_rows(NOW).late == set()
    moved = rows_of(NOW, "deferred", "late_sold", f"{TYPE}/EUR")
    assert moved is not None
    [row] = moved.rows
    assert (row.cells[0].text, row.amount) == (f"{LAST:%Y-%m}", 9_00)


def test_rows_are_paged_by_their_keys():
    rows = Rows("Days", ["Day", "Credits"], [FigureRow((key,), [key], 1) for key in "cabed"], plain_unit("credits"), total=4)
    assert [row.key for row in rows.rows] == [("a",), ("b",), ("c",), ("d",), ("e",), ("~",)]
    assert (rows.rows[-1].cells, rows.total) == ([LATE], 4)
    assert [row.key for row in rows.page(2)] == [("a",), ("b",)]
    assert [row.key for row in rows.page(2, after=("bb",))] == [("c",), ("d",)]
    assert [row.key for row in rows.page(2, before=("d",))] == [("b",), ("c",)]
    assert rows.page(2, before=("a",)) == rows.page(2, after=("~",)) == []


@pytest.mark.slow
@pytest.mark.check
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


@pytest.mark.slow
def test_the_page_has_all_sections_and_each_number_opens_its_rows(made):
    client = operator()
    page = client.get(f"{PAGE}?month={LAST:%Y-%m}").content.decode()
    for words in ("This month is final", "Sales", "Unpaid at the end, by age", "Recurring revenue (MRR)", "261.80", "50.0 %"):
        assert words in page, words
    addresses = {each.split('"')[0].replace("&amp;", "&") for each in page.split('href="')[1:]}
    links = sorted(each for each in addresses if "month-end/rows" in each)
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
    restricted = operator("ledger_totals.view_dailytotal", name="credits only")
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


@pytest.mark.products(most=3)
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


@pytest.mark.slow
@pytest.mark.check
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


@pytest.mark.slow
@pytest.mark.check
def test_the_call_sends_the_same_csv_as_the_page(made, api):
    sent = api.get(f"/v1/months/{LAST:%Y-%m}.csv")
    assert (sent.status_code, sent.headers["Content-Type"]) == (200, "text/csv; charset=utf-8")
    assert sent.headers["Content-Disposition"] == f'attachment; filename="month-{LAST:%Y-%m}.csv"'
    assert sent.content == operator().get(PAGE, {"month": f"{LAST:%Y-%m}", "format": "csv"}).content
    assert api.get(f"/v1/months/{LAST:%Y-%m}.csv", accept="text/*").status_code == 200
    refused = api.get(f"/v1/months/{LAST:%Y-%m}.csv", accept="application/json")
    assert (refused.status_code, refused.json()["served"]) == (406, "text/csv")
    assert api.get(f"/v1/months/{LAST:%Y-%m}", accept="text/csv").status_code == 406
    head = api.client.generic("HEAD", f"/v1/months/{LAST:%Y-%m}.csv", headers=api._headers({}))
    assert (head.status_code, head.headers["Content-Type"]) == (200, "text/csv; charset=utf-8")


def test_text_that_looks_like_a_formula_is_text_in_the_file():
    figure = Figure("=1+1", "@SUM(A1)", [money(-5, "EUR")])
    month = Month(LAST, True, noon(LAST, 1), [FigureSection("taxes", "Taxes", [FigureColumn("EUR/net", "EUR net")], [figure])])
    [row] = csv.DictReader(io.StringIO(month.as_csv(), newline=""))
    assert (row["figure"], row["title"], row["amount"]) == ("'=1+1", "'@SUM(A1)", "-5")


@pytest.mark.slow
@pytest.mark.check
def test_the_call_lists_the_rows_of_a_figure_by_the_page(made, api):
    address = f"/v1/months/{LAST:%Y-%m}/rows?section=sales&figure=all&column=EUR/total"
    whole = api.get(address).json()
    assert (whole["total"], whole["next"], whole["previous"]) == ("26180", None, None)
    assert sum(int(row["amount"]) for row in whole["results"]) == 261_80
    numbers = {cell["text"]: cell["id"] for row in whole["results"] for cell in row["cells"] if cell["heading"] == "Document"}
    assert numbers[made["late"].number] == str(made["late"].pk)
    paged, following = [], f"{address}&limit=2"
    while following:
        page = api.get(following).json()
        assert page["total"] == "26180"
        paged += page["results"]
        before, following = page["previous"], page["next"]
    assert paged == whole["results"]
    assert api.get(before).json()["results"] == paged[-4:-2] if len(paged) % 2 == 0 else paged[-3:-1]
    of_zero = api.get(f"/v1/months/{LAST:%Y-%m}/rows?section=sales&figure=carried&column=EUR/net").json()
    assert (of_zero["total"], of_zero["results"]) == ("0", [])


@pytest.mark.products(most=3)
@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400), ("?section=sales&figure=all", 400), ("?section=sales&figure=all&column=EUR/net&x=1", 400),
        ("?section=sales&figure=all&column=EUR/net&cursor=x", 400), ("?section=sales&figure=all&column=EUR/net&limit=0", 400),
        ("?section=sales&figure=%00&column=EUR/net", 400), ("?section=sales&figure=all&column=XXX/net", 404),
        ("?section=recurring&figure=net_churn&column=EUR/mrr", 404), ("?section=credits&figure=spent&column=nothing", 404),
        ("?section=credits_by_expiry&figure=2026-13+x&column=tokens", 404), ("?section=x&figure=x&column=x", 404),
    ],
)  # fmt: skip
def test_rows_of_no_figure_are_refused(made, api, query, status):
    assert api.get(f"/v1/months/{LAST:%Y-%m}/rows{query}").status_code == status


@pytest.mark.parametrize("month", ["1999-12", "0001-01", "9999-12", "2026-13", "2199-12"])
def test_a_month_that_there_is_not_is_not_found(api, month):
    rows = f"months/{month}/rows?section=sales&figure=all&column=EUR/net"
    for path in (f"months/{month}", f"months/{month}.pdf", f"months/{month}.csv", rows, f"books/{month}"):
        assert api.get(f"/v1/{path}").status_code == 404, path

"""The statements of the last months on the customer's page."""

from datetime import UTC, datetime
from typing import Any

import pytest
import time_machine
from django.test import Client

from ledger import services
from ledger.portal import links
from ledger.typesetting.languages import GERMAN

pytestmark = pytest.mark.django_db


def data_of(client: Client, **fields: Any) -> Any:
    return client.get(links.link(holder_id="ada", **fields).data_url).json()


def test_the_page_lists_the_statements_of_an_account_from_its_first_month_on(client: Client) -> None:
    services.grant(holder_id="ada", amount=5, idempotency_key="1")
    services.grant(holder_id="ada", amount=5, credit_type="tokens", idempotency_key="2")
    month = f"{datetime.now(UTC):%Y-%m}"
    [row] = data_of(client)["statements"]
    assert row["month"] == month
    pdf = client.get(row["pdf_url"])
    assert (pdf.status_code, pdf.content[:5]) == (200, b"%PDF-")
    assert pdf["Content-Disposition"] == f'attachment; filename="statement-ada-credits-{month}.pdf"'
    html = client.get(links.link(holder_id="ada", language="de").url).content.decode()
    assert f"{GERMAN.month(datetime.now(UTC))}, bis heute, als PDF" in html


def test_no_more_than_a_year_of_them_is_listed(client: Client) -> None:
    services.grant(holder_id="ada", amount=5, idempotency_key="1")
    now = datetime.now(UTC)
    with time_machine.travel(now.replace(year=now.year + 3, day=1)):
        rows = data_of(client)["statements"]
    assert (len(rows), rows[0]["month"]) == (12, f"{now.year + 3}-{now:%m}")
    assert rows[0]["month"] > rows[1]["month"]


def test_other_months_types_and_holders_have_no_statement_there(client: Client) -> None:
    services.grant(holder_id="ada", amount=5, idempotency_key="1")
    services.grant(holder_id="ada", amount=5, credit_type="tokens", idempotency_key="2")
    services.grant(holder_id="ben", amount=5, credit_type="others", idempotency_key="3")
    month = f"{datetime.now(UTC):%Y-%m}"
    link = links.link(holder_id="ada", credit_types=["credits"]).url
    names = {f"statement-{month}-{each}" for each in ("tokens", "others", "x")} | {
        "statement-2001-01-credits", "statement-2199-01-credits", "statement-2026-13-credits", "statement-",
    }  # fmt: skip
    assert {client.get(link.replace("/c/?", f"/c/documents/{name}.pdf?")).status_code for name in names} == {410}
    assert client.get(link.replace("/c/?", f"/c/documents/statement-{month}-credits.pdf?")).status_code == 200


def test_without_amounts_and_without_entries_there_are_none(client: Client) -> None:
    assert "statements" not in data_of(client)
    services.grant(holder_id="ada", amount=5, idempotency_key="1")
    assert "statements" not in data_of(client, hide_amounts=True)
    month, hidden = f"{datetime.now(UTC):%Y-%m}", links.link(holder_id="ada", hide_amounts=True).url
    assert client.get(hidden.replace("/c/?", f"/c/documents/statement-{month}-credits.pdf?")).status_code == 410

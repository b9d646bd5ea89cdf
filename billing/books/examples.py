"""Bodies for the OpenAPI document: a company's books."""

from typing import Any, Final

from ledger.rest.kit.schema import page_example

TAX_SUMMARY: dict[str, Any] = {
    "month": "2026-02",
    "rows": [
        {"seller": "default", "currency": "EUR", "country": "DE", "category": "S", "rate": "19", "base_minor": 124000,
         "tax_minor": 23560},
        {"seller": "default", "currency": "EUR", "country": "CA", "tax": "ca-gst", "category": "O", "rate": "5",
         "base_minor": 10000, "tax_minor": 500},
    ],
}  # fmt: skip
BOOK: dict[str, Any] = {
    "month": "2026-10", "is_closed": True, "as_of": None,
    "sections": [
        {
            "credit_type": "credits", "currency": "EUR", "opening_minor": 325000,
            "lines": {"sold": 990000, "recognised": -412050, "breakage": -1250, "revoked": -9900, "transferred": 0}, "late": {},
            "closing_minor": 891800,
            "by_expiry": [
                {"expires": "2027-10", "opening_minor": 0, "closing_minor": 500000},
                {"expires": "never", "opening_minor": 325000, "closing_minor": 391800},
            ],
        }
    ],
}  # fmt: skip
MONTH: dict[str, Any] = {
    "month": "2026-10", "is_final": True, "as_of": None,
    "sections": [
        {
            "section": "sales", "title": "Sales",
            "figures": [
                {"figure": "invoiced", "title": "Issued", "column": "EUR/net", "amount": "28000", "unit": "EUR minor units"},
                {"figure": "all", "title": "Sales", "column": "EUR/net", "amount": "22000", "unit": "EUR minor units"},
            ],
        },
        {
            "section": "recurring", "title": "Recurring revenue (MRR)",
            "figures": [
                {"figure": "net_churn", "title": "Net MRR churn", "column": "EUR/mrr", "amount": "1.5", "unit": "percent"},
            ],
        },
    ],
}  # fmt: skip
MONTH_CSV: Final = (
    "month,state,section,figure,title,column,amount,unit\r\n2026-10,final,sales,all,Sales,EUR/net,22000,EUR minor units\r\n"
)
MONTH_ROWS: dict[str, Any] = {
    "title": "Sales: net in EUR", "total": "22000",
    **page_example(
        {
            "cells": [
                {"heading": "Day", "id": None, "text": "2026-10-03"},
                {"heading": "Document", "id": "1", "text": "INV-000001"},
                {"heading": "Customer", "id": None, "text": "CUST-7"},
                {"heading": "What", "id": None, "text": "Invoices issued"},
            ],
            "amount": "7000",
        },
        path="/v1/months/2026-10/rows",
    ),
}  # fmt: skip
DEFERRED: dict[str, Any] = {
    "at": "2026-10-15T12:00:00.000000Z",
    "results": [{"credit_type": "credits", "currency": "EUR", "expires": "never", "deferred_minor": 391800}],
}

"""Sentences over which people stumbled do not come back: each was replaced by the words of the field."""

from django.conf import settings

PACKAGES = ("billing", "ledger", "ledger_project")
STUMBLED = {
    "Payable until": "Due",
    "payable until": "due on",
    "Still to pay": "Amount due",
    "It has no rest": "Fully used",
    "Write the pack": "Create pack",
    "A written version never changes.": "Saved versions cannot be edited; create a new one.",
    "Beside them, without a price": "Extra credits, free",
    "By documents; empty: its ref in words": "Name on invoices (default: the reference)",
    "Takes off": "Discount",
    "What it will say": "Preview",
    "Holder who pays": "Credit account",
    "Documents have no address": "No billing address: invoices will be incomplete",
    "and it needs them": "Enter the number of periods",
    "Nothing is called": "No results for",
    "Days held back": "Invoice delay (days)",
    "ended badly": "Invoicing failed",
    "is no file": "no such file",
    "So many of them": "How many of them",
}


def test_no_page_mail_or_document_says_what_people_stumbled_over() -> None:
    found = []
    for package in PACKAGES:
        files = [path for kind in ("*.py", "*.html") for path in (settings.BASE_DIR / package).rglob(kind)]
        assert len(files) > 50
        texts = [(path, path.read_text("utf-8")) for path in files]
        found += [(str(path), old, better) for path, text in texts for old, better in STUMBLED.items() if old in text]
    assert found == []

"""Links to the ledger's pages, by the ids that people know."""

from typing import Any

from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from ledger.staff.kit.cells import link


def entry_id(holder_id: str, credit_type: str, sequence: int) -> str:
    """Return the key of an entry on these pages."""
    return f"{holder_id}/{credit_type}/{sequence}"


def account_id(holder_id: str, credit_type: str) -> str:
    """Return the key of an account on these pages."""
    return f"{holder_id}/{credit_type}"


def entry_url(holder_id: str, credit_type: str, sequence: int) -> str:
    """Return the address of the entry's page."""
    return reverse("admin:ledger_entrylisting_change", args=[quote(entry_id(holder_id, credit_type, sequence))])


def entry_link(holder_id: str, credit_type: str, sequence: int, words: str = "") -> SafeString:
    """A link to the entry's page."""
    return link(entry_url(holder_id, credit_type, sequence), words or f"#{sequence}")


def account_url(holder_id: str, credit_type: str) -> str:
    """Return the address of the account: its holder's page."""
    return holder_url(holder_id, type=credit_type)


def holder_url(holder_id: str, **options: Any) -> str:
    """Return the address of the holder's page, for a credit type (`type`), with `days` in its chart."""
    query = f"?{urlencode(options)}" if options else ""
    return f"{reverse('admin:ledger_holder', args=[holder_id])}{query}"


def holder_link(holder_id: str, words: str = "", **options: Any) -> SafeString:
    """A link to the holder's page."""
    return link(holder_url(holder_id, **options), words or holder_id)


def account_link(holder_id: str, credit_type: str, words: str = "") -> SafeString:
    """A link to the account on its holder's page."""
    return link(account_url(holder_id, credit_type), words or holder_id)


def rate_id(credit_type: str, code: str, version: int) -> str:
    """Return the key of a version of a rate on these pages."""
    return f"{credit_type}/{code}/{version}"


def rate_url(credit_type: str, code: str, version: int) -> str:
    """Return the address of the page of that version of the rate."""
    return reverse("admin:ledger_ratelisting_change", args=[quote(rate_id(credit_type, code, version))])


def rate_link(credit_type: str, code: str, version: int, words: str = "") -> SafeString:
    """A link to the page of that version of the rate."""
    return link(rate_url(credit_type, code, version), words or f"{code} v{version}")


def refusal_url(holder_id: str, credit_type: str, sequence: int) -> str:
    """Return the address of the refusal's page."""
    return reverse("admin:ledger_refusallisting_change", args=[quote(entry_id(holder_id, credit_type, sequence))])


def refusal_link(holder_id: str, credit_type: str, sequence: int, words: str) -> SafeString:
    """A link to the refusal's page."""
    return link(refusal_url(holder_id, credit_type, sequence), words)


def entries_url(**filters: Any) -> str:
    """Return the address of the list of entries with these filters."""
    return f"{reverse('admin:ledger_entrylisting_changelist')}?{urlencode(filters)}"


def refusals_url(**filters: Any) -> str:
    """Return the address of the list of refusals with these filters."""
    return f"{reverse('admin:ledger_refusallisting_changelist')}?{urlencode(filters)}"


def accounts_url(**filters: Any) -> str:
    """Return the address of the list of holders with balances with these filters."""
    return f"{reverse('admin:ledger_account_changelist')}?{urlencode(filters)}"

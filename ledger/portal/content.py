"""What the page says, in the form of its JSON. The HTML is made from this alone, so it cannot say more.

With `hides_amounts` the amounts are not in here at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.http import HttpRequest
from django.utils import timezone

from ledger import reads
from ledger.portal.limits import NAME as LIMITS
from ledger.portal.limits import limits_section
from ledger.portal.links import Link
from ledger.portal.parts import PageDisplay, PageList, PortalCustomer, account_parts, customer_of
from ledger.portal.units import page_units
from ledger.portal.usage import BY_RATE, GROUPS, group_rows, rated_rows, read_usage
from ledger.reads import Balance, ShownEntry
from ledger.rules.instants import to_text, to_us
from ledger.rules.kinds import KINDS
from ledger.rules.overage import Overage
from ledger.typesetting.languages import Language, language_of
from ledger.units import CreditUnit
from ledger.values import MAX_SEQUENCE

HISTORY_ROWS: Final = 20
LOTS_SHOWN: Final = 50
BACK: Final = "back"
"""In the query of an address to which another site sends the customer back."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """A page.

    Args:
        data: its JSON.
        sections: the lists that other applications add; the JSON has their rows.
    """

    data: dict[str, Any]
    sections: Sequence[PageList]
    language: Language
    zone: ZoneInfo


def shown_of(
    link: Link, request: HttpRequest, language: Language, before: Mapping[str, int] = MappingProxyType({})
) -> PageDisplay:
    """Return how another application shows its part of the page. Args: as `PageDisplay`."""
    return PageDisplay(
        language=language,
        hides_amounts=link.hides_amounts,
        document_url=lambda name: link.address("document", name),
        action_url=lambda name: link.address("action", name),
        back_url=lambda name: link.address_from_outside(request, "step", name, **{BACK: 1}),
        allows_payments=link.allows_payments,
        allows_plan_changes=link.allows_plan_changes,
        plans=link.plans,
        only_step=link.step,
        before=before,
    )


def page_language(link: Link, customer: PortalCustomer | None) -> Language:
    """Return the language of the page: that of the link, else the customer's, else English."""
    return language_of(link.language or (customer.language if customer else "en"))


def read_content(
    link: Link,
    request: HttpRequest,
    *,
    credit_type: str | None = None,
    before: int | None = None,
    lots_from: int = 0,
    sections_before: Mapping[str, int] = MappingProxyType({}),
) -> Content:
    """Read the page of a link, without a lock.

    Args:
        credit_type: the account whose lots, usage and history are shown; None, or one that the link does not show: the first.
        before: only entries of a smaller number, for a further page of the history.
        lots_from: how many lots further pages have shown already.
        sections_before: see `PageDisplay.before`.
    """
    customer = customer_of(link.holder_id)
    zone = _zone(customer.time_zone if customer else "")
    language = page_language(link, customer)
    accounts = [
        account
        for account in reads.accounts(link.holder_id)
        if account.credit_type in (link.credit_types or [account.credit_type])
    ]
    chosen = next((account for account in accounts if account.credit_type == credit_type), accounts[0] if accounts else None)
    units = page_units((account.credit_type for account in accounts), language)
    shown = shown_of(link, request, language, sections_before)
    sections = list(customer.sections(shown) if customer else ())
    limits = None
    if chosen is not None and not link.hides_amounts:
        limits = limits_section(link.holder_id, units[chosen.credit_type], language, zone)
        sections = [limits, *sections] if limits.rows else sections
        sections += [section for part in account_parts() for section in part.sections(link.holder_id, chosen.credit_type, shown)]
    data = {
        "holder": link.holder_id,
        "name": customer.name if customer else "",
        "language": language.code,
        "time_zone": zone.key,
        "hides_amounts": link.hides_amounts,
        "link_expires_at": to_text(to_us(link.expires_at)),
        "accounts": [_account(account, units[account.credit_type], hides=link.hides_amounts) for account in accounts],
        "account": chosen and _details(chosen, link, zone, before, lots_from),
        "notices": [section.notice for section in sections if section.notice],
        LIMITS: [] if limits is None else list(limits.rows),
        **{section.name: list(section.rows) for section in sections},
        **{f"{section.name}_older_than": section.older_than for section in sections},
    }
    return Content(data=data, sections=sections, language=language, zone=zone)


def _zone(name: str) -> ZoneInfo:
    """Return the customer's zone, otherwise that of the project's settings."""
    try:
        return ZoneInfo(name or timezone.get_default_timezone_name())
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def _account(found: Balance, unit: CreditUnit, *, hides: bool) -> dict[str, Any]:
    return {
        "credit_type": found.credit_type,
        "name": unit.name,
        "unit": unit.unit,
        "decimals": unit.scale,
        "available": None if hides else found.available,
        "held": None if hides else found.held,
        "owed": None if hides else found.owed,
        "overage": None if hides or found.overage is None else _overage(found.overage),
        "for_other_things": [] if hides else [each._asdict() for each in found.for_other_things or ()],
    }


def _overage(overage: Overage) -> dict[str, Any]:
    return {"limit": overage.limit, "used": overage.used, "until": to_text(overage.left_until_us)}


def _details(found: Balance, link: Link, zone: ZoneInfo, before: int | None, lots_from: int) -> dict[str, Any]:
    """Return lots, usage and history of an account."""
    hides, lots_until = link.hides_amounts, lots_from + LOTS_SHOWN
    lots = sorted(
        (lot for lot in found.lots if not lot.is_expired(to_us(found.as_of))),
        key=lambda lot: (lot.expires_us is None, lot.expires_us or 0, lot.grant),
    )
    position = None if before is None else (found.as_of, found.credit_type, min(before, MAX_SEQUENCE))
    entries = reads.entries(link.holder_id, credit_type=found.credit_type, before=position, limit=HISTORY_ROWS + 1)
    page = entries[:HISTORY_ROWS]
    usage = None if hides else read_usage(link.holder_id, found.credit_type, zone=zone, now=found.as_of)
    return {
        "credit_type": found.credit_type,
        "as_of": to_text(to_us(found.as_of)),
        "lots": [
            {
                "amount": None if hides else lot.remaining,
                "source": lot.source,
                "starts_at": to_text(lot.effective_us) if lot.effective_us > to_us(found.as_of) else None,
                "expires_at": None if lot.expires_us is None else to_text(lot.expires_us),
                "applies_to": None if lot.applies_to is None else lot.applies_to.shown(),
            }
            for lot in lots[lots_from:lots_until]
        ],
        "lots_from": lots_from,
        "more_lots": max(0, len(lots) - lots_until),
        "usage": None if usage is None else [{"day": f"{day:%Y-%m-%d}", "used": used} for day, used in usage.days],
        **{f"usage_by_{name}": None if usage is None else group_rows(usage.groups[name]) for name in GROUPS},
        f"usage_by_{BY_RATE}": None if usage is None else rated_rows(usage.by_rate),
        # Statements leave out the same kinds.
        "history": [_entry(entry, hides=hides) for entry in page if KINDS[entry.kind].on_statement],
        "older_than": page[-1].sequence if len(entries) > HISTORY_ROWS else None,
    }


def _entry(entry: ShownEntry, *, hides: bool) -> dict[str, Any]:
    return {
        "number": entry.sequence,
        "kind": entry.kind,
        "at": to_text(entry.recorded_us),
        "amount": None if hides else entry.amount,
        "balance": None if hides else entry.balance,
    }


def instant(text: str) -> datetime:
    """Return an instant of the JSON."""
    return datetime.fromisoformat(text)

"""The seller: name, address, VAT id and bank account, as documents print them. Append-only: a change is a new version.

Finalising an invoice records the current version, so the document always shows the same details.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from billing.models import Seller
from billing.orders.customers import ADDRESS_LINES
from ledger.errors import Invalid

REQUIRED: Final = {"name", "line1", "city", "country"}
LIMITS: Final = {
    "name": 70, **{name: line.most for name, line in ADDRESS_LINES.items()}, "country": 2, "vat_id": 32, "tax_number": 32,
    "register": 100, "email": 100, "phone": 40, "website": 100, "iban": 34, "bic": 11, "bank": 70,
}  # fmt: skip
"""The fields of a seller, with their longest lengths. A transfer takes a name of at most 70 characters."""
PATTERNS: Final = {
    "country": (re.compile("[A-Z]{2}"), "must be the two capital letters of ISO 3166"),
    "vat_id": (re.compile("[A-Z]{2}[0-9A-Z+*]{2,30}"), "must begin with its country, without spaces"),
    "iban": (re.compile("[A-Z]{2}[0-9]{2}[0-9A-Z]{11,30}"), "must be an IBAN without spaces"),
    "bic": (re.compile("[A-Z]{6}[A-Z0-9]{2}([A-Z0-9]{3})?"), "must be 8 or 11 capital letters and digits"),
}


def record_seller(details: Mapping[str, Any], *, actor: str) -> Seller:
    """Record the seller of all documents from now on, or raise and write nothing. The current details again change nothing.

    Args:
        details: by the names of `LIMITS`; `name`, `line1`, `city` and `country` are required.

    Raises:
        Invalid: a name is unknown or missing, or a value breaks the rule of its field.
    """
    clean = _checked(details)
    current = current_seller()
    if current is not None and current.details == clean:
        return current
    return Seller.objects.create(details=clean, recorded_by=actor)


def current_seller() -> Seller | None:
    """Return the current seller; None before one is recorded."""
    return Seller.objects.order_by("-pk").first()


def seller_of(seller_id: int | None) -> Seller | None:
    """Return the seller of a document: the version that it names, or the first one if it was issued before any was recorded."""
    return Seller.objects.order_by("pk").first() if seller_id is None else Seller.objects.get(pk=seller_id)


def _checked(details: Mapping[str, Any]) -> dict[str, str]:
    for name in details:
        if name not in LIMITS:
            raise _invalid(name, "unknown-field", f"is unknown; a seller has {', '.join(LIMITS)}")
    for name in sorted(REQUIRED):
        if not details.get(name):
            raise _invalid(name, "required", "is required")
    return {name: _checked_value(name, details[name]) for name in LIMITS if details.get(name) not in (None, "")}


def _checked_value(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _invalid(name, "not-a-string", "must be a string")
    if len(value) > LIMITS[name]:
        raise _invalid(name, "too-long", f"must be at most {LIMITS[name]} characters")
    if not value.isprintable():
        raise _invalid(name, "forbidden-character", "must be one line of printable characters")
    if not value.strip():
        raise _invalid(name, "blank", "must not be blank")
    pattern, what = PATTERNS.get(name, (None, ""))
    if pattern is not None and not pattern.fullmatch(value):
        raise _invalid(name, "wrong-form", what)
    if name == "iban" and not is_iban(value):
        raise _invalid(name, "wrong-check-digits", "has wrong check digits")
    return value


def is_iban(iban: str) -> bool:
    """Return whether the check digits are right. Source: ISO 13616, ISO 7064 MOD 97-10."""
    return int("".join(str(int(character, 36)) for character in iban[4:] + iban[:4])) % 97 == 1


def _invalid(name: str, rule: str, detail: str) -> Invalid:
    return Invalid(pointer=f"/{name}", rule=rule, detail=detail)

"""The forms of bank files that this deployment reads, by `settings.BANK_FORMATS`: a name, and the dotted path of its reader.

A reader takes the bytes of a file and returns its statements, or raises `BankFileInvalid`. The settings add to FORMATS, or
replace one of them: `{"our-bank": "shop.banks.read"}`.
"""

from collections.abc import Callable
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.utils.module_loading import import_string

from billing.statements_in.statements import BankFileInvalid, Statement

Reader = Callable[[bytes], list[Statement]]

FORMATS: Final = {
    "mt940": "billing.statements_in.mt940.read",
    "camt": "billing.statements_in.camt.read",
    "csv": "billing.statements_in.csv_files.read_by_headings",
}
"""What comes with the product; `docs/how-to/book-bank-files.md` says which banks send what."""


def declared_formats() -> dict[str, str]:
    """Return the dotted paths of all readers, by name."""
    return FORMATS | getattr(settings, "BANK_FORMATS", {})


def find_reader(name: str) -> Reader:
    """Return the reader of a form.

    Raises:
        BankFileInvalid: there is no such form.
    """
    declared = declared_formats()
    if name not in declared:
        raise BankFileInvalid(f"there is no form {name!r}; there are {', '.join(sorted(declared))}")
    reader: Reader = import_string(declared[name])
    return reader


def guess_format(content: bytes) -> str:
    """Return the name of the form that a file looks like, of those that come with the product."""
    beginning = content[:4096].lstrip(b"\xef\xbb\xbf\x00\xff\xfe \r\n\t")
    if beginning.startswith(b"<"):
        return "camt"
    return "mt940" if any(tag in content for tag in (b":61:", b":60F:", b":60M:", b":62F:")) else "csv"


def check_bank_formats(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Report a form of bank files whose reader cannot be imported or called (billing.E006)."""
    messages: list[CheckMessage] = []
    for name, path in declared_formats().items():
        try:
            is_reader = callable(import_string(path))
        except ImportError:
            is_reader = False
        if not is_reader:
            messages.append(
                Error(f"settings.BANK_FORMATS[{name!r}]: {path} is no function that can be imported.", id="billing.E006")
            )
    return messages

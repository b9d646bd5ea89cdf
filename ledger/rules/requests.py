"""Requests to one account, with all checks that do not need the account's state."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

import orjson

from ledger.errors import Invalid
from ledger.rules.instants import to_us
from ledger.rules.lots import DEFAULT_PRIORITY, MAX_OPEN_LOTS, MAX_RECEIVED_LOTS, PURCHASED, SOURCES

MAX_AMOUNT = 2**53 - 1
"""The largest amount of one operation: the largest integer that every JSON implementation carries exactly."""
MAX_RECEIVED = MAX_RECEIVED_LOTS * MAX_AMOUNT
"""The largest number of credits in lots that transfers opened, held credits included."""
MAX_BALANCE = MAX_OPEN_LOTS * MAX_AMOUNT + MAX_RECEIVED
"""The largest balance, held credits included: 500 lots of MAX_AMOUNT, and what others sent. It is below 2^63."""
MAX_SEQUENCE = 2**63 - 1
MAX_METADATA_BYTES = 8192
MAX_METADATA_KEYS = 50
MAX_METADATA_KEY_CHARACTERS = 64
MAX_REASON_CHARACTERS = 500
MAX_REFERENCE_CHARACTERS = 200
MAX_ACTOR_CHARACTERS = 200
MAX_PRIORITY = 32_767
MIN_KEY_CHARACTERS = 20
"""Of an API key that somebody chooses."""

HOLDER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}")
HOLDER_ID_RULE = "1 to 64 characters of A-Z a-z 0-9 . _ : @ -, beginning with a letter or digit"
RATE_CODE = re.compile(r"[a-z0-9][a-z0-9._:-]{0,63}")
RATE_CODE_RULE = "1 to 64 characters of a-z 0-9 . _ : -, beginning with a letter or digit"
OVER_CAPTURES = ("refuse", "if_available")
CREDIT_TYPE = re.compile(r"[a-z0-9_]{1,32}")
CREDIT_TYPE_RULE = "1 to 32 characters of a-z 0-9 _"
IDEMPOTENCY_KEY = re.compile(r"[ -~]{1,255}")
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""NUL and lone surrogates, which PostgreSQL's text cannot store."""


def encode_json(value: Any) -> str:
    """Return the form in which JSON is stored and digested: keys sorted, no spaces, only necessary escapes."""
    return "null" if value is None else _ENCODER.encode(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


CIRCUMSTANCES = frozenset({"idempotency_key", "actor", "request_id", "expected_sequence", "dry_run"})
"""The fields of a request that do not belong to its content: two requests that differ only in these are the same."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The fields of all requests. An invalid value raises `Invalid`, with the field and the rule."""

    operation: ClassVar[str]

    holder_id: str
    idempotency_key: str
    credit_type: str = "credits"
    reason: str = ""
    reference: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    actor: str = ""
    request_id: str = ""
    expected_sequence: int | None = None
    """Execute only if the account's last entry has this sequence; 0 for an account without entries."""
    dry_run: bool = False
    """Return the result without writing anything."""

    def __post_init__(self) -> None:
        check_pattern("/holder_id", self.holder_id, HOLDER_ID, HOLDER_ID_RULE)
        check_pattern("/credit_type", self.credit_type, CREDIT_TYPE, CREDIT_TYPE_RULE)
        check_pattern("/idempotency_key", self.idempotency_key, IDEMPOTENCY_KEY, "1 to 255 printable ASCII characters")
        check_text("/reason", self.reason, MAX_REASON_CHARACTERS)
        check_text("/reference", self.reference, MAX_REFERENCE_CHARACTERS)
        check_text("/actor", self.actor, MAX_ACTOR_CHARACTERS)
        if self.metadata:
            check_metadata(self.metadata)

    def asked(self) -> dict[str, Any]:
        """Return the content as plain JSON values. Requests with the same content are the same for every sender."""
        content = _content(type(self))  # type: ignore[arg-type]
        asked = dict(zip(content.names, content.values_of(self), strict=True))
        for name in content.times:
            if asked[name] is not None:
                asked[name] = to_us(asked[name])
        return asked

    def digest(self) -> bytes:
        """Return the first 16 bytes of SHA-256 over operation and content: equal for every JSON spelling of a request."""
        known: bytes | None = self.__dict__.get("_digest")
        if known is None:
            content = [self.operation, self.asked()]
            # orjson takes a sixth of the time, and spells texts and whole numbers alike. Metadata may have other numbers.
            text = encode_json(content).encode() if self.metadata else orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
            known = hashlib.sha256(text).digest()[:16]
            object.__setattr__(self, "_digest", known)
        return known


class _Content(NamedTuple):
    """The fields that are the content of a class of requests, and which of them are times."""

    names: tuple[str, ...]
    values_of: Callable[[Request], tuple[Any, ...]]
    times: tuple[str, ...]


@cache
def _content(kind: type[Request]) -> _Content:
    content = [item for item in fields(kind) if item.name not in CIRCUMSTANCES]
    names = tuple(item.name for item in content)
    return _Content(names, attrgetter(*names), tuple(item.name for item in content if item.type in (datetime, datetime | None)))


@dataclass(frozen=True, kw_only=True)
class GrantRequest(Request):
    """Put `amount` credits in, as a new lot."""

    operation: ClassVar[str] = "grant"

    amount: int
    source: str = PURCHASED
    effective_at: datetime | None = None
    expires_at: datetime | None = None
    priority: int = DEFAULT_PRIORITY

    def __post_init__(self) -> None:
        super().__post_init__()
        check_amount("/amount", self.amount)
        check_integer("/priority", self.priority, 0, MAX_PRIORITY)
        if self.source not in SOURCES:
            raise Invalid(pointer="/source", rule="choice", detail=f"must be one of {', '.join(SOURCES)}")
        check_instant("/effective_at", self.effective_at)
        check_instant("/expires_at", self.expires_at)


@dataclass(frozen=True, kw_only=True)
class PricedRequest(Request):
    """A request with an amount, or with a rate and a quantity that give the amount."""

    amount: int | None = None
    rate: str | None = None
    quantity: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.amount is None) == (self.rate is None):
            raise Invalid(pointer="/amount", rule="required", detail="give either amount, or rate and quantity")
        if (self.quantity is None) != (self.rate is None):
            raise Invalid(pointer="/quantity", rule="required", detail="give rate and quantity together")
        if self.amount is not None:
            check_amount("/amount", self.amount)
        if self.rate is not None:
            check_pattern("/rate", self.rate, RATE_CODE, RATE_CODE_RULE)
            check_amount("/quantity", self.quantity)


@dataclass(frozen=True, kw_only=True)
class SpendRequest(PricedRequest):
    """Take `amount` credits out."""

    operation: ClassVar[str] = "spend"


@dataclass(frozen=True, kw_only=True)
class HoldRequest(PricedRequest):
    """Set `amount` credits aside until `expires_at`, an hour from now by default."""

    operation: ClassVar[str] = "hold"

    expires_at: datetime | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_instant("/expires_at", self.expires_at)


@dataclass(frozen=True, kw_only=True)
class CaptureRequest(Request):
    """Spend `amount`, or all held credits, of the hold with this sequence; `final` releases the rest."""

    operation: ClassVar[str] = "capture"

    hold: int
    amount: int | None = None
    final: bool = True
    over_capture: str = "refuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("/hold", self.hold, 1, MAX_SEQUENCE)
        if self.amount is not None:
            check_amount("/amount", self.amount)
        if self.over_capture not in OVER_CAPTURES:
            raise Invalid(pointer="/over_capture", rule="choice", detail=f"must be one of {', '.join(OVER_CAPTURES)}")


@dataclass(frozen=True, kw_only=True)
class ReleaseRequest(Request):
    """Give back all credits that the hold with this sequence still holds."""

    operation: ClassVar[str] = "release"

    hold: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("/hold", self.hold, 1, MAX_SEQUENCE)


@dataclass(frozen=True, kw_only=True)
class ExtendRequest(Request):
    """Change the expiry of the hold with this sequence."""

    operation: ClassVar[str] = "extend"

    hold: int
    expires_at: datetime

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("/hold", self.hold, 1, MAX_SEQUENCE)
        check_instant("/expires_at", self.expires_at)


@dataclass(frozen=True, kw_only=True)
class TransferRequest(Request):
    """Move `amount` credits to another holder; their lots keep expiry, priority and source."""

    operation: ClassVar[str] = "transfer"

    to: str
    amount: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_amount("/amount", self.amount)
        check_pattern("/to", self.to, HOLDER_ID, HOLDER_ID_RULE)
        if self.to == self.holder_id:
            raise Invalid(pointer="/to", rule="other", detail="must be another holder")


@dataclass(frozen=True, kw_only=True)
class IncomingTransfersRequest(Request):
    """Accept transfers from others into the account, as by default, or refuse them."""

    operation: ClassVar[str] = "incoming_transfers"

    accepted: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.accepted) is not bool:
            raise Invalid(pointer="/accepted", rule="type", detail="must be a boolean")


@dataclass(frozen=True, kw_only=True)
class OverdraftRequest(Request):
    """Let spends take the balance down to `-limit`."""

    operation: ClassVar[str] = "overdraft"

    limit: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("/limit", self.limit, 0, MAX_AMOUNT)


@dataclass(frozen=True, kw_only=True)
class RefundRequest(Request):
    """Give back `amount`, or the whole rest, of the spend with this sequence."""

    operation: ClassVar[str] = "refund"

    spend: int
    amount: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("/spend", self.spend, 1, MAX_SEQUENCE)
        if self.amount is not None:
            check_amount("/amount", self.amount)


@dataclass(frozen=True, kw_only=True)
class RevokeRequest(Request):
    """Take back `amount`, or the whole unspent rest, of the grant with this sequence."""

    operation: ClassVar[str] = "revoke"

    grant: int
    amount: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("/grant", self.grant, 1, MAX_SEQUENCE)
        if self.amount is not None:
            check_amount("/amount", self.amount)


def check_holder_id(value: Any) -> None:
    check_pattern("/holder_id", value, HOLDER_ID, HOLDER_ID_RULE)


def check_credit_type(value: Any) -> None:
    check_pattern("/credit_type", value, CREDIT_TYPE, CREDIT_TYPE_RULE)


def check_pattern(pointer: str, value: Any, pattern: re.Pattern[str], rule: str) -> None:
    if not isinstance(value, str):
        raise Invalid(pointer=pointer, rule="type", detail="must be a string")
    if not pattern.fullmatch(value):
        raise Invalid(pointer=pointer, rule="pattern", detail=f"must be {rule}")


def check_integer(pointer: str, value: Any, least: int, most: int) -> None:
    # bool is a subclass of int, and True is not an amount.
    if type(value) is not int:
        raise Invalid(pointer=pointer, rule="type", detail="must be an integer")
    if not least <= value <= most:
        raise Invalid(pointer=pointer, rule="range", detail=f"must be {least} .. {most}")


def check_amount(pointer: str, value: Any) -> None:
    check_integer(pointer, value, 1, MAX_AMOUNT)


def check_text(pointer: str, value: Any, most_characters: int) -> None:
    if not isinstance(value, str):
        raise Invalid(pointer=pointer, rule="type", detail="must be a string")
    if len(value) > most_characters:
        raise Invalid(pointer=pointer, rule="max_length", detail=f"must have at most {most_characters} characters")
    if UNSTORABLE.search(value):
        raise Invalid(pointer=pointer, rule="characters", detail="must not contain NUL or lone surrogates")


def check_metadata(value: Any) -> None:
    if not isinstance(value, dict):
        raise Invalid(pointer="/metadata", rule="type", detail="must be an object")
    if len(value) > MAX_METADATA_KEYS:
        raise Invalid(pointer="/metadata", rule="max_keys", detail=f"must have at most {MAX_METADATA_KEYS} keys")
    for key in value:
        check_text("/metadata", key, MAX_METADATA_KEY_CHARACTERS)
    try:
        text = encode_json(value)
    except (TypeError, ValueError) as error:
        raise Invalid(pointer="/metadata", rule="type", detail="must be plain JSON") from error
    if UNSTORABLE.search(text) or "\\u0000" in text:
        raise Invalid(pointer="/metadata", rule="characters", detail="must not contain NUL or lone surrogates")
    if len(text.encode()) > MAX_METADATA_BYTES:
        raise Invalid(pointer="/metadata", rule="max_bytes", detail=f"must have at most {MAX_METADATA_BYTES} bytes as JSON")


def check_instant(pointer: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise Invalid(pointer=pointer, rule="type", detail="must be a time with an offset")

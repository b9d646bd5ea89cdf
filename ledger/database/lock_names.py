"""The register of advisory locks: every kind of lock, who takes it, and the order of taking. See docs/reference/lock-keys.md.

    with transaction.atomic(durable=True), advisory_lock(lock_names.HOLDER("42")) as lock:    # locks ledger/42

A new kind of lock is added here, at its place in the order. Never reuse the name of a removed lock: an older release that still
runs beside the new one would exclude the wrong work.
"""

import re
import string
from collections.abc import Callable, Mapping
from functools import cache
from itertools import combinations
from typing import Final

from django.core.exceptions import ImproperlyConfigured

from ledger import conf
from ledger.database import lock_keys

LITERAL: Final = re.compile(r"[A-Za-z0-9_.:@+/=&,-]*")
NAMESPACE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
"""Has no slash, so that no default name under one namespace equals a name under another namespace."""
APP: Final = "app"
ID: Final = "id"
FREE_TEXT: Final = frozenset({"key"})
"""Fields whose values may contain a slash. The values of all other fields cannot."""
ANY: Final = "*"
ANY_BUT_A_SLASH: Final = "?"


class LockName:
    """One kind of lock. Called with the values of its fields, in the order of the default template, it returns a lock's name.

    Args:
        kind: the name of the kind in LEDGER_LOCK_NAMES.
        template: the default spelling, with the fields in braces.
        taken_by: the operations that take the lock.
        waits: False if they only try the lock and never wait for it.
    """

    __slots__ = ("fields", "kind", "taken_by", "template", "waits")

    def __init__(self, kind: str, template: str, taken_by: str, *, waits: bool = True) -> None:
        self.kind = kind
        self.template = template
        self.taken_by = taken_by
        self.waits = waits
        self.fields = tuple(field for _, field, _, _ in string.Formatter().parse(template) if field is not None)

    def __repr__(self) -> str:
        return f"<LockName {self.kind}: {self.template}>"

    def __call__(self, *values: str) -> str:
        """Return the lock's name as this deployment spells it; see LEDGER_LOCK_NAMES.

        Raises:
            ImproperlyConfigured: LEDGER_LOCK_NAMES or LEDGER_LOCK_NAMESPACE is invalid.
        """
        if len(values) != len(self.fields):
            raise TypeError(f"{self!r} takes {len(self.fields)} values, not {len(values)}")
        return self.spelling()(*values)

    def spelling(self) -> Callable[..., str]:
        """Return the function from values to names, for many names under the same settings. Raises: as a call."""
        return current_spellings()[self.kind].format


# In the order in which one transaction takes them. Several locks of one kind, and all locks of a batch, are taken in one call, in
# the order of their numbers.
MIGRATION: Final = LockName("migration", "database/migration", "`prepare_database`: one machine at a time migrates")
UNIQUE: Final = LockName("unique", "unique/{kind}/{key}", "`locking.unique`, which inserts once for a kind and its arguments")
OPERATOR_STAKES: Final = LockName(
    "operator_stakes", "operator_stakes/{key}", "a form of an operator, so that what its operator moves in a day adds up"
)
BILLING_REQUEST: Final = LockName(
    "billing_request",
    "billing_request/{collection}/{key}",
    "a write of billing, once per Idempotency-Key",
)
KEY_REQUEST: Final = LockName(
    "key_request", "ledger_key_request/{confined_to}/{key}", "making, rotating and revoking an API key, once per Idempotency-Key"
)
PLAN: Final = LockName("plan", "plan/{code}", "writing a version of a plan")
COUPON: Final = LockName("coupon", "coupon/{code}", "writing a coupon")
SELLERS: Final = LockName("sellers", "database/sellers", "recording a seller, so that each prefix of numbers has one seller")
TAX: Final = LockName("tax", "tax/{code}", "recording a version of a tax")
METER: Final = LockName("meter", "meter/{code}", "writing a version of a meter")
PACK: Final = LockName("pack", "pack/{code}", "writing a version of a pack")
CUSTOMER: Final = LockName("customer", "customer/{customer}", "writing a customer")
VAT_CHECKS: Final = LockName("vat_checks", "database/vat_checks", "taking the next VAT id that is looked up again")
TOP_UP: Final = LockName("top_up", "topup/{holder}", "declaring top-ups of a holder, and topping the holder's accounts up")
BANK_RECEIPTS: Final = LockName(
    "bank_receipts", "database/bank_receipts", "booking a receipt of a bank statement, one at a time, so that each is booked once"
)
PAYMENT_INTENT: Final = LockName(
    "payment_intent", "payment_intent/{intent}", "applying how a payment stands with its provider, and refunding it"
)
PURCHASE_PAYMENT: Final = LockName(
    "purchase_payment",
    "purchase_payment/{provider}/{key}",
    "recording a purchase or the payment of an invoice, once per payment",
)
PURCHASE: Final = LockName("purchase", "purchase/{purchase}", "returns of a purchase, and what it does to credits")
SUBSCRIPTION_INTENT: Final = LockName(
    "subscription_intent",
    "subscription_intent/{subscription}",
    "subscribing, amending, charging, canceling and expiring; never a run of the generator",
)
INVOICE_GENERATION: Final = LockName(
    "invoice_generation",
    "invoice_gen/{subscription}",
    "making, finalising, voiding and crediting a subscription's invoices",
    waits=False,
)
CUSTOMER_INVOICES: Final = LockName(
    "customer_invoices",
    "customer_invoices/{customer}",
    "making, finalising, voiding and crediting a customer's one-off and consolidated invoices",
)
PAYMENT: Final = LockName(
    "payment",
    "payment/{invoice}",
    "payments of an invoice, their returns, reminders and holds of them; voiding it, crediting it, marking it as uncollectible",
)
REMINDER_HOLD: Final = LockName(
    "reminder_hold", "reminder_hold/{customer}", "reminding a customer, and putting all reminders of a customer on hold"
)
SUSPENSION: Final = LockName("suspension", "suspension/{subscription}", "suspending and resuming the billing of a subscription")
CUSTOMER_ACCOUNT: Final = LockName(
    "customer_account",
    "customer_account/{customer}",
    "giving a customer a coupon; using coupons and credit of a customer on an invoice; paying credit out",
)
RATE: Final = LockName("rate", "ledger_rate/{credit_type}/{code}", "publishing a version of a rate")
RATE_KEY: Final = LockName("rate_key", "ledger_rate_key/{key}", "publishing a rate, once per Idempotency-Key")
WEBHOOK_REQUEST: Final = LockName(
    "webhook_request", "ledger_webhook_request/{key}", "a change of a webhook, once per Idempotency-Key"
)
ALERTS: Final = LockName("alerts", "database/alerts", "declaring and ending alerts")
SIGNAL_FEED: Final = LockName("signal_feed", "database/signal_feed", "making signals of new entries", waits=False)
TOTALS: Final = LockName("totals", "database/totals", "counting the totals of days, and closing months", waits=False)
BATCH_SLOT: Final = LockName(
    "batch_slot", "ledger_batch_slot/{slot}", "a large batch, for its part of the server's lock table", waits=False
)
BATCH: Final = LockName("batch", "ledger_batch/{confined_to}/{key}", "a batch, once per Idempotency-Key, with its holders")
HOLDER: Final = LockName("holder", "ledger/{holder}", "every decision about a holder's credits")

REGISTER: Final = tuple(value for value in list(globals().values()) if isinstance(value, LockName))


_of_the_project: Final[dict[str, LockName]] = {}


def register(name: LockName) -> LockName:
    """Add a kind of lock of the project that has the ledger as an app, and return it; at most once for each kind.

    It comes before the kinds of REGISTER, so a transaction takes it before it writes to a holder. Kinds that are registered come
    in no order among each other: those of one transaction are taken in one call, or in the order of their numbers.

    Raises:
        ValueError: there is a kind of this name, or its locks could have the names of another kind's.
    """
    if name.kind in (one.kind for one in _all()):
        raise ValueError(f"the lock name {name.kind} exists already")
    _of_the_project[name.kind] = name
    spellings.cache_clear()
    try:
        spellings("", "")
    except ValueError:
        forget(name)
        raise
    return name


def forget(name: LockName) -> None:
    """Undo `register`."""
    del _of_the_project[name.kind]
    spellings.cache_clear()


def _all() -> tuple[LockName, ...]:
    return (*_of_the_project.values(), *REGISTER)


def rank_of(name: str) -> int:
    """Return the place of a lock's kind in REGISTER; -1 for a kind of the project, which comes before them."""
    readers = _readers(tuple(current_spellings().items()))
    return next((rank for rank, kind in enumerate(REGISTER) if readers[kind.kind].fullmatch(name)), -1)


@cache
def _readers(spelled: tuple[tuple[str, str], ...]) -> Mapping[str, re.Pattern[str]]:
    """Return for each kind the pattern of its names."""
    kinds = {name.kind: name for name in _all()}
    return {kind: re.compile(_reader(kinds[kind], template), re.DOTALL) for kind, template in spelled}


def _reader(name: LockName, spelled: str) -> str:
    parts = string.Formatter().parse(spelled)
    fields = ((text, "" if field is None else name.fields[int(field)]) for text, field, _, _ in parts)
    return "".join(re.escape(text) + ("" if not field else ".*" if field in FREE_TEXT else "[^/]*") for text, field in fields)


# How a deployment spells them ------------------------------------------------------------------------


def current_spellings() -> Mapping[str, str]:
    """Return the spelling of each kind by settings.LEDGER, with the fields numbered: `ledger:{0}`.

    Raises:
        ImproperlyConfigured: the settings are invalid.
    """
    # With the scheme NAMESPACED the namespace is a number, the upper half of each lock's number, and no part of the name.
    namespace = "" if conf.LOCK_KEY_SCHEME.value == lock_keys.NAMESPACED else conf.LOCK_NAMESPACE.value
    try:
        return spellings(conf.LOCK_NAMES.value, namespace)
    except ValueError as error:
        raise ImproperlyConfigured(f"settings.LEDGER: {error}") from error


@cache
def spellings(templates: str, namespace: str) -> Mapping[str, str]:
    """Return the spelling of each kind, with the fields numbered as the default template has them: `ledger:{0}`.

    Args:
        templates: KIND=TEMPLATE, separated by spaces, for each kind that differs from its default. A template has each field of
            the default once. `{id}` means the only field, `{app}` the namespace.
        namespace: 1 to 64 of A-Z a-z 0-9 _ . : -, or empty. It is put in front, with a slash, if a template has no `{app}`.

    Raises:
        ValueError: a kind, a template or the namespace is invalid, or two kinds could spell the same name.
    """
    if namespace and (not isinstance(namespace, str) or NAMESPACE.fullmatch(namespace) is None):
        raise ValueError(f"lock namespace {namespace!r} is not a word of 1 to 64 of the characters A-Z a-z 0-9 _ . : -")
    chosen = _choose_templates(templates)
    spelled = {name.kind: _spell_name(name, chosen.get(name.kind, name.template), namespace) for name in _all()}
    for one, other in combinations(_all(), 2):
        if _could_be_equal(_pattern(one, spelled), _pattern(other, spelled)):
            raise ValueError(
                f"the lock names {one.kind} ({spelled[one.kind]}) and {other.kind} ({spelled[other.kind]}) could be the same; "
                f"let them differ in their text"
            )
    return spelled


def _choose_templates(templates: str) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for part in templates.split():
        kind, _, template = part.partition("=")
        if kind not in {name.kind for name in _all()}:
            known = ", ".join(name.kind for name in _all())
            raise ValueError(f"unknown lock name {kind!r} in {part!r}; known are: {known}")
        if kind in chosen:
            raise ValueError(f"the lock name {kind} is given twice")
        chosen[kind] = template
    return chosen


def _spell_name(name: LockName, template: str, namespace: str) -> str:
    try:
        parts = [(literal, field, form or conversion) for literal, field, form, conversion in string.Formatter().parse(template)]
        fields = [_field(name, field, form) for _, field, form in parts if field is not None]
        _check_fields(name, fields, has_namespace=bool(namespace))
        _check_text([literal for literal, _, _ in parts])
    except ValueError as error:
        raise ValueError(f"the template {template!r} of the lock name {name.kind} is not valid: {error}") from None
    numbered = (namespace if field == APP else f"{{{name.fields.index(field)}}}" for field in fields)
    spelled = "".join(literal + next(numbered, "") for literal, _, _ in parts)
    return f"{namespace}/{spelled}" if namespace and APP not in fields else spelled


def _field(name: LockName, field: str, form: str | None) -> str:
    if form:
        raise ValueError(f"{{{field}}} has a format")
    return name.fields[0] if field == ID and len(name.fields) == 1 else field


def _check_fields(name: LockName, fields: list[str], *, has_namespace: bool) -> None:
    if sorted(field for field in fields if field != APP) != sorted(name.fields):
        required = " and ".join(f"{{{field}}}" for field in name.fields) or "no field"
        raise ValueError(f"it must have {required}, each once")
    if fields.count(APP) > (1 if has_namespace else 0):
        raise ValueError("{app} may be in it once, and with a namespace that is a word")


def _check_text(literals: list[str]) -> None:
    if not all(LITERAL.fullmatch(literal) for literal in literals):
        raise ValueError("its text may have A-Z a-z 0-9 _ . : @ + / = & , -")
    if "" in literals[1:]:
        raise ValueError("it has two fields with nothing between them")


def _pattern(name: LockName, spelled: Mapping[str, str]) -> str:
    """Return the spelling with each field replaced by one character, ANY or ANY_BUT_A_SLASH."""
    return spelled[name.kind].format(*(ANY if field in FREE_TEXT else ANY_BUT_A_SLASH for field in name.fields))


@cache
def _could_be_equal(one: str, other: str) -> bool:
    """Return whether some values of the fields, the empty text included, make the two patterns the same name."""
    if not one or not other:
        return set(one + other) <= {ANY, ANY_BUT_A_SLASH}
    if other[0] in (ANY, ANY_BUT_A_SLASH):
        one, other = other, one
    if one[0] in (ANY, ANY_BUT_A_SLASH):
        takes = not (one[0] == ANY_BUT_A_SLASH and other[0] == "/")
        return _could_be_equal(one[1:], other) or (takes and _could_be_equal(one, other[1:]))
    return one[0] == other[0] and _could_be_equal(one[1:], other[1:])

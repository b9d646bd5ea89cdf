"""The seller: name, address, VAT id, bank account, logo and words, as documents print them.

Append-only: a change is a new version. Finalising an invoice records the current version, so the
document always shows the same details.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from django.db.models import Max, QuerySet

from billing.configured_tax_provider import is_configured
from billing.documents.brand import Colour, Logo
from billing.models import CREDIT_NOTE, DEFAULT_SELLER, INVOICE, NumberSeries, Seller
from billing.orders.customers import ADDRESS_LINES, DEFAULT_TERMS_DAYS
from billing.rating.countries import CURRENCIES
from billing.rating.limits import MAX_TERMS_DAYS
from billing.rating.names import Names
from billing.rating.tax_rules import ALIASES, TaxRules
from billing.rating.values import EMAIL, Country, Currency, ElectronicAddress, OneLine, Ref, VatId
from billing.rating.vat import EU
from ledger import conf
from ledger.database.lock_names import SELLERS
from ledger.database.transactions import locked_transaction
from ledger.errors import Invalid
from ledger.records import Record, declared_fields, shape_of
from ledger.values import Boolean, Choice, Integer, InvalidValue, ListOf, Text, Value, json_name, pointer_part

MAX_TERMS_CHARACTERS: Final = 500
MAX_FOOTER_CHARACTERS: Final = 240
MAX_REMINDERS: Final = 9
MAX_REMINDER_DAYS: Final = 365
MAX_FEE_MINOR: Final = 10_000_000
MAX_CASH_STEP_MINOR: Final = 1_000_000
VAT_ID_OR_NONE: Final = "(?:[A-Z]{2}[0-9A-Z+*]{2,30})?"
PREFIX: Final[Any] = {"most": 12, "least": 1, "pattern": "[A-Z0-9]+", "rule": "1 to 12 capital letters and digits"}
ADDRESS_MOST: Final = {name: line.most for name, line in ADDRESS_LINES.items()}


class CashSteps(Value):
    """The step of cash payments by currency, in minor units: `{"CHF": 5}`."""

    currency: Final = Currency()
    step: Integer = Integer(least=2, most=MAX_CASH_STEP_MINOR)

    def read(self, value: Any) -> dict[str, int]:
        if not isinstance(value, Mapping):
            raise InvalidValue("not-an-object", f"This must be an object, not {json_name(value)}.")
        return {code: self._read_one(str(code), step) for code, step in sorted(value.items())}

    def _read_one(self, code: str, step: Any) -> int:
        try:
            self.currency.read(code)
            return self.step.read(step)
        except InvalidValue as invalid:
            raise InvalidValue(invalid.code, invalid.detail, pointer_part(code)) from None

    def openapi(self) -> dict[str, Any]:
        return {
            "type": "object",
            "propertyNames": self.currency.openapi(),
            "additionalProperties": self.step.openapi(),
        }


class Fees(CashSteps):
    """Amounts by currency, in minor units: `{"EUR": 500}`."""

    step = Integer(least=1, most=MAX_FEE_MINOR)


class ReminderDays(ListOf):
    """Days after the due date, increasing: `[7, 21, 35]`."""

    def __init__(self, text: str = "", **options: Any) -> None:
        super().__init__(Integer(least=1, most=MAX_REMINDER_DAYS), text, most=MAX_REMINDERS, **options)


class Iban(OneLine):
    """An IBAN without spaces."""

    def __init__(self, text: str = "", **options: Any) -> None:
        rule = "an IBAN without spaces"
        super().__init__(text, most=34, pattern="(?:[A-Z]{2}[0-9]{2}[0-9A-Z]{11,30})?", rule=rule, **options)

    def read(self, value: Any) -> str:
        iban = super().read(value)
        if iban and not is_iban(iban):
            raise InvalidValue("wrong-check-digits", "This has wrong check digits.")
        return iban


@dataclass(frozen=True, kw_only=True)
class NewSeller(Record):
    """A seller on documents from now on."""

    ref: Annotated[str, Ref("Your name for the seller.")] = DEFAULT_SELLER
    # A transfer takes a name of at most 70 characters.
    name: Annotated[str, OneLine("As printed; the holder of the account too.", most=70, least=1)]
    line1: Annotated[str, OneLine("Street.", most=ADDRESS_MOST["line1"], least=1)]
    line2: Annotated[str, OneLine("Second line.", most=ADDRESS_MOST["line2"])] = ""
    postal_code: Annotated[str, OneLine("Postal code.", most=ADDRESS_MOST["postal_code"])] = ""
    city: Annotated[str, OneLine("City.", most=ADDRESS_MOST["city"], least=1)]
    country: Annotated[str, Country()]
    vat_id: Annotated[
        str,
        VatId(
            "Begins with its country; ids of the EU are checked offline.",
            pattern=VAT_ID_OR_NONE,
            rule="the two letters of a country, then 2 to 30 letters and digits",
        ),
    ] = ""
    tax_number: Annotated[str, OneLine("Tax number.", most=32)] = ""
    tax_rules: Annotated[
        str,
        Choice(
            TaxRules,
            "How lines of category S are taxed. price: as the price says. region: the declared taxes of the buyer's address. "
            "eu_oss: VAT of the buyer's member state for consumers, reverse charge for businesses abroad, none outside the EU. "
            "eu_origin: the same with the seller's VAT for all consumers in the EU. "
            "provider: as the deployment's provider of taxes says.",
        ),
    ] = TaxRules.PRICE.value
    needs_confirmed_vat_id: Annotated[
        bool,
        Boolean("Reverse charge with a VAT id of the EU only if the last answer of VIES about it is that it is valid."),
    ] = False
    register: Annotated[str, OneLine("Company register and number.", most=100)] = ""
    email: Annotated[str, OneLine("For questions about documents.", most=100)] = ""
    phone: Annotated[str, OneLine("For questions about documents.", most=40)] = ""
    electronic_address: Annotated[
        str,
        ElectronicAddress(
            "BT-34 of e-invoices: a scheme's code (EAS), a colon and the address, such as 0204:991-01234-56; empty: the e-mail."
        ),
    ] = ""
    website: Annotated[str, OneLine("Website.", most=100)] = ""
    iban: Annotated[str, Iban("The account to pay to.")] = ""
    bic: Annotated[
        str, OneLine("The bank's code.", most=11, pattern="(?:[A-Z]{6}[A-Z0-9]{2}(?:[A-Z0-9]{3})?)?",
                     rule="8 or 11 capital letters and digits"),
    ] = ""  # fmt: skip
    bank: Annotated[str, OneLine("The bank's name.", most=70)] = ""
    logo: Annotated[
        str,
        Logo("An SVG of shapes or a PNG, at most 2,000 × 2,000 pixels and 40,000 bytes, in base64. Replaces the name."),
    ] = ""
    accent_color: Annotated[
        str, Colour("As #rrggbb, of rules; and of the printed name, if its contrast with white is 4.5 or more.")
    ] = ""
    footer: Annotated[
        dict[str, str], Names("A line at the end of each page, by language of documents.", most=MAX_FOOTER_CHARACTERS)
    ] = field(default_factory=dict)
    payment_terms: Annotated[
        dict[str, str], Names("Below the sentence that asks for the payment, by language.", most=MAX_TERMS_CHARACTERS)
    ] = field(default_factory=dict)

    cash_rounding_minor: Annotated[
        dict[str, int],
        CashSteps("By currency: the step in minor units to which the amount due is rounded, such as 5 for CHF 0.05."),
    ] = field(default_factory=dict)
    terms_days: Annotated[
        int, Integer("Days from the issue to the due date, for new customers who have no others.", least=0, most=MAX_TERMS_DAYS)
    ] = DEFAULT_TERMS_DAYS
    reminder_days: Annotated[
        list[int], ReminderDays("How many days after the due date of an invoice each reminder is due; empty: no reminders.")
    ] = field(default_factory=list)
    reminder_fee_minor: Annotated[
        dict[str, int],
        Fees("By currency: what each reminder but the first costs, in minor units. The subscription's next invoice has it."),
    ] = field(default_factory=dict)
    suspends_at_reminder: Annotated[
        int | None,
        Integer(
            "The reminder that suspends the billing of the invoice's subscription until it is paid, from 1 on; null: none.",
            least=1, most=MAX_REMINDERS, null=True,
        ),
    ] = None  # fmt: skip
    mails_invoices: Annotated[
        bool, Boolean("Mail each invoice with its PDF to the customer's `email`, once, when it is finalised. Needs `email`.")
    ] = False
    invoice_prefix: Annotated[str, Text("The numbers of invoices begin with it; no other seller has it.", **PREFIX)] = (
        INVOICE.series
    )
    credit_note_prefix: Annotated[str, Text("The numbers of credit notes begin with it; no other seller has it.", **PREFIX)] = (
        CREDIT_NOTE.series
    )
    numbers_per_year: Annotated[bool, Boolean("The numbers begin at 1 each year: INV-2026-000001.")] = False
    numbers_per_customer: Annotated[bool, Boolean("Each customer has its own numbers: INV-CUST-7-000001.")] = False

    def check_whole(self) -> None:
        if self.invoice_prefix == self.credit_note_prefix:
            detail = "Invoices and credit notes have different prefixes."
            raise Invalid(pointer="/credit_note_prefix", rule="same-prefix", detail=detail)
        if sorted(set(self.reminder_days)) != list(self.reminder_days):
            raise Invalid(pointer="/reminder_days", rule="increasing", detail="Each reminder comes later than the one before it.")
        if (self.suspends_at_reminder or 0) > len(self.reminder_days):
            detail = f"There are {len(self.reminder_days)} reminders."
            raise Invalid(pointer="/suspends_at_reminder", rule="unknown-reminder", detail=detail)
        if self.tax_rules in (TaxRules.EU_OSS, TaxRules.EU_ORIGIN) and ALIASES.get(self.country, self.country) not in EU:
            raise Invalid(pointer="/tax_rules", rule="needs-eu-country", detail="These rules are for sellers in the EU.")
        if self.mails_invoices and re.fullmatch(EMAIL, self.email or "-") is None:
            raise Invalid(pointer="/email", rule="needs-email", detail="Mails have a sender: give an e-mail address.")

    def details(self) -> dict[str, Any]:
        """Return what the seller has, in the form of a row, without what every seller has."""
        unset = {field.name: field.default for field in declared_fields(NewSeller)}
        return {name: value for name, value in vars(self).items() if name != "ref" and value not in ("", {}, [], unset[name])}


def record_seller(details: Mapping[str, Any], *, actor: str) -> Seller:
    """Do as `record`, by the JSON of a seller. Raises: as `record`, also for a name that is unknown or missing."""
    errors: list[Any] = []
    taken = shape_of(NewSeller).take(dict(details), "", errors)
    for pointer, rule, detail in errors:
        raise Invalid(pointer=pointer, rule=rule, detail=detail)
    return record(shape_of(NewSeller).make(taken), actor=actor)


def record(seller: NewSeller, *, actor: str) -> Seller:
    """Record a seller of documents from now on, or raise and write nothing. The current details again change nothing.

    Raises:
        Invalid: a prefix is or was another seller's, or the seller needs lookups or a provider of taxes that are not configured.
    """
    if seller.needs_confirmed_vat_id and not conf.VIES_URL.value:
        detail = "This deployment looks no VAT ids up: LEDGER_VIES_URL is not set."
        raise Invalid(pointer="/needs_confirmed_vat_id", rule="needs-lookups", detail=detail)
    if seller.tax_rules == TaxRules.PROVIDER and not is_configured():
        raise Invalid(pointer="/tax_rules", rule="configured", detail="This deployment has no provider of taxes.")
    with locked_transaction(SELLERS()):
        _ensure_own_prefixes(seller)
        current = current_seller(seller.ref)
        if current is not None and current.details == seller.details():
            return current
        return Seller.objects.create(ref=seller.ref, details=seller.details(), recorded_by=actor)


def _ensure_own_prefixes(seller: NewSeller) -> None:
    """Return if no other seller has or had one of the prefixes: a series has the documents of one seller."""
    usual = {INVOICE.series, CREDIT_NOTE.series}
    if Seller.objects.filter(ref=DEFAULT_SELLER).exists():
        # Documents that were issued before a seller was recorded are those of the default one.
        usual = set(NumberSeries.objects.filter(name__in=usual).values_list("name", flat=True))
    used = dict.fromkeys(usual, DEFAULT_SELLER)
    # Without the logos, of which each version has one.
    prefixes = Seller.objects.values_list("ref", "details__invoice_prefix", "details__credit_note_prefix").distinct()
    for ref, invoice_prefix, credit_note_prefix in prefixes:
        used |= {invoice_prefix or INVOICE.series: ref, credit_note_prefix or CREDIT_NOTE.series: ref}
    own = {"invoice_prefix": seller.invoice_prefix, "credit_note_prefix": seller.credit_note_prefix}
    for name, prefix in own.items():
        if used.get(prefix, seller.ref) != seller.ref:
            detail = f"The seller {used[prefix]} has this prefix, or had it."
            raise Invalid(pointer=f"/{name}", rule="taken-by-another-seller", detail=detail)


def prefixes_of(details: Mapping[str, Any]) -> tuple[str, str]:
    """Return the prefixes of a seller's invoices and credit notes."""
    return details.get("invoice_prefix", INVOICE.series), details.get("credit_note_prefix", CREDIT_NOTE.series)


def current_seller(ref: str = DEFAULT_SELLER) -> Seller | None:
    """Return the current version of a seller; None before one is recorded."""
    return Seller.objects.filter(ref=ref).order_by("-pk").first()


def usual_currency() -> str:
    """Return the currency of the default seller's country; empty before one is recorded, or if the country has no usual one."""
    country = Seller.objects.filter(ref=DEFAULT_SELLER).order_by("-pk").values_list("details__country", flat=True).first()
    return CURRENCIES.get(country or "", "")


def issuing_seller(ref: str) -> str:
    """Return the SQL that reads the current version of a seller, `id` and `details`, as one row of a LATERAL join.

    Without the logo: a statement reads the details several times, and the server would fetch all of a logo each time.

    Args:
        ref: the SQL of the seller's ref.
    """
    return f"SELECT v.id, v.details - 'logo' AS details FROM billing_seller AS v WHERE v.ref = {ref} ORDER BY v.id DESC LIMIT 1"


def current_sellers() -> QuerySet[Seller]:
    """Return the current version of each seller."""
    return Seller.objects.filter(pk__in=Seller.objects.values("ref").annotate(last=Max("pk")).values("last"))


def seller_of(seller_id: int | None) -> Seller | None:
    """Return the seller of a document: the version that it names, or the first one if it was issued before any was recorded."""
    first = Seller.objects.filter(ref=DEFAULT_SELLER).order_by("pk")
    return first.first() if seller_id is None else Seller.objects.get(pk=seller_id)


def is_iban(iban: str) -> bool:
    """Return whether the check digits are right. Source: ISO 13616, ISO 7064 MOD 97-10."""
    return int("".join(str(int(character, 36)) for character in iban[4:] + iban[:4])) % 97 == 1

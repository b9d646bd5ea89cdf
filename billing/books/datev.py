"""The journal of a month as a batch of postings for DATEV: its format EXTF, "Buchungsstapel", version 13.

Source: DATEV's developer portal, "DATEV-Format", header version 700 and batch of postings version 13.
"""

from datetime import date, timedelta
from decimal import Decimal
from typing import Final

from billing.books.journal import AccountMap, Posting, postings
from billing.books.roll_forward import Book
from ledger.errors import Invalid
from ledger.months import month_after

ENCODING: Final = "cp1252"
TEXT_CHARACTERS: Final = 60
AMOUNT_DIGITS: Final = 10
"""Before the decimals."""
CENT: Final = Decimal("0.01")
DEBTORS: Final = "123456"
"""The first digits of debtors' accounts; those of creditors begin with 7 to 9."""

_PAIRS: Final = [f"Beleginfo - {what} {number}" for number in range(1, 9) for what in ("Art", "Inhalt")]
_MORE_PAIRS: Final = [f"Zusatzinformation - {what} {number}" for number in range(1, 21) for what in ("Art", "Inhalt")]
COLUMNS: Final = (
    "Umsatz (ohne Soll/Haben-Kz)", "Soll/Haben-Kennzeichen", "WKZ Umsatz", "Kurs", "Basis-Umsatz", "WKZ Basis-Umsatz", "Konto",
    "Gegenkonto (ohne BU-Schlüssel)", "BU-Schlüssel", "Belegdatum", "Belegfeld 1", "Belegfeld 2", "Skonto", "Buchungstext",
    "Postensperre", "Diverse Adressnummer", "Geschäftspartnerbank", "Sachverhalt", "Zinssperre", "Beleglink", *_PAIRS,
    "KOST1 - Kostenstelle", "KOST2 - Kostenstelle", "Kost-Menge", "EU-Land u. UStID (Bestimmung)",
    "EU-Steuersatz (Bestimmung)", "Abw. Versteuerungsart", "Sachverhalt L+L", "Funktionsergänzung L+L",
    "BU 49 Hauptfunktionstyp", "BU 49 Hauptfunktionsnummer", "BU 49 Funktionsergänzung", *_MORE_PAIRS, "Stück", "Gewicht",
    "Zahlweise", "Forderungsart", "Veranlagungsjahr", "Zugeordnete Fälligkeit", "Skontotyp", "Auftragsnummer", "Buchungstyp",
    "USt-Schlüssel (Anzahlungen)", "EU-Mitgliedstaat (Anzahlungen)", "Sachverhalt L+L (Anzahlungen)",
    "EU-Steuersatz (Anzahlungen)", "Erlöskonto (Anzahlungen)", "Herkunft-Kz", "Leerfeld", "KOST-Datum", "SEPA-Mandatsreferenz",
    "Skontosperre", "Gesellschaftername", "Beteiligtennummer", "Identifikationsnummer", "Zeichnernummer", "Postensperre bis",
    "Bezeichnung SoBil-Sachverhalt", "Kennzeichen SoBil-Buchung", "Festschreibung", "Leistungsdatum",
    "Datum Zuord. Steuerperiode", "Fälligkeit", "Generalumkehr (GU)", "Steuersatz", "Land", "Abrechnungsreferenz",
    "BVV-Position", "EU-Land u. UStID (Ursprung)", "EU-Steuersatz (Ursprung)", "Abw. Skontokonto",
)  # fmt: skip


def as_datev(book: Book, accounts: AccountMap) -> bytes:
    """Return the file in DATEV's encoding, with the same bytes each time.

    Raises:
        Invalid: the month is not closed, an account is not one of DATEV's, or an amount is beyond its field.
    """
    lines = [_header(book, accounts), ";".join(COLUMNS), *(_line(book, each, accounts) for each in postings(book, accounts))]
    return ("\r\n".join(lines) + "\r\n").encode(ENCODING)


def _header(book: Book, accounts: AccountMap) -> str:
    end = month_after(book.month) - timedelta(days=1)
    fields = [
        '"EXTF"', "700", "21", '"Buchungsstapel"', "13", f"{end:%Y%m%d}235959000", "", '""', '""', '""',
        str(accounts.datev_consultant), str(accounts.datev_client), f"{_year_begins(book.month, accounts):%Y%m%d}",
        str(accounts.datev_account_digits), f"{book.month:%Y%m%d}", f"{end:%Y%m%d}", f'"Credits {book.month:%Y-%m}"', '""', "1",
        "0", "0", '""', "", '""', "", "", '""', "", "", '""', '""',
    ]  # fmt: skip
    return ";".join(fields)


def _year_begins(month: date, accounts: AccountMap) -> date:
    year = month.year if month.month >= accounts.datev_first_month else month.year - 1
    return date(year, accounts.datev_first_month, 1)


def _line(book: Book, posting: Posting, accounts: AccountMap) -> str:
    fields = [""] * len(COLUMNS)
    fields[0] = _amount(posting.amount)
    fields[1], fields[2] = '"S"', f'"{posting.currency}"'
    fields[6], fields[7] = (_number(account, accounts) for account in (posting.debit, posting.credit))
    fields[9], fields[10] = f"{posting.day:%d%m}", f'"CREDITS-{book.month:%Y-%m}"'
    fields[13] = f'"{posting.text[:TEXT_CHARACTERS]}"'
    fields[COLUMNS.index("Festschreibung")] = "0"
    return ";".join(fields)


def _amount(amount: Decimal) -> str:
    """Return an amount with two decimals, also of a currency that has none."""
    written = f"{amount:.2f}".replace(".", ",")
    if len(written.partition(",")[0]) > AMOUNT_DIGITS or amount != amount.quantize(CENT):
        detail = f"DATEV takes amounts of {AMOUNT_DIGITS} digits and two decimals, and {amount:f} is none"
        raise Invalid(pointer="/month", rule="not-an-amount", detail=detail)
    return written


def _number(account: str, accounts: AccountMap) -> str:
    """Return an account as DATEV has it: of the general ledger, or of a debtor, which has one digit more (10000 to 69999)."""
    digits = accounts.datev_account_digits
    is_debtor = len(account) == digits + 1 and account[0] in DEBTORS
    if not account.isdecimal() or not (len(account) == digits or is_debtor):
        detail = f"the account {account} must be a number of {digits} digits, or of {digits + 1} for a debtor"
        raise Invalid(pointer="/accounts", rule="not-a-number", detail=detail)
    return account

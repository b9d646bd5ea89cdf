"""camt.052, camt.053 and camt.054 in the versions of banks. Pure."""

from datetime import date
from decimal import Decimal

import pytest

from billing.statements_in import camt
from billing.statements_in.statements import BankFileInvalid, EntryState, Statement, check_statements


def document(
    entries: str, *, balances: str = "", version: str = "053.001.08", outer: str = "BkToCstmrStmt", inner: str = "Stmt"
) -> bytes:
    account = "<Acct><Id><IBAN>DE89370400440532013000</IBAN></Id><Ccy>EUR</Ccy></Acct>"
    return (
        f'<?xml version="1.0"?><Document xmlns="urn:iso:std:iso:20022:tech:xsd:camt.{version}"><{outer}>\n'
        f"<{inner}>{account}{balances}\n{entries}</{inner}></{outer}></Document>"
    ).encode()


def balance(code: str, amount: str, indicator: str = "CRDT") -> str:
    tp = f"<Tp><CdOrPrtry><Cd>{code}</Cd></CdOrPrtry></Tp>"
    return f'<Bal>{tp}<Amt Ccy="EUR">{amount}</Amt><CdtDbtInd>{indicator}</CdtDbtInd></Bal>'


def entry(
    amount: str = "44.00", indicator: str = "CRDT", details: str = "", *, status: str = "<Sts><Cd>BOOK</Cd></Sts>", more: str = ""
) -> str:
    return (
        f'<Ntry><Amt Ccy="EUR">{amount}</Amt><CdtDbtInd>{indicator}</CdtDbtInd>{more}{status}'
        f"<BookgDt><Dt>2026-11-20</Dt></BookgDt><ValDt><Dt>2026-11-19</Dt></ValDt><AcctSvcrRef>REF-1</AcctSvcrRef><NtryDtls>{details}</NtryDtls></Ntry>\n"
    )


DETAILS_08 = (
    "<TxDtls><Refs><EndToEndId>ORDER-7</EndToEndId></Refs><RltdPties><Dbtr><Pty><Nm>Ada Lovelace</Nm></Pty></Dbtr>"
    "<DbtrAcct><Id><IBAN>NL02RABO0123456789</IBAN></Id></DbtrAcct></RltdPties>"
    "<RmtInf><Ustrd>Rechnung</Ustrd><Ustrd>INV-000012</Ustrd></RmtInf></TxDtls>"
)
DETAILS_02 = DETAILS_08.replace("<Pty>", "").replace("</Pty>", "")


def read(content: bytes) -> Statement:
    (statement,) = camt.read(content)
    check_statements([statement])
    return statement


@pytest.mark.parametrize(
    ("details", "status", "version"),
    [(DETAILS_08, "<Sts><Cd>BOOK</Cd></Sts>", "053.001.08"), (DETAILS_02, "<Sts>BOOK</Sts>", "053.001.02")],
)
def test_an_entry_is_read_in_both_versions(details: str, status: str, version: str) -> None:
    statement = read(document(entry(details=details, status=status), version=version))
    (found,) = statement.entries
    assert statement.account == "DE89370400440532013000"
    assert (found.amount, found.currency, found.state) == (Decimal(44), "EUR", EntryState.BOOKED)
    assert (found.booked_on, found.value_on, found.line) == (date(2026, 11, 20), date(2026, 11, 19), 3)
    assert (found.text, found.party) == ("Rechnung INV-000012", "Ada Lovelace NL02RABO0123456789")
    assert (found.bank_reference, found.end_to_end_reference) == ("REF-1", "ORDER-7")


@pytest.mark.parametrize(
    ("outer", "inner"), [("BkToCstmrStmt", "Stmt"), ("BkToCstmrAcctRpt", "Rpt"), ("BkToCstmrDbtCdtNtfctn", "Ntfctn")]
)
def test_statements_reports_and_notifications_are_read(outer: str, inner: str) -> None:
    assert len(read(document(entry(), outer=outer, inner=inner)).entries) == 1


def test_what_went_out_or_was_taken_back_is_below_zero() -> None:
    reversal = entry(indicator="DBIT", more="<RvslInd>true</RvslInd>")
    assert [each.amount for each in read(document(entry(indicator="DBIT") + reversal)).entries] == [Decimal(-44), Decimal(-44)]


def test_a_pending_entry_is_not_booked() -> None:
    (found,) = read(document(entry(status="<Sts><Cd>PDNG</Cd></Sts>"))).entries
    assert found.state is EntryState.PENDING


def test_a_sum_of_several_transactions_is_divided_if_their_amounts_make_it() -> None:
    def parts(*amounts: str) -> str:
        return "".join(
            f'<TxDtls><Amt Ccy="EUR">{each}</Amt><RmtInf><Ustrd>INV-{each}</Ustrd></RmtInf></TxDtls>' for each in amounts
        )

    divided = read(document(entry(details=parts("40.00", "4.00")))).entries
    assert [(each.amount, each.text, each.bank_reference) for each in divided] == [
        (Decimal(40), "INV-40.00", "REF-1/1"), (Decimal(4), "INV-4.00", "REF-1/2"),
    ]  # fmt: skip
    (whole,) = read(document(entry(details=parts("40.00", "3.00")))).entries
    assert (whole.amount, whole.text, whole.bank_reference) == (Decimal(44), "INV-40.00 INV-3.00", "REF-1")


def test_the_balances_are_checked() -> None:
    balances = balance("OPBD", "10.00", "DBIT") + balance("PRCD", "99.00") + balance("CLAV", "1.00")
    assert read(document(entry(), balances=balances + balance("CLBD", "34.00"))).opening == Decimal(-10)
    with pytest.raises(BankFileInvalid, match=r"line 2: the closing balance .* is 35\.00, but .* make 34\.00"):
        read(document(entry(), balances=balances + balance("CLBD", "35.00")))


BOMB = b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
SECRET = b'<!DOCTYPE x [<!ENTITY s SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (document(entry()).replace(b'<?xml version="1.0"?>', BOMB).replace(b"REF-1", b"&b;"), "DTD"),
        (document(entry()).replace(b'<?xml version="1.0"?>', SECRET).replace(b"REF-1", b"&s;"), "DTD"),
        (document(entry("x")), "line 3: 'x' is no amount"),
        (document(entry("-5")), "line 3: '-5' is no amount"),
        (document(entry("NaN")), "line 3: 'NaN' is no amount"),
        (document(entry("1E+400")), "no amount"),
        (document(entry(indicator="C")), "line 3: the indicator 'C'"),
        (document(entry(status="<Sts><Cd>ODD</Cd></Sts>")), "line 3: the state 'ODD'"),
        (document(entry().replace("2026-11-20", "2026-13-20")), "line 3: '2026-13-20' is no day"),
        (document(entry().replace('<Amt Ccy="EUR">44.00</Amt>', "")), "line 3: there is no amount"),
        (document(entry())[:-20], "no well-formed XML"),
        (b"", "no well-formed XML"),
        (b"<html/>", "no camt"),
        (b"<a>" * 5_000, "no well-formed XML"),
    ],
)  # fmt: skip
def test_a_wrong_or_hostile_file_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(BankFileInvalid, match=message):
        read(content)

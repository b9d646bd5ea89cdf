"""The seller's logo and colour: which ones documents can print, and how. Pure.

A logo is an SVG of shapes or a PNG. What could run, load or look different elsewhere is refused: scripts, references to files or
addresses, texts in fonts. The printed form of both is an SVG, because a template takes data as text.
"""

import base64
import binascii
import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from xml.etree import ElementTree as ET

from ledger.values import InvalidValue, Text

MAX_LOGO_BYTES: Final = 40_000
"""A request has at most 64 KiB, and base64 needs 4 characters for 3 bytes."""
MAX_LOGO_PIXELS: Final = 2_000
LOGO_MM: Final = (60.0, 15.0)
"""The largest width and height on paper."""
READABLE_CONTRAST: Final = 4.5
"""The least contrast of text with white. Source: WCAG 2.2, 1.4.3."""

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_INDEXED: Final = 3
_LAST_FILTER: Final = 4
_CHANNELS: Final = {0: 1, 2: 3, _INDEXED: 1, 4: 2, 6: 4}
_DEPTHS: Final = {0: {1, 2, 4, 8, 16}, 2: {8, 16}, 3: {1, 2, 4, 8}, 4: {8, 16}, 6: {8, 16}}
_SVG: Final = "{http://www.w3.org/2000/svg}"
_SHAPES: Final = {
    "svg", "g", "defs", "symbol", "use", "title", "desc", "metadata", "path", "rect", "circle", "ellipse", "line", "polyline",
    "polygon", "clipPath", "mask", "pattern", "linearGradient", "radialGradient", "stop", "style",
}  # fmt: skip
_GRADIENTS: Final = {f"{_SVG}linearGradient", f"{_SVG}radialGradient"}
_MAX_SHAPES: Final = 2_000
"""How many shapes a logo draws, each as often as it is used: parts that use parts double with each level."""
_MAX_DEPTH: Final = 100
_LENGTH: Final = re.compile(r"\s*([0-9]{1,6}(?:\.[0-9]{1,6})?)(?:px|pt|mm|cm|in|pc)?\s*")
# Possessive, so that a quote before # is never left for the look-ahead.
_REFERENCE: Final = re.compile(r"url\(\s*+[\"']?+\s*+(?!#)|image-set\(|@import|expression\(|\\", re.IGNORECASE)
_PART: Final = re.compile(r"url\(\s*[\"']?\s*#([^\"')\s]+)", re.IGNORECASE)
_RULE: Final = re.compile(r"([^{}]*)\{([^{}]*)\}")
_INSTRUCTION: Final = re.compile(r"<\?(?!xml\s)", re.IGNORECASE)


class Logo(Text):
    """An SVG or PNG in base64, as a document prints it."""

    def __init__(self, text: str = "", **options: Any) -> None:
        super().__init__(text, most=4 * -(-MAX_LOGO_BYTES // 3), **options)

    def read(self, value: Any) -> str:
        encoded = super().read(value)
        if encoded:
            check_logo(decode_logo(encoded))
        return encoded

    def check(self, value: Any) -> str:
        return self.read(value)

    def openapi(self) -> dict[str, Any]:
        return {**super().openapi(), "contentEncoding": "base64"}


class Colour(Text):
    """A colour as #rrggbb."""

    def __init__(self, text: str = "", **options: Any) -> None:
        super().__init__(text, most=7, pattern="(?:#[0-9a-fA-F]{6})?", rule="# and six hexadecimal digits", **options)


def decode_logo(encoded: str) -> bytes:
    """Return the bytes of a logo. Raises: InvalidValue."""
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidValue("not-base64", "This must be base64.") from error


def check_logo(content: bytes) -> tuple[float, float]:
    """Return the width and height of a logo that documents can print, in a unit of its own.

    Raises:
        InvalidValue: it is neither PNG nor SVG, is damaged, too large, or has something that a logo may not have.
    """
    if len(content) > MAX_LOGO_BYTES:
        raise InvalidValue("too-large", f"A logo must be at most {MAX_LOGO_BYTES:,} bytes.")
    return _png_size(content) if content.startswith(_PNG) else _svg_size(content)


def is_png(content: bytes) -> bool:
    """Return whether the logo is a PNG."""
    return content.startswith(_PNG)


# PNG -------------------------------------------------------------------------------------------------


def _png_size(content: bytes) -> tuple[float, float]:
    """Return the size of a whole PNG, whose sums of bytes are right and whose pixels are all there."""
    damaged = InvalidValue("damaged", "This PNG is damaged or not finished.")
    at, pixels, header, palette, ended = len(_PNG), b"", b"", b"", False
    while at < len(content) and not ended:
        if len(content) - at < 12:
            raise damaged
        length, kind = struct.unpack(">I4s", content[at : at + 8])
        body, crc = content[at + 8 : at + 8 + length], content[at + 8 + length : at + 12 + length]
        if len(crc) != 4 or struct.unpack(">I", crc)[0] != zlib.crc32(kind + body):
            raise damaged
        if (kind == b"IHDR") != (at == len(_PNG)):
            raise damaged
        if kind == b"IHDR":
            header = body
        elif kind == b"PLTE":
            palette = body
        elif kind == b"IDAT":
            pixels += body
        ended = kind == b"IEND"
        at += 12 + length
    if not ended or len(header) != 13:
        raise damaged
    width, height, depth, colours, packing, filters, lacing = struct.unpack(">IIBBBBB", header)
    if not (0 < width <= MAX_LOGO_PIXELS and 0 < height <= MAX_LOGO_PIXELS):
        raise InvalidValue("too-large", f"A logo must be at most {MAX_LOGO_PIXELS:,} pixels wide and high.")
    if depth not in _DEPTHS.get(colours, ()) or packing or filters or (colours == _INDEXED and not palette):
        raise damaged
    if lacing:
        raise InvalidValue("interlaced", "Save this PNG without interlacing.")
    row_bytes = 1 + -(-width * depth * _CHANNELS[colours] // 8)
    try:
        packed = zlib.decompressobj()
        unpacked = packed.decompress(pixels, row_bytes * height + 1)
    except zlib.error:
        raise damaged from None
    # Each row begins with the number of its filter.
    if not packed.eof or len(unpacked) != row_bytes * height or max(unpacked[::row_bytes]) > _LAST_FILTER:
        raise damaged
    return float(width), float(height)


# SVG -------------------------------------------------------------------------------------------------


def _svg_size(content: bytes) -> tuple[float, float]:
    """Return the size of an SVG that has only shapes."""
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise InvalidValue("forbidden-content", "A logo may not have a DOCTYPE or entities.")
    try:
        text = content.decode("utf-8-sig")
        if _INSTRUCTION.search(text):
            raise InvalidValue("forbidden-content", "A logo may not have instructions, such as the address of a style.")
        # Without a DOCTYPE there are no entities to expand.
        root = ET.fromstring(text)  # noqa: S314
    except (ET.ParseError, UnicodeDecodeError, ValueError) as error:
        raise InvalidValue("not-an-image", "A logo must be a PNG, or an SVG in UTF-8.") from error
    if root.tag != f"{_SVG}svg":
        raise InvalidValue("not-an-image", "A logo must be a PNG, or an SVG in UTF-8.")
    elements = list(root.iter())
    too_large = InvalidValue("too-large", f"A logo must draw at most {_MAX_SHAPES:,} shapes, those that it uses again included.")
    if len(elements) > _MAX_SHAPES:
        raise too_large
    for each in elements:
        _ensure_shape(each)
    if _count_shapes(root, elements) > _MAX_SHAPES:
        raise too_large
    return _size_of(root)


def _ensure_shape(element: ET.Element) -> None:
    name = str(element.tag).removeprefix(_SVG)
    if name == "text":
        raise InvalidValue("forbidden-content", "A logo may not have text, whose font may be missing: convert it to paths.")
    if name not in _SHAPES:
        shown = re.sub(r"\{.*\}", "", name)[:40]
        detail = f"A logo may not have <{shown}>: save it as a plain SVG of shapes, without scripts and pictures."
        raise InvalidValue("forbidden-content", detail)
    for attribute, value in element.attrib.items():
        plain = re.sub(r"\{.*\}", "", attribute).lower()
        is_foreign_reference = plain in ("href", "src", "base") and not value.strip().startswith("#")
        if plain.startswith("on") or is_foreign_reference or _REFERENCE.search(value):
            detail = f"A logo may not have {plain[:40]}=… that runs or loads something."
            raise InvalidValue("forbidden-content", detail)
    if name == "style" and _REFERENCE.search("".join(element.itertext())):
        raise InvalidValue("forbidden-content", "The style of a logo may not load something.")


def _count_shapes(root: ET.Element, found: Sequence[ET.Element]) -> int:
    """Return how many shapes an SVG draws, each as often as another one uses it. Gradients draw nothing."""
    parts = {each.attrib["id"]: each for each in found if "id" in each.attrib and each.tag not in _GRADIENTS}
    styled = _named_by_style(found)
    counted: dict[ET.Element, int] = {}

    def count(element: ET.Element, path: tuple[ET.Element, ...]) -> int:
        if element in path:
            raise InvalidValue("forbidden-content", "A part of a logo may not use itself.")
        if element not in counted:
            if len(path) >= _MAX_DEPTH:
                raise InvalidValue("too-large", f"A logo must have at most {_MAX_DEPTH} levels.")
            used = [parts[name] for name in _named_by(element, styled) if name in parts]
            counted[element] = 1 + sum(count(each, (*path, element)) for each in (*element, *used))
        return counted[element]

    return count(root, ())


def _named_by(element: ET.Element, styled: Mapping[str, set[str]]) -> set[str]:
    """Return the parts that an element uses, as its own attributes and the style of its classes name them."""
    values = element.attrib.items()
    named = {name for _, value in values for name in _PART.findall(value)}
    named |= {value.strip()[1:] for name, value in values if name.rpartition("}")[2] == "href"}
    return named.union(*(styled.get(each, set()) for each in ("", *element.get("class", "").split())))


def _named_by_style(found: Iterable[ET.Element]) -> dict[str, set[str]]:
    """Return the parts that rules of a style name, by class; by an empty one what rules without a class name for all elements."""
    named: dict[str, set[str]] = {}
    for style in (each for each in found if each.tag == f"{_SVG}style"):
        for selector, body in _RULE.findall("".join(style.itertext())):
            for each in re.findall(r"\.([\w-]+)", selector) or [""]:
                named.setdefault(each, set()).update(_PART.findall(body))
    return named


def _size_of(root: ET.Element) -> tuple[float, float]:
    box = re.split(r"[\s,]+", root.get("viewBox", "").strip())
    sizes = box[2:] if len(box) == 4 else [root.get("width", ""), root.get("height", "")]
    matches = [_LENGTH.fullmatch(size) for size in sizes]
    found = [float(match[1]) for match in matches if match is not None]
    if len(found) != 2 or min(found) <= 0 or max(found) > 1_000 * min(found):
        raise InvalidValue("no-size", "A logo must have a viewBox, or a width and a height.")
    return found[0], found[1]


# On paper --------------------------------------------------------------------------------------------


def printed_brand(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the logo and colour of a seller for the template; None for what the seller does not have.

    Returns:
        `logo`: its SVG with its width and height in millimetres; `accent`: the colour of rules; `has_readable_accent`: whether
        text may have this colour.
    """
    accent = details.get("accent_color") or None
    return {
        "logo": _printed_logo(decode_logo(details["logo"])) if details.get("logo") else None,
        "accent": accent,
        "has_readable_accent": accent is not None and contrast_with_white(accent) >= READABLE_CONTRAST,
    }


def _printed_logo(content: bytes) -> dict[str, Any]:
    width, height = check_logo(content)
    scale = min(LOGO_MM[0] / width, LOGO_MM[1] / height)
    svg = content.decode("utf-8-sig") if not is_png(content) else _frame_png(content, width, height)
    return {"svg": svg, "width": round(width * scale, 3), "height": round(height * scale, 3)}


def _frame_png(png: bytes, width: float, height: float) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}"'
    source = base64.b64encode(png).decode()
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><image {size} href="data:image/png;base64,{source}"/></svg>'


def logo_url(details: Mapping[str, Any]) -> str:
    """Return the seller's logo for a page, as the address of a picture; empty without a logo."""
    if not details.get("logo"):
        return ""
    kind = "png" if is_png(decode_logo(details["logo"])) else "svg+xml"
    return f"data:image/{kind};base64,{details['logo']}"


def contrast_with_white(colour: str) -> float:
    """Return the contrast of a colour with white, 1 to 21. Source: WCAG 2.2, relative luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)

"""Pictures and their pixels. Source: PNG (ISO/IEC 15948), filters of chapter 9; channels of 8 bits, no interlace."""

import struct
import zlib
from pathlib import Path
from typing import Any

from ledger.typesetting.typeset import compiler_of

CHANNELS = {2: 3, 6: 4}
"""Of the kinds of colours: RGB, and RGB with opacity."""


def pictures(template: Path, page: dict[str, Any], *, dots_per_inch: int) -> list[bytes]:
    """The pages of a document as PNG."""
    found = compiler_of(template, page).compile(format="png", ppi=dots_per_inch)
    return found if isinstance(found, list) else [found or b""]


def pixels(picture: bytes) -> list[bytes]:
    """The rows of a picture, each with red, green, blue, and the opacity if it has one, of one pixel after the other."""
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, width, step = 8, b"", 0, 0
    while at < len(picture):
        length, kind = struct.unpack(">I4s", picture[at : at + 8])
        body = picture[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, step = struct.unpack(">I", body[:4])[0], CHANNELS[body[9]]
            assert (body[8], *body[10:]) == (8, 0, 0, 0)
        elif kind == b"IDAT":
            data += body
        at += 12 + length
    return _unfiltered(zlib.decompress(data), width * step, step)


def _unfiltered(data: bytes, row_bytes: int, step: int) -> list[bytes]:
    """Undo the filter of each row of bytes, which PNG names in the row's first byte."""
    rows, before = [], bytes(row_bytes)
    for start in range(0, len(data), row_bytes + 1):
        kind, row = data[start], bytearray(data[start + 1 : start + 1 + row_bytes])
        for x in range(row_bytes if kind else 0):
            left = row[x - step] if x >= step else 0
            corner = before[x - step] if x >= step else 0
            row[x] = (row[x] + (0, left, before[x], (left + before[x]) // 2, _paeth(left, before[x], corner))[kind]) & 0xFF
        rows.append(before := bytes(row))
    return rows


def _paeth(left: int, above: int, corner: int) -> int:
    """The Paeth predictor of the PNG specification."""
    guess = left + above - corner
    return min((left, above, corner), key=lambda one: abs(guess - one))

"""Pictures for the docs as PNGs with a palette of 256 colours: a third of the bytes, and no difference that somebody sees."""

import struct
import zlib
from collections import Counter
from pathlib import Path
from typing import Final

from tests.billing.documents.png import pixels

MOST_COLOURS: Final = 256
SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
CHANNELS: Final = 3
KIND_BITS: Final = 5
"""Colours are of one kind if the upper three bits of their channels are the same."""

Colour = tuple[int, int, int]


def keep(folder: str | None, name: str, png: bytes) -> None:
    """Write a picture to a folder; nothing without a folder."""
    if folder:
        (Path(folder) / f"{name}.png").write_bytes(with_palette(png))


def with_palette(png: bytes) -> bytes:
    """Return the same picture with at most 256 colours; each other colour becomes the nearest of them."""
    width, height = struct.unpack(">II", png[16:24])
    rows = [_colours_of(row, width) for row in pixels(png)]
    counted = Counter(colour for row in rows for colour in row)
    palette = _palette_of(counted)
    number_of = {colour: number for number, colour in enumerate(palette)}
    number_of |= {colour: _nearest(colour, tuple(palette)) for colour in counted.keys() - number_of.keys()}
    data = zlib.compress(b"".join(b"\0" + bytes(number_of[colour] for colour in row) for row in rows), 9)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", bytes(channel for colour in palette for channel in colour)),
        (b"IDAT", data),
        (b"IEND", b""),
    )
    return SIGNATURE + b"".join(_chunk(name, content) for name, content in parts)


def _palette_of(counted: Counter[Colour]) -> list[Colour]:
    """Return the most frequent colour of each kind, so that a small red sign stays red, then the most frequent ones of all."""
    kinds: dict[Colour, Colour] = {}
    for colour, _ in counted.most_common():
        red, green, blue = colour
        kinds.setdefault((red >> KIND_BITS, green >> KIND_BITS, blue >> KIND_BITS), colour)
    frequent = (colour for colour, _ in counted.most_common(MOST_COLOURS))
    return list(dict.fromkeys([*list(kinds.values())[: MOST_COLOURS // 2], *frequent]))[:MOST_COLOURS]


def _colours_of(row: bytes, width: int) -> list[Colour]:
    step = len(row) // width
    red, green, blue = (row[channel::step] for channel in range(CHANNELS))
    return list(zip(red, green, blue, strict=True))


def _nearest(colour: Colour, palette: tuple[Colour, ...]) -> int:
    distances = [sum((one - other) ** 2 for one, other in zip(each, colour, strict=True)) for each in palette]
    return distances.index(min(distances))


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

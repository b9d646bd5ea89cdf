"""The pictures of the docs are made small: with a palette, and otherwise as they were."""

import struct
import zlib
from pathlib import Path

import pytest
from django.conf import settings

from tests.billing.documents.png import pixels
from tests.browser.small_pictures import with_palette


def png_of(rows: list[bytes], *, kind: int, channels: int) -> bytes:
    """A picture without filters."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", len(rows[0]) // channels, len(rows), 8, kind, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def colours_of(png: bytes) -> list[list[bytes]]:
    """The rows of a picture with a palette, each with its colours."""
    palette, data, place = b"", b"", 8
    while place < len(png):
        length, name = struct.unpack(">I4s", png[place : place + 8])
        content = png[place + 8 : place + 8 + length]
        palette, data = (content, data) if name == b"PLTE" else (palette, data + content * (name == b"IDAT"))
        place += 12 + length
    width, height = struct.unpack(">II", png[16:24])
    plain = zlib.decompress(data)
    rows = [plain[at + 1 : at + 1 + width] for at in range(0, height * (width + 1), width + 1)]
    return [[palette[number * 3 : number * 3 + 3] for number in row] for row in rows]


@pytest.mark.parametrize(("kind", "channels"), [(2, 3), (6, 4)])
def test_a_picture_of_few_colours_keeps_each_of_them(kind: int, channels: int) -> None:
    opaque = b"\xff" * (channels - 3)
    rows = [b"\xc8\x00\x01" + opaque + b"\x00\x64\xff" + opaque, b"\x00\x64\xff" + opaque + b"\xff\xff\xff" + opaque]
    small = with_palette(png_of(rows, kind=kind, channels=channels))
    assert colours_of(small) == [[b"\xc8\x00\x01", b"\x00\x64\xff"], [b"\x00\x64\xff", b"\xff\xff\xff"]]


def test_a_rare_colour_becomes_the_nearest_of_the_frequent_ones() -> None:
    frequent = [bytes((number, 0, 0)) for number in range(256)]
    rows = [b"".join(frequent), b"".join(frequent), b"".join([*frequent[:255], b"\x07\x01\x00"])]
    found = colours_of(with_palette(png_of(rows, kind=2, channels=3)))
    assert found[0] == frequent
    assert found[2][-1] == b"\x07\x00\x00"


def test_the_pictures_of_pages_in_the_docs_are_small() -> None:
    large = {each.name for each in (settings.BASE_DIR / "docs/images").glob("*.png") if not has_palette(each)}
    assert {name for name in large if name.startswith(("admin-", "job-", "customers-"))} == set()


def has_palette(picture: Path) -> bool:
    return picture.read_bytes()[25] == 3


def test_pixels_are_those_of_the_picture() -> None:
    assert pixels(png_of([b"\x01\x02\x03\x04\x05\x06"], kind=2, channels=3)) == [b"\x01\x02\x03\x04\x05\x06"]

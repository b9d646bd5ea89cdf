"""The seller's logo, colour and words, and the note of an invoice: which are refused, and where documents print them."""

import base64
import struct
import zlib
from datetime import UTC, datetime

import pytest

from billing.documents.brand import MAX_LOGO_BYTES, check_logo, contrast_with_white, logo_url, printed_brand
from billing.documents.invoices import note_draft
from billing.documents.printing import TEMPLATE, invoice_pdf, invoice_source, page_of
from billing.documents.sellers import record_seller
from billing.errors import InvalidTransition
from billing.generator.run import generate
from billing.generator.run.generate import Options
from billing.models import Invoice, Seller
from ledger.errors import Invalid
from ledger.values import InvalidValue
from tests.billing.documents.issued import SELLER, add_seller, invoice_up_to, subscribed, usual_invoice
from tests.billing.documents.png import pictures, pixels
from tests.billing.documents.test_printed import RAM, text_of, xml_of
from tests.billing.factories import recurring

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 240 60">{}</svg>'
SHAPE = '<rect width="240" height="60" fill="#0b6e4f"/>'
WORDS = {
    "accent_color": "#0b6e4f",
    "footer": {"en": "Managing director: Mara Fern", "de": "Geschäftsführerin: Mara Fern"},
    "payment_terms": {"en": "2 % off within 10 days.", "de": "2 % Skonto binnen 10 Tagen."},
}


def chunk(kind: bytes, body: bytes) -> bytes:
    """A part of a PNG."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(
    width: int = 40, height: int = 20, *, rows: int | None = None, lacing: int = 0, colours: int = 2, line_filter: int = 0,
    unfinished: int = 0,
) -> bytes:  # fmt: skip
    """A green PNG; with `rows`, of fewer rows than it says; with `unfinished`, without the last bytes of its pixels."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colours, 0, 0, lacing))
    line = bytes((line_filter,)) + bytes((11, 110, 79)[: 1 if colours == 3 else 3]) * width
    packed = zlib.compress(line * (height if rows is None else rows))
    data = chunk(b"IDAT", packed[: len(packed) - unfinished])
    return b"\x89PNG\r\n\x1a\n" + header + data + chunk(b"IEND", b"")


def encoded(content: bytes | str) -> str:
    """As a request has it."""
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode()


def doubled(levels: int, part: str, reference: str) -> str:
    """An SVG of a part that draws the part below it twice, that many levels deep."""
    twice = f"<rect {reference}/><rect {reference}/>" if "url" in reference else f"<use {reference}/><use {reference}/>"
    made = [f'<{part} id="p0"><rect/></{part}>']
    made += [f'<{part} id="p{level}">{twice.format(level - 1, level - 1)}</{part}>' for level in range(1, levels)]
    return SVG.format(f"<defs>{''.join(made)}</defs>")


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (doubled(10, "g", 'href="#p{}"'), "too-large"),
        (doubled(50, "g", 'href="#p{}"'), "too-large"),
        (doubled(50, "pattern", 'fill="url(#p{})"'), "too-large"),
        (doubled(50, "mask", 'style="mask:url(&quot;#p{}&quot;)"'), "too-large"),
        (SVG.format('<style>.a{mask:url(#a)}</style><mask id="a"><rect class="a"/></mask>'), "forbidden-content"),
        (SVG.format('<g id="a"><use href="#a"/></g>'), "forbidden-content"),
        (SVG.format("<g>" * 200 + "</g>" * 200), "too-large"),
        (b"GIF89a", "not-an-image"),
        ("<svg", "not-an-image"),
        ("<html/>", "not-an-image"),
        ("<!DOCTYPE svg><svg/>", "forbidden-content"),
        ('<!ENTITY a "b"><svg/>', "forbidden-content"),
        (SVG.format("<script>alert(1)</script>"), "forbidden-content"),
        (SVG.format('<h:script xmlns:h="http://www.w3.org/1999/xhtml"/>'), "forbidden-content"),
        (SVG.format("<foreignObject/>"), "forbidden-content"),
        (SVG.format('<image href="https://example.org/x.png"/>'), "forbidden-content"),
        (SVG.format("<text>Fern</text>"), "forbidden-content"),
        (SVG.format('<rect onload="alert(1)"/>'), "forbidden-content"),
        (SVG.format('<use href="https://example.org/x.svg#a"/>'), "forbidden-content"),
        (SVG.format('<rect fill="url(https://example.org/x)"/>'), "forbidden-content"),
        (SVG.format("<style>@import 'x.css';</style>"), "forbidden-content"),
        (SVG.format("<style>rect { fill: url( 'x.svg#a') }</style>"), "forbidden-content"),
        (SVG.format("<style>rect { fill: url( ' x.svg#a') }</style>"), "forbidden-content"),
        (SVG.format('<style>rect { fill: image-set("x.png" 1x) }</style>'), "forbidden-content"),
        ('<?xml version="1.0"?><?xml-stylesheet href="https://example.org/x.css"?>' + SVG.format(SHAPE), "forbidden-content"),
        ('<svg xmlns="http://www.w3.org/2000/svg"/>', "no-size"),
        ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 0 60"/>', "no-size"),
        ('<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="9"/>', "no-size"),
        (SVG.format(SHAPE * 2001), "too-large"),
        (SVG.format(" " * MAX_LOGO_BYTES), "too-large"),
        (png()[:-4], "damaged"),
        (png()[:60] + b"x" + png()[61:], "damaged"),
        (png(rows=19), "damaged"),
        (png(rows=21), "damaged"),
        (png(2001, 1), "too-large"),
        (png(lacing=1), "interlaced"),
        (png(colours=3), "damaged"),
        (png(line_filter=5), "damaged"),
        (png(unfinished=4), "damaged"),
        (b"\x89PNG\r\n\x1a\n" + chunk(b"tEXt", b"a\0b") + png()[8:], "damaged"),
    ],
)
def test_a_logo_that_is_damaged_or_could_run_or_load_something_is_refused(content, rule):
    with pytest.raises(InvalidValue) as refused:
        check_logo(content.encode() if isinstance(content, str) else content)
    assert refused.value.code == rule


def test_logos_of_shapes_and_whole_pictures_are_accepted():
    assert check_logo(png()) == (40, 20)
    gradient = '<defs><linearGradient id="a"><stop offset="0"/></linearGradient></defs><rect fill="url(#a)"/><use href="#a"/>'
    assert check_logo(SVG.format(gradient).encode()) == (240, 60)
    clipped = '<style>.a{clip-path:url(#b)} .c{fill:url(#d)}</style><clipPath id="b"><rect class="c"/></clipPath><g class="a"/>'
    assert check_logo(SVG.format(clipped + '<rect id="e"/>' + '<use href="#e"/>' * 150).encode()) == (240, 60)
    assert check_logo(doubled(8, "g", 'href="#p{}"').encode()) == (240, 60)
    quoted = gradient.replace("url(#a)", "url( &quot;#a&quot; )") + "<style>rect { fill: url('#a') }</style>"
    assert check_logo(b'<?xml version="1.0" encoding="UTF-8"?>' + SVG.format(quoted).encode()) == (240, 60)
    assert check_logo(b'<svg xmlns="http://www.w3.org/2000/svg" width="30mm" height="10mm"/>') == (30, 10)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("change", "pointer", "rule"),
    [
        ({"logo": "%%%"}, "/logo", "not-base64"),
        ({"logo": encoded("<svg")}, "/logo", "not-an-image"),
        ({"logo": "A" * 60_000}, "/logo", "too-long"),
        ({"accent_color": "green"}, "/accent_color", "pattern"),
        ({"footer": "Fern"}, "/footer", "not-an-object"),
        ({"footer": {"fr": "Fern"}}, "/footer/fr", "unknown-language"),
        ({"payment_terms": {"de": "x" * 501}}, "/payment_terms/de", "too-long"),
    ],
)
def test_a_seller_with_a_bad_logo_colour_or_text_is_refused_and_nothing_recorded(change, pointer, rule):
    with pytest.raises(Invalid) as refused:
        record_seller({**SELLER, **change}, actor="test")
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == (pointer, rule)
    assert not Seller.objects.exists()


def test_a_colour_that_cannot_be_read_is_for_rules_only():
    assert round(contrast_with_white("#767676"), 2) == 4.54
    assert (contrast_with_white("#000000"), contrast_with_white("#ffffff")) == (21, 1)
    assert printed_brand({"accent_color": "#0b6e4f"}) == {"logo": None, "accent": "#0b6e4f", "has_readable_accent": True}
    assert printed_brand({"accent_color": "#ffd500"}) == {"logo": None, "accent": "#ffd500", "has_readable_accent": False}


def test_a_page_shows_a_logo_as_the_kind_of_picture_that_it_is():
    svg, image = encoded(SVG.format(SHAPE)), encoded(png())
    assert logo_url({"logo": svg}) == f"data:image/svg+xml;base64,{svg}"
    assert logo_url({"logo": image}) == f"data:image/png;base64,{image}"
    assert logo_url({"logo": ""}) == ""


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.django_db
@pytest.mark.parametrize("logo", [SVG.format(SHAPE), png(240, 60)], ids=["svg", "png"])
def test_the_logo_is_on_paper_and_the_words_in_the_language_of_the_reader(logo):
    add_seller(**WORDS, logo=encoded(logo))
    invoice = usual_invoice(language="de")
    source = invoice_source(invoice.pk)
    rows = pixels(pictures(TEMPLATE, page_of(source), dots_per_inch=30)[0])
    height, width = len(rows), len(rows[0]) // 4
    at = 4 * int(width * 40 / 210)
    assert rows[int(height * 20 / 297)][at : at + 3] == bytes((11, 110, 79)), "the logo at the top left"
    text = text_of(invoice_pdf(invoice.pk).content)
    assert "Geschäftsführerin: Mara Fern" in text
    assert "2 % Skonto binnen 10 Tagen." in text
    assert xml_of(invoice_pdf(invoice.pk).content).find(f".//{RAM}SpecifiedTradePaymentTerms/{RAM}Description").text == (
        "2 % Skonto binnen 10 Tagen."
    )


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.django_db
def test_a_title_of_one_long_word_breaks_within_its_column():
    word = "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichenverleihung" * 2
    add_seller()
    invoice = invoice_up_to(subscribed(recurring("seats", "31.00", tax_rate="19", name=word)))
    rows = pixels(pictures(TEMPLATE, page_of(invoice_source(invoice.pk)), dots_per_inch=60)[0])
    width = len(rows[0]) // 4
    # Between the title and the columns of numbers there is white paper, from the head of the table to its end.
    gap = range(int(width * 132 / 210), int(width * 134 / 210))
    lines = rows[int(len(rows) * 115 / 297) : int(len(rows) * 124 / 297)]
    assert all(row[4 * x] > 250 for row in lines for x in gap)
    assert word in text_of(invoice_pdf(invoice.pk).content).replace("\u200b", "").replace(" ", "")


# Notes -----------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_note_is_on_pdf_and_e_invoice_and_frozen_with_the_invoice():
    add_seller()
    draft = invoice_up_to(subscribed(recurring("seats", "31.00", tax_rate="19")), finalize=False)
    note_draft(draft.pk, "Your order 4711")
    invoice = generate_finalized(draft)
    assert invoice.note == "Your order 4711"
    pdf = invoice_pdf(invoice.pk).content
    assert "Your order 4711" in text_of(pdf)
    assert xml_of(pdf).find(f".//{RAM}IncludedNote/{RAM}Content").text == "Your order 4711"
    with pytest.raises(InvalidTransition):
        note_draft(invoice.pk, "Another")
    invoice.refresh_from_db()
    assert invoice.note == "Your order 4711"


def generate_finalized(draft: Invoice) -> Invoice:
    """The draft after an operator has finalised it."""
    from billing.documents import transitions

    return transitions.apply_in(invoice_id=draft.pk, kind="finalize", actor="test")


@pytest.mark.django_db
def test_a_draft_that_is_rated_again_keeps_its_note_and_a_run_gives_its_invoices_one():
    subscription = subscribed(recurring("seats", "31.00", tax_rate="19"), grace_days=3)
    first, second = datetime(2026, 10, 1, 12, tzinfo=UTC), datetime(2026, 10, 2, 12, tzinfo=UTC)
    draft = invoice_up_to(subscription, as_of=first)
    note_draft(draft.pk, "Your order 4711")
    again = invoice_up_to(subscription, as_of=second)
    assert (again.pk != draft.pk, again.state, again.note) == (True, "draft", "Your order 4711")
    generate.generate(ref=subscription.ref, options=Options(as_of=datetime(2026, 11, 1, 12, tzinfo=UTC), note="Second order"))
    notes = list(Invoice.objects.filter(subscription_id=subscription.pk).order_by("pk").values_list("state", "note"))
    assert notes == [("open", "Your order 4711"), ("draft", "Second order")]

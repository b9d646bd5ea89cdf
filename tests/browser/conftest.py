"""Jobs that people do in Chromium, and the ledger's clock for histories that a browser looks at.

The pictures of the docs are made by the jobs: LEDGER_PICTURES=docs/images, see docs/how-to/admin.md.
"""

import os
import struct
from collections.abc import Callable

import pytest
from django.test import Client

from tests.browser.chromium import Chromium, Visit, site_of
from tests.browser.small_pictures import keep
from tests.ledger.conftest import ledger_clock
from tests.ledger.staff.admin_site import operator

__all__ = ["ledger_clock"]

PICTURES = os.environ.get("LEDGER_PICTURES")
WIDTHS = (1400, 390)
MOST_CLICKS = 3

Look = Callable[[Visit], None]


@pytest.fixture
def do(chromium: Chromium) -> Callable[..., None]:
    """Does a job from the first page at both widths, and takes a picture of where it leads."""

    def done(name: str, job: Look, *, height: int = 1000, client: Client | None = None) -> None:
        def look(visit: Visit) -> None:
            for width in WIDTHS:
                visit.page.set_viewport_size({"width": width, "height": height})
                visit.open(visit.url)
                visit.clicks = 0
                job(visit)
                assert visit.clicks <= MOST_CLICKS, f"{visit.clicks} clicks"
                assert not visit.is_wider_than_the_window
                assert is_picture(visit.picture(), width=width)
            assert (visit.complaints, visit.elsewhere) == ([], [])

        with site_of(client or operator()) as site:
            chromium.look(f"{site.url}/admin/", look)
            for theme in ("light", "dark") if PICTURES else ():

                def taken(visit: Visit, theme: str = theme) -> None:
                    job(visit)
                    keep(PICTURES, f"job-{name}-{theme}", visit.picture())

                chromium.visit(f"{site.url}/admin/", taken, height=height, theme=theme)

    return done


def is_picture(content: bytes, *, width: int) -> bool:
    """Whether it is a PNG of that width."""
    return content.startswith(b"\x89PNG") and struct.unpack(">I", content[16:20]) == (width,)

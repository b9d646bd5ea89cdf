"""Static files under names that contain a digest of their content, so that a browser keeps them and asks for each only once.

The server reads them from their packages; it collects and copies nothing. Where the docs have been built, they are
served beside them, under `/docs/`.
"""

import hashlib
import os
import re
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Final
from wsgiref.headers import Headers

from csp.constants import SELF
from csp.utils import build_policy
from django.conf import settings
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import StaticFilesStorage
from whitenoise.middleware import WhiteNoiseMiddleware

DIGEST_LENGTH = 12
"""Hexadecimal digits of SHA-256 in a name: WhiteNoise and browsers need only see that a new file has a new name."""


@cache
def name_with_digest(name: str) -> str:
    """Return the name under which a file is linked, `css/page.1f0c….css` for `css/page.css`; a missing file keeps its name."""
    file = finders.find(name)
    if file is None:
        return name
    digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:DIGEST_LENGTH]
    path = PurePosixPath(name)
    return str(path.with_name(f"{path.stem}.{digest}{path.suffix}"))


class StorageWithDigests(StaticFilesStorage):
    """The storage from which `{% static %}` takes addresses."""

    def url(self, name: str | None) -> str:
        """Return the address of a file, whose name contains a digest."""
        return super().url(name and name_with_digest(name))


DOCS: Final = "/docs/"
HAS_DIGEST: Final = re.compile(r"\.[0-9a-f]{8,}(?:\.min)?\.\w+$")
"""The name of a file of the docs that changes with its content; MkDocs' theme has 8 digits, `docs/site/hooks.py` 12."""


class StaticFiles(WhiteNoiseMiddleware):
    """WhiteNoise, for both names of each static file: browsers may keep the one with a digest for good, the other for a minute.

    The docs have one name for each file, and are answered here with the headers that the middleware after this adds to pages.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        if (settings.DOCS_DIR / "index.html").is_file():
            self.index_file = "index.html"
            self.add_headers_function = _add_headers_of_pages
            self.add_files(settings.DOCS_DIR, prefix=DOCS)

    def add_file_to_dictionary(self, url: str, path: str, stat_cache: dict[str, os.stat_result] | None = None) -> None:
        """Make a file known under its names."""
        super().add_file_to_dictionary(url, path, stat_cache=stat_cache)
        if url.startswith(self.static_prefix):
            name = name_with_digest(url.removeprefix(self.static_prefix))
            super().add_file_to_dictionary(self.static_prefix + name, path, stat_cache=stat_cache)

    def immutable_file_test(self, path: str, url: str) -> bool:
        """Return whether the name changes with the content."""
        if url.startswith(DOCS):
            return HAS_DIGEST.search(url) is not None
        return bool(super().immutable_file_test(path, url))


def _add_headers_of_pages(headers: Headers, path: str, url: str) -> None:
    """The docs run the scripts that are files of theirs, and are shown in no frame."""
    if url.startswith(DOCS):
        headers["Content-Security-Policy"] = build_policy(replace={"script-src": [SELF]})
        headers["X-Frame-Options"] = "DENY"

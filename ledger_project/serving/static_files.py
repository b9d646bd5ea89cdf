"""Static files under names that contain a digest of their content, so that a browser keeps them and asks for each only once.

They are served from the packages that bring them; nothing is collected or copied.
"""

import hashlib
import os
from functools import cache
from pathlib import Path, PurePosixPath

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
    """What `{% static %}` asks for addresses."""

    def url(self, name: str | None) -> str:
        """Return the address of a file, whose name contains a digest."""
        return super().url(name and name_with_digest(name))


class StaticFiles(WhiteNoiseMiddleware):
    """WhiteNoise, for both names of each file: the one with a digest may be kept for good, the other for a minute."""

    def add_file_to_dictionary(self, url: str, path: str, stat_cache: dict[str, os.stat_result] | None = None) -> None:
        """Make a file known under both names."""
        name = name_with_digest(url.removeprefix(self.static_prefix))
        for each in (url, self.static_prefix + name):
            super().add_file_to_dictionary(each, path, stat_cache=stat_cache)

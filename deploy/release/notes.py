"""The entry of the changelog that belongs to a version."""

import re

from deploy.release.links import with_absolute_links

HEADING = re.compile(r"^## (\S+).*$", re.MULTILINE)


def is_dated(changelog: str, version: str) -> bool:
    """Return whether the entry of a version has the day of its release in its heading."""
    return re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.MULTILINE) is not None


def notes_of(changelog: str, *, version: str, source: str) -> str:
    """Cut the entry of a version out of CHANGELOG.md, with links that lead to where the sources are published.

    Raises:
        ValueError: there is no such entry, or it is empty.
    """
    headings = list(HEADING.finditer(changelog))
    for number, heading in enumerate(headings):
        if heading[1] == version:
            end = headings[number + 1].start() if number + 1 < len(headings) else len(changelog)
            entry = changelog[heading.end() : end].strip()
            if not entry:
                raise ValueError(f"CHANGELOG.md says nothing about {version}")
            return with_absolute_links(f"# {version}\n\n{entry}\n", "CHANGELOG.md", source=source, version=version)
    raise ValueError(f"CHANGELOG.md has no entry of {version}")

"""Links of pages that are read elsewhere: a registry shows a README without the files beside it."""

import re
from pathlib import PurePosixPath
from posixpath import normpath

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|mailto:|#)([^)\s]+)\)")
CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def with_absolute_links(text: str, page: str, *, source: str, version: str) -> str:
    """Let the links of a page lead to the files of this version where the sources are published; links in code stay.

    Args:
        page: the path of the page in the sources, to which its links are relative.
        source: the address of the sources, to which `/blob/v0.1.0/README.md` is added, and for pictures `/raw/v0.1.0/…`.

    Raises:
        ValueError: a link leads out of the sources.
    """

    def absolute(link: re.Match[str]) -> str:
        picture, words, target = link.groups()
        path, _, heading = target.partition("#")
        place = normpath(str(PurePosixPath(page).parent / path)) if path else page
        if place.startswith(("../", "/")):
            raise ValueError(f"{page} links to {target}, which is not in the sources")
        words = LINK.sub(absolute, words)
        return f"{picture}[{words}]({source}/{'raw' if picture else 'blob'}/v{version}/{place}{'#' if heading else ''}{heading})"

    parts = CODE.split(text)
    # The words of a link may be code: a mark stands for each piece of code while links are looked for.
    code = {f"\0{number}\0": part for number, part in enumerate(parts) if number % 2}
    marked = "".join(f"\0{number}\0" if number % 2 else part for number, part in enumerate(parts))
    return re.sub(r"\0\d+\0", lambda mark: code[mark[0]], LINK.sub(absolute, marked))

"""What the site has beyond the files under docs/: generated tables, the list of decisions, links to them, scripts as files.

MkDocs calls the functions whose names begin with `on_` (mkdocs.yml).
"""

import hashlib
import posixpath
import re
from pathlib import Path
from typing import Any

import generated_pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).resolve().parents[1]
GENERATED = re.compile(r"<!-- generated: (\w+) -->")
STYLE, SCRIPT = DOCS / "site" / "site.css", DOCS / "site" / "site.js"
DECISIONS = sorted((DOCS / "adr").glob("[0-9]*.md"))
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
DECISION = re.compile(r"(?<![\w/(\[])(?:adr/|ADR )(\d{4})(?![\w-])")
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)#\s]+)(?:#[^)\s]+)?\)")
INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
INTRODUCTION = "# Decisions\n\nThe reasons for the design: one page for each decision, with measurements and alternatives."
DIGEST_LENGTH = 12
"""Of names of files, as in `ledger_project.serving.static_files`."""

_scripts: dict[str, str] = {}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Load the project, put every decision into the navigation, and name our own style and script by their content."""
    generated_pages.set_up()
    decisions = ["adr/index.md", *(f"adr/{path.name}" for path in DECISIONS)]
    config.extra_css = [_name_of(STYLE)]
    config.extra_javascript = [_name_of(SCRIPT)]
    explanation: Any = next(each["Explanation"] for each in config.nav or [] if "Explanation" in each)
    explanation.append({"Decisions": decisions})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page that lists the decisions, and our own style and script."""
    rows = [f"- [{TITLE.findall(path.read_text())[0]}]({path.name})" for path in DECISIONS]
    files.append(File.generated(config, "adr/index.md", content="\n".join([INTRODUCTION, "", *rows, ""])))
    for path in (STYLE, SCRIPT):
        files.append(File.generated(config, _name_of(path), content=path.read_text()))
    return files


def _name_of(path: Path) -> str:
    """The address of a file of ours, which changes with its content."""
    return f"assets/{path.stem}.{_digest(path.read_text())}{path.suffix}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Leave decisions out of the search, put in what is generated, link decisions, and unlink files that are outside the docs."""
    if page.file.src_uri.startswith("adr/"):
        page.meta["search"] = {"exclude": True}
    markdown = GENERATED.sub(lambda found: generated_pages.PAGES[found[1]](), markdown)
    here = posixpath.dirname(page.file.src_uri)
    parts = CODE.split(markdown)
    return "".join(part if index % 2 else _linked(part, here) for index, part in enumerate(parts))


def _linked(text: str, here: str) -> str:
    text = LINK.sub(lambda link: link[0] if _is_in_docs(here, link[2]) else link[1], text)
    names = {path.name[:4]: path.name for path in DECISIONS}

    def link(found: re.Match[str]) -> str:
        if found[1] not in names:
            return found[0]
        return f"[{found[0]}]({posixpath.relpath(f'adr/{names[found[1]]}', here or '.')})"

    return DECISION.sub(link, text)


def _is_in_docs(here: str, target: str) -> bool:
    return not posixpath.normpath(posixpath.join(here, target)).startswith("../")


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Move scripts from the page into files: the Content-Security-Policy takes none in a page."""
    start = page.file.url or "."

    def to_file(script: re.Match[str]) -> str:
        name = f"assets/page.{_digest(script[1])}.js"
        _scripts[name] = script[1]
        return f'<script src="{posixpath.relpath(name, start)}"></script>'

    return INLINE_SCRIPT.sub(to_file, output)


def on_post_build(config: MkDocsConfig) -> None:
    """Write the scripts, and remove what nobody asks for: the page for a wrong address, the site map, what debuggers read."""
    site = Path(config.site_dir)
    for name, script in _scripts.items():
        (site / name).write_text(script)
    for unused in (site / "404.html", *site.glob("sitemap.xml*"), *site.rglob("*.map")):
        unused.unlink()

"""The code of the README, the tutorial and the guides runs as it is there, against a fresh `make run`, and prints what they say.

Blocks of `sh` and `python` run, each page's in their order; a block of `json` or `text` after one is its output, in which `…` is
anything and white space does not count. Blocks of other languages are not run.
"""

import contextlib
import io
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from ledger_project.demonstration import TAKEN_BY_GUIDES
from ledger_project.serving.postgres import Server
from tests.deployment.serving.test_serve import Serving

DOCS: Path = settings.BASE_DIR / "docs"
PAGES = [
    "../README.md", "tutorial.md", *(f"how-to/{name}.md" for name in (
        "charge-an-ai-call", "sell-a-pack", "monthly-allowance", "team-pools", "share-the-locks", "move-from-a-balance-column",
        "customer-page", "recurring-grants", "compute-usage",
    )),
]  # fmt: skip
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
END = "--- end of the block ---"


@dataclass(frozen=True)
class Step:
    """A block of code, and what the page says that it prints; None if the page does not say it."""

    language: str
    code: str
    output: str | None


def steps(text: str) -> Iterator[Step]:
    """The blocks of a page that run."""
    blocks: list[tuple[str, str]] = [*BLOCK.findall(text), ("", "")]
    for (language, code), (follower, output) in pairwise(blocks):
        if language in ("sh", "python"):
            yield Step(language, code, output if follower in ("json", "text") else None)


def is_as_written(written: str, printed: str) -> bool:
    """Whether the output is what the page says."""
    parts = (re.escape(re.sub(r"\s+", "", part)) for part in written.split("…"))
    return re.fullmatch(".*".join(parts), re.sub(r"\s+", "", printed), re.DOTALL) is not None


class Shell:
    """One shell for the blocks of a page."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash"], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def run(self, code: str) -> str:
        """What the block prints."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{code}\necho; echo '{END}'\n")
        self._process.stdin.flush()
        lines = iter(self._process.stdout.readline, "")
        printed: list[str] = []
        for line in lines:
            if line == f"{END}\n":
                return "".join(printed)
            printed.append(line)
        raise AssertionError(f"the shell has ended: {''.join(printed)}")

    def close(self) -> None:
        """End it."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """Where a ledger is that `make run` has started from nothing, with its demo data and worker, and the key that it printed."""
    folder = Path(tempfile.mkdtemp(prefix="ledger-guides-"))
    folder.chmod(0o755)
    serving = Serving(folder / "data")
    try:
        serving.wait_until_ready()
        key = re.search(r"^API key   (\S{40,})    \(shown once\)$", serving.said, re.MULTILINE)
        assert key is not None
        yield {
            "LEDGER": f"{serving.url}/v1",
            "KEY": key[1],
            "LEDGER_URL": serving.url,
            "LEDGER_KEY": key[1],
            "DATABASE_URL": Server(serving.data_dir).application_url,
        }
        assert serving.stop() == 0, serving.said
    finally:
        serving.kill_everything()
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl; .ci/run installs it")
@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(
    page: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = list(steps((DOCS / page).read_text()))
    assert found
    names: dict[str, Any] = {"__name__": "guide"}
    shell = Shell(dict(os.environ))
    try:
        for step in found:
            code = step.code.replace("localhost:8000", environment["LEDGER_URL"].removeprefix("http://"))
            printed = shell.run(code) if step.language == "sh" else printed_by(step.code, names)
            assert step.output is None or is_as_written(step.output, printed), f"{step.code}\nprinted\n{printed}"
    finally:
        shell.close()
        client = names.get("client")
        if client is not None:
            client.close()


def printed_by(code: str, names: dict[str, Any]) -> str:
    """What a block of Python prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "guide", "exec"), names)
    return output.getvalue()


def test_the_blocks_of_a_page_are_read_with_their_outputs() -> None:
    text = "a\n```console\n$ no\n```\n```sh\nls\n```\n\nb\n\n```json\n{…}\n```\n```python\n1\n```\n```sql\nno\n```\n"
    assert list(steps(text)) == [Step("sh", "ls\n", "{…}\n"), Step("python", "1\n", None)]


@pytest.mark.parametrize(
    ("written", "printed", "is_same"),
    [
        ('{"a": 1, …}', '{"a":1,"b":2}', True),
        ('{"a": 1, …}', '{"a":2,"b":2}', False),
        ("[True]", "[True]\n", True),
        ("", "trace", False),
    ],
)
def test_an_output_is_compared_but_for_what_is_left_out(written: str, printed: str, is_same: bool) -> None:
    assert is_as_written(written, printed) is is_same


@pytest.mark.slow
def test_every_guide_that_has_code_to_run_is_run() -> None:
    with_code = {path.relative_to(DOCS).as_posix() for path in (DOCS / "how-to").glob("*.md") if "```sh\n" in path.read_text()}
    assert with_code <= set(PAGES)


NAMES = re.compile(r"""/holders/([^/"?\s]+)|"(?:ref|holder_id|customer|subscription|plan|meter|pack|to)": "([^"]+)\"""")


@pytest.mark.parametrize("page", PAGES)
def test_the_names_that_a_page_uses_are_kept_free_of_the_demo(page: str) -> None:
    code = "\n".join(step.code for step in steps((DOCS / page).read_text()) if step.language == "sh")
    assert {name for pair in NAMES.findall(code) for name in pair if name} <= TAKEN_BY_GUIDES

"""The examples of all pages run as they are there, against a fresh `make run`, and print what the pages say.

Blocks of `sh` and `python` run, each page's in their order; a block of `json` or `text` after one is its output, in which `…` is
anything and white space does not count. A block of `console` has commands after `$`, each with its output. An example that does
not run here stands in tests/clients/not_run.toml, with the reason.

Of an example with tabs, each tab runs: its languages make the same request, under the same key, so the second and each later one
gets the result of the first. What an embedding project does runs before them, in a transaction that is rolled back.
"""

import ast
import contextlib
import inspect
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from credit_ledger import Client
from credit_ledger.sending import Listed, Sent
from ledger_project.demonstration.company import (
    COMPANIES,
    COUPONS,
    HOLDERS,
    PACKS,
    PLANS,
    RATES,
    TAKEN_BY_GUIDES,
    subscription_of,
)
from ledger_project.serving.postgres.server import Server
from tests.clients import commands as commands_of_pages
from tests.clients.conftest import SOURCES, Package
from tests.clients.guide_scenes import before
from tests.deployment.serving.test_serve import Serving, wait_until

DOCS: Path = settings.BASE_DIR / "docs"
CLIENT_PAGES = ["../clients/python/README.md", "../clients/typescript/README.md"]
NOT_RUN: dict[str, dict[str, str]] = tomllib.loads((Path(__file__).parent / "not_run.toml").read_text())
"""Of each page, the first line of each example that does not run, and the reason."""
BLOCK = re.compile(r"^```([\w-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TAB = re.compile(r'^=== "([^"]+)"\n\n((?:(?: {4}.*)?\n)+)', re.MULTILINE)
DJANGO, TYPESCRIPT = "django", "typescript"
LANGUAGES_OF_TABS = {"curl": "sh", "Python": "python", "TypeScript": TYPESCRIPT, "Django": DJANGO}
SET_UP = "how-to/index.md"
"""The page whose example each page with tabs begins with."""
RUN_HERE = frozenset(LANGUAGES_OF_TABS.values())
EXAMPLES = frozenset({"sh", "bash", "console", "python", "sql", "typescript", "ts", "js", "go", "java", DJANGO})
COMMAND = re.compile(r"\$ |(?:[A-Z_]+=\S*\s+(?:\\\s+)?)*(?:manage\.py|python3?|pip|make|docker|apt-get|git|cp|curl|psql|pg_\w+) ")
"""How a block without a language begins if it is an example."""
VARYING = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.(?!000000)\d{6}Z|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""What is another each time: instants of the clock, and ids of requests."""
PROBLEM = re.compile(r'"type":\s*"https://[^"]*/problems/')
END = "--- end of the block ---"


@dataclass(frozen=True)
class Step:
    """A block of code, and what the page says that it prints; None if the page does not say it."""

    language: str
    code: str
    output: str | None


def examples(text: str) -> Iterator[list[Step]]:
    """The examples of a page, each as the steps that run."""
    blocks: list[tuple[str, str]] = [*BLOCK.findall(text), ("", "")]
    for (language, code), (follower, output) in pairwise(blocks):
        if language == "console":
            yield list(commands(code))
        elif language in EXAMPLES or (not language and COMMAND.match(code)):
            yield [Step(language, code, output if follower in ("json", "text") else None)]


def commands(block: str) -> Iterator[Step]:
    """The commands of a block, each with the lines after it, up to the next; None for one without output."""
    command, output = "", ""
    for line in [*block.splitlines(keepends=True), "$ "]:
        is_new = line.startswith("$ ")
        if is_new and command:
            yield Step("sh", command, output or None)
        if is_new:
            command, output = line.removeprefix("$ "), ""
        elif command.endswith("\\\n") or command.count("'") % 2:
            command += line
        else:
            output += line


def first_line(steps: list[Step]) -> str:
    """The name of an example in not_run.toml."""
    return steps[0].code.partition("\n")[0]


@cache
def steps(page: str) -> list[Step]:
    """The steps of a page that run."""
    declared = NOT_RUN.get(page, {})
    found = [step for example in examples(text_of(page)) if first_line(example) not in declared for step in example]
    has_tabs = page != SET_UP and TAB.search((DOCS / page).read_text()) is not None
    return in_order([*(steps(SET_UP) if has_tabs else ()), *found])


def text_of(page: str) -> str:
    """A page, with its tabs and the lines of its lists at the left edge."""
    return re.sub(r"^ +(?=```)", "", TAB.sub(opened, (DOCS / page).read_text()), flags=re.MULTILINE)


def opened(tab: re.Match[str]) -> str:
    """A tab as a part of its page; the code of Django's is of the language `django`."""
    text = textwrap.dedent(tab[2])
    return text.replace("```python", f"```{DJANGO}") if LANGUAGES_OF_TABS[tab[1]] == DJANGO else text


def in_order(steps: list[Step]) -> list[Step]:
    """The steps of a page, with those of Django before the other tabs of their example."""
    ordered: list[Step] = []
    start = 0
    for step in steps:
        if step.language == "sh":
            start = len(ordered)
        ordered.insert(start if step.language == DJANGO else len(ordered), step)
        start += step.language == DJANGO
    return ordered


def with_examples() -> list[str]:
    """The pages with examples, but for records of decisions."""
    found = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if path.parent.name != "adr")
    return [page for page in ["../README.md", *found, *CLIENT_PAGES] if any(examples(text_of(page)))]


PAGES = [page for page in with_examples() if steps(page)]


def is_as_written(written: str, printed: str) -> bool:
    """Whether the output is what the page says."""
    parts = (re.escape(re.sub(r"\s+", "", part)) for part in VARYING.sub("…", written).split("…"))
    return re.fullmatch(".*".join(parts), re.sub(r"\s+", "", printed), re.DOTALL) is not None


class Shell:
    """One shell for the blocks of a page, in a folder of its own; `address` is that of `project_commands`."""

    def __init__(self, environment: dict[str, str], folder: Path, address: str) -> None:
        self._process = subprocess.Popen(
            ["bash"],
            env=environment,
            cwd=folder,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._folder, self._blocks = folder, count(1)
        (folder / ".data").symlink_to(environment["LEDGER_DATA_DIR"])
        asking = shlex.join([sys.executable, "-I", "-S", commands_of_pages.__file__, address])
        self.run(f'manage.py() {{ {asking} "$@"; }}\ntrap \'echo "status $?"\' ERR')

    def run(self, code: str) -> str:
        """What the block prints, and the status of each of its commands that fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # Read from a file, a command whose quotes do not end is an error, and not one that waits for the rest.
        block = self._folder / f".block-{next(self._blocks)}"
        block.write_text(code)
        self._process.stdin.write(f". ./{block.name}\necho; echo '{END}'\n")
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


class Tabs:
    """A process for the tabs of one language: it takes a block of code a line, and returns what the block prints."""

    _process: subprocess.Popen[str]

    def _printed(self, block: dict[str, Any]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(block) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert not answer["failure"], answer["failure"]
        return str(answer["printed"])

    def close(self) -> None:
        """End it."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


class DjangoTabs(Tabs):
    """A process that has loaded the project, for the code of embedding projects."""

    def __init__(self, environment: dict[str, str]) -> None:
        bare = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "DJANGO_SETTINGS_MODULE": "ledger_project.settings"}
        named = {name: environment[name] for name in ("DATABASE_URL", "LEDGER_DATA_DIR")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.clients.django_tabs"],
            env=bare | named, cwd=settings.BASE_DIR, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def run(self, code: str, page: str) -> str:
        """What the code prints; nothing of what it writes stays."""
        return self._printed({"page": page, "code": code})


class TypeScriptTabs(Tabs):
    """A process of node, for the code in TypeScript of all pages."""

    def __init__(self, package: Package) -> None:
        program = shutil.copy(Path(__file__).parent / "typescript_tabs.mjs", package.folder)
        self._process = subprocess.Popen(
            ["node", program], cwd=package.folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, code: str, page: str) -> str:
        """What the code prints."""
        return self._printed({"page": page, "code": code, "environment": dict(os.environ)})


@pytest.fixture(scope="module")
def typescript_tabs(request: pytest.FixtureRequest) -> Iterator[TypeScriptTabs | None]:
    """One process for all pages; None where node or a registry of npm is missing."""
    try:
        tabs = TypeScriptTabs(request.getfixturevalue("package"))
    except pytest.skip.Exception:
        yield None
        return
    yield tabs
    tabs.close()


@pytest.fixture(scope="module")
def django_tabs(environment: dict[str, str]) -> Iterator[DjangoTabs]:
    """One process for all pages."""
    tabs = DjangoTabs(environment)
    yield tabs
    tabs.close()


@pytest.fixture(scope="module")
def project_commands(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the process that runs the commands of all pages."""
    address = tmp_path_factory.mktemp("commands") / "socket"
    # Only what an operator's shell has: the settings of the tests name another database.
    bare = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8"}
    with subprocess.Popen(
        [sys.executable, "-m", commands_of_pages.__name__, address],
        env=bare | {"LEDGER_DATA_DIR": environment["LEDGER_DATA_DIR"]}, cwd=settings.BASE_DIR,
    ) as process:  # fmt: skip
        try:
            wait_until(lambda: address.exists() or process.poll() is not None, "commands can be asked for")
            yield str(address)
        finally:
            process.kill()


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
            "LEDGER_DATA_DIR": str(serving.data_dir),
        }
        assert serving.stop() == 0, serving.said
        assert serving.pids() == set()
        assert serving.said.endswith("Stopped.\n")
    finally:
        serving.kill_everything()
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl; .ci/run installs it")
@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run_and_print_what_the_page_says(
    page: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    languages = {step.language for step in steps(page)}
    django: DjangoTabs = request.getfixturevalue("django_tabs")
    typescript: TypeScriptTabs | None = request.getfixturevalue("typescript_tabs") if TYPESCRIPT in languages else None
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for name, value in before(page, environment).items():
        monkeypatch.setenv(name, value)

    def here(text: str) -> str:
        return re.sub(r"(?:localhost|127\.0\.0\.1):8000", environment["LEDGER_URL"].removeprefix("http://"), text)

    names: dict[str, Any] = {"__name__": "guide", "api_key": environment["KEY"]}
    shell = Shell(dict(os.environ), tmp_path, request.getfixturevalue("project_commands"))
    try:
        for step in steps(page):
            code, output = here(step.code), None if step.output is None else here(step.output)
            if step.language == DJANGO:
                printed = django.run(code, page)
            elif step.language == TYPESCRIPT:
                if typescript is None:
                    continue
                printed = typescript.run(code, page)
            else:
                printed = printed_by(code, names) if step.language == "python" else shell.run(code)
            if output is None:
                assert not PROBLEM.search(printed), f"{code}\nprinted\n{printed}"
                assert not re.search(r"^status \d+$", printed, re.MULTILINE), f"{code}\nprinted\n{printed}"
            else:
                assert is_as_written(output, printed), f"{code}\nprinted\n{printed}"
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


def test_the_examples_of_a_page_are_read_with_their_outputs() -> None:
    text = (
        "a\n```console\n$ one \\\n  more\n1\n2\n$ two\n```\n```sh\nls\n```\n\nb\n\n```json\n{…}\n```\n"
        "```python\n1\n```\n```toml\nno = 1\n```\n```\nmanage.py work\n```\n```\n┌─┐\n```\n"
    )
    assert list(examples(text)) == [
        [Step("sh", "one \\\n  more\n", "1\n2\n"), Step("sh", "two\n", None)],
        [Step("sh", "ls\n", "{…}\n")],
        [Step("python", "1\n", None)],
        [Step("", "manage.py work\n", None)],
    ]


def test_the_tabs_of_an_example_are_read_with_that_of_django_first() -> None:
    blocks = {
        "curl": "```sh\nls\n```\n\n```json\n{…}\n```\n", "Python": "```python\nif 1:\n    two()\n```\n",
        "TypeScript": "```typescript\nthree();\n```\n", "Django": "```python\nfour()\n```\n",
    }  # fmt: skip
    tabs = "".join(f'=== "{name}"\n\n{textwrap.indent(block, "    ")}\n' for name, block in blocks.items()) + "end\n"
    text = TAB.sub(opened, tabs + tabs)
    found = [step for example in examples(text) for step in example]
    curl, python, typescript, django = (
        Step("sh", "ls\n", "{…}\n"), Step("python", "if 1:\n    two()\n", None), Step(TYPESCRIPT, "three();\n", None),
        Step(DJANGO, "four()\n", None),
    )  # fmt: skip
    assert found == [curl, python, typescript, django] * 2
    assert in_order(found) == [django, curl, python, typescript] * 2


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


def test_each_example_that_does_not_run_is_there_and_has_a_reason() -> None:
    known = {page: {first_line(example) for example in examples(text_of(page))} for page in with_examples()}
    unknown = [(page, line) for page, declared in NOT_RUN.items() for line in declared if line not in known.get(page, ())]
    assert unknown == []
    assert all(reason.endswith(".") for declared in NOT_RUN.values() for reason in declared.values())
    named = {
        file for declared in NOT_RUN.values() for reason in declared.values() for file in re.findall(r"tests/[\w/.]+py", reason)
    }
    assert [file for file in sorted(named) if not (settings.BASE_DIR / file).is_file()] == []


@pytest.mark.parametrize("page", PAGES)
def test_an_example_that_runs_is_of_a_language_that_runs_here(page: str) -> None:
    others = [first_line([step]) for step in steps(page) if step.language not in RUN_HERE]
    assert others == [], "declare them in tests/clients/not_run.toml, or write them as `sh`, `console`, `python` or in tabs"


def test_each_guide_whose_calls_run_here_shows_them_in_tabs() -> None:
    guides = [page for page in PAGES if page.startswith(("tutorial", "how-to/"))]
    calling = [page for page in guides if any("$LEDGER/" in step.code for step in steps(page))]
    assert {"tutorial.md", "how-to/refund.md"} <= {*calling}
    assert [page for page in calling if TAB.search((DOCS / page).read_text()) is None] == []


def test_each_call_of_a_client_in_the_docs_is_one_that_the_clients_have() -> None:
    """Also in the examples that do not run: the method is there, and takes these arguments."""
    generated, written = (SOURCES / "src" / name for name in ("generated/calls.ts", "client.ts"))
    typescript = {*re.findall(r"^  (\w+): \{", generated.read_text(), re.MULTILINE)}
    typescript |= {*re.findall(r"^  (?:async )?\*?(\w+)[<(]", written.read_text(), re.MULTILINE)}
    wrong: list[str] = []
    for page in with_examples():
        for step in (step for example in examples(text_of(page)) for step in example):
            if step.language == "python" and "client." in step.code:
                wrong += [f"{page}: {call}" for call in unknown_calls(step.code)]
            elif step.language == TYPESCRIPT:
                named = set(re.findall(r"await client\.(\w+)\(", step.code))
                wrong += [f"{page}: {name}" for name in named - typescript]
    assert wrong == []


def unknown_calls(code: str) -> Iterator[str]:
    """The calls of `client` that it does not have, or whose arguments it does not take."""
    for node in ast.walk(ast.parse(code)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)):
            continue
        if node.func.value.id != "client":
            continue
        method = getattr(Client, node.func.attr, None)
        if method is None:
            yield f"there is no {node.func.attr}"
        elif isinstance(method, Sent | Listed):
            try:
                inspect.signature(method.build).bind(*node.args, **{each.arg: None for each in node.keywords if each.arg})
            except TypeError as error:
                yield f"{node.func.attr}: {error}"


def test_control_an_unknown_argument_of_a_call_is_found() -> None:
    assert list(unknown_calls('client.grant("ada", amount=5)')) == []
    assert list(unknown_calls('client.grant("ada", sum=5)')) == ["grant: missing a required argument: 'amount'"]
    assert list(unknown_calls('client.give("ada")')) == ["there is no give"]


NAMES = re.compile(r"""/holders/([^/"?\s]+)|"(?:ref|holder_id|customer|subscription|plan|meter|pack|to)": "([^"]+)\"""")

OF_THE_DEMO = frozenset(
    {*HOLDERS, *PLANS, *RATES, *(company.ref for company in COMPANIES), *map(subscription_of, range(len(COMPANIES)))}
    | {each["code"] for each in (*PACKS, *COUPONS)}
)
"""What guides find on a fresh instance, and change."""


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.parametrize("page", PAGES)
def test_the_names_that_a_page_uses_are_of_the_demo_or_kept_free_of_it(page: str) -> None:
    code = "\n".join(step.code for step in steps(page) if step.language == "sh")
    assert {name for pair in NAMES.findall(code) for name in pair if name} <= TAKEN_BY_GUIDES | OF_THE_DEMO

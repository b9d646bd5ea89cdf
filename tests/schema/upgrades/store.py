"""`python -m tests.schema.upgrades.store`: stores this release, for the tests of all later ones, in `releases/`.

Run it at the commit of a release, or name that commit: `--of COMMIT` stores an earlier release again, made by its own code, with
rows that this folder has come to ask for since. It stores what the files of a release are built from, `VERSION.tar.xz`, and
`VERSION.sql.xz`, the dump of a database that this code made, with rows in every table. The same commit stores the same history:
its names and amounts are not random.
"""

import argparse
import lzma
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import django

from ledger.version import VERSION
from tests.deployment.servers import ROOT, environment_of, run_program, started

RELEASES: Final = Path(__file__).with_name("releases")
RELEASED: Final = ("ledger", "billing", "ledger_project", "manage.py", "pyproject.toml", "README.md", "LICENSE", "clients")
"""What a server of the release consists of, beside the packages of requirements.txt, and what its packages are built from."""
SEED: Final = 20


def store_code() -> Path:
    """Store the code as it is in the commit."""
    archive = subprocess.run(["git", "archive", "--format=tar", "HEAD", *RELEASED], cwd=ROOT, check=True, capture_output=True)
    return _store("tar", archive.stdout)


def store_database() -> Path:
    """Store a new database with a history, as SQL that any client can execute."""
    with started() as server:
        subprocess.run([sys.executable, "manage.py", "prepare_database"], cwd=ROOT, env=environment_of(server), check=True)
        _make_history(server.owner_url)
        dump = run_program(
            server, "pg_dump", "--inserts", "--rows-per-insert=500", "--no-owner", "--no-privileges", server.owner_url
        )
    # psql alone reads lines that begin with a backslash.
    lines = [line for line in dump.splitlines() if not line.startswith(("\\restrict", "\\unrestrict", "-- Dumped"))]
    return _store("sql", "\n".join([*lines, ""]).encode())


def _make_history(url: str) -> None:
    os.environ |= {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    random.seed(SEED)
    django.setup()
    from tests.schema.upgrades.work import make_work
    from tests.tampering.history import make_history

    _make_the_rest_of_the_kinds()
    make_history()
    make_work()


def _make_the_rest_of_the_kinds() -> None:
    """Make entries of the kinds that the history lacks, and so much use of one account that it is summed up."""
    from ledger import services
    from ledger.rules.requests import SpendRequest

    eve = {"holder_id": "eve"}
    services.grant(**eve, amount=10_000, idempotency_key="eve-grant")
    hold = services.hold(**eve, amount=50, idempotency_key="eve-hold")
    services.release(**eve, hold=hold.sequence, idempotency_key="eve-release")
    moved = services.grant(**eve, amount=20, idempotency_key="eve-moved")
    services.reissue(**eve, lot=moved.sequence, priority=7, idempotency_key="eve-reissue")
    spends = [
        SpendRequest(**eve, amount=1, idempotency_key=f"eve-spend-{number}", metadata={"team": "red"}) for number in range(600)
    ]
    services.batch(spends, mode="each", idempotency_key="eve-spends")
    ends = datetime.now(UTC) + timedelta(seconds=1)
    services.grant(**eve, amount=5, expires_at=ends, idempotency_key="eve-expiring")
    time.sleep(max(0, (ends - datetime.now(UTC)).total_seconds() + 0.1))
    services.spend(**eve, amount=1, idempotency_key="eve-after")


def _store(kind: str, content: bytes) -> Path:
    RELEASES.mkdir(exist_ok=True)
    path = RELEASES / f"{VERSION}.{kind}.xz"
    path.write_bytes(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME))
    return path


def store_again(commit: str) -> None:
    """Store the release of an earlier commit, by the code of that commit and the files of this folder."""
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder) / "code"
        subprocess.run(["git", "worktree", "add", "--detach", "--quiet", code, commit], cwd=ROOT, check=True)
        try:
            there = code / RELEASES.parent.relative_to(ROOT)
            shutil.copytree(RELEASES.parent, there, ignore=shutil.ignore_patterns(RELEASES.name), dirs_exist_ok=True)
            # Only what is stored now comes back.
            shutil.rmtree(there / RELEASES.name, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "tests.schema.upgrades.store"], cwd=code, check=True)
            for path in (there / RELEASES.name).glob("*.xz"):
                shutil.copy(path, RELEASES)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", code], cwd=ROOT, check=True)


def main() -> None:
    """Store a release, and print what was stored."""
    parser = argparse.ArgumentParser(prog="python -m tests.schema.upgrades.store", description=main.__doc__)
    parser.add_argument("--of", metavar="COMMIT", help="the commit of an earlier release, which is stored again")
    commit = parser.parse_args().of
    if commit is not None:
        store_again(commit)
        return
    for path in (store_code(), store_database()):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

"""Anchor files: the length and the last digest of each account at one time, kept outside the database.

A chain of digests shows that nothing in it was changed. It cannot show that its tail was cut off, that the whole chain was
rewritten, or that an account was deleted: that takes a copy of the last digests outside the database. The file is text, with one
line per account between a header and a seal:

    credit-ledger-anchor 1 2026-01-31T12:00:00.000000Z
    <holder> TAB <credit type> TAB <sequence> TAB <digest, hex>
    …
    @<chain> TAB <series> TAB <number> TAB <digest, hex>
    …
    seal <accounts> <entries> <SHA-256 over all lines before this one, hex>

A line with an @ holds the last document of one series of another application's chain (see chains.py); the seal's counts leave
these lines out. The seal's digest covers all lines. So a copy of the seal alone (in a mail, on a printed page) is enough to check
later that the file is unchanged.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from ledger.audit.chains import MARK

FIRST_LINE = "credit-ledger-anchor 1 "


class AnchorUnreadable(Exception):
    """The file is not an anchor, or its end is missing."""


class AnchorMismatch(AnchorUnreadable):
    """The file was changed: its lines do not match the digest in its seal."""


class AnchorLine(NamedTuple):
    """One line of an anchor: an account when the anchor was written, or one series of a chain with `@<chain>` as its holder."""

    holder_id: str
    credit_type: str
    sequence: int
    digest: str

    @property
    def chain(self) -> str | None:
        """The chain's name; None for an account."""
        return self.holder_id.removeprefix(MARK) if self.holder_id.startswith(MARK) else None


@dataclass(frozen=True)
class Seal:
    """The last line of an anchor."""

    accounts: int
    entries: int
    digest: str


class AnchorWriter:
    """Writes an anchor to a temporary file, and gives it its name only when it is complete; otherwise leaves no file behind."""

    def __init__(self, path: Path, as_of: datetime) -> None:
        self.path = path
        self._digest = hashlib.sha256()
        self._accounts = 0
        self._entries = 0
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        self._unfinished = Path(name)
        self._file = os.fdopen(descriptor, "w", encoding="utf-8", newline="\n")
        self._line(f"{FIRST_LINE}{as_of.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}")

    def add(self, account: AnchorLine) -> None:
        """Write the next account, in the order of holder and credit type; after all accounts, the next series of a chain."""
        self._line("\t".join(map(str, account)))
        if account.chain is None:
            self._accounts += 1
            self._entries += account.sequence

    def seal(self) -> Seal:
        """Write the last line and give the file its name.

        Raises:
            FileExistsError: a file of that name exists; it is left as it is.
        """
        seal = Seal(self._accounts, self._entries, self._digest.hexdigest())
        self._file.write(f"seal {seal.accounts} {seal.entries} {seal.digest}\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        # A link, unlike a rename, never replaces an older anchor.
        os.link(self._unfinished, self.path)
        return seal

    def _line(self, text: str) -> None:
        self._file.write(f"{text}\n")
        self._digest.update(f"{text}\n".encode())

    def __enter__(self) -> "AnchorWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()
        with suppress(FileNotFoundError):
            self._unfinished.unlink()


def write_anchor(path: Path, as_of: datetime, accounts: Iterator[AnchorLine]) -> Seal:
    """Write the last sequence and digest of each account to a new file; on an error no file is left.

    Raises:
        FileExistsError: a file of that name exists; an anchor is never replaced.
        OSError: the file cannot be written.
    """
    with AnchorWriter(path, as_of) as writer:
        for account in accounts:
            writer.add(account)
        return writer.seal()


def check_seal(path: Path) -> tuple[datetime, Seal]:
    """Read the whole file and check that its lines match its seal.

    Returns:
        The time at which the anchor was written, and its seal.

    Raises:
        AnchorUnreadable: the file is not an anchor, or its end is missing.
        AnchorMismatch: the file was changed.
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()
    accounts = entries = 0
    as_of: datetime | None = None
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for line in file:
                if as_of is None:
                    as_of = _written_at(line)
                elif line.startswith("seal "):
                    sealed = _seal(line)
                    if file.read(1) or sealed != Seal(accounts, entries, digest.hexdigest()):
                        raise AnchorMismatch(f"{path}: the file was changed: its lines do not match the digest in its seal")
                    return as_of, sealed
                else:
                    account = _account(line)
                    if account.chain is None:
                        entries += account.sequence
                        accounts += 1
                digest.update(line.encode())
    except (ValueError, TypeError) as error:
        raise AnchorUnreadable(f"{path}: not an anchor: {error}") from error
    raise AnchorUnreadable(f"{path}: not an anchor, or its end is missing")


def written_at(path: Path) -> datetime:
    """Return when the anchor says it was written; its lines are not checked.

    Raises:
        AnchorUnreadable: the file is not an anchor.
        OSError: the file cannot be read.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return _written_at(file.readline(200))
    except ValueError as error:
        raise AnchorUnreadable(f"{path}: not an anchor: {error}") from error


def read_anchor(path: Path) -> Iterator[AnchorLine]:
    """Yield the lines of an anchor that `check_seal` has accepted: accounts, then series of chains."""
    with path.open(encoding="utf-8", newline="") as file:
        next(file)
        for line in file:
            if line.startswith("seal "):
                return
            yield _account(line)


def _written_at(line: str) -> datetime:
    if not line.startswith(FIRST_LINE):
        raise ValueError(f"the first line does not begin with {FIRST_LINE.strip()!r}")
    return datetime.strptime(line.removeprefix(FIRST_LINE).rstrip("\n"), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def _account(line: str) -> AnchorLine:
    holder_id, credit_type, sequence, digest = line.removesuffix("\n").split("\t")
    if len(bytes.fromhex(digest)) != hashlib.sha256().digest_size:
        raise ValueError(f"the digest {digest!r} is not 64 hexadecimal digits")
    return AnchorLine(holder_id, credit_type, int(sequence), digest)


def _seal(line: str) -> Seal:
    _, accounts, entries, digest = line.split()
    return Seal(int(accounts), int(entries), digest)

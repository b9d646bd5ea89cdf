"""Anchors: how long each account was at some time, and the digest at its head, kept outside the database.

A chain tells that nothing in it was changed. It cannot tell that its tail was cut off, that all of it was written anew, or that
an account is gone: for that somebody else has to remember the heads. The file is text, one line per account between a header and
a seal:

    credit-ledger-anchor 1 2026-01-31T12:00:00.000000Z
    <holder> TAB <credit type> TAB <sequence> TAB <digest, hex>
    …
    @<chain> TAB <series> TAB <number> TAB <digest, hex>
    …
    seal <accounts> <entries> <SHA-256 over all lines before this one, hex>

The lines with an @ hold the last document of each series of another application's chain (see chains.py); the seal counts accounts
and entries without them. The seal's digest covers all lines: who keeps only that one line elsewhere (a mail, a printed page) can
still tell whether the file is the one that was written.
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
    """The file is not an anchor, or not the whole of one."""


class AnchorMismatch(AnchorUnreadable):
    """The file's lines do not give the digest of its seal."""


class Anchor(NamedTuple):
    """One account as it was when the anchor was written; or one series of a chain, which is named instead of a holder."""

    holder_id: str
    credit_type: str
    sequence: int
    digest: str

    @property
    def chain(self) -> str | None:
        """The chain that the line is of; None for an account."""
        return self.holder_id.removeprefix(MARK) if self.holder_id.startswith(MARK) else None


@dataclass(frozen=True)
class Seal:
    """The last line of an anchor."""

    accounts: int
    entries: int
    digest: str


class AnchorWriter:
    """Writes an anchor beside its place and puts it there when it is whole; nothing is left where it was given up."""

    def __init__(self, path: Path, as_of: datetime) -> None:
        self.path = path
        self._digest = hashlib.sha256()
        self._accounts = 0
        self._entries = 0
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        self._unfinished = Path(name)
        self._file = os.fdopen(descriptor, "w", encoding="utf-8", newline="\n")
        self._line(f"{FIRST_LINE}{as_of.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}")

    def add(self, account: Anchor) -> None:
        """One more account, in the order of holder and credit type; or, behind all accounts, one more series of a chain."""
        self._line("\t".join(map(str, account)))
        if account.chain is None:
            self._accounts += 1
            self._entries += account.sequence

    def seal(self) -> Seal:
        """Put the file in its place.

        Raises:
            FileExistsError: there is one of that name already, which stays.
        """
        seal = Seal(self._accounts, self._entries, self._digest.hexdigest())
        self._file.write(f"seal {seal.accounts} {seal.entries} {seal.digest}\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        # A link, unlike a rename, never takes the place of an older anchor.
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


def write_anchor(path: Path, as_of: datetime, accounts: Iterator[Anchor]) -> Seal:
    """Write the heads of the accounts to a file that does not exist yet, whole or not at all.

    Raises:
        FileExistsError: there is a file of that name; an anchor is kept, not replaced.
        OSError: it cannot be written there.
    """
    with AnchorWriter(path, as_of) as writer:
        for account in accounts:
            writer.add(account)
        return writer.seal()


def check_seal(path: Path) -> tuple[datetime, Seal]:
    """Read all of the file and see that it is what was sealed.

    Returns:
        When it was written, and its seal.

    Raises:
        AnchorUnreadable: it is not an anchor, or cut off. AnchorMismatch: it was changed.
        OSError: it cannot be read.
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
                        raise AnchorMismatch(f"{path}: its lines do not give the digest of its seal")
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


def read_anchor(path: Path) -> Iterator[Anchor]:
    """The accounts of a file that `check_seal` has passed, one by one."""
    with path.open(encoding="utf-8", newline="") as file:
        next(file)
        for line in file:
            if line.startswith("seal "):
                return
            yield _account(line)


def _written_at(line: str) -> datetime:
    if not line.startswith(FIRST_LINE):
        raise ValueError("the first line is not that of an anchor")
    return datetime.strptime(line.removeprefix(FIRST_LINE).rstrip("\n"), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def _account(line: str) -> Anchor:
    holder_id, credit_type, sequence, digest = line.removesuffix("\n").split("\t")
    if len(bytes.fromhex(digest)) != hashlib.sha256().digest_size:
        raise ValueError("a digest is not one")
    return Anchor(holder_id, credit_type, int(sequence), digest)


def _seal(line: str) -> Seal:
    _, accounts, entries, digest = line.split()
    return Seal(int(accounts), int(entries), digest)

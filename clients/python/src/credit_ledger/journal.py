"""The file in which a lease remembers what it decided, for the process that comes after a crash."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from credit_ledger.lease_state import Batch, Group, Held, JournalInUse, LeaseState, Terms, Use

LONGEST_BYTES: Final = 8 * 1024 * 1024
"""The length from which on a journal is written again, with what is still open."""
FORMAT: Final = "credit-ledger-lease/1"
LONG_AGO_MS: Final = -(10**12)
"""When what an earlier process did was built: none of its holds is decided against."""


class Journal:
    """A file of records, one JSON array a line: a decision survives the end of the process, and a batch that of the machine.

    The last line is left out if it is not whole: its decision was never returned.

    Raises:
        JournalInUse: another process has it.
        ValueError: the file is no journal.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._file = self._locked(self._path)
        self.records: list[list[Any]] = []
        """What the file had when it was opened."""
        try:
            self.records = list(self._read())
        except ValueError:
            self.close()
            raise
        self._length = os.fstat(self._file).st_size

    @staticmethod
    def _locked(path: Path) -> int:
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                raise JournalInUse(f"another process has the journal {path}") from None
            # Between the two, its owner may have written it again.
            if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
                return file
            os.close(file)

    def _read(self) -> Iterator[list[Any]]:
        lines = self._path.read_bytes().split(b"\n")
        if lines[-1]:
            os.ftruncate(self._file, os.fstat(self._file).st_size - len(lines[-1]))
        for line in lines[:-1]:
            record = json.loads(line)
            if not isinstance(record, list):
                raise ValueError(f"{self._path} is no journal of a lease")
            yield record

    # What a lease does -----------------------------------------------------------------------------------

    def begin(self, terms: Terms, new_key: Callable[[], str]) -> LeaseState:
        """Return the lease of this file as it was when its process ended, or a new one.

        What was decided is captured, and what is held is released, by its first batches; nothing is decided against these holds.

        Raises:
            ValueError: the file is of another holder or credit type.
        """
        whose = [terms.holder, terms.fields.get("credit_type")]
        if not self.records:
            state = LeaseState(terms, new_key())
            self._append("lease", FORMAT, state.key, whose)
            self.sync()
            return state
        (_, form, key, of), *records = self.records
        if [form, of] != [FORMAT, whose]:
            self.close()
            raise ValueError(f"{self._path} is the journal of another lease: {form} of {of}")
        return _recovered(LeaseState(terms, key), records)

    def decided(self, held: Held, use: Use, cost: int, quantities: Mapping[str, Fraction] | None) -> None:
        """Write a decision down; it is with the operating system when this returns."""
        self._append("spend", *_decisions(held.sequence, Group(use, 1, Fraction(cost), dict(quantities or {}))))

    def sent(self, state: LeaseState, batch: Batch) -> None:
        """Write down what is about to be sent, and what is not; `sync` before it is sent."""
        self._append("batch", state.number, batch.operations, batch.costs, _open_decisions(state))

    def sync(self) -> None:
        """Have all that was written down on disk."""
        os.fsync(self._file)

    def settled(self, state: LeaseState) -> None:
        """Write down that the batch has its results."""
        record = ("settled", state.number, state.late, [each.sequence for each in state.holds if each.left])
        if self._length > LONGEST_BYTES:
            decisions = [("spend", *each) for each in _open_decisions(state)]
            whose = [state.terms.holder, state.terms.fields.get("credit_type")]
            self._begin_again([("lease", FORMAT, state.key, whose), record, *decisions])
        else:
            self._append(*record)

    def close(self) -> None:
        """Let another process have it."""
        os.close(self._file)

    # The file --------------------------------------------------------------------------------------------

    def _append(self, *record: Any) -> None:
        line = _line(record)
        if os.write(self._file, line) != len(line):
            os.ftruncate(self._file, self._length)
            raise OSError(f"the journal {self._path} could not be written")
        self._length += len(line)

    def _begin_again(self, records: Sequence[Sequence[Any]]) -> None:
        """Replace all records by these, at once."""
        new = self._path.with_name(self._path.name + ".new")
        content = b"".join(map(_line, records))
        file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        with os.fdopen(os.dup(file), "wb") as stream:
            stream.write(content)
        os.fsync(file)
        new.replace(self._path)
        os.close(self._file)
        self._file, self._length = file, len(content)


def _recovered(state: LeaseState, records: Sequence[Sequence[Any]]) -> LeaseState:
    """Return a lease after what its records say: what is still to be captured, and the batch whose outcome is unknown."""
    pending: list[Any] = []
    sequences: list[int] = []
    for kind, *record in records:
        match kind:
            case "spend":
                pending.append(record)
            case "batch":
                state.number, operations, costs, pending = record
                state.sent = Batch(f"{state.key}/{state.number}", operations, costs, LONG_AGO_MS)
                state.late = []
            case _:
                state.number, late, sequences = record
                state.sent, state.late = None, [(operation, cost) for operation, cost in late]
    holds = {each: Held(each, 1, LONG_AGO_MS, 0, is_retired=True) for each in sequences}
    for sequence, use, count, cost, quantities in pending:
        held = holds.setdefault(sequence, Held(sequence, 1, LONG_AGO_MS, 0, is_retired=True))
        group = held.groups.setdefault(Use(*use), Group(Use(*use)))
        group.count += count
        group.exact += cost
        for name, quantity in quantities.items():
            group.quantities[name] = group.quantities.get(name, Fraction(0)) + Fraction(quantity)
    state.holds = list(holds.values())
    return state


def _open_decisions(state: LeaseState) -> list[Sequence[Any]]:
    return [_decisions(held.sequence, group) for held in state.holds for group in held.groups.values()]


def _decisions(sequence: int, group: Group) -> Sequence[Any]:
    use = group.use
    quantities = {name: str(quantity) for name, quantity in group.quantities.items()}
    return sequence, [use.fields, use.key, use.by_quantities], group.count, group.cost, quantities


def _line(record: Sequence[Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"

"""Runs the audit: cuts the ledger into slices, checks them in several sessions of one snapshot, and collects the findings."""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import datetime
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import psycopg

from ledger.audit.anchors import AnchorLine, AnchorWriter, check_seal, read_anchor
from ledger.audit.chains import MARK, registered, registered_tables
from ledger.audit.laws import ACCOUNTS, BY_ENTRY, BY_HOLDER, LAWS, SUMS
from ledger.audit.recounts import Recount, moved_by, read_recount
from ledger.audit.reports import Finding, Report
from ledger.audit.sessions import Session, one_snapshot
from ledger.audit.slices import Slice, slices_of
from ledger.database.cluster import on_cluster
from ledger.errors import RECORDED
from ledger.rules.kinds import KINDS, TOTALS
from ledger.rules.requests import REQUESTS
from ledger.values import CREDIT_TYPE, HOLDER_ID

Progress = Callable[[int, int], None]
"""Called with the number of entries checked so far and of all entries, from any thread."""

SLICE_ENTRIES = 20_000
ANCHORS_PER_STATEMENT = 1_000
ACCOUNTS_PER_FETCH = 2_000

ANCHORED = """
SELECT a.holder_id, a.credit_type, a.sequence, a.digest, encode(e.digest, 'hex'), last.sequence
FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::text[]) AS a (holder_id, credit_type, sequence, digest)
LEFT JOIN ledger_entry e ON e.holder_id = a.holder_id AND e.credit_type = a.credit_type AND e.sequence = a.sequence
LEFT JOIN LATERAL (
    SELECT l.sequence
    FROM ledger_entry l
    WHERE l.holder_id = a.holder_id AND l.credit_type = a.credit_type
    ORDER BY l.sequence DESC
    LIMIT 1
) AS last ON true
WHERE e.digest IS DISTINCT FROM decode(a.digest, 'hex')
"""
NEVER_REGISTERED = "SELECT of_table, row_key FROM ledger_register WHERE NOT of_table = ANY (%s)"
_IN_SLICE = "holder_id >= %(since)s AND holder_id <= %(upto)s AND sequence BETWEEN %(first)s AND %(last)s"
MIDDLE = f"""
SELECT count(*), percentile_disc(0.5) WITHIN GROUP (ORDER BY each)
FROM (SELECT DISTINCT {{}} AS each FROM ledger_entry WHERE {_IN_SLICE}) AS every
"""
PLACE = f"""
SELECT min(holder_id), CASE WHEN count(DISTINCT credit_type) = 1 THEN min(credit_type) END, min(sequence)
FROM ledger_entry
WHERE {_IN_SLICE}
"""
UNREADABLE = (psycopg.DataError, psycopg.errors.CardinalityViolation, psycopg.errors.FeatureNotSupported)
"""What PostgreSQL raises for a value that the ledger never writes: of another type, out of range, or twice where there is one."""
BELONGS_ON_SHARD = "get_shard_id_for_distribution_column('ledger_entry', a.holder_id)"


@on_cluster("auditing.audit_ledger")
def audit_ledger(connect: Callable[..., Callable[[], Session]], count: int, *, holder_id: str | None, **options: Any) -> Report:
    """Check every law as `audit` does, by `count` sessions of one snapshot.

    Args:
        connect: returns for the address of a node (by default Django's) a function that opens sessions with it.
        options: as of `audit`.
    """
    with one_snapshot(connect(), count) as sessions:
        return audit(sessions, holder_id=holder_id, **options)


@on_cluster("shards.in_one_table")
def _in_one_table(sessions: Sequence[Session], holder_id: str | None) -> AbstractContextManager[Sequence[Session]]:
    """While the block runs, provide sessions that read the entries of the holder, or all, in one table."""
    return nullcontext(sessions)


def audit(
    sessions: Sequence[Session],
    *,
    holder_id: str | None = None,
    anchor_to_write: Path | None = None,
    anchor_to_check: Path | None = None,
    findings_kept: int = 100,
    slice_entries: int = SLICE_ENTRIES,
    progress: Progress = lambda done, total: None,
) -> Report:
    """Check every law over the whole ledger, or over one holder, in the sessions' snapshot; change nothing in the database.

    Args:
        sessions: at least one, each in a transaction, all of the same snapshot; they are used in parallel.
        anchor_to_write: a new file for the last sequence and digest of each account. It is written only when no law is broken: an
            anchor of a ledger that was tampered with would vouch for the tampering.
        anchor_to_check: an anchor written earlier.
        findings_kept: how many findings of each law the report lists; it counts all of them.
        progress: called after each slice.

    Raises:
        AnchorUnreadable, AnchorMismatch: the anchor to check is not an anchor, or was changed.
        FileExistsError: the file for the anchor to write exists.
        psycopg.Error: the database could not be read; the audit has no result.
    """
    started = time.monotonic()
    report = Report(as_of=now(sessions[0]), holder_id=holder_id, findings_kept=findings_kept)
    with ExitStack() as stack:
        sessions = stack.enter_context(_in_one_table(sessions, holder_id))
        writer = stack.enter_context(AnchorWriter(anchor_to_write, report.as_of)) if anchor_to_write else None
        if anchor_to_check:
            check_anchor(sessions[0], report, anchor_to_check)
        counted = read_recount(sessions[0])
        slices = plan(sessions[0], report, writer, slice_entries)
        run(sessions, report, counted, slices, progress)
        check_identities(report)
        if holder_id is None:
            report.add(counted.differences())
            check_register(sessions[0], report)
            check_chains(sessions[0], report, writer)
        if writer and report.is_clean:
            seal = writer.seal()
            report.anchor = (report.anchor or {}) | {"written_to": str(anchor_to_write), "seal": seal.digest}
    report.seconds = time.monotonic() - started
    return report


def now(session: Session) -> datetime:
    now: datetime
    [(now,)] = session.execute("SELECT transaction_timestamp()")
    return now


# Slices ----------------------------------------------------------------------------------------------


def plan(session: Session, report: Report, writer: AnchorWriter | None, slice_entries: int) -> list[Slice]:
    """Walk the accounts once: count them, sum their balances, write their lines to the anchor, and cut the ledger into slices."""

    def holders() -> Iterator[tuple[str, int]]:
        for holder, accounts in groupby(_accounts(session, report.holder_id), key=lambda account: account[0]):
            report.holders += 1
            entries = 0
            for _, credit_type, sequence, balance, held, digest in accounts:
                report.accounts += 1
                identity = report.identity(credit_type)
                identity.balance += balance
                identity.held += held
                entries += sequence
                report.add(_find_misnamed(holder, credit_type))
                if writer:
                    writer.add(AnchorLine(holder, credit_type, sequence, digest))
            yield holder, entries

    return list(slices_of(holders(), size=slice_entries, only=report.holder_id))


def _accounts(session: Session, holder_id: str | None) -> Iterator[tuple[Any, ...]]:
    # A server-side cursor: the client's memory does not grow with the number of accounts.
    with session.cursor(name="audit_accounts") as cursor:
        cursor.itersize = ACCOUNTS_PER_FETCH
        if holder_id is None:
            cursor.execute(ACCOUNTS)
        else:
            types = "SELECT holder_id, credit_type FROM ledger_entry WHERE holder_id = %s AND sequence = 1 ORDER BY credit_type"
            last = "SELECT * FROM ledger_entry e WHERE (e.holder_id, e.credit_type) = (t.holder_id, t.credit_type)"
            last = f"SELECT last.* FROM ({types}) AS t CROSS JOIN LATERAL ({last} ORDER BY e.sequence DESC LIMIT 1) AS last"
            cursor.execute(ACCOUNTS.replace("ledger_account", f"({last}) AS account"), [holder_id])
        yield from cursor


def _find_misnamed(holder_id: str, credit_type: str) -> Iterable[Finding]:
    if not HOLDER_ID.fullmatch(holder_id) or not CREDIT_TYPE.fullmatch(credit_type):
        yield Finding("form", holder_id, credit_type, None, f"{holder_id!r}, {credit_type!r}", "a holder's id and a credit type")


def run(
    sessions: Sequence[Session],
    report: Report,
    counted: Recount,
    slices: Sequence[Slice],
    progress: Progress,
    *,
    but: str | None = None,
) -> None:
    """Check the slices, each session in a separate thread; the first failure ends all of them. `but` is not checked."""
    total = sum(each.entries for each in slices)
    waiting: queue.SimpleQueue[Slice] = queue.SimpleQueue()
    for each in slices:
        waiting.put(each)
    merging = threading.Lock()
    done = 0

    def work(session: Session) -> None:
        nonlocal done
        while True:
            try:
                part = waiting.get_nowait()
            except queue.Empty:
                return
            outcome = _audit_slice(session, part, counted.until, but)
            with merging:
                _merge(report, counted, *outcome)
                done += part.entries
                progress(done, total)

    progress(0, total)
    with ThreadPoolExecutor(len(sessions)) as pool:
        running = [pool.submit(work, session) for session in sessions]
        try:
            for worker in running:
                worker.result()
        except BaseException:
            # An error or Ctrl-C: stop all sessions.
            while not waiting.empty():
                waiting.get_nowait()
            for session in sessions:
                session.cancel_safe(timeout=5)
            raise


def _audit_slice(
    session: Session, part: Slice, counted_until: datetime, but: str | None
) -> tuple[list[Finding], list[dict[str, Any]]]:
    """Return the findings of one slice, and its sums per credit type, kind and day."""
    with session.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        sums = cursor.execute(SUMS, part.parameters | {"counted_until": counted_until}).fetchall()
    checks = [*BY_ENTRY, *(BY_HOLDER if part.is_start else ())]
    return [finding for name in checks if name != but for finding in broken(session, name, part)], sums


def broken(session: Session, check: str, part: Slice) -> list[Finding]:
    """Return what breaks a check's laws in a slice.

    A value that PostgreSQL cannot read as the check does is a finding: the slice is halved until the halves with such values are
    one entry each, or one holder each for a check over all entries of a holder. The others are checked as usual.
    """
    try:
        with session.transaction():
            return _find_broken(session, check, part)
    except UNREADABLE as error:
        halves = _halves(session, part, by_entry=check in BY_ENTRY)
        if not halves:
            return [_unreadable(session, check, part, error)]
    return [finding for half in halves for finding in broken(session, check, half)]


def _find_broken(session: Session, check: str, part: Slice) -> list[Finding]:
    parameters = part.parameters | {"codes": list(RECORDED), "operations": sorted(REQUESTS)}
    rows = session.execute((BY_ENTRY | BY_HOLDER)[check], parameters).fetchall()
    return [
        Finding(law, holder_id, credit_type, sequence, found, expected or LAWS[law])
        for law, holder_id, credit_type, sequence, found, expected in rows
    ]


def _halves(session: Session, part: Slice, *, by_entry: bool) -> Sequence[Slice]:
    """Return the halves of a slice, by holders or for one holder by entries; none for a slice that is not cut any more."""
    holders, middle_holder = _middle(session, part, "holder_id")
    if holders > 1:
        return part.cut_after_holder(middle_holder)
    if not by_entry:
        return ()
    entries, middle_entry = _middle(session, part, "sequence")
    return part.cut_after_entry(middle_entry) if entries > 1 else ()


def _middle(session: Session, part: Slice, column: str) -> tuple[int, Any]:
    """Return how many values a column has in a slice, and the middle one, which is never the last of several."""
    [middle] = session.execute(MIDDLE.format(column), part.parameters).fetchall()
    return middle


def _unreadable(session: Session, check: str, part: Slice, error: psycopg.Error) -> Finding:
    [(holder_id, credit_type, sequence)] = session.execute(PLACE, part.parameters).fetchall()
    message = error.diag.message_primary or str(error)
    law = check if check in LAWS else "form"
    return Finding(law, holder_id, credit_type, sequence if check in BY_ENTRY else None, message, LAWS[law])


def _merge(report: Report, counted: Recount, findings: list[Finding], sums: list[dict[str, Any]]) -> None:
    report.add(findings)
    for row in sums:
        report.entries += row["entries"]
        report.refusals += row["entries"] if row["kind"] == "refusal" else 0
        identity = report.identity(row["credit_type"])
        if (kind := KINDS.get(row["kind"])) and kind.total:
            identity.totals[kind.total] += TOTALS[kind.total] * moved_by(row)
        counted.add(row)


# The whole -------------------------------------------------------------------------------------------


def check_identities(report: Report, *, is_one_snapshot: bool = True) -> None:
    for credit_type, each in sorted(report.identities.items()):
        if each.came_in != each.explained:
            finding = Finding("identity", report.holder_id, credit_type, None, str(each.explained), str(each.came_in))
            report.add([finding])
        if is_one_snapshot and report.holder_id is None and each.totals["transferred_in"] != each.totals["transferred_out"]:
            arrived = f"{each.totals['transferred_in']} arrived"
            report.add([Finding("identity", None, credit_type, None, arrived, f"{each.totals['transferred_out']} left")])


def check_register(session: Session, report: Report) -> None:
    """Compare each row of the registered tables with the register."""
    session.execute("SET timezone = 'UTC'")
    for name, key in session.execute(NEVER_REGISTERED, [[table.name for table in registered_tables()]]).fetchall():
        report.add([Finding("register", MARK + name, key, None, "a digest", "no table of that name in the register")])
    for table in registered_tables():
        for key, actual, expected in session.execute(table.broken):
            report.add([Finding("register", MARK + table.name, key, None, actual, expected)])


def check_chains(session: Session, report: Report, writer: AnchorWriter | None) -> None:
    """Verify the chains of other applications, and write the last document of each series to the anchor, after the accounts."""
    for chain in registered():
        heads = session.execute(chain.heads).fetchall()
        report.chains[chain.name] = len(heads)
        for series, number, actual, expected in session.execute(chain.broken):
            report.add([Finding(chain.name, MARK + chain.name, series, number, actual, expected)])
        if writer:
            for series, number, digest in heads:
                writer.add(AnchorLine(MARK + chain.name, series, number, digest))


def check_anchor(session: Session, report: Report, path: Path, *, of_accounts: bool = True) -> None:
    as_of, seal = check_seal(path)
    report.anchor = {"checked": str(path), "written_at": f"{as_of:%Y-%m-%d %H:%M:%S} UTC", "accounts": seal.accounts}
    if report.holder_id is None:
        _check_anchored_chains(session, report, path)
    if of_accounts:
        check_anchored_accounts(session, report, path)


def check_anchored_accounts(session: Session, report: Report, path: Path, *, on_shard: int | None = None) -> None:
    """Compare the accounts of the anchor, or those of its holders that belong on a shard, with what the session reads."""
    query = ANCHORED if on_shard is None else f"{ANCHORED} AND {BELONGS_ON_SHARD} = {on_shard}"
    accounts = (each for each in read_anchor(path) if each.chain is None)
    anchors = (each for each in accounts if report.holder_id in (None, each.holder_id))
    while batch := list(islice(anchors, ANCHORS_PER_STATEMENT)):
        columns = [list(column) for column in zip(*batch, strict=True)]
        for holder_id, credit_type, sequence, digest, actual, last in session.execute(query, columns):
            what = "no such account" if last is None else f"ends at {last}" if last < sequence else actual or "no such entry"
            report.add([Finding("anchor", holder_id, credit_type, sequence, what, digest)])


def _check_anchored_chains(session: Session, report: Report, path: Path) -> None:
    chains = {chain.name: chain for chain in registered()}
    anchored = (each for each in read_anchor(path) if each.chain is not None)
    for name, group in groupby(anchored, key=lambda each: each.chain):
        digests = {(each.credit_type, each.sequence): each.digest for each in group}
        found_at: dict[tuple[str, int], tuple[str | None, int | None]] = {}
        if name in chains:
            columns = [list(column) for column in zip(*digests, strict=True)]
            rows = session.execute(chains[name].found_at, columns)
            found_at = {(series, number): (actual, last) for series, number, actual, last in rows}
        for (series, number), digest in digests.items():
            actual, last = found_at.get((series, number), (None, None))
            if name in chains and chains[name].is_a_count and last is not None and last > number:
                continue
            if actual != digest:
                what = "no such series" if last is None else f"ends at {last}" if last < number else actual or "no such document"
                report.add([Finding("anchor", f"{MARK}{name}", series, number, what, digest)])

"""The audit of a ledger that is distributed over nodes: shard after shard, then the comparisons between shards."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ledger.audit.anchors import AnchorWriter
from ledger.audit.auditing import (
    SLICE_ENTRIES,
    Progress,
    audit,
    broken,
    check_anchor,
    check_anchored_accounts,
    check_chains,
    check_identities,
    check_register,
    now,
    plan,
    run,
)  # fmt: skip
from ledger.audit.recounts import read_recount
from ledger.audit.reports import Report
from ledger.audit.sessions import Session, one_snapshot
from ledger.audit.slices import EVERYTHING
from ledger.cluster.shards import between_shards, one_copying_session, reading, shards_of


def audit_ledger(connect: Callable[..., Callable[[], Session]], count: int, *, holder_id: str | None, **options: Any) -> Report:
    """Replaces `ledger.audit.auditing.audit_ledger`: a holder is read by one session, the whole ledger by `audit_shards`."""
    if holder_id is None:
        return audit_shards(connect, count, **options)
    with one_copying_session(connect()) as sessions:
        return audit(sessions, holder_id=holder_id, **options)


def audit_shards(
    connect: Callable[..., Callable[[], Session]],
    count: int,
    *,
    anchor_to_write: Path | None = None,
    anchor_to_check: Path | None = None,
    findings_kept: int = 100,
    slice_entries: int = SLICE_ENTRIES,
    progress: Progress = lambda done, total: None,
) -> Report:
    """Audit as `audit` does a whole ledger that is distributed over nodes: shard after shard, then the comparisons between
    shards.

    Args:
        connect: returns for the address of a node (by default Django's) a function that opens sessions with it.
        count: the number of sessions that read a shard.

    Raises: as `audit`; and
        NotComparable: the transfers between shards could not be compared; the audit has no result.
    """
    started = time.monotonic()
    with connect()() as session:
        report = Report(as_of=now(session), findings_kept=findings_kept)
        with ExitStack() as stack:
            writer = stack.enter_context(AnchorWriter(anchor_to_write, report.as_of)) if anchor_to_write else None
            if anchor_to_check:
                check_anchor(session, report, anchor_to_check, of_accounts=False)
            session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            counted = read_recount(session)
            session.execute("COMMIT")
            for shard, lend in shards_of(session, connect):
                with one_snapshot(lend, count) as sessions:
                    for each in sessions:
                        reading(each, shard.table, shard.beside)
                    if anchor_to_check:
                        check_anchored_accounts(sessions[0], report, anchor_to_check, on_shard=shard.number)
                    slices = plan(sessions[0], report, writer, slice_entries)
                    run(sessions, report, counted, slices, progress, but="transfers")
            check_identities(report, is_one_snapshot=False)
            report.add(between_shards(connect(), report.as_of, lambda found: broken(found, "transfers", EVERYTHING)))
            report.add(counted.differences())
            check_register(session, report)
            check_chains(session, report, writer)
            if writer and report.is_clean:
                seal = writer.seal()
                report.anchor = (report.anchor or {}) | {"written_to": str(anchor_to_write), "seal": seal.digest}
    report.seconds = time.monotonic() - started
    return report

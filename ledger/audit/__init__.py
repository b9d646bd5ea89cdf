"""The audit: every law of the ledger checked over the whole of it, in one snapshot, while writers go on.

The checking is set-wise SQL in the server, slice by slice of the holders, so that what the client needs does not grow with the
ledger. It shares no code with the rules that made the entries, except the digest's definition in the server.
"""

from ledger.audit.anchors import Anchor, AnchorMismatch, AnchorUnreadable, read_anchor, write_anchor
from ledger.audit.auditing import audit
from ledger.audit.laws import LAWS
from ledger.audit.reports import Finding, Identity, Report

__all__ = [
    "LAWS",
    "Anchor",
    "AnchorMismatch",
    "AnchorUnreadable",
    "Finding",
    "Identity",
    "Report",
    "audit",
    "read_anchor",
    "write_anchor",
]

"""The laws that are checked, by the names under which findings are reported, and the SQL that finds what breaks them."""

from pathlib import Path

LAWS: dict[str, str] = {
    "numbers": "The entries of an account are numbered 1, 2, 3 … without gaps.",
    "balance": "A balance is the one before it plus the amount.",
    "overspent": "A balance is 0 or more, or the account has an overdraft; no spend goes beyond it.",
    "digest": "An entry's digest is SHA-256 over the digest of the entry before it, 32 zero bytes for the first, and its own "
    "canonical form.",
    "time": "recorded_at never goes back; an entry counts from then, a grant from any instant, an expiry from the lot's or the "
    "hold's, a repayment from when it became possible; where the clock was set back, from the clock's instant.",
    "future": "recorded_at is not beyond the server's clock.",
    "keys": "An entry that answers a request has a key and the request's digest; a key is answered once per holder.",
    "form": "Lots, drawn parts and holds are in their canonical form.",
    "lots": "A lot has what it had before, less what was drawn, plus what was given back: granted = remaining + held + "
    "spent − refunded + expired + revoked.",
    "lots-sum": "The open lots add up to the balance, and to what is owed.",
    "lots-order": "Open lots stand in burn order.",
    "terms": "A lot keeps its effective time, expiry, priority and source for good.",
    "drawn": "The drawn parts add up to the amount, save what was taken on an overdraft.",
    "burn-order": "Credits are taken from the lots that can be spent at that instant, in burn order.",
    "held": "held is the sum of what the open holds set aside, and changes by holds, captures and releases only.",
    "holds": "An entry changes the one hold that it refers to and leaves the others as they are.",
    "overdraft": "An overdraft changes only by an adjustment that somebody asked for.",
    "refers-to": "A refund refers to a spend or capture, a revocation to a grant, an expiry to a lot, a capture to a hold.",
    "orphans": "What an entry refers to exists.",
    "refunds": "Refunds count up in `refunded_total`, never pass what was taken, and go back to the lots that it came from.",
    "transfers": "Each arrival names a departure with the same credits under the same terms, and none is named twice.",
    "refusals": "A refusal has a known code and operation, the facts that made it so, and the digest of what was asked; it names "
    "the last entry that is no refusal.",
    "identity": "Over all accounts: granted + transferred in + refunded = balance + held + spent + expired + revoked + "
    "transferred out, and as much arrived as left.",
    "anchor": "Every account of the anchor is still there, at least as long, with the same digest at that number.",
}


def sql(name: str) -> str:
    """The text of sql/<name>.sql."""
    return (Path(__file__).parent / "sql" / f"{name}.sql").read_text()


ACCOUNTS = sql("accounts")
SUMS = sql("sums")
BY_ENTRY = {name: sql(name) for name in ("entries", "refusals")}
BY_HOLDER = {name: sql(name) for name in ("refunds", "transfers", "keys")}
"""What looks at whole holders, also where a holder's entries are cut into several slices."""

"""The laws of the audit, by the names that findings carry, and the SQL that finds violations."""

from pathlib import Path

LAWS: dict[str, str] = {
    "numbers": "The entries of an account are numbered 1, 2, 3 … without gaps.",
    "balance": "A balance is the one before it plus the amount.",
    "overspent": "A balance is 0 or more, or the account has an overdraft; no spend goes beyond it.",
    "digest": "An entry's digest is SHA-256 over the digest of the entry before it, 32 zero bytes for the first, and its own "
    "canonical form.",
    "time": "recorded_at never goes back. An entry counts from its recorded_at, with four exceptions: a grant from any time, an "
    "expiry from the expiry of its lot or hold, a repayment from when it became possible, and an entry after the clock was set "
    "back from the clock's time. With a test clock, that is the time of a decision instead of recorded_at.",
    "future": "recorded_at is not beyond the server's clock.",
    "keys": "An entry made by a request has the request's key and digest. A key has one entry per holder.",
    "form": "Lots, drawn parts, holds and costs are in their canonical form.",
    "lots": "A lot has the credits that it had before, less the drawn, plus the returned ones: granted = remaining + held + "
    "spent − refunded + expired + revoked.",
    "lots-sum": "The open lots add up to the balance plus what is owed.",
    "lots-order": "Open lots are in burn order.",
    "terms": "A lot's effective time, expiry, priority and source, and what it applies to, never change.",
    "shared": "Receipts of equal terms share a lot: no two received lots, open or held, have the same terms and "
    "currency, and a transfer_in goes into no other lot.",
    "drawn": "The drawn parts add up to the amount, except what was taken on an overdraft.",
    "burn-order": "Credits are taken from the lots that can be spent at that instant, in burn order.",
    "purpose": "Credits that can pay only for certain rates or labels are spent, held and captured only for these, and neither "
    "transferred nor used for a debt.",
    "held": "held is the sum of the credits that open holds set aside. Only holds, captures and releases change it.",
    "holds": "An entry changes only the hold that it refers to.",
    "overdraft": "Only a requested adjustment changes an overdraft.",
    "refers-to": "A refund refers to a spend or capture, a revocation to a grant, an expiry to a lot, a capture to a hold.",
    "orphans": "The entry that an entry refers to exists.",
    "refunds": "`refunded_total` adds up the refunds of a spend and never exceeds the spend; the credits go back to the lots "
    "that they came from, or to the lot that receipts of the same terms share.",
    "transfers": "Each transfer_in names a transfer_out of the same credits under the same terms. No lot of a transfer_out is "
    "named twice. A reversal takes from the lot in which the credits arrived, and no more than arrived.",
    "frozen": "Nothing is spent, newly held or transferred while a holder is frozen. The entries that freeze a holder or end "
    "that are numbered.",
    "clocks": "A test clock only goes forward, and its moves are numbered.",
    "incoming": "No transfer arrives in an account that refuses transfers; that changes only by an adjustment that a request "
    "asked for.",
    "refusals": "A refusal has a known code and operation, the facts behind it, the digest of its request, and the sequence of "
    "the last entry that is not a refusal.",
    "cost": "What was paid for the credits of an account is what its lots still cost and what was recognised, revoked, expired "
    "or moved with credits; each entry moves its exact share.",
    "rates": "An amount that a rate gave is the sum of quantity × price / per over the components of the version that the entry "
    "names, rounded up once to whole credits.",
    "requested": "A partial spend took what it asked for, or less if that left nothing to spend, or nothing of a hard budget.",
    "budgets": "Each budget counts what the entry uses, for the subject that it names, and what a release gives back; what a "
    "hard budget counts stays within its limit. Settings change only by an adjustment that a request asked for, and are what it "
    "says, from its start to its end.",
    "counters": "What a subject has used of a budget is what the entries counted, less what holds released.",
    "usage": "What an account used by label, rate and day is what its entries used, less what they refunded.",
    "overage": "What is used of an overage is what its entries granted in the period, less what came back; a grant on it is what "
    "the next entry lacks, within the limit. No open lot is postpaid. Only an adjustment that a request asked for changes terms.",
    "claims": "What is claimed is what requests claimed, less what was taken back of credits that came back. The next entries "
    "take it back, so that no open lot is claimed.",
    "recurring": "What is due of a recurring grant is what its entries say, and so is when one of the account is due next. "
    "Parts are those that the terms name. What rolls over is at most the cap of the period that begins. "
    "Periods that were skipped had left nothing.",
    "register": "Each row of a registered table is as its trigger registered it, and none is missing. Another row was changed, "
    "deleted or added while triggers were off: compare it with a backup.",
    "identity": "Over all accounts: granted + transferred in + refunded = balance + held + spent + expired + revoked + "
    "transferred out, and transferred in = transferred out.",
    "anchor": "Every account in the anchor still exists, is at least as long, and has the same digest at that sequence.",
}

_added: dict[str, str] = {}


def add_law(name: str, sentence: str) -> None:
    """Let findings name a law that an application checks by the sums of entries."""
    _added[name] = sentence


def all_laws() -> dict[str, str]:
    """Return the sentences of all laws about entries and their sums, by name; those of chains are not among them."""
    return LAWS | _added


def sql(name: str) -> str:
    """Return the text of sql/<name>.sql."""
    return (Path(__file__).parent / "sql" / f"{name}.sql").read_text()


ACCOUNTS = sql("accounts")
SUMS = sql("sums")
BY_ENTRY = {name: sql(name) for name in ("entries", "refusals", "rates", "budgets", "costs", "overage", "claims")}
BY_HOLDER = {
    name: sql(name) for name in ("refunds", "transfers", "incoming", "frozen", "clocks", "keys", "recurring", "counters", "usage")
}
"""Checks over all entries of a holder, even if slices cut the holder's entries apart."""

"""The kinds of entries: one row for each, with every property of the kind.

Texts, colours, totals, the month-end report and the audit's sums come from these rows. CHECKs of the schema and CASEs of the
audit name every kind again; tests/ledger/rules/test_kinds.py compares them with the rows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple


class Texts(NamedTuple):
    """What an entry did: a word for labels, a sentence with amounts in the credit type's unit, and the API's sentence.

    `past` is filled by `ledger.rules.entry_texts`, `explained` by `ledger.rules.explanations`.
    """

    label: str
    past: str
    explained: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of entry.

    Args:
        cases: other texts, for an entry that has a value in that column.
        of_nothing: the texts for an entry that moves no credits, of a kind that can move some; None: it always does.
        on_statement: its name on statements, by language; empty: statements do not list it.
        colour: of its label.
        sign: how its amount compares with 0.
        moves: by what it changes the account's credits, held ones included: its amount, what it drew from lots, or nothing.
        total: the line of the totals to which that is added.
        cost: the line of the books to which the change of the lots' costs is added; None: it changes no cost.
        brings: its credits bring their cost into lots, instead of taking it out of them.
        refers_to: the kinds of entries to which it can refer.
        opens_lots: it can open a lot with its own number.
        takes: it takes from lots in burn order.
        of_lot: what it does with each lot in `drawn` otherwise: the API's decision, and its sentence.
        changes_held: it can change which credits are held.
        budgets: what it does to budgets: it uses them, gives back to them, or sets them; empty: nothing.
        overage: the same for the overage.
        has_own_time: `effective_at` can differ from the instant of the decision.
        has_key: every entry has the key of a request.
        drawn_text: what lists say of the credits that it drew from lots, behind its amount; empty: nothing.
        booked: when the ledger books it by itself, the reason, and the API's sentence; None: it never does.
    """

    name: str
    text: Texts
    cases: Mapping[str, Texts] = field(default_factory=dict)
    of_nothing: Texts | None = None
    on_statement: Mapping[str, str]
    colour: Literal["success", "info", "primary", "warning", "danger"]
    sign: Literal[">", ">=", "=", "<=", "<"]
    moves: Literal["amount", "drawn", "nothing"]
    total: str | None
    cost: str | None
    brings: bool = False
    refers_to: tuple[str, ...] = ()
    opens_lots: bool = False
    takes: bool = False
    of_lot: tuple[str, str] | None = None
    changes_held: bool = False
    budgets: Literal["", "uses", "gives back", "sets"] = ""
    overage: Literal["", "uses", "gives back", "sets"] = ""
    has_own_time: bool = False
    has_key: bool = True
    drawn_text: str = ""
    booked: tuple[str, str] | None = None

    @property
    def words(self) -> str:
        return self.name.replace("_", " ")

    @property
    def title(self) -> str:
        return self.words.capitalize()

    def text_of(self, entry: Any) -> Texts:
        """The texts for an entry of this kind, or a row of one."""
        usual = self.of_nothing if self.of_nothing and not (entry.amount or entry.drawn) else self.text
        return next((text for column, text in self.cases.items() if getattr(entry, column)), usual)

    def moved(self, amount: int, drawn: int) -> int:
        """By how much an entry changes the account's credits, held ones included; `drawn` is what it drew from lots."""
        return {"amount": amount, "drawn": -drawn, "nothing": 0}[self.moves]


_LOTS_OF: Final = ("grant", "transfer_in", "refund", "reissue")
"""The kinds that open lots, as what names a lot refers to them; a test compares them with the rows."""
_KINDS: Final = (
    Kind(
        name="grant", colour="success", sign=">", moves="amount", total="granted",
        cost="sold", brings=True,
        text=Texts("Grant", "{amount} added", "The grant added {amount} as a new lot."),
        cases={"postpaid": Texts("Overage", "{amount} granted on overage",
                                "The ledger granted {amount} on overage, for what the next entry takes beyond the lots.")},
        on_statement={"en": "Grant", "de": "Gutschrift"},
        opens_lots=True, has_own_time=True, has_key=False,
        overage="uses", booked=("overage", "{amount} were granted on overage."),
    ),
    Kind(
        name="spend", colour="primary", sign="<=", moves="amount", total="spent",
        cost="recognised",
        text=Texts("Spend", "{amount}{of_requested} spent{rated}{on_overage}",
                  "The spend took {amount}{of_requested} from {lots}{on_overdraft}, in the order {order}{on_overage}."),
        of_nothing=Texts("Spend", "0 spent{rated}", "The spend cost nothing and took nothing from any lot."),
        on_statement={"en": "Spend", "de": "Verbrauch"},
        takes=True,
        budgets="uses",
    ),
    Kind(
        name="refund", colour="info", sign=">", moves="amount", total="refunded", refers_to=("spend", "capture"),
        cost="refunded", brings=True,
        text=Texts("Refund", "{amount} of spend #{refers_to} returned",
                  "The refund returned {amount} of entry {refers_to} to {lots}{repaying}."),
        on_statement={"en": "Refund", "de": "Erstattung"},
        of_lot=("returned", "The refund returned these credits to their lot; the lot drawn last gets its part first."),
        opens_lots=True, has_key=False,
    ),
    Kind(
        name="revoke", colour="warning", sign="<", moves="amount", total="revoked", refers_to=("grant", "reissue"),
        cost="revoked",
        text=Texts("Revoke", "all unspent credits taken back: {amount}",
                  "The revocation took back {amount}, all that was unspent."),
        cases={
            "postpaid": Texts("Overage returned", "{amount} of overage #{refers_to} given back",
                              "{amount} of entry {refers_to}, granted on overage, came back unused and count no more."),
            "refers_to": Texts("Revoke", "{amount} of grant #{refers_to} taken back",
                                 "The revocation took back {amount} of grant {refers_to}."),
        },
        on_statement={"en": "Grant taken back", "de": "Gutschrift zurückgenommen"},
        has_key=False, overage="gives back", booked=("overage given back", "{amount} of overage {refers_to} came back unused."),
        of_lot=("revoked", "The revocation took back the unspent rest of the lot."),
    ),
    Kind(
        name="reissue", colour="info", sign="=", moves="nothing", total=None, refers_to=_LOTS_OF,
        cost="reissued",
        text=Texts("New terms", "{drawn} of lot #{refers_to} form a new lot with other terms",
                   "The {drawn} left in lot {refers_to} form a new lot with other terms."),
        on_statement={"en": "New terms", "de": "Neue Bedingungen"},
        of_lot=("reissued", "These credits left the lot and form a new one, whose terms are on this entry."),
        opens_lots=True, drawn_text="{drawn} with new terms",
    ),
    Kind(
        name="expire", colour="warning", sign="<", moves="amount", total="expired", refers_to=_LOTS_OF,
        cost="breakage",
        text=Texts("Expire", "{amount} of grant #{refers_to} expired", "{amount} of grant {refers_to} expired."),
        on_statement={"en": "Expired", "de": "Verfallen"},
        of_lot=("expired", "The lot reached its expiry."),
        booked=("lot expired", "Lot {refers_to} expired with {amount} left."),
        has_own_time=True, has_key=False,
    ),
    Kind(
        name="hold", colour="primary", sign="<=", moves="nothing", total=None, refers_to=("hold",),
        cost=None,
        text=Texts("Hold", "{amount} set aside{rated}{on_overage}",
                  "The hold set aside {amount} from {lots}, in the order {order}{on_overage}."),
        of_nothing=Texts("Hold", "0 set aside{rated}", "The hold set nothing aside, as what it is for costs nothing."),
        cases={"refers_to": Texts("Hold", "hold #{refers_to} extended", "Hold {refers_to} has a new expiry; no credits moved.")},
        on_statement={"en": "Held", "de": "Reserviert"},
        takes=True, changes_held=True,
        budgets="uses",
    ),
    Kind(
        name="capture", colour="primary", sign="<=", moves="drawn", total="spent", refers_to=("hold",),
        cost="recognised",
        text=Texts("Capture", "{drawn} of hold #{refers_to} spent{on_overage}",
                  "The capture took {drawn}: {from_hold} from hold {refers_to}{beyond}{on_overage}."),
        of_nothing=Texts("Capture", "0 of hold #{refers_to} spent", "The capture took nothing of hold {refers_to}."),
        on_statement={"en": "Held credits spent", "de": "Reserviertes verbraucht"},
        of_lot=("captured", "The capture took these credits from the hold, or from the balance beyond the hold."),
        changes_held=True, drawn_text="{drawn} captured",
        budgets="uses",
    ),
    Kind(
        name="release", colour="info", sign=">=", moves="nothing", total=None, refers_to=("hold",),
        cost=None,
        text=Texts("Release", "{amount} of hold #{refers_to} returned",
                  "The release returned {amount} of hold {refers_to} to {lots}{because}."),
        on_statement={"en": "Held credits released", "de": "Reservierung aufgehoben"},
        of_lot=("returned", "The release returned these credits from the hold to their lot."),
        booked=("hold expired", "Hold {refers_to} returned {amount}{because}."),
        changes_held=True, has_own_time=True, has_key=False,
        budgets="gives back",
    ),
    Kind(
        name="transfer_in", colour="success", sign=">", moves="amount", total="transferred_in", refers_to=("transfer_out",),
        cost="transferred_in", brings=True,
        text=Texts("Transfer", "{amount} received from {other}", "{other} transferred {amount}, {arrived}."),
        on_statement={"en": "Received", "de": "Erhalten"},
        cases={"refers_to": Texts("Reversal", "{amount} of transfer #{refers_to} came back from {other}",
                                  "The reversal of transfer {refers_to} took {amount} back from {other}.")},
        of_lot=("joined", "These credits are in a lot that was there: of earlier receipts, or the one that they came from."),
        opens_lots=True, has_key=False,
    ),
    Kind(
        name="transfer_out", colour="primary", sign="<", moves="amount", total="transferred_out", refers_to=("transfer_in",),
        cost="transferred_out",
        text=Texts("Transfer", "{amount} sent to {other}",
                  "The transfer moved {amount} from {lots} to {other}, in the order {order}."),
        cases={"refers_to": Texts("Reversal", "{amount} of receipt #{refers_to} went back to {other}",
                                  "{other} reversed the transfer: {amount} of entry {refers_to} went back.")},
        on_statement={"en": "Transferred", "de": "Übertragen"},
        of_lot=("reversed", "The reversal took these credits out of the lot in which they had arrived."),
        takes=True, has_key=False,
        budgets="uses",
    ),
    Kind(
        name="adjust", colour="warning", sign="=", moves="nothing", total=None,
        cost="recognised",
        text=Texts("Overdraft", "limit set to {overdraft}", "Spends may take the balance down to {lowest} from now on."),
        cases={
            "drawn": Texts("Repay", "{drawn} repaid the overdraft", "{drawn} from {lots} repaid the overdraft."),
            "counterpart": Texts("Setting", "{setting}", "The {set} from now on."),
        },
        on_statement={"en": "Limit or setting", "de": "Limit oder Einstellung"},
        booked=("overdraft repaid", "{drawn} repaid the overdraft."),
        takes=True, has_key=False,
        budgets="sets", overage="sets",
    ),
    Kind(
        name="refusal", colour="danger", sign="=", moves="nothing", total=None,
        cost=None,
        text=Texts("Refused", "{refused}", "{refused} No credits moved."),
        on_statement={},
    ),
)  # fmt: skip
KINDS: Final = {kind.name: kind for kind in _KINDS}

REFUNDABLE: Final = KINDS["refund"].refers_to


def taken_by(entry: Any) -> int:
    """How many credits a spend or capture took, 0 for every other kind: at most these can be refunded.

    Args:
        entry: anything with an entry's kind, amount and drawn.
    """
    if entry.kind not in REFUNDABLE:
        return 0
    return -KINDS[entry.kind].moved(int(entry.amount), sum([amount for _, amount in entry.drawn]))


def sql_list(kinds: Iterable[str]) -> str:
    """The kinds as SQL writes them behind IN."""
    return "(" + ", ".join(f"'{kind}'" for kind in kinds) + ")"


# Costs -----------------------------------------------------------------------------------------------


class CostLine(NamedTuple):
    """A line of the books: what the kinds of entries with that line changed of the costs of lots.

    `sign` is how an amount of the line changes what lots cost; `words` are its name, `text` is the API's sentence.
    """

    sign: Literal[1, -1]
    words: str
    text: str


COST_LINES: Final = {
    "sold": CostLine(1, "Sold", "{money} were paid for lot {lot}."),
    "recognised": CostLine(-1, "Recognised", "{money} of the cost of lot {lot} are recognised."),
    "refunded": CostLine(1, "Recognised before, and refunded", "{money} that were recognised went back to lot {lot}."),
    "breakage": CostLine(-1, "Breakage", "{money} of the cost of lot {lot} expired with the credits."),
    "revoked": CostLine(-1, "Revoked", "{money} of the cost of lot {lot} were revoked with the credits."),
    "transferred_in": CostLine(1, "Transferred in", "{money} of cost came into lot {lot} with the credits."),
    "transferred_out": CostLine(-1, "Transferred out", "{money} of the cost of lot {lot} went with the credits."),
    "reissued": CostLine(1, "Moved to other terms", "{money} of cost moved from or to lot {lot} with the credits."),
}
"""In the order of the books."""


# Totals ----------------------------------------------------------------------------------------------


class TotalsLine(NamedTuple):
    """A line of the totals and a column of ledger_daily_total: what entries of the kinds with that total come to.

    `sign` says whether it adds to the credits or takes from them. `source` is that of the lots, for a total with
    a line for each source.
    """

    sign: Literal[1, -1]
    total: str
    words: str
    source: str | None = None


LINES: Final = {
    "granted_purchased": TotalsLine(1, "granted", "Granted, purchased", "purchased"),
    "granted_promotional": TotalsLine(1, "granted", "Granted, promotional", "promotional"),
    "granted_postpaid": TotalsLine(1, "granted", "Granted on overage", "postpaid"),
    "refunded": TotalsLine(1, "refunded", "Refunded"),
    "transferred_in": TotalsLine(1, "transferred_in", "Transferred in"),
    "spent": TotalsLine(-1, "spent", "Spent"),
    "expired": TotalsLine(-1, "expired", "Expired"),
    "revoked": TotalsLine(-1, "revoked", "Revoked"),
    "transferred_out": TotalsLine(-1, "transferred_out", "Transferred out"),
}
"""In the order of the month's report."""
TOTALS: Final = {line.total: line.sign for line in LINES.values()}


def left_of(amounts: Mapping[str, int]) -> int:
    """What is left of all credits, held ones included, by the lines of the totals: law 8 of the ledger."""
    return sum(line.sign * amounts[name] for name, line in LINES.items())

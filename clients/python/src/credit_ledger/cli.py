"""`credit-ledger`: the ledger in a terminal. Installed with `credit-ledger-client[cli]`."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from credit_ledger.client import Client
from credit_ledger.generated.bodies import AccountBalance, Entry, EntryKindEnum, Explanation
from credit_ledger.problems import InsufficientCredits, OutcomeUnknown, Problem, Unreachable

REFUSED: Final = 1
"""The exit code where nothing was written: the server refused, or did not answer."""
UNKNOWN: Final = 3
"""The exit code where it is not known whether something was written."""

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Look at credits, grant, spend and hold them.")

Holder = Annotated[str, typer.Argument(help="Whose credits.", show_default=False)]
Amount = Annotated[int, typer.Argument(help="In the smallest unit.", min=1, show_default=False)]
Sequence = Annotated[int, typer.Argument(help="The number of an entry.", min=1, show_default=False)]
CreditType = Annotated[str | None, typer.Option("--type", help="The credit type.  [default: credits]", show_default=False)]
Reason = Annotated[str | None, typer.Option(help="Shown with the entry.", show_default=False)]
Key = Annotated[str | None, typer.Option("--idempotency-key", help="The same key takes effect once.", show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be written, and write nothing.")]


@dataclass(frozen=True)
class Terminal:
    """What the options before the command say."""

    client: Client
    is_json: bool
    out: Console


@app.callback()
def options(
    context: typer.Context,
    url: Annotated[str, typer.Option(envvar="CREDIT_LEDGER_URL", help="Where the server is.")] = "http://127.0.0.1:8000",
    api_key: Annotated[str, typer.Option(envvar="CREDIT_LEDGER_API_KEY", help="A key with the scopes.", show_default=False)] = "",
    is_json: Annotated[bool, typer.Option("--json", help="Print what the server answered.")] = False,
) -> None:
    """Read the options that all commands share."""
    if not api_key:
        raise typer.BadParameter("give --api-key, or set CREDIT_LEDGER_API_KEY")
    client = Client(url, api_key)
    context.call_on_close(client.close)
    context.obj = Terminal(client, is_json, Console(highlight=False))


@app.command()
def balance(context: typer.Context, holder: Holder, credit_type: CreditType = None) -> None:
    """Show what a holder has, lot by lot."""
    with _reporting(context) as terminal:
        found = terminal.client.balance(holder, credit_type=credit_type)
        _show(terminal, found, lambda: _balance(found))


@app.command()
def history(
    context: typer.Context,
    holder: Holder,
    limit: Annotated[int, typer.Option(help="How many entries.", min=1)] = 20,
    kind: Annotated[str | None, typer.Option(help="Only entries of this kind.", show_default=False)] = None,
    credit_type: CreditType = None,
) -> None:
    """Show the newest entries of a holder."""
    with _reporting(context) as terminal:
        kind_asked: EntryKindEnum | None = kind  # type: ignore[assignment]  # the server knows the kinds
        pages = terminal.client.entries(holder, kind=kind_asked, credit_type=credit_type, limit=min(limit, 200))
        found = [entry for _, entry in zip(range(limit), pages, strict=False)]
        _show(terminal, found, lambda: _entries(found))


@app.command()
def grant(
    context: typer.Context,
    holder: Holder,
    amount: Amount,
    expires_at: Annotated[str | None, typer.Option(help="Until when, as 2027-01-31T00:00:00Z.", show_default=False)] = None,
    reason: Reason = None,
    credit_type: CreditType = None,
    key: Key = None,
    dry_run: DryRun = False,
) -> None:
    """Give credits to a holder."""
    with _reporting(context) as terminal:
        entry = terminal.client.grant(
            holder, amount=amount, expires_at=expires_at, reason=reason, credit_type=credit_type, idempotency_key=key,
            dry_run=dry_run,
        )  # fmt: skip
        _show(terminal, entry, lambda: _entries([entry]))


@app.command()
def spend(
    context: typer.Context,
    holder: Holder,
    amount: Amount,
    reason: Reason = None,
    credit_type: CreditType = None,
    key: Key = None,
    dry_run: DryRun = False,
) -> None:
    """Take credits from a holder."""
    with _reporting(context) as terminal:
        entry = terminal.client.spend(
            holder, amount=amount, reason=reason, credit_type=credit_type, idempotency_key=key, dry_run=dry_run
        )
        _show(terminal, entry, lambda: _entries([entry]))


@app.command()
def hold(
    context: typer.Context,
    holder: Holder,
    amount: Amount,
    expires_at: Annotated[str | None, typer.Option(help="Until when.  [default: an hour from now]", show_default=False)] = None,
    reason: Reason = None,
    credit_type: CreditType = None,
    key: Key = None,
    dry_run: DryRun = False,
) -> None:
    """Set credits aside, for `capture` or `release` by the number of the hold."""
    with _reporting(context) as terminal:
        entry = terminal.client.place_hold(
            holder, amount=amount, expires_at=expires_at, reason=reason, credit_type=credit_type, idempotency_key=key,
            dry_run=dry_run,
        )  # fmt: skip
        _show(terminal, entry, lambda: _entries([entry]))


@app.command()
def capture(
    context: typer.Context,
    holder: Holder,
    sequence: Sequence,
    amount: Annotated[int | None, typer.Argument(help="All that is held, without it.", min=1, show_default=False)] = None,
    credit_type: CreditType = None,
    key: Key = None,
) -> None:
    """Spend what is held; the rest comes back."""
    with _reporting(context) as terminal:
        entry = terminal.client.capture(holder, sequence, amount=amount, credit_type=credit_type, idempotency_key=key)
        _show(terminal, entry, lambda: _entries([entry]))


@app.command()
def release(context: typer.Context, holder: Holder, sequence: Sequence, credit_type: CreditType = None, key: Key = None) -> None:
    """Give back what is held."""
    with _reporting(context) as terminal:
        entry = terminal.client.release(holder, sequence, credit_type=credit_type, idempotency_key=key)
        _show(terminal, entry, lambda: _entries([entry]))


@app.command()
def explain(context: typer.Context, holder: Holder, sequence: Sequence, credit_type: CreditType = None) -> None:
    """Say why an entry is as it is."""
    with _reporting(context) as terminal:
        found = terminal.client.explain(holder, sequence, credit_type=credit_type)
        _show(terminal, found, lambda: _explanation(found))


@app.command()
def tail(
    context: typer.Context,
    holder: Holder,
    lines: Annotated[int, typer.Option(help="How many earlier entries to begin with.", min=0, max=200)] = 10,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.2)] = 2.0,
    credit_type: CreditType = None,
) -> None:
    """Show entries as they are recorded, until Ctrl-C."""
    with _reporting(context) as terminal:
        for entry in followed(terminal.client, holder, credit_type, lines=lines, wait=lambda: time.sleep(interval)):
            if terminal.is_json:
                typer.echo(json.dumps(entry))
            else:
                terminal.out.print(_line(entry), soft_wrap=True)


def followed(client: Client, holder: str, credit_type: str | None, *, lines: int, wait: Callable[[], None]) -> Iterator[Entry]:
    """Return the last entries of a holder, the oldest first, and then each new one, for ever; none twice and none left out.

    Refusals are not among them.
    """
    earlier = [entry for _, entry in zip(range(max(lines, 1)), client.entries(holder, credit_type=credit_type), strict=False)]
    last = earlier[0]["sequence"] if earlier else 0
    yield from reversed(earlier[:lines])
    while True:
        wait()
        new = []
        for entry in client.entries(holder, credit_type=credit_type):
            if entry["sequence"] <= last:
                break
            new.append(entry)
        yield from reversed(new)
        last = new[0]["sequence"] if new else last


# What is printed -------------------------------------------------------------------------------------


def _show(terminal: Terminal, answer: object, render: Callable[[], Any]) -> None:
    if terminal.is_json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        terminal.out.print(render())


def _balance(found: AccountBalance) -> Table:
    table = Table(title=f"{found['holder_id']}: {found['available']:,} {found['credit_type']} available", title_justify="left")
    for title in ("lot", "remaining", "state", "source", "effective", "expires"):
        table.add_column(title, justify="right" if title in ("lot", "remaining") else "left")
    for lot in found["lots"]:
        table.add_row(
            str(lot["grant"]), f"{lot['remaining']:,}", lot["state"], lot["source"],
            _time(lot["effective_at"]), _time(lot["expires_at"]),
        )  # fmt: skip
    table.caption = f"balance {found['balance']:,}, held {found['held']:,}, overdraft {found['overdraft']:,}"
    return table


def _entries(entries: list[Entry]) -> Table:
    table = Table()
    for title in ("entry", "recorded", "kind", "amount", "balance", "held", "reason"):
        table.add_column(title, justify="right" if title in ("entry", "amount", "balance", "held") else "left")
    for entry in entries:
        table.add_row(
            str(entry["sequence"]), _time(entry["recorded_at"]), entry["kind"],
            Text(f"{entry['amount']:+,}", style=_colour(entry)), f"{entry['balance']:,}", f"{entry['held']:,}",
            Text(entry["reason"]),
        )  # fmt: skip
    return table


def _line(entry: Entry) -> Text:
    line = Text(f"{_time(entry['recorded_at'])}  {entry['sequence']:>6}  {entry['kind']:<12} ")
    line.append(f"{entry['amount']:>+14,}", style=_colour(entry))
    return line.append(f"  balance {entry['balance']:>14,}  {entry['reason']}")


def _explanation(found: Explanation) -> Table:
    table = Table(title=Text(found["text"]), title_justify="left")
    for title in ("lot", "decision", "why"):
        table.add_column(title)
    for lot in found["lots"]:
        table.add_row(str(lot["grant"]), lot["decision"], Text(lot["text"]))
    table.caption = f"balance {found['before']['balance']:,} before, {found['after']['balance']:,} after"
    return table


def _colour(entry: Entry) -> str:
    return "green" if entry["amount"] > 0 else "red" if entry["amount"] < 0 else "dim"


def _time(instant: str | None) -> str:
    return instant[:19].replace("T", " ") if instant else "–"


@contextmanager
def _reporting(context: typer.Context) -> Iterator[Terminal]:
    """Turn errors of the client into a sentence and an exit code."""
    terminal: Terminal = context.obj
    try:
        yield terminal
    except OutcomeUnknown as error:
        _fail(f"{error}\nRun it again with --idempotency-key {error.idempotency_key!r}: it takes effect once.", UNKNOWN)
    except InsufficientCredits as error:
        have = "" if error.available is None else f" {error.available:,} available,"
        _fail(f"Refused:{have} {error.shortfall:,} too few.", REFUSED)
    except Problem as error:
        reasons = [f"{each['pointer']}: {each['detail']}" for each in error.errors]
        _fail("\n".join([f"Refused ({error.status}): {error}", *reasons]), REFUSED)
    except Unreachable as error:
        _fail(f"No answer from the server: {error}", REFUSED)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _fail(text: str, code: int) -> NoReturn:
    Console(stderr=True, highlight=False).print(Text(text), soft_wrap=True)
    raise typer.Exit(code)


def main() -> None:
    """Run the command of the command line."""
    app()

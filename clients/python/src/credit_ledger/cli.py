"""`credit-ledger`: the ledger in a terminal. Installed with `credit-ledger-client[cli]`."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from threading import Thread
from typing import Annotated, Any, Final, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from credit_ledger.client import Client
from credit_ledger.generated.bodies import AccountBalance, Entry, EntryKindEnum, Explanation
from credit_ledger.problem import OutcomeUnknown, Problem, Unreachable
from credit_ledger.problems import InsufficientCredits
from credit_ledger.signals import Signal, SignalRejected, verify_signal

REFUSED: Final = 1
"""The exit code if nothing was written: the server refused, or did not answer."""
UNKNOWN: Final = 3
"""The exit code if it is unknown whether something was written."""

MAX_SIGNAL_BYTES: Final = 1_000_000

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Show, grant, spend and hold credits.")

Holder = Annotated[str, typer.Argument(help="The holder's id.", show_default=False)]
Amount = Annotated[int, typer.Argument(help="In the smallest unit.", min=1, show_default=False)]
Sequence = Annotated[int, typer.Argument(help="The number of an entry.", min=1, show_default=False)]
CreditType = Annotated[str | None, typer.Option("--type", help="The credit type.  [default: credits]", show_default=False)]
Reason = Annotated[str | None, typer.Option(help="Shown with the entry.", show_default=False)]
Key = Annotated[str | None, typer.Option("--idempotency-key", help="The same key takes effect once.", show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be written, and write nothing.")]


@dataclass(frozen=True)
class Terminal:
    """The values of the options before the command."""

    client: Client
    is_json: bool
    out: Console


@app.callback()
def options(
    context: typer.Context,
    url: Annotated[str, typer.Option(envvar="CREDIT_LEDGER_URL", help="The address of the server.")] = "http://127.0.0.1:8000",
    api_key: Annotated[
        str, typer.Option(envvar="CREDIT_LEDGER_API_KEY", help="An API key with the scopes of the command.", show_default=False)
    ] = "",
    is_json: Annotated[bool, typer.Option("--json", help="Print the server's response.")] = False,
) -> None:
    """Read the options that all commands share."""
    if not api_key:
        raise typer.BadParameter("give --api-key, or set CREDIT_LEDGER_API_KEY")
    client = Client(url, api_key)
    context.call_on_close(client.close)
    context.obj = Terminal(client, is_json, Console(highlight=False))


@app.command()
def balance(context: typer.Context, holder: Holder, credit_type: CreditType = None) -> None:
    """Show a holder's credits, lot by lot."""
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
    expires_at: Annotated[
        str | None, typer.Option(help="When they expire, such as 2027-01-31T00:00:00Z.", show_default=False)
    ] = None,
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
    expires_at: Annotated[
        str | None, typer.Option(help="When it expires.  [default: an hour from now]", show_default=False)
    ] = None,
    reason: Reason = None,
    credit_type: CreditType = None,
    key: Key = None,
    dry_run: DryRun = False,
) -> None:
    """Set credits aside; use the number of the hold with `capture` or `release`."""
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
    amount: Annotated[
        int | None, typer.Argument(help="How many credits; by default all that are held.", min=0, show_default=False)
    ] = None,
    credit_type: CreditType = None,
    key: Key = None,
) -> None:
    """Spend held credits; the rest goes back to the holder."""
    with _reporting(context) as terminal:
        entry = terminal.client.capture(holder, sequence, amount=amount, credit_type=credit_type, idempotency_key=key)
        _show(terminal, entry, lambda: _entries([entry]))


@app.command()
def release(context: typer.Context, holder: Holder, sequence: Sequence, credit_type: CreditType = None, key: Key = None) -> None:
    """Give the held credits back."""
    with _reporting(context) as terminal:
        entry = terminal.client.release(holder, sequence, credit_type=credit_type, idempotency_key=key)
        _show(terminal, entry, lambda: _entries([entry]))


@app.command()
def explain(context: typer.Context, holder: Holder, sequence: Sequence, credit_type: CreditType = None) -> None:
    """Explain why an entry is as it is."""
    with _reporting(context) as terminal:
        found = terminal.client.explain(holder, sequence, credit_type=credit_type)
        _show(terminal, found, lambda: _explanation(found))


@app.command()
def tail(
    context: typer.Context,
    holder: Annotated[str | None, typer.Argument(help="Only this holder; by default all holders.", show_default=False)] = None,
    lines: Annotated[int, typer.Option(help="How many earlier entries to begin with.", min=0, max=200)] = 10,
    credit_type: CreditType = None,
    refusals: Annotated[bool, typer.Option("--refusals", help="Show refusals too.")] = False,
) -> None:
    """Show entries as they are recorded, until Ctrl-C."""
    with _reporting(context) as terminal:
        for entry in followed(terminal.client, holder, credit_type=credit_type, lines=lines, refusals=refusals):
            if terminal.is_json:
                typer.echo(json.dumps(entry))
            else:
                terminal.out.print(_line(entry, has_holder=holder is None), soft_wrap=True)


@app.command()
def listen(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Option(help="The address at which the ledger reaches this port, such as a tunnel.", show_default=False)
    ] = None,
    port: Annotated[int, typer.Option(help="The port to listen on; 0 for any free port.", min=0, max=65535)] = 8787,
    types: Annotated[list[str] | None, typer.Option("--signal", help="Only this type; repeatable.", show_default=False)] = None,
    holder: Annotated[str | None, typer.Option(help="Only signals of this holder.", show_default=False)] = None,
) -> None:
    """Create a webhook, print the signals that it gets, and remove it when you press Ctrl-C."""
    with _reporting(context) as terminal, Receiver(port) as receiver:
        chosen: Any = types or SIGNALS  # the server knows the types
        webhook = terminal.client.create_webhook(
            url=url or f"http://127.0.0.1:{receiver.port}/", types=chosen, holder_id=holder, description="credit-ledger listen"
        )
        receiver.secret = webhook.get("secret") or ""
        try:
            for signal in receiver.signals():
                text = f"{_time(signal.timestamp)}  {signal.type}  {json.dumps(signal.data)}"
                typer.echo(json.dumps(asdict(signal)) if terminal.is_json else text)
        finally:
            terminal.client.remove_webhook(webhook["id"])


SIGNALS: Final = ("entry.recorded", "refusal.recorded", "hold.expired")
"""The default types of `listen`: those that every ledger has."""


class Receiver:
    """A receiver on this machine: answers 204 to signals signed with `secret`, and 400 to everything else."""

    def __init__(self, port: int) -> None:
        self.secret = ""
        self._received: Queue[Signal] = Queue()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = self.headers.get("Content-Length", "")
                body = self.rfile.read(min(int(size), MAX_SIGNAL_BYTES)) if size.isdigit() else b""
                self.send_response(receiver.receive(body, dict(self.headers.items())))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                """Print nothing: signals are printed."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> "Receiver":
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def receive(self, body: bytes, headers: Mapping[str, str]) -> int:
        """Take a request, and return the status of the answer."""
        try:
            self._received.put(verify_signal(body, headers, self.secret))
        except SignalRejected:
            return 400
        return 204

    def signals(self) -> Iterator[Signal]:
        """Yield each signal as it arrives, for ever, without repetitions."""
        seen: set[str] = set()
        while True:
            signal = self._received.get()
            if signal.id not in seen:
                seen.add(signal.id)
                yield signal


def followed(
    client: Client, holder: str | None, *, credit_type: str | None = None, lines: int = 10, refusals: bool = False
) -> Iterator[Entry]:
    """Yield the last entries, the oldest first, and then each new entry, for ever: each entry once."""
    feed = client.follow("end", holder=holder, credit_type=credit_type, refusals=refusals or None)
    feed.find_place()
    listed = client.find_entries(holder=holder, credit_type=credit_type, refusals=refusals or None, limit=max(lines, 1))
    earlier = [entry for _, entry in zip(range(lines), listed, strict=False)]
    yield from reversed(earlier)
    # Listed entries may lie after the position: the feed ends before entries that can still appear.
    known = {entry["id"] for entry in earlier}
    yield from (entry for entry in feed if entry["id"] not in known)


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


def _line(entry: Entry, *, has_holder: bool) -> Text:
    of = f"{entry['holder_id']:<20} {entry['credit_type']:<10} " if has_holder else ""
    line = Text(f"{_time(entry['recorded_at'])}  {of}{entry['sequence']:>6}  {entry['kind']:<12} ")
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

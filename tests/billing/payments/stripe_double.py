"""A double of Stripe: an HTTP server that keeps what it is asked, and declines, asks for the customer, or does not answer.

It has pages too, on which a customer in a browser pays, saves a card, or gives up.
"""

import hashlib
import hmac
import itertools
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

SECRET = "whsec_only-for-tests"
OK, DECLINED, ASKS, TWICE = "pm_ok", "pm_declined", "pm_asks", "pm_ok_2"


class StripeDouble:
    """What the double has, by id, and how it behaves."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.taken = Counter[str]()
        """How often each payment intent took money; more than once is a double charge."""
        self.asked = Counter[str]()
        """Requests by method and path, without ids."""
        self.keys: dict[str, tuple[int, dict[str, Any]]] = {}
        self.refund_status = "succeeded"
        self.cards = {OK: {"brand": "visa", "last4": "4242", "exp_month": 8, "exp_year": 2030}}
        """The saved cards of each customer, by their ids."""
        self.pages = "https://checkout.example"
        """Where checkouts are. `serving` has them too, below /checkout."""
        self.executed: dict[str, Callable[[], None]] = {}
        """By the beginning of a request: called when it is executed, before it is answered."""
        self.fault: dict[str, str] = {}
        """By a part of a request: `lost` is executed and not answered, `down` gets 503, `slow` neither."""
        self._ids = itertools.count(1)
        # What other doubles made may be in the same database.
        self._tag = uuid.uuid4().hex[:8] + "n"
        self._lock = threading.Lock()

    # What a test does in the customer's or the bank's place ----------------------------------------------

    def pay(self, checkout: str) -> str:
        """The customer pays a checkout; return the payment intent."""
        intent = self._intent_of(checkout)
        self.rows[checkout] |= {"status": "complete", "url": None}
        self._take(intent)
        return str(intent["id"])

    def decline(self, checkout: str, code: str = "card_declined: insufficient_funds") -> None:
        """The bank declines the card with which the customer pays a checkout, which stays open."""
        code, _, reason = code.partition(": ")
        error = {"code": code, "message": "Your card was declined.", **({"decline_code": reason} if reason else {})}
        self._intent_of(checkout).update(status="requires_payment_method", last_payment_error=error, next_action=None)

    def ask_the_customer(self, checkout: str) -> None:
        """The bank asks the customer to confirm the payment of a checkout, on a page of its own."""
        action = {"type": "use_stripe_sdk"}
        self._intent_of(checkout).update(status="requires_action", next_action=action, last_payment_error=None)

    def _intent_of(self, checkout: str) -> dict[str, Any]:
        """The payment intent of a checkout, which has one from the first try on."""
        session = self.rows[checkout]
        if session["payment_intent"] is None:
            intent = self._make("pi", object="payment_intent", amount=session["amount_total"], currency=session["currency"],
                                metadata=session["payment_intent_data_metadata"], status="requires_confirmation")  # fmt: skip
            session["payment_intent"] = intent["id"]
        return self.rows[session["payment_intent"]]

    def save_card(self, checkout: str) -> None:
        """The customer saves a card at a checkout without a payment."""
        assert self.rows[checkout]["mode"] == "setup"
        self.cards[TWICE] = {"brand": "mastercard", "last4": "4444", "exp_month": 1, "exp_year": 2031}
        self.rows[checkout] |= {"status": "complete", "url": None}

    def checkout_page(self, checkout: str) -> str:
        """What the customer sees there."""
        session = self.rows[checkout]
        intent = self.rows.get(session.get("payment_intent") or "", {})
        is_asked = intent.get("status") == "requires_action"
        if is_asked:
            texts = {"confirm": "Confirm the payment", "refuse": "Refuse"}
        elif session["mode"] == "setup":
            texts = {"done": "Save card", "left": "Give up"}
        else:
            cards = {"declined": "Pay with a card that is declined", "asks": "Pay with a card that the bank asks about"}
            texts = {"done": "Pay now", **cards, "left": "Give up"}
        buttons = "".join(
            f'<form method="post" action="/checkout/{checkout}/{name}"><button>{text}</button></form>'
            for name, text in texts.items()
        )
        title = "Bank of the stand-in" if is_asked else "Checkout of the stand-in"
        told = (intent.get("last_payment_error") or {}).get("message", "")
        return (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            "<style>:root { color-scheme: light dark } button { display: block; min-height: 44px; margin: 8px 0 }</style>"
            f'<title>{title}</title><main><h1>{title}</h1><p role="status">{told}</p>{buttons}</main></html>'
        )

    def leave_checkout(self, checkout: str, how: str) -> str:
        """The customer presses a button there; return the address to which the browser goes."""
        session = self.rows[checkout]
        if how == "left":
            return str(session["cancel_url"])
        stays = {
            "declined": lambda: self.decline(checkout),
            "asks": lambda: self.ask_the_customer(checkout),
            "refuse": lambda: self.decline(checkout, "payment_intent_authentication_failure"),
        }
        if how in stays:
            stays[how]()
            return f"/checkout/{checkout}"
        if session["mode"] == "setup":
            self.save_card(checkout)
        else:
            self.pay(checkout)
        return str(session["success_url"])

    def expire(self, checkout: str) -> None:
        """The checkout ends without a payment."""
        self.rows[checkout] |= {"status": "expired", "url": None}

    def confirm_as_customer(self, payment: str) -> None:
        """The customer confirms what the bank asked for."""
        self._take(self.rows[payment])

    def refund(self, payment: str, amount: int) -> str:
        """Somebody refunds in the dashboard."""
        currency = self.rows[payment]["currency"]
        refund = self._make(
            "re", object="refund", payment_intent=payment, amount=amount, currency=currency, status="succeeded", metadata={}
        )
        return str(refund["id"])

    def dispute(self, payment: str, amount: int, status: str = "needs_response") -> str:
        """The customer's bank takes the money."""
        currency = self.rows[payment]["currency"]
        dispute = self._make("dp", object="dispute", payment_intent=payment, amount=amount, currency=currency, status=status)
        return str(dispute["id"])

    def event(
        self, kind: str, about: str, *, event_id: str = "", at: float | None = None, secret: str = SECRET
    ) -> tuple[bytes, str]:
        """A signed event about an object, and its signature."""
        event = {
            "id": event_id or f"evt_{self._tag}{next(self._ids)}",
            "object": "event",
            "type": kind,
            "data": {"object": self.rows[about]},
        }
        body = json.dumps(event).encode()
        stamp = int(time.time() if at is None else at)
        signed = hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
        return body, f"t={stamp},v1={signed}"

    # The API ---------------------------------------------------------------------------------------------

    def respond(self, method: str, path: str, fields: dict[str, str], key: str) -> tuple[int, dict[str, Any]]:
        """Execute a request once for its key."""
        with self._lock:
            if key and key in self.keys:
                return self.keys[key]
            answer = self._execute(method, path, fields)
            if key:
                self.keys[key] = answer
            return answer

    def _execute(self, method: str, path: str, fields: dict[str, str]) -> tuple[int, dict[str, Any]]:
        parts = path.strip("/").split("/")[1:]
        self.asked[f"{method} {'/'.join(part for part in parts if '_' not in part or part.startswith('payment_'))}"] += 1
        match method, parts:
            case "POST", ["checkout", "sessions"] if fields["mode"] == "setup":
                return 200, self._open_checkout(fields, payment_intent=None, customer=fields["customer"])
            case "POST", ["checkout", "sessions"]:
                amount = int(fields["line_items[0][price_data][unit_amount]"])
                metadata = _under("payment_intent_data[metadata]", fields)
                return 200, self._open_checkout(
                    fields, payment_intent=None, amount_total=amount, currency=fields["line_items[0][price_data][currency]"],
                    metadata=_under("metadata", fields), payment_intent_data_metadata=metadata,
                )  # fmt: skip
            case "POST", ["payment_intents"]:
                return 200, self._make(
                    "pi", object="payment_intent", amount=int(fields["amount"]), currency=fields["currency"],
                    payment_method=fields["payment_method"], metadata=_under("metadata", fields), status="requires_confirmation",
                )  # fmt: skip
            case "POST", ["payment_intents", id, "confirm"]:
                return self._confirm(self.rows[id], fields)
            case "POST", ["checkout", "sessions", id, "expire"]:
                if self.rows[id]["status"] != "open":
                    return 400, {"error": {"type": "invalid_request_error", "message": "Only open sessions can be expired."}}
                self.expire(id)
                return 200, self.rows[id]
            case "POST", ["payment_intents", id, "cancel"]:
                if self.rows[id]["status"] == "succeeded":
                    return 400, {"error": {"type": "invalid_request_error", "message": "already succeeded"}}
                self.rows[id] |= {"status": "canceled", "next_action": None}
                return 200, self.rows[id]
            case "POST", ["refunds"]:
                refund = self._make("re", object="refund", payment_intent=fields["payment_intent"], amount=int(fields["amount"]),
                                    status=self.refund_status, metadata=_under("metadata", fields),
                                    currency=self.rows[fields["payment_intent"]]["currency"])  # fmt: skip
                return 200, refund
            case "POST", ["customers"]:
                return 200, self._make("cus", object="customer", metadata=_under("metadata", fields))
            case "POST", ["payment_methods", id, "detach"]:
                self.cards.pop(id, None)
                return 200, {"id": id, "object": "payment_method"}
            case "GET", ["payment_methods"]:
                cards = self.cards.items()
                return 200, _list([{"id": name, "object": "payment_method", "card": card} for name, card in cards])
            case "GET", ["refunds" | "disputes" as kind]:
                wanted = [
                    row
                    for row in self.rows.values()
                    if row["object"] == kind[:-1] and row["payment_intent"] == fields["payment_intent"]
                ]
                return 200, _page(wanted, fields)
            case "GET", [*_, id] if id in self.rows:
                return 200, self.rows[id]
        return 404, {"error": {"type": "invalid_request_error", "message": f"No such path: {method} {path}"}}

    def _open_checkout(self, fields: dict[str, str], **more: Any) -> dict[str, Any]:
        ends = {name: fields[name] for name in ("mode", "success_url", "cancel_url")}
        session = self._make("cs", object="checkout.session", status="open", **ends, **more)
        session["url"] = f"{self.pages}/{session['id']}"
        return session

    def _confirm(self, intent: dict[str, Any], fields: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if intent["status"] == "succeeded":
            return 400, {"error": {"type": "invalid_request_error", "message": "already succeeded", "payment_intent": intent}}
        if intent["payment_method"] == DECLINED:
            intent |= {"status": "requires_payment_method", "last_payment_error": {"code": "card_declined", "message": "No."}}
            return 402, {"error": {"type": "card_error", "code": "card_declined", "message": "No.", "payment_intent": intent}}
        if intent["payment_method"] == ASKS and fields.get("off_session") == "true":
            intent |= {"status": "requires_payment_method", "last_payment_error": {"code": "authentication_required"}}
            return 402, {
                "error": {"type": "card_error", "code": "authentication_required", "message": "Ask.", "payment_intent": intent}
            }
        if intent["payment_method"] == ASKS:
            action = {"type": "redirect_to_url", "redirect_to_url": {"url": f"https://bank.example/{intent['id']}"}}
            intent |= {"status": "requires_action", "next_action": action, "last_payment_error": None}
            return 200, intent
        self._take(intent)
        return 200, intent

    def _take(self, intent: dict[str, Any]) -> None:
        self.taken[intent["id"]] += 1
        intent |= {"status": "succeeded", "amount_received": intent["amount"], "next_action": None, "last_payment_error": None}

    def _make(self, prefix: str, **fields: Any) -> dict[str, Any]:
        row = {"id": f"{prefix}_{self._tag}{next(self._ids)}", **fields}
        self.rows[row["id"]] = row
        return row


def _under(name: str, fields: dict[str, str]) -> dict[str, str]:
    return {key[len(name) + 1 : -1]: value for key, value in fields.items() if key.startswith(f"{name}[")}


def _page(rows: list[dict[str, Any]], fields: dict[str, str]) -> dict[str, Any]:
    """A page of at most two rows, so that the client has to read on."""
    ids = [row["id"] for row in rows]
    first = ids.index(fields["starting_after"]) + 1 if "starting_after" in fields else 0
    return {"object": "list", "data": rows[first : first + 2], "has_more": len(rows) > first + 2}


def _list(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"object": "list", "data": rows, "has_more": False}


@contextmanager
def serving(double: StripeDouble) -> Iterator[str]:
    """Serve the double; give its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if (parts := self.path.split("/"))[1] == "checkout":
                self._send(200, "text/html", double.checkout_page(parts[2]).encode())
                return
            self._answer("GET", dict(parse_qsl(urlsplit(self.path).query)))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            if (parts := self.path.split("/"))[1] == "checkout":
                self._send(303, "text/html", b"", Location=double.leave_checkout(parts[2], parts[3]))
                return
            self._answer("POST", dict(parse_qsl(body)))

        def _answer(self, method: str, fields: dict[str, str]) -> None:
            path = urlsplit(self.path).path
            fault = next((how for word, how in double.fault.items() if word in f"{method} {path}"), "")
            if fault == "slow":
                self._hang_up()
                return
            if fault == "down":
                status, answer = 503, {"error": {"type": "api_error", "message": "down"}}
            else:
                status, answer = double.respond(method, path, fields, self.headers.get("Idempotency-Key") or "")
            for beginning, act in list(double.executed.items()):
                request = f"{method} {path}"
                if request == beginning or (beginning.endswith("/") and request.startswith(beginning)):
                    act()
            if fault == "lost":
                self._hang_up()
                return
            self._send(status, "application/json", json.dumps(answer).encode())

        def _send(self, status: int, kind: str, content: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def _hang_up(self) -> None:
            self.close_connection = True
            self.connection.close()

        def log_message(self, *arguments: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()

"""Work of each kind that is under way or was done: rows in the tables that `tests.tampering.history` leaves empty."""

from contextlib import suppress
from decimal import Decimal
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from django.conf import settings
from django.core.management import call_command
from django.test import override_settings

from billing.documents.one_off_invoices import NewOneOffInvoice, OneOffLine, issue_one_off_in
from billing.documents.sellers import record_seller
from billing.dunning.holds import NewHoldRelease, NewReminderHold, hold_reminders, release_hold
from billing.models import Invoice
from billing.orders import customers
from billing.orders.plan_move_orders import NewPlanMove, start_plan_move
from billing.payments import purchase_recording
from billing.payments.packs import create_pack
from ledger import services
from ledger.errors import BudgetExceeded
from ledger.shadow.observing import observe
from ledger.shadow.promoting import Move, promote
from ledger.signals.alert_declarations import AlertRequest, set_alert
from ledger.signals.delivery import deliver
from ledger.signals.feed import feed
from ledger.signals.webhooks import PingRequest, WebhookRequest, create_webhook, ping
from ledger.staff import approvals
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring
from tests.ports import free_port
from tests.tampering.owner import SELLER


def make_work() -> None:
    """Make it, committed."""
    _signals()
    _approvals()
    _shadow()
    _mails_and_reminders()
    _bank_receipts()
    _consolidated_invoice()
    _purchase_without_its_credits()
    _plan_move_under_way()
    _vat_id_not_looked_up_yet()


def _signals() -> None:
    """What a webhook is told of entries, an alert and a budget, to which nothing listens; and an alert that is new."""
    holder: dict[str, Any] = {"holder_id": "fay"}
    allowed = {"SIGNAL_ALLOWED_NETWORKS": ["127.0.0.0/8"], "SIGNAL_PLAIN_HTTP": True}
    with override_settings(LEDGER={**settings.LEDGER, **allowed}):
        types = ["entry.recorded", "balance.low", "budget.exceeded"]
        url = f"http://127.0.0.1:{free_port()}/"
        webhook = create_webhook(WebhookRequest(url=url, types=types, holder_id="fay", actor="admin:mara", idempotency_key="fay"))
        services.grant(**holder, amount=20, idempotency_key="fay-grant")
        set_alert(AlertRequest(alert="fay", holder_id="fay", credit_type="credits", below=10, actor="key:shop"))
        services.set_budget(**holder, budget="daily", limit=15, window="day", idempotency_key="fay-budget")
        services.spend(**holder, amount=12, idempotency_key="fay-spend")
        with suppress(BudgetExceeded):
            services.spend(**holder, amount=5, idempotency_key="fay-refused")
        feed()
        ping(PingRequest(webhook=webhook.body["id"]))
        assert deliver().attempts
    set_alert(AlertRequest(alert="days", holder_id="fay", credit_type="credits", expiring_days=7, actor="key:shop"))


def _approvals() -> None:
    """A form that waits for a second operator, one that was approved, and what an operator moved without one."""
    for key in ("waits", "approved"):
        form = {"amount": "50", "reason": "Goodwill"}
        asked = {"key": key, "title": "Grant", "path": "/admin/ledger/account/holders/fay/", "query": "", "form": form}
        number = approvals.ask(**asked, totals={"credits": 50}, reason="Goodwill", requested_by="mara")
    assert approvals.decide(number, decision=approvals.APPROVED, decided_by="nils", reason="checked")
    assert approvals.admit(key="small", form_digest=approvals.digest_of("/", "", {}), totals={"credits": 5}, operator="mara")


def _shadow() -> None:
    """A holder who came from another system of balances."""
    for key, operation, amount, balance in (("1", "grant", 70, 70), ("2", "spend", 20, 50)):
        observe(holder_id="gus", idempotency_key=key, operation=operation, amount=amount, balance=balance)
    [moved] = promote([Move(holder_id="gus", balances={"credits": 50})], reason="Moves", actor="admin:mara")
    assert moved.result == "moved"


def _mails_and_reminders() -> None:
    """An invoice that waits to be mailed, and reminders that are on hold, and were."""
    prefixes = {"invoice_prefix": "M", "credit_note_prefix": "MC"}
    record_seller(
        {**SELLER, **prefixes, "ref": "mails", "mails_invoices": True, "email": "billing@fern.example"}, actor="admin:mara"
    )
    customer = CustomerFactory(ref="C-MAIL", email="ada@example.com", seller="mails")
    invoice = _issue(customer.ref, "10.00")
    hold = hold_reminders.execute(NewReminderHold(invoice=invoice.pk, reason="Disputed", actor="admin:mara"))
    release_hold.execute(NewHoldRelease(hold=hold.pk, reason="Settled", actor="admin:mara"))
    hold_reminders.execute(NewReminderHold(customer=customer.ref, reason="A plan of payments", actor="admin:mara"))


def _bank_receipts() -> None:
    """One that paid an invoice, and one that names none."""
    invoice = _issue(CustomerFactory(ref="C-BANK").ref, "10.00")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "bank.csv"
        file.write_text(f"date,amount,text\n2026-01-05,10.00,{invoice.number}\n2026-01-05,7.00,for my account\n")
        columns = ["date=date", "amount=amount", "text=text"]
        with suppress(SystemExit):
            call_command("book_bank_file", str(file), columns=columns, currency="EUR", stdout=StringIO(), stderr=StringIO())


def _consolidated_invoice() -> None:
    """One invoice for two subscriptions."""
    customer = CustomerFactory(ref="C-BOTH", consolidated_invoicing=True)
    for number in range(2):
        plan = PlanFactory(code=f"both-{number}", prices=[recurring(tax_rate="20")])
        SubscriptionFactory(ref=f"SUB-BOTH-{number}", customer=customer.ref, plan=plan.code)
    call_command("generate_invoices", "--as-of", "2026-01-02", stdout=StringIO(), stderr=StringIO())


def _purchase_without_its_credits() -> None:
    """The process died after it had recorded the purchase."""
    pack = create_pack(code="pack-fay", name="Starter", credits=10, currency="EUR", price_minor=200)
    with patch.object(purchase_recording, "attempt"):
        purchase_recording.record_purchase(pack=pack.code, holder_id="fay", payment="p-fay", actor="key:shop")


def _plan_move_under_way() -> None:
    """Nobody has carried it out yet."""
    for amount in ("30.00", "40.00"):
        PlanFactory(code="moving", prices=[recurring(unit_amount=amount)])
    start_plan_move.execute(NewPlanMove(plan="moving", effective_at=at(3, 1), reason="Dearer", actor="admin:mara"))


def _vat_id_not_looked_up_yet() -> None:
    CustomerFactory(ref="C-VAT")
    with override_settings(LEDGER={**settings.LEDGER, "VIES_URL": "https://vies.example/"}):
        customers.change_customer(ref="C-VAT", vat_id="FR40303265045")


def _issue(customer: str, amount: str) -> Invoice:
    line = OneOffLine(description="Set-up", unit_amount=Decimal(amount))
    return issue_one_off_in(customer_ref=customer, request=NewOneOffInvoice(lines=[line]))

"""Mails with documents and reminders as a Django application."""

from typing import TYPE_CHECKING, Any

from django.apps import apps

from ledger import applications

if TYPE_CHECKING:
    from collections.abc import Sequence

    from billing.additions import Part
    from ledger.operators.additions import Attention


class DunningConfig(applications.LedgerApplication):
    """Mails invoices, and reminds of overdue ones by the steps of the seller."""

    name = "billing.dunning"
    label = "billing_dunning"
    verbose_name = "Mails and reminders"
    needs = ("ledger", "billing")
    calls = "billing.dunning.urls"
    operators_pages = ("billing.dunning.mail_pages",)
    permissions = "billing.dunning.permissions"

    def ready(self) -> None:
        """Register tables and laws for the audit, exports, a type of signals, and what pages show about mails and reminders."""
        super().ready()
        from billing import additions as billing_additions
        from billing.dunning.exports import EXPORTS
        from billing.dunning.laws import LAWS
        from billing.dunning.permissions import HOLD_REMINDERS, SEND_REMINDER
        from ledger import exports
        from ledger.audit.chains import RegisteredTable, register_table
        from ledger.operators import additions

        register_table(RegisteredTable("billing_reminder", is_fixed=True))
        register_table(RegisteredTable("billing_reminderhold"))
        billing_additions.register_laws(LAWS)
        exports.register(*EXPORTS)
        if apps.is_installed("ledger.signals"):
            from ledger.signals.types import SignalType, register

            register(SignalType("invoice.reminded", "A customer was reminded of an overdue invoice."))
        additions.register_attention(_attention)
        billing_additions.INVOICE_PAGE.register_parts(_of_invoice)
        billing_additions.CUSTOMER_PAGE.register_parts(_of_customer)
        billing_additions.INVOICE_PAGE.register_operation(
            billing_additions.RowOperation(
                name="remind_now",
                title="Remind now",
                icon="notifications_active",
                permission=SEND_REMINDER,
                url_path="remind-now",
                view=_remind,
                is_possible=lambda invoice: invoice.is_late,
                listed=_without_hold,
            )
        )
        for page, may_hold, to_hold, to_release in (
            (billing_additions.INVOICE_PAGE, _can_be_held, _without_hold, _with_hold),
            (billing_additions.CUSTOMER_PAGE, lambda customer: True, None, None),
        ):
            page.register_operation(
                billing_additions.RowOperation(
                    name="hold_reminders",
                    title="Stop reminders",
                    icon="pause_circle",
                    permission=HOLD_REMINDERS,
                    url_path="hold-reminders",
                    view=_hold,
                    is_possible=may_hold,
                    listed=to_hold,
                )
            )
            page.register_operation(
                billing_additions.RowOperation(
                    name="release_reminders",
                    title="Resume reminders",
                    icon="play_circle",
                    permission=HOLD_REMINDERS,
                    url_path="release-reminders",
                    view=_release,
                    is_possible=_is_held,
                    listed=to_release,
                )
            )


# The pages are imported only with the first of them.


def _attention(request: Any) -> "list[Attention]":
    from billing.dunning.attention import list_stopped_mails

    return list_stopped_mails(request)


def _of_invoice(invoice: Any) -> "Sequence[Part]":
    from billing.dunning import hold_pages, mail_pages

    return [
        ("Reminders", mail_pages.reminders_table(invoice)),
        ("Holds of reminders", hold_pages.holds_table(invoice)),
        ("Mails", mail_pages.mails_table(invoice)),
    ]


def _of_customer(customer: Any) -> "Sequence[Part]":
    from billing.dunning.hold_pages import holds_table

    return [("Holds of reminders", holds_table(customer))]


def _remind(model_admin: Any, request: Any, invoice: Any) -> Any:
    from billing.dunning.reminder_pages import remind_view

    return remind_view(model_admin, request, invoice)


def _can_be_held(invoice: Any) -> bool:
    return invoice.state not in {invoice.State.DRAFT, invoice.State.VOID}


def _is_held(about: Any) -> bool:
    from billing.dunning.hold_pages import open_holds

    return bool(open_holds(about))


def _without_hold(invoices: "Sequence[Any]") -> set[int]:
    return {invoice.pk for invoice in invoices if _can_be_held(invoice)} - _with_hold(invoices)


def _with_hold(invoices: "Sequence[Any]") -> set[int]:
    from billing.dunning.models import ReminderHold

    ids = [invoice.pk for invoice in invoices]
    hold_pages = ReminderHold.objects.filter(released_at=None, invoice_id__in=ids)
    return {hold.invoice_id for hold in hold_pages if hold.invoice_id is not None}


def _hold(model_admin: Any, request: Any, about: Any) -> Any:
    from billing.dunning.hold_pages import hold_view

    return hold_view(model_admin, request, about)


def _release(model_admin: Any, request: Any, about: Any) -> Any:
    from billing.dunning.hold_pages import release_view

    return release_view(model_admin, request, about)

"""What operators may do with mails and reminders."""

from typing import Final

from billing.permissions import INVOICES
from ledger.operators.permissions import EVERYONE, Permission, table_of

VIEW_MAIL: Final = Permission("billing_dunning.view_mail", EVERYONE)
HOLD_REMINDERS: Final = Permission("billing_dunning.hold_reminders", INVOICES, "reminderhold", "Can put reminders on hold")
SEND_REMINDER: Final = Permission("billing_dunning.send_reminder", INVOICES, "reminder", "Can send a reminder at once")
SEND_MAIL_AGAIN: Final = Permission("billing_dunning.send_mail_again", INVOICES, "mail", "Can have a mail sent again")

PERMISSIONS: Final = table_of(dict(globals()))

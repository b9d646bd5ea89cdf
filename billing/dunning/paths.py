"""The parameters of the paths of mails and holds, each declared once, as in `billing.api.paths`."""

from billing.api.paths import PathParameter, RowIdConverter

MAIL_PATH = PathParameter("mail_id", RowIdConverter, "The id of the mail.", 1)
HOLD_PATH = PathParameter("hold_id", RowIdConverter, "The id of the hold of reminders.", 1, resource="hold of reminders")

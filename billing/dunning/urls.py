"""The paths of the calls about mails and reminders."""

from django.urls import URLPattern, path

from billing.dunning import mail_calls
from billing.dunning.paths import HOLD_PATH, MAIL_PATH

urlpatterns: list[URLPattern] = [
    path("reminders", mail_calls.Reminders.as_view()),
    path("reminder-holds", mail_calls.ReminderHolds.as_view()),
    path(f"reminder-holds/{HOLD_PATH}", mail_calls.OneReminderHold.as_view()),
    path(f"reminder-holds/{HOLD_PATH}/release", mail_calls.ReminderHoldRelease.as_view()),
    path("mails", mail_calls.Mails.as_view()),
    path(f"mails/{MAIL_PATH}", mail_calls.OneMail.as_view()),
    path(f"mails/{MAIL_PATH}/send-again", mail_calls.MailAgain.as_view()),
    path("mail-bounces", mail_calls.MailBounces.as_view()),
]

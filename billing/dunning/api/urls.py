"""The paths of the calls about mails and reminders."""

from django.urls import URLPattern, path

from billing.dunning.api import mails
from billing.dunning.api.paths import HOLD_PATH, MAIL_PATH

urlpatterns: list[URLPattern] = [
    path("reminders", mails.Reminders.as_view()),
    path("reminder-holds", mails.ReminderHolds.as_view()),
    path(f"reminder-holds/{HOLD_PATH}", mails.OneReminderHold.as_view()),
    path(f"reminder-holds/{HOLD_PATH}/release", mails.ReminderHoldRelease.as_view()),
    path("mails", mails.Mails.as_view()),
    path(f"mails/{MAIL_PATH}", mails.OneMail.as_view()),
    path(f"mails/{MAIL_PATH}/send-again", mails.MailAgain.as_view()),
    path("mail-bounces", mails.MailBounces.as_view()),
]

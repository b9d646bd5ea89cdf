"""What is refused about webhooks and alerts."""

from typing import Annotated

from ledger.errors import Answer, LedgerError
from ledger.values import BudgetName, Count, Time


class WebhookNotFound(LedgerError):
    """No webhook has this id, it was removed, or it never got the signal that the request names. Nothing was written."""

    code = "webhook-not-found"
    title = "The webhook does not exist, or it has no such delivery"
    answer = Answer(404, "There is no webhook {webhook}, or it has no such delivery.")

    webhook: Annotated[int, Count("The webhook that the request names.")]


class AlertNotFound(LedgerError):
    """No alert has this name and scope, or it has ended. Nothing was written."""

    code = "alert-not-found"
    title = "The alert does not exist"
    answer = Answer(404, "There is no alert {alert} of this holder and credit type.")

    alert: Annotated[str, BudgetName("The alert that the request names.")]


class AlertLimit(LedgerError):
    """The holder has as many alerts as it may have, or there are as many for all holders. Nothing was written."""

    code = "alert-limit"
    title = "There are too many alerts"
    answer = Answer(409, "A holder can have at most {limit} alerts, and at most {limit} can be declared for all holders.")

    limit: Annotated[int, Count("How many there may be.")]


class WebhookRotating(LedgerError):
    """The former secret of the webhook still signs, and a webhook has two secrets at most. Nothing was written."""

    code = "webhook-rotating"
    title = "The former secret of the webhook still signs"
    answer = Answer(
        409,
        "The former secret signs until {former_until}, and a webhook has at most two secrets. Rotate it later, or without an "
        "overlap.",
    )

    former_until: Annotated[str, Time("Until when the former secret signs.")]

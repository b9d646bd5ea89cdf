"""Signals as mail: a webhook whose URL is `mailto:` an address. Django's EMAIL_BACKEND sends it.

Such a webhook has what others have: its types, its order for each holder, its attempts on record, its waits after failures.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from django.core.mail import EmailMessage, get_connection

from ledger import conf
from ledger.signals.addresses import mail_address
from ledger.signals.payloads import StoredSignal, payload
from ledger.signals.types import BUDGET_EXCEEDED, DEPLETED, EXPIRING, LOW, RECOVERED, all_types
from ledger.units import unit_of
from ledger.values import encode_json

MAX_VALUE_CHARACTERS: Final = 2000
SUBJECTS: Final[Mapping[str, str]] = {
    LOW.name: "{holder_id}: {available} left",
    RECOVERED.name: "{holder_id}: {available} again",
    DEPLETED.name: "{holder_id}: nothing left",
    EXPIRING.name: "{holder_id}: {amount} will expire from {expires_at} on",
    BUDGET_EXCEEDED.name: "{holder_id}: the budget {budget} is exceeded",
}
"""What people read first, by type; other types have the name of the type, and whom it is about."""
AMOUNTS: Final = ("available", "amount")
NAMED_BY: Final = ("number", "holder_id", "subscription", "webhook")


class NotMailed(Exception):
    """Nothing was sent; says why."""


def message(signal: StoredSignal, url: str) -> EmailMessage:
    """Return the mail of a signal. It has the same Message-ID each time, by which readers recognise a second copy."""
    content = payload(signal)
    data, sender = content["data"], conf.SIGNAL_MAIL_FROM.value
    return EmailMessage(
        subject=f"{_subject(signal.type, data)} [{signal.type}]",
        body=_text(signal, content["timestamp"], data),
        from_email=sender,
        to=[mail_address(url)],
        headers={"Message-ID": f"<{signal.id}@{sender.rpartition('@')[2].rstrip('>')}>", "Auto-Submitted": "auto-generated"},
    )


def send(mail: EmailMessage) -> None:
    """Hand a mail to the mail server.

    Raises:
        NotMailed: the deployment sends no mail.
        OSError: the server did not take it; smtplib's errors are of this class.
    """
    if not conf.SIGNAL_MAIL_FROM.value:
        raise NotMailed("this deployment sends no mail: LEDGER_SIGNAL_MAIL_FROM is not set")
    mail.connection = get_connection(timeout=conf.SIGNAL_TIMEOUT_SECONDS.value)
    mail.send()


def _subject(name: str, data: Mapping[str, Any]) -> str:
    if name not in SUBJECTS:
        return next((str(data[key]) for key in NAMED_BY if data.get(key)), "")
    unit = unit_of(data.get("credit_type", ""))
    return SUBJECTS[name].format(**{**data, **{key: unit.amount(data[key]) for key in AMOUNTS if key in data}})


def _text(signal: StoredSignal, at: str, data: Mapping[str, Any]) -> str:
    about = next((each.text for each in all_types() if each.name == signal.type), "")
    facts = [f"{name}: {_show_value(value)}" for name, value in data.items() if value not in (None, "", [], {})]
    return "\n".join([about, "", *facts, "", f"{signal.type} at {at}, signal {signal.id}", ""])


def _show_value(value: Any) -> str:
    text = value if isinstance(value, str) else encode_json(value) if isinstance(value, dict | list) else json.dumps(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]} …"

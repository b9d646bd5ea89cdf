"""The mails that wait for a person, on the first page."""

from datetime import timedelta
from typing import Any, Final

from django.utils import timezone

from billing.admin.attention import count_bounded
from billing.admin.cells import list_url
from billing.dunning.models import Mail
from billing.dunning.outcomes import STOPPED
from billing.dunning.permissions import VIEW_MAIL
from ledger.operators.additions import Attention
from ledger.staff.kit.cells import row_url

STOPPED_MAILS_SHOWN: Final = timedelta(days=14)


def list_stopped_mails(request: Any) -> list[Attention]:
    """Return the item about mails of the last days that did not arrive, or may not have, if this operator may see it."""
    if not request.user.has_perm(VIEW_MAIL):
        return []
    since = timezone.now() - STOPPED_MAILS_SHOWN
    many, first = count_bounded(Mail.objects.filter(state__in=STOPPED, ended_at__gte=since).order_by("-pk"))
    if first is None:
        return []
    noun = "mail has" if many == "1" else "mails have"
    text = f"{many} {noun} not arrived as far as is known, such as mail {first.pk}: {first.state}."
    url = row_url(Mail, first.pk) if many == "1" else list_url(Mail, state=first.state)
    return [Attention(tone="warning", text=text, url=url, action="Send it again" if many == "1" else "Show them")]

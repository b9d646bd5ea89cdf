"""The calls of docs/how-to/dunning.md, as they are written there."""

import json
import re
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pytest
from django.conf import settings

from billing.dunning import reminding
from billing.dunning.models import ReminderHold
from billing.models import Seller
from billing.testing import CustomerFactory
from tests.billing.documents.test_one_off_invoices import issued
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db

GUIDE = Path(settings.BASE_DIR) / "docs" / "how-to" / "dunning.md"
CALL = re.compile(r"\$LEDGER(/\S+) .*?--json '(.*?)'", re.DOTALL)


def test_the_calls_of_the_guide_do_what_it_says(api: ApiClient) -> None:
    (seller, details), (reminders, reminded), (hold, held), (_, released) = CALL.findall(
        GUIDE.read_text().replace("'$INVOICE'", "1")
    )
    assert api.put(f"/v1{seller}", json.loads(details)).status_code == 200
    assert Seller.objects.get().details["reminder_days"] == [7, 21, 35]
    invoice = issued(CustomerFactory(email="ada@example.com"), "19.90")
    today = invoice.due_date + timedelta(days=1)
    with mock.patch.object(reminding, "today_of", return_value=today):
        sent = api.post(f"/v1{reminders}", json.loads(reminded) | {"invoice": invoice.pk})
    assert (sent.status_code, sent.json()["step"]) == (201, 1)
    made = api.post(f"/v1{hold}", json.loads(held) | {"invoice": invoice.pk, "until": "9000-01-01"})
    assert (made.status_code, made.json()["reason"]) == (201, "disputed")
    assert api.post(f"/v1{hold}/{made.json()['id']}/release", json.loads(released)).status_code == 200
    assert ReminderHold.objects.get().invoice_id == invoice.pk

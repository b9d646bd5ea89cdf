"""The rights of the application's role are enough for all that operators do about themselves."""

import re
import uuid

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django_otp.oath import totp
from django_otp.plugins.otp_totp.models import TOTPDevice

from ledger.models import StaffEvent
from ledger.staff.models import Operator

PASSWORD = "correct horse battery staple"


@pytest.mark.usefixtures("as_application")
def test_an_operator_sets_up_two_step_login_chooses_a_zone_and_turns_it_off_again() -> None:
    name = f"somebody-{uuid.uuid4().hex}"
    user = User.objects.create_user(name, password=PASSWORD, is_staff=True)
    client = Client()
    assert client.post("/admin/login/", {"username": name, "password": PASSWORD}).status_code == 302
    client.post("/admin/two-step/", {"do": "begin"})
    code = f"{totp(TOTPDevice.objects.get(user=user).bin_key):06d}"
    page = client.post("/admin/two-step/", {"do": "confirm", "code": code}).content.decode()
    codes = re.findall(r"<li><code>(\w+)</code></li>", page)
    assert client.post("/admin/preferences/", {"time_zone": "Europe/Berlin"}).status_code == 302
    assert Operator.objects.get(user_id=user.pk).time_zone == "Europe/Berlin"
    assert client.post("/admin/two-step/", {"do": "off", "code": codes[0]}).status_code == 302
    done = StaffEvent.objects.filter(actor=f"admin:{name}").order_by("id").values_list("action", flat=True)
    assert list(done) == ["login", "second-step-on", "second-step-off"]

"""An operator who is made inactive has no session any more, as docs/explanation/threats.md says."""

import pytest
from django.contrib.auth.models import User
from django.test import Client


@pytest.mark.parametrize("is_active", [False, True], ids=["inactive", "control: active"])
def test_the_session_of_an_inactive_operator_has_ended(db: None, is_active: bool) -> None:
    client, operator = Client(), User.objects.create_superuser("lena")
    client.force_login(operator)
    User.objects.filter(pk=operator.pk).update(is_active=is_active)
    answer = client.get("/admin/")
    assert (answer.status_code, "login" in answer.headers.get("Location", "")) == ((200, False) if is_active else (302, True))

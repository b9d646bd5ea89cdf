"""Operators erase the personal data of a customer: in two steps, with their own permission, on the staff log."""

import pytest
from django.test import Client

from billing.generator.generate import generate_in
from billing.generator.options import Options
from billing.models import Customer, RequestKey
from ledger.models import StaffEvent
from tests.billing.factories import CustomerFactory, SubscriptionFactory, at
from tests.ledger.admin.admin_site import hidden_key, operator

pytestmark = pytest.mark.django_db

ADDRESS = {"line1": "St James's Square 12", "city": "London", "country": "GB"}


@pytest.fixture
def client() -> Client:
    """A superuser's session of the operators' pages."""
    return operator()


@pytest.fixture
def ada() -> Customer:
    return CustomerFactory(ref="C-7", name="Augusta Lovelace", address=ADDRESS, vat_id="GB999999973")


def page(customer, name="change"):
    return f"/admin/billing/customer/{customer.pk}/{name}/"


def sent(client, customer, again="C-7", **values):
    """Open the form, and send it."""
    key = hidden_key(client.get(page(customer, "erase")).content.decode())
    return client.post(page(customer, "erase"), {"idempotency_key": key, "ref_again": again, "reason": "asked", **values})


def who(customer):
    customer.refresh_from_db()
    return customer.name, customer.address, customer.vat_id


def forms_recorded():
    return list(StaffEvent.objects.filter(action="form").values_list("actor", "object", "details"))


def test_the_first_step_says_what_would_be_erased_and_writes_nothing(client, ada):
    before = who(ada)
    shown = sent(client, ada).content.decode()
    for words in ("Augusta Lovelace", "Erased on", "St James", "GB999999973", "0 documents keep their buyer", "cannot be undone"):
        assert words in shown, words
    assert (who(ada), forms_recorded(), RequestKey.objects.count()) == (before, [], 0)


def test_the_second_step_erases_once_and_the_staff_log_has_it_without_the_name(client, ada):
    key = hidden_key(client.get(page(ada, "erase")).content.decode())
    values = {"idempotency_key": key, "ref_again": "C-7", "reason": "asked", "confirmed": "yes"}
    first, second = (client.post(page(ada, "erase"), values) for _ in range(2))
    assert (first.status_code, second.status_code) == (302, 302)
    name, address, vat_id = who(ada)
    assert (name[:10], address, vat_id) == ("Erased on ", {}, "")
    [(actor, about, details)] = forms_recorded()
    assert (actor, about) == ("admin:mara", "Erase the personal data of C-7")
    assert details == "The erasure of C-7: documents keep their buyer; reason: asked"
    shown = client.get(page(ada)).content.decode()
    assert "was already done by the first click" in shown
    assert page(ada, "erase") not in shown


def test_another_reference_erases_nothing(client, ada):
    before = who(ada)
    for step in ({}, {"confirmed": "yes"}):
        response = sent(client, ada, again="C-8", **step)
        assert (response.status_code, "That is another reference." in response.content.decode()) == (422, True)
    assert (who(ada), forms_recorded(), RequestKey.objects.count()) == (before, [], 0)


def test_a_customer_who_is_still_billed_is_not_erased(client, ada):
    subscription = SubscriptionFactory(customer=ada.ref)
    generate_in(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    before = who(ada)
    for step in ({}, {"confirmed": "yes"}):
        response = sent(client, ada, **step)
        why = f"C-7 cannot be erased: subscription {subscription.ref} has no end yet. Nothing was erased."
        assert (response.status_code, why in response.content.decode()) == (422, True)
    assert (who(ada), forms_recorded()) == (before, [])


def test_only_who_may_erase_is_offered_it(ada):
    before = who(ada)
    looking = operator("billing.view_customer", "billing.change_customer", name="ben")
    assert page(ada, "erase") not in looking.get(page(ada)).content.decode()
    assert looking.get(page(ada, "erase")).status_code == 403
    values = {"idempotency_key": "k", "ref_again": "C-7", "confirmed": "yes"}
    assert looking.post(page(ada, "erase"), values).status_code == 403
    assert (who(ada), forms_recorded()) == (before, [])
    may = operator("billing.view_customer", "billing.erase_customer", name="cleo")
    assert page(ada, "erase") in may.get(page(ada)).content.decode()

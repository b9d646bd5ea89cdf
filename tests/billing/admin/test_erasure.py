"""Operators erase the personal data of a customer: in two steps, with their own permission, on the staff log."""

import pytest

from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.models import Customer, RequestKey
from ledger.models import StaffEvent
from tests.billing.factories import CustomerFactory, SubscriptionFactory, at
from tests.ledger.staff.admin_site import hidden_key, operator

pytestmark = pytest.mark.django_db

ADDRESS = {"line1": "St James's Square 12", "city": "London", "country": "GB"}


@pytest.fixture
def ada() -> Customer:
    """The customer C-7, with a name, an address and a VAT number."""
    return CustomerFactory(ref="C-7", name="Augusta Lovelace", address=ADDRESS, vat_id="GB999999973")


def page_url(customer, name="change"):
    """The address of a page about the customer."""
    return f"/admin/billing/customer/{customer.pk}/{name}/"


def submit_erasure(client, customer, again="C-7", **values):
    """Open the form, and send it filled in."""
    key = hidden_key(client.get(page_url(customer, "erase")).content.decode())
    return client.post(page_url(customer, "erase"), {"idempotency_key": key, "ref_again": again, "reason": "asked", **values})


def personal_data(customer):
    """Name, address and VAT number of the customer, as stored."""
    customer.refresh_from_db()
    return customer.name, customer.address, customer.vat_id


def recorded_forms():
    """What the staff log has of forms."""
    return list(StaffEvent.objects.filter(action="form").values_list("actor", "object", "details"))


def test_the_first_step_says_what_would_be_erased_and_writes_nothing(client, ada):
    before = personal_data(ada)
    shown = submit_erasure(client, ada).content.decode()
    for words in ("Augusta Lovelace", "Erased on", "St James", "GB999999973", "0 documents keep their buyer", "cannot undo"):
        assert words in shown, words
    assert (personal_data(ada), recorded_forms(), RequestKey.objects.count()) == (before, [], 0)


def test_the_second_step_erases_once_and_the_staff_log_has_it_without_the_name(client, ada):
    key = hidden_key(client.get(page_url(ada, "erase")).content.decode())
    values = {"idempotency_key": key, "ref_again": "C-7", "reason": "asked", "confirmed": "yes"}
    first, second = (client.post(page_url(ada, "erase"), values) for _ in range(2))
    assert (first.status_code, second.status_code) == (302, 302)
    name, address, vat_id = personal_data(ada)
    assert (name[:10], address, vat_id) == ("Erased on ", {}, "")
    [(actor, about, details)] = recorded_forms()
    assert (actor, about) == ("admin:mara", "Erase the personal data of C-7")
    assert details == "The erasure of C-7: documents keep their buyer; reason: asked"
    shown = client.get(page_url(ada)).content.decode()
    assert "was already done by the first click" in shown
    assert page_url(ada, "erase") not in shown


def test_another_reference_erases_nothing(client, ada):
    before = personal_data(ada)
    for step in ({}, {"confirmed": "yes"}):
        response = submit_erasure(client, ada, again="C-8", **step)
        assert (response.status_code, "That is another reference." in response.content.decode()) == (422, True)
    assert (personal_data(ada), recorded_forms(), RequestKey.objects.count()) == (before, [], 0)


def test_a_customer_who_is_still_billed_is_not_erased(client, ada):
    subscription = SubscriptionFactory(customer=ada.ref)
    generate_in(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    before = personal_data(ada)
    for step in ({}, {"confirmed": "yes"}):
        response = submit_erasure(client, ada, **step)
        why = f"C-7 cannot be erased: subscription {subscription.ref} has no end yet. Nothing was erased."
        assert (response.status_code, why in response.content.decode()) == (422, True)
    assert (personal_data(ada), recorded_forms()) == (before, [])


def test_only_who_may_erase_is_offered_it(ada):
    before = personal_data(ada)
    looking = operator("billing.view_customer", "billing.change_customer", name="ben")
    assert page_url(ada, "erase") not in looking.get(page_url(ada)).content.decode()
    assert looking.get(page_url(ada, "erase")).status_code == 403
    values = {"idempotency_key": "k", "ref_again": "C-7", "confirmed": "yes"}
    assert looking.post(page_url(ada, "erase"), values).status_code == 403
    assert (personal_data(ada), recorded_forms()) == (before, [])
    may = operator("billing.view_customer", "billing.erase_customer", name="cleo")
    assert page_url(ada, "erase") in may.get(page_url(ada)).content.decode()

"""Every form says what it moves, or why it needs no second operator; the process does not start with one that says neither."""

from importlib import import_module

import pytest
from django.contrib import admin

from ledger.staff.approvals import NoStake, StakeRule
from ledger.staff.kit.idempotent_forms import FormPage, KeyedForm, RequestForm

MOVES = {
    # Of the ledger.
    "GrantForm", "RefundForm", "RecurringGrantForm", "OverdraftForm", "ReissueForm", "ReversalForm", "TransferForm",
    # Of billing.
    "PurchaseForm", "ReturnForm", "PaymentForm", "PaymentReturnForm", "PayOutForm", "ProviderRefundForm", "IntentTransferForm",
    "BookingForm", "SetAsideForm", "PayForm", "InvoiceVoidForm", "UncollectibleForm", "CreditForm", "CancellationForm",
    "CreditPaymentForm",
}  # fmt: skip
"""The forms with a stake."""


def forms_of(base: type[KeyedForm]) -> list[type[KeyedForm]]:
    """All forms that a page may show."""
    admin.autodiscover()
    below = [each for child in base.__subclasses__() for each in (child, *forms_of(child))]
    return [
        each for each in dict.fromkeys(below) if not each.is_abstract and each.__module__.split(".")[0] in {"ledger", "billing"}
    ]


def test_every_form_says_what_it_moves_or_why_it_needs_no_second_operator() -> None:
    forms = forms_of(KeyedForm)
    assert len(forms) > 60
    without = [form.stake.why for form in forms if isinstance(form.stake, NoStake)]
    assert all(len(why.split()) > 4 and why.endswith(".") for why in without)
    staked = {form.__name__ for form in forms if isinstance(form.stake, StakeRule)}
    assert len(staked) + len(without) <= len(forms)
    assert staked == MOVES


def test_a_form_that_says_neither_is_refused_when_it_is_defined() -> None:
    with pytest.raises(TypeError, match=r"the form .*SilentForm must say what it moves"):

        class SilentForm(KeyedForm):
            """Says nothing."""

    class Base(KeyedForm):
        """No page shows it."""

        is_abstract = True

    with pytest.raises(TypeError, match="must say what it moves"):

        class ChildOfABase(Base):
            """Is not abstract as its base is."""


@pytest.mark.parametrize("form", [KeyedForm, RequestForm])
def test_no_page_shows_the_base_of_other_forms(form: type[KeyedForm]) -> None:
    with pytest.raises(TypeError, match="does not say what it moves"):
        FormPage(form=form, title="", button="", explanation="", back="")


def test_every_page_of_a_form_with_a_stake_can_try_it_out() -> None:
    pages = [page for page in _pages(FormPage) if page.try_out is FormPage.try_out]
    assert {page.__name__ for page in pages} == {
        "AlertPage",
        "RatePage",
        "NotePage",
        "OneOffPage",
        "HoldPage",
        "ReleasePage",
        "AgainPage",
        "ReminderPage",
    }


def _pages(base: type) -> list[type]:
    admin.autodiscover()
    # Buttons that other applications add load their pages when they are pressed.
    import_module("billing.dunning.reminder_pages")
    # It is loaded with the page that it belongs to.
    import_module("billing.dunning.hold_pages")
    return [each for child in base.__subclasses__() for each in (child, *_pages(child))]

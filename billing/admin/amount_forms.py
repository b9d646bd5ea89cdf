"""Forms with an amount that is typed in major units; the request has it in minor units."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar, Final

from django import forms

from billing.rating.limits import MAX_MINOR
from billing.rating.money import minor_digits
from ledger.staff.approvals import Stake, StakeRule
from ledger.staff.kit.form_fields import Display
from ledger.staff.kit.idempotent_forms import RecordT, RequestForm
from ledger.staff.kit.money_fields import MoneyField


class AmountForm(RequestForm[RecordT]):
    """A request with `amount_minor`."""

    is_abstract = True
    shows: ClassVar[Mapping[str, Display | forms.Field]] = {}
    currency: ClassVar[str] = ""

    def body(self) -> dict[str, Any]:
        """Return the amount in minor units."""
        amount_minor = self.cleaned_data.get("amount")
        return super().body() | ({} if amount_minor is None else {"amount_minor": amount_minor})

    def currency_of(self, name: str) -> tuple[str, str]:
        """Return the currency of the form."""
        return self.currency, ""

    def field_of(self, pointer: str) -> str | None:
        """Return the field of the amount for its pointer."""
        return "amount" if pointer == "/amount_minor" else super().field_of(pointer)

    @classmethod
    def in_currency(cls, currency: str, help_text: str, *, required: bool = True, **shows: Display | forms.Field) -> type[Any]:
        """Return the form for amounts of a currency, with these fields below the amount."""
        amount = MoneyField(least=1, most=MAX_MINOR, is_minor=True, label="Amount", required=required, help_text=help_text)
        return type(cls.__name__, (cls,), {"shows": {"amount": amount, **shows}, "currency": currency})


AMOUNT_WRITTEN: Final = StakeRule(lambda form, made: [Stake(form.currency, made.amount_minor)])
"""The form moves the amount of the row that it would write."""


def major(amount_minor: int, currency: str) -> Decimal:
    """Return an amount in major units."""
    return Decimal(amount_minor).scaleb(-minor_digits(currency))

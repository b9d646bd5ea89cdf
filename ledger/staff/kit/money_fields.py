"""Money as people type it: "12", "1,234.50" or "1.234,50", with the currency beside the field; requests have minor units.

Note [One reading or none]
    `1,234` is 1234 in one country and 1.234 in another. A text has one reading if its signs say it: two different signs, a
    repeated sign, or a sign that does not stand before exactly three digits. A single sign before three digits is read in the
    language of the page if the field can have such decimals, or cannot have them and the sign groups digits in that language;
    otherwise the field refuses the text and says how to write it.
"""

import re
from decimal import Decimal
from typing import Any, Final, Protocol, runtime_checkable

from django import forms
from django.core.exceptions import ValidationError
from django.utils.formats import get_format
from unfold.widgets import UnfoldAdminTextInputWidget

from ledger.staff.kit.form_fields import Display
from ledger.values import MINOR_DIGITS, Integer, Number, Value

MAX_CHARACTERS: Final = 60
SPACES: Final = re.compile(r"[\s\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}]+")
DIGITS: Final = re.compile(r"\d+(?:[.,' ]\d+)*", re.ASCII)
SYMBOLS: Final = {"EUR": "€", "USD": "$", "GBP": "£", "JPY": "¥"}
"""Signs that may stand in place of the code; each means one currency here."""
SIGN_NAMES: Final = {".": "point", ",": "comma"}
MAX_PRICE_DECIMALS: Final = 12
"""The decimals of a price for a unit, as the REST API takes them."""


class NotOneNumber(ValueError):
    """A text that is no amount, or that can be read in two ways."""


def read_typed(text: str, *, decimals: int, decimal_sign: str = ".") -> Decimal:
    """Return the number that somebody typed. See Note [One reading or none].

    Args:
        decimals: how many the number can have, 0 or more.
        decimal_sign: a point or a comma, as the language of the page has it.
    Raises:
        NotOneNumber: it is no number, its groups do not have three digits, it has too many decimals, or two readings.
    """
    text = SPACES.sub(" ", text).strip().replace("’", "'")
    example = f"1234{decimal_sign}50" if decimals else "1234"
    rule = f"write an amount such as {example}"
    if not DIGITS.fullmatch(text) or len(text) > MAX_CHARACTERS:
        raise NotOneNumber(f"“{text[:MAX_CHARACTERS]}” is not an amount; {rule}")
    sign = _sign_of_decimals(text, decimals, decimal_sign)
    if sign is None:
        after = f"decimals after a {SIGN_NAMES[decimal_sign]} and " if decimals else ""
        raise NotOneNumber(f"“{text}” can be read in two ways; write {after}thousands without a sign, such as {example}")
    whole, _, behind = text.partition(sign) if sign else (text, "", "")
    groups = re.split(r"[.,' ]", whole)
    signs = {each for each in whole if not each.isdigit()}
    is_grouped = len(groups) == 1 or (len(groups[0]) <= 3 and len(signs) == 1 and all(len(each) == 3 for each in groups[1:]))
    if not is_grouped or not (behind == "" or behind.isdigit()):
        raise NotOneNumber(f"“{text}” has signs that do not stand before three digits each; {rule}")
    if len(behind) > decimals:
        most = f"at most {decimals} decimals" if decimals else "no decimals"
        raise NotOneNumber(f"“{text}” has {len(behind)} decimals, and there can be {most} here")
    return Decimal(f"{''.join(groups)}.{behind or 0}") if behind else Decimal("".join(groups))


def _sign_of_decimals(text: str, decimals: int, decimal_sign: str) -> str | None:
    """Return the sign before the decimals; empty: the number has none; None: that is not certain."""
    signs = [each for each in text if not each.isdigit()]
    if not signs or signs[-1] not in SIGN_NAMES:
        return ""
    last = signs[-1]
    if signs.count(last) > 1:
        return ""
    before, _, behind = text.rpartition(last)
    can_be_group = len(signs) == 1 and len(behind) == 3 and len(before) <= 3 and not before.startswith("0")
    if not can_be_group:
        return last
    can_be_decimals = decimals >= len(behind)
    if (last == decimal_sign) != can_be_decimals:
        return None
    return last if can_be_decimals else ""


@runtime_checkable
class HasCurrency(Protocol):
    """A field of a form whose page has the currency beside it."""

    def set_currency(self, currency: str, currency_field: str = "") -> None:
        """Use this currency from now on; the other field of this name has it, if it is not fixed."""
        raise NotImplementedError


class MoneyInput(UnfoldAdminTextInputWidget):
    """A text field with the currency beside it."""

    template_name = "admin/ledger/kit/money_input.html"
    currency = ""
    currency_field = ""
    """The name of the field with the currency; empty if the currency is fixed."""

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        """Name the currency also to screen readers."""
        context: dict[str, Any] = super().get_context(name, value, attrs)
        widget = context["widget"]
        if "id" in widget["attrs"]:
            described = (f"{widget['attrs']['id']}_currency", widget["attrs"].get("aria-describedby"))
            widget["attrs"]["aria-describedby"] = " ".join(filter(None, described))
        widget |= {"currency": self.currency, "currency_field": self.currency_field}
        return context


class MoneyField(forms.Field):
    """Money that is typed in the currency's unit. Its cleaned value is in minor units, or a decimal number for a price.

    An initial whole number is in minor units, if the cleaned value is; another initial number is in the currency's unit; a text
    is shown unchanged.

    Args:
        least, most: of the cleaned value.
        is_minor: whether the cleaned value is in minor units.
    """

    widget: Any = MoneyInput

    def __init__(self, *, least: Decimal | int, most: Decimal | int, is_minor: bool, **options: Any) -> None:
        widget = MoneyInput(attrs={"inputmode": "decimal", "autocomplete": "off", "spellcheck": "false"})
        super().__init__(widget=widget, **options)
        self.min_value, self.max_value, self._is_minor = least, most, is_minor
        self.currency = ""

    def set_currency(self, currency: str, currency_field: str = "") -> None:
        """Use this currency from now on."""
        self.currency = self.widget.currency = currency if currency in MINOR_DIGITS else ""
        self.widget.currency_field = currency_field

    @property
    def digits(self) -> int:
        """The decimals of the currency."""
        return MINOR_DIGITS.get(self.currency, 0)

    def to_python(self, value: Any) -> Any:
        """Return the number that was typed; None if the field is empty."""
        text = str(value if value is not None else "").strip()
        if not text:
            return None
        if not self.currency:
            raise ValidationError(f"{self.label}: choose a currency.")
        decimals = self.digits if self._is_minor else MAX_PRICE_DECIMALS
        try:
            number = read_typed(self._without_currency(text), decimals=decimals, decimal_sign=decimal_sign())
        except NotOneNumber as refused:
            raise ValidationError(f"{self.label}: {refused}.") from None
        return int(number.scaleb(self.digits)) if self._is_minor else number

    def validate(self, value: Any) -> None:
        """Refuse an amount outside of its range."""
        super().validate(value)
        if value is not None and value < self.min_value:
            raise ValidationError(f"{self.label} must be at least {self.typed(self.min_value)} {self.currency}.")
        if value is not None and value > self.max_value:
            raise ValidationError(f"{self.label} must be at most {self.typed(self.max_value)} {self.currency}.")

    def prepare_value(self, value: Any) -> Any:
        """Return the value in its typed form."""
        return self.typed(value) if isinstance(value, int | Decimal) else value

    def typed(self, value: Decimal | int) -> str:
        """Return an amount as the field reads it."""
        is_minor = self._is_minor and isinstance(value, int)
        text = f"{Decimal(value).scaleb(-self.digits):f}" if is_minor else f"{Decimal(value):f}"
        return text.replace(".", decimal_sign())

    def _without_currency(self, text: str) -> str:
        for named in (self.currency, SYMBOLS.get(self.currency, self.currency)):
            if text.upper().startswith(named) or text.upper().endswith(named):
                return text[len(named) :].strip() if text.upper().startswith(named) else text[: -len(named)].strip()
        return text


def decimal_sign() -> str:
    """Return the sign before decimals in the language of the page."""
    sign = str(get_format("DECIMAL_SEPARATOR"))
    return sign if sign in SIGN_NAMES else "."


def money(value: Value, shown: Display) -> forms.Field:
    """Return a field for money: of an integer in minor units, or of a number in the currency's unit."""
    if isinstance(value, Integer):
        return MoneyField(least=value.least, most=value.most, is_minor=True)
    assert isinstance(value, Number)
    assert value.least is not None
    assert value.most is not None
    return MoneyField(least=value.least, most=value.most, is_minor=False)

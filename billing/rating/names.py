"""The names of plans, prices and coupons, which documents print instead of their keys. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

from ledger.typesetting.languages import LANGUAGES
from ledger.values import InvalidValue, Text, Value, json_name, pointer_part

MAX_NAME_CHARACTERS: Final = 200


class Names(Value):
    """The name in languages of documents in which it differs, by their codes: `{"de": "Plätze"}`."""

    languages = tuple(language.code for language in LANGUAGES)

    def __init__(self, text: str = "", *, most: int = MAX_NAME_CHARACTERS, **options: Any) -> None:
        super().__init__(text, **options)
        self.child = Text(most=most, least=1)

    def read(self, value: Any) -> dict[str, str]:
        if not isinstance(value, Mapping):
            raise InvalidValue("not-an-object", f"This must be an object, not {json_name(value)}.")
        return {code: self._read_one(str(code), name) for code, name in sorted(value.items())}

    def _read_one(self, code: str, name: Any) -> str:
        at = pointer_part(code)
        if code not in self.languages:
            raise InvalidValue("unknown-language", f"Documents are in these languages: {', '.join(self.languages)}.", at)
        try:
            return self.child.check(name)
        except InvalidValue as invalid:
            raise InvalidValue(invalid.code, invalid.detail, at) from None

    def openapi(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {code: self.child.openapi() for code in self.languages},
            "additionalProperties": False,
        }


def name_in(language: str, *, key: str, name: str | None, names: Mapping[str, str]) -> str:
    """Return the name in a language: its own there, else the general name, else the key in words.

    Args:
        language: the code of a language of documents.
        key: the plan's or coupon's ref, or the price's key: "api_calls" is "api calls" in words.
    """
    return names.get(language) or name or _WORD_BREAKS.sub(" ", key).strip() or key


_WORD_BREAKS: Final = re.compile("[_.:-]+")

"""The currencies of countries, by ISO 3166 and ISO 4217. Pure."""

from typing import Final

_EURO: Final = "AD AT BE BG CY DE EE ES FI FR GR HR IE IT LT LU LV MC ME MT NL PT SI SK SM VA XK"
_OTHERS: Final = (
    "AE AED, AR ARS, AU AUD, BH BHD, BR BRL, CA CAD, CH CHF, CL CLP, CN CNY, CO COP, CZ CZK, DK DKK, EG EGP, GB GBP, HK "
    "HKD, HU HUF, ID IDR, IL ILS, IN INR, IS ISK, JP JPY, KE KES, KR KRW, KW KWD, LI CHF, MA MAD, MX MXN, MY MYR, NG NGN, "
    "NO NOK, NZ NZD, OM OMR, PE PEN, PH PHP, PK PKR, PL PLN, QA QAR, RO RON, RS RSD, SA SAR, SE SEK, SG SGD, TH THB, TN "
    "TND, TR TRY, TW TWD, UA UAH, US USD, UY UYU, VN VND, ZA ZAR"
)
CURRENCIES: Final = dict.fromkeys(_EURO.split(), "EUR") | dict(pair.split() for pair in _OTHERS.split(", "))
"""The currency in which a seller of a country usually invoices; countries that are missing have no usual one here."""

"""The English names of the currencies of ISO 4217 and the countries of ISO 3166, by their codes. Pure."""

from typing import Final

_CURRENCIES: Final = (
    "AED UAE dirham|AFN Afghan afghani|ALL Albanian lek|AMD Armenian dram|AOA Angolan kwanza|ARS Argentine peso|"
    "AUD Australian dollar|AWG Aruban florin|AZN Azerbaijani manat|BAM Bosnian convertible mark|BBD Barbadian dollar|"
    "BDT Bangladeshi taka|BHD Bahraini dinar|BIF Burundian franc|BMD Bermudian dollar|BND Brunei dollar|BOB Bolivian boliviano|"
    "BRL Brazilian real|BSD Bahamian dollar|BTN Bhutanese ngultrum|BWP Botswana pula|BYN Belarusian ruble|BZD Belize dollar|"
    "CAD Canadian dollar|CDF Congolese franc|CHF Swiss franc|CLP Chilean peso|CNY Chinese yuan|COP Colombian peso|"
    "CRC Costa Rican colón|CUP Cuban peso|CVE Cape Verdean escudo|CZK Czech koruna|DJF Djiboutian franc|DKK Danish krone|"
    "DOP Dominican peso|DZD Algerian dinar|EGP Egyptian pound|ERN Eritrean nakfa|ETB Ethiopian birr|EUR Euro|FJD Fijian dollar|"
    "FKP Falkland Islands pound|GBP British pound|GEL Georgian lari|GHS Ghanaian cedi|GIP Gibraltar pound|GMD Gambian dalasi|"
    "GNF Guinean franc|GTQ Guatemalan quetzal|GYD Guyanese dollar|HKD Hong Kong dollar|HNL Honduran lempira|HTG Haitian gourde|"
    "HUF Hungarian forint|IDR Indonesian rupiah|ILS Israeli shekel|INR Indian rupee|IQD Iraqi dinar|IRR Iranian rial|"
    "ISK Icelandic króna|JMD Jamaican dollar|JOD Jordanian dinar|JPY Japanese yen|KES Kenyan shilling|KGS Kyrgyzstani som|"
    "KHR Cambodian riel|KMF Comorian franc|KPW North Korean won|KRW South Korean won|KWD Kuwaiti dinar|"
    "KYD Cayman Islands dollar|KZT Kazakhstani tenge|LAK Lao kip|LBP Lebanese pound|LKR Sri Lankan rupee|LRD Liberian dollar|"
    "LSL Lesotho loti|LYD Libyan dinar|MAD Moroccan dirham|MDL Moldovan leu|MGA Malagasy ariary|MKD Macedonian denar|"
    "MMK Myanmar kyat|MNT Mongolian tögrög|MOP Macanese pataca|MRU Mauritanian ouguiya|MUR Mauritian rupee|"
    "MVR Maldivian rufiyaa|MWK Malawian kwacha|MXN Mexican peso|MYR Malaysian ringgit|MZN Mozambican metical|"
    "NAD Namibian dollar|NGN Nigerian naira|NIO Nicaraguan córdoba|NOK Norwegian krone|NPR Nepalese rupee|"
    "NZD New Zealand dollar|OMR Omani rial|PAB Panamanian balboa|PEN Peruvian sol|PGK Papua New Guinean kina|"
    "PHP Philippine peso|PKR Pakistani rupee|PLN Polish złoty|PYG Paraguayan guaraní|QAR Qatari riyal|RON Romanian leu|"
    "RSD Serbian dinar|RUB Russian ruble|RWF Rwandan franc|SAR Saudi riyal|SBD Solomon Islands dollar|SCR Seychellois rupee|"
    "SDG Sudanese pound|SEK Swedish krona|SGD Singapore dollar|SHP Saint Helena pound|SLE Sierra Leonean leone|"
    "SOS Somali shilling|SRD Surinamese dollar|SSP South Sudanese pound|STN São Tomé and Príncipe dobra|SVC Salvadoran colón|"
    "SYP Syrian pound|SZL Swazi lilangeni|THB Thai baht|TJS Tajikistani somoni|TMT Turkmenistani manat|TND Tunisian dinar|"
    "TOP Tongan paʻanga|TRY Turkish lira|TTD Trinidad and Tobago dollar|TWD New Taiwan dollar|TZS Tanzanian shilling|"
    "UAH Ukrainian hryvnia|UGX Ugandan shilling|USD US dollar|UYU Uruguayan peso|UZS Uzbekistani som|"
    "VED Venezuelan digital bolívar|VES Venezuelan bolívar|VND Vietnamese đồng|VUV Vanuatu vatu|WST Samoan tālā|"
    "XAF Central African CFA franc|XCD East Caribbean dollar|XCG Caribbean guilder|XOF West African CFA franc|XPF CFP franc|"
    "YER Yemeni rial|ZAR South African rand|ZMW Zambian kwacha|ZWG Zimbabwe Gold"
)
_COUNTRIES: Final = (
    "AD Andorra|AE United Arab Emirates|AF Afghanistan|AG Antigua and Barbuda|AI Anguilla|AL Albania|AM Armenia|AO Angola|"
    "AQ Antarctica|AR Argentina|AS American Samoa|AT Austria|AU Australia|AW Aruba|AX Åland Islands|AZ Azerbaijan|"
    "BA Bosnia and Herzegovina|BB Barbados|BD Bangladesh|BE Belgium|BF Burkina Faso|BG Bulgaria|BH Bahrain|BI Burundi|BJ Benin|"
    "BL Saint Barthélemy|BM Bermuda|BN Brunei|BO Bolivia|BQ Caribbean Netherlands|BR Brazil|BS Bahamas|BT Bhutan|"
    "BV Bouvet Island|BW Botswana|BY Belarus|BZ Belize|CA Canada|CC Cocos (Keeling) Islands|CD Congo (Kinshasa)|"
    "CF Central African Republic|CG Congo (Brazzaville)|CH Switzerland|CI Côte d’Ivoire|CK Cook Islands|CL Chile|CM Cameroon|"
    "CN China|CO Colombia|CR Costa Rica|CU Cuba|CV Cape Verde|CW Curaçao|CX Christmas Island|CY Cyprus|CZ Czechia|DE Germany|"
    "DJ Djibouti|DK Denmark|DM Dominica|DO Dominican Republic|DZ Algeria|EC Ecuador|EE Estonia|EG Egypt|EH Western Sahara|"
    "ER Eritrea|ES Spain|ET Ethiopia|FI Finland|FJ Fiji|FK Falkland Islands|FM Micronesia|FO Faroe Islands|FR France|GA Gabon|"
    "GB United Kingdom|GD Grenada|GE Georgia|GF French Guiana|GG Guernsey|GH Ghana|GI Gibraltar|GL Greenland|GM Gambia|"
    "GN Guinea|GP Guadeloupe|GQ Equatorial Guinea|GR Greece|GS South Georgia|GT Guatemala|GU Guam|GW Guinea-Bissau|GY Guyana|"
    "HK Hong Kong|HM Heard and McDonald Islands|HN Honduras|HR Croatia|HT Haiti|HU Hungary|ID Indonesia|IE Ireland|IL Israel|"
    "IM Isle of Man|IN India|IO British Indian Ocean Territory|IQ Iraq|IR Iran|IS Iceland|IT Italy|JE Jersey|JM Jamaica|"
    "JO Jordan|JP Japan|KE Kenya|KG Kyrgyzstan|KH Cambodia|KI Kiribati|KM Comoros|KN Saint Kitts and Nevis|KP North Korea|"
    "KR South Korea|KW Kuwait|KY Cayman Islands|KZ Kazakhstan|LA Laos|LB Lebanon|LC Saint Lucia|LI Liechtenstein|LK Sri Lanka|"
    "LR Liberia|LS Lesotho|LT Lithuania|LU Luxembourg|LV Latvia|LY Libya|MA Morocco|MC Monaco|MD Moldova|ME Montenegro|"
    "MF Saint Martin|MG Madagascar|MH Marshall Islands|MK North Macedonia|ML Mali|MM Myanmar|MN Mongolia|MO Macao|"
    "MP Northern Mariana Islands|MQ Martinique|MR Mauritania|MS Montserrat|MT Malta|MU Mauritius|MV Maldives|MW Malawi|"
    "MX Mexico|MY Malaysia|MZ Mozambique|NA Namibia|NC New Caledonia|NE Niger|NF Norfolk Island|NG Nigeria|NI Nicaragua|"
    "NL Netherlands|NO Norway|NP Nepal|NR Nauru|NU Niue|NZ New Zealand|OM Oman|PA Panama|PE Peru|PF French Polynesia|"
    "PG Papua New Guinea|PH Philippines|PK Pakistan|PL Poland|PM Saint Pierre and Miquelon|PN Pitcairn Islands|PR Puerto Rico|"
    "PS Palestine|PT Portugal|PW Palau|PY Paraguay|QA Qatar|RE Réunion|RO Romania|RS Serbia|RU Russia|RW Rwanda|"
    "SA Saudi Arabia|SB Solomon Islands|SC Seychelles|SD Sudan|SE Sweden|SG Singapore|SH Saint Helena|SI Slovenia|"
    "SJ Svalbard and Jan Mayen|SK Slovakia|SL Sierra Leone|SM San Marino|SN Senegal|SO Somalia|SR Suriname|SS South Sudan|"
    "ST São Tomé and Príncipe|SV El Salvador|SX Sint Maarten|SY Syria|SZ Eswatini|TC Turks and Caicos Islands|TD Chad|"
    "TF French Southern Territories|TG Togo|TH Thailand|TJ Tajikistan|TK Tokelau|TL Timor-Leste|TM Turkmenistan|TN Tunisia|"
    "TO Tonga|TR Türkiye|TT Trinidad and Tobago|TV Tuvalu|TW Taiwan|TZ Tanzania|UA Ukraine|UG Uganda|UM US Outlying Islands|"
    "US United States|UY Uruguay|UZ Uzbekistan|VA Vatican City|VC Saint Vincent and the Grenadines|VE Venezuela|"
    "VG British Virgin Islands|VI US Virgin Islands|VN Vietnam|VU Vanuatu|WF Wallis and Futuna|WS Samoa|XK Kosovo|YE Yemen|"
    "YT Mayotte|ZA South Africa|ZM Zambia|ZW Zimbabwe"
)


def _by_code(text: str) -> dict[str, str]:
    """Return the names of "EUR Euro|USD US dollar" by their codes."""
    return {code: name for code, _, name in (row.partition(" ") for row in text.split("|"))}


CURRENCY_NAMES: Final = _by_code(_CURRENCIES)
"""The name of each currency that billing supports."""
COUNTRY_NAMES: Final = _by_code(_COUNTRIES)
"""The name of each country, and of Kosovo."""

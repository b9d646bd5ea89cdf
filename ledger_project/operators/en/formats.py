"""Dates and times where no page says otherwise: as in the columns of all lists, 1 Mar 2026, 14:03:20 UTC."""

DATE_FORMAT = SHORT_DATE_FORMAT = "j M Y"
TIME_FORMAT = "H:i:s T"
DATETIME_FORMAT = SHORT_DATETIME_FORMAT = "j M Y, H:i:s T"

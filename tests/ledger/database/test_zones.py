"""PostgreSQL and Python read every zone that a request may name alike."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

import pytest
from django.db import connection

from ledger.values import ABBREVIATED_ZONES, InvalidValue, Zone, zones

INSTANTS = [datetime(2026, month, 1, 12, tzinfo=UTC) for month in (1, 7)]


def differing(names: set[str]) -> set[str]:
    """The names whose local time differs in PostgreSQL at one of the instants."""
    pairs = [(name, at) for name in sorted(names) for at in INSTANTS]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT at AT TIME ZONE name FROM unnest(%s::text[], %s::timestamptz[]) WITH ORDINALITY AS each(name, at, place)"
            " ORDER BY place",
            [[name for name, _ in pairs], [at for _, at in pairs]],
        )
        read = [local for (local,) in cursor.fetchall()]
    return {
        name for (name, at), local in zip(pairs, read, strict=True) if at.astimezone(ZoneInfo(name)).replace(tzinfo=None) != local
    }


def test_zones_that_postgresql_reads_otherwise_are_refused_and_no_others(db: None) -> None:
    assert differing(set(zones())) == set(ABBREVIATED_ZONES)
    taken = set()
    for name in available_timezones():
        try:
            taken.add(Zone().read(name))
        except InvalidValue:
            continue
    assert taken == zones() - set(ABBREVIATED_ZONES)


@pytest.mark.parametrize(("name", "city"), ABBREVIATED_ZONES.items())
def test_the_city_of_an_abbreviation_has_its_time(name: str, city: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        Zone().read(name)
    assert city in refused.value.detail
    assert Zone().read(city) == city
    assert [at.astimezone(ZoneInfo(city)).utcoffset() for at in INSTANTS] == [
        at.astimezone(ZoneInfo(name)).utcoffset() for at in INSTANTS
    ]

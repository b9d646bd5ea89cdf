"""The filters of a price, in SQL."""

from typing import Final

# True if an event passes the filters of a price: each property is a scalar with one of the allowed texts. Most prices have no
# filters, and a function call for each of a million events would take longer than all else.
PASSES: Final = """
        ({filters} = '{{}}' OR NOT EXISTS (
            SELECT FROM jsonb_each({filters}) AS filter
            WHERE NOT coalesce(
                jsonb_typeof({event}.properties -> filter.key) NOT IN ('object', 'array', 'null')
                AND filter.value ? ({event}.properties ->> filter.key), false)))
"""

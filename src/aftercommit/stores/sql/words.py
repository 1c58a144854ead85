"""The words in braces that statements are written with, as most databases say them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The columns that people ask for rows by.
FILTERED: Final = ("event_type", "aggregate_type", "handler_id", "aggregate_id", "tenant_id", "event_key")

#: What statements say in braces; `$` is what stands behind the colon. A dialect may say each in its own way.
WORDS: Final[Mapping[str, str]] = {
    # An instant that many microseconds from now, by a parameter or a column; how long since or until one of a column.
    "now_plus": "{now} + $",
    "now_minus": "{now} - $",
    "since": "{now} - $",
    "until": "$ - {now}",
    # A time as rows are to have it.
    "read": "$",
    # The table as somebody reads it, or changes it, who goes by that index.
    "table_by": "{table}",
    "change_by": "{table}",
    "unfinished": "status IN (0, 2)",
    "is_dead": "status = 3",
    # The rows of one event, or one of them.
    "of_event": "event_id = :event_id AND (:handler_id IS NULL OR handler_id = :handler_id)",
    # What people ask for (EventFilter); a parameter that is NULL does not matter.
    "matching": " AND ".join(
        (
            *(f"(:{name} IS NULL OR {name} = :{name})" for name in FILTERED),
            "(:error IS NULL OR {has_error})",
            "(:older_than IS NULL OR created_at < {now_minus:older_than})",
        )
    ),
    "has_error": "instr(last_error, :error) > 0",
    # The lease is given back.
    "free": "locked_by = NULL, locked_at = NULL, lease_until = NULL",
    # As it was written, under a new epoch.
    "new_again": (
        "status = 0, attempts = 0, abandoned = 0, available_at = {now}, done_at = NULL, last_error = NULL,"
        " done_handlers = NULL, {free}, lease_epoch = lease_epoch + 1"
    ),
    # `UPDATE {held_rows} SET … {if_held}` changes the rows of a group `held` whose lease still stands;
    # `{if_held_returning}` returns their ids, too, where statements can.
    "held_rows": "{table}",
    "if_held": "FROM {held} WHERE {fence}",
    "if_held_returning": "{if_held}",
    "fence": (
        "{table}.event_id = held.event_id AND {table}.handler_id = held.handler_id"
        " AND locked_by = held.owner AND lease_epoch = held.epoch AND status IN (0, 2)"
    ),
}

"""What is known of a replication slot: by the server, and by a mark beside it among the facts of the tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from aftercommit.ports.replication import Mark, SlotState
from aftercommit.stores.postgres.pgoutput import place_of, place_text

_PLUGIN: Final = "pgoutput"


def state_of(row: Sequence[Any], slot: str) -> SlotState:
    """A row of `slot_state`."""
    plugin, database, kept_state, here, is_read, confirmed, end, kept, has_publication, is_capturing, now = row
    problem, is_foreign = None, False
    if plugin is None and database is None and confirmed is None:
        is_there = False
    elif database != here:
        is_there, is_foreign, problem = False, True, f"a slot {slot} belongs to the database {database!r}"
    elif plugin != _PLUGIN:
        is_there, is_foreign, problem = False, True, f"a slot {slot} is there with the plug-in {plugin!r}"
    elif kept_state == "lost":
        is_there, problem = False, "the server has thrown away what it had not read (max_slot_wal_keep_size)"
    else:
        is_there = True
    return SlotState(
        is_there=is_there,
        problem=problem,
        is_foreign=is_foreign,
        is_read=bool(is_read),
        confirmed=confirmed or 0,
        end=end,
        kept=kept or 0,
        has_publication=bool(has_publication),
        is_capturing=bool(is_capturing),
        now=now.replace(tzinfo=UTC),
    )


def mark_name(slot: str) -> str:
    """Where the mark of a slot stands among what is known of the tables."""
    return f"tail:{slot}"


def text_of(mark: Mark, system: str) -> str:
    at = None if mark.committed_at is None else mark.committed_at.isoformat()
    return msgspec.json.encode(
        {
            "confirmed": place_text(mark.confirmed),
            "passed": mark.passed,
            "committed_at": at,
            "reader": mark.reader,
            "in_flight": mark.in_flight,
            "system": system,
        }
    ).decode()


def mark_of(text: str, system: str) -> Mark | None:
    """None for what another server has said, whose log is another one, and for what makes no sense."""
    try:
        said = msgspec.json.decode(text, type=dict[str, Any])
        if said["system"] != system:
            return None
        at = said["committed_at"]
        committed_at = None if at is None else datetime.fromisoformat(at)
        return Mark(place_of(said["confirmed"]), said["passed"], committed_at, said["reader"], said["in_flight"])
    except (msgspec.DecodeError, KeyError, ValueError, TypeError):
        return None

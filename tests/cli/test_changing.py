"""The commands that change rows: dead retry and discard, cancel, replay, purge."""

from __future__ import annotations

from pathlib import Path

import pytest

from aftercommit import EventStatus, Outbox
from tests.cli.kit import Here
from tests.cli.test_looking import fill

NEW, DONE, RETRY, DEAD = EventStatus.NEW, EventStatus.DONE, EventStatus.RETRY, EventStatus.DEAD


@pytest.fixture
def place(tmp_path: Path) -> tuple[str, ...]:
    return "--url", f"sqlite:///{tmp_path}/shop.db"


def counts(folder: Path) -> dict[EventStatus, int]:
    outbox = Outbox(f"sqlite:///{folder}/shop.db")
    try:
        return outbox.records.counts()
    finally:
        outbox.close()


def test_dead_events_are_listed_and_retried_by_their_ids(here: Here, tmp_path: Path, place: tuple[str, ...]) -> None:
    done, dead, *_ = fill(tmp_path)
    listed = here("dead", "list", *place, "--json").json
    assert (listed["count"], [row["event_id"] for row in listed["rows"]]) == (1, [dead])
    assert here("dead", "show", dead, *place).code == 0
    assert here("dead", "retry", dead, *place, "--dry-run").out == "1 would be retried\n"
    assert counts(tmp_path)[DEAD] == 1
    partly = here("dead", "retry", dead, done, *place)
    assert (partly.code, partly.out) == (5, "1 retried\n")
    assert (counts(tmp_path)[DEAD], counts(tmp_path)[NEW]) == (0, 3)
    assert here("dead", "retry", dead, *place).code == 1


def test_a_selection_of_dead_events_is_retried_when_somebody_agrees(
    here: Here, tmp_path: Path, place: tuple[str, ...]
) -> None:
    fill(tmp_path)
    assert here("dead", "retry", *place).code == 2  # nothing was said of which
    refused = here("dead", "retry", *place, "--all")
    assert (refused.code, "Will retry 1 dead events" in refused.err, "--yes" in refused.err) == (2, True, True)
    assert here("dead", "retry", *place, "--type", "Good", "--yes").out.startswith("0 dead events would be")
    assert here("dead", "retry", *place, "--all", "--rate", "fast", "--yes").code == 2
    assert counts(tmp_path)[DEAD] == 1
    retried = here("dead", "retry", *place, "--error", "ConnectionError", "--rate", "1000/s", "--yes")
    assert (retried.code, retried.out) == (0, "1 retried\n")
    assert counts(tmp_path)[DEAD] == 0


def test_dead_events_are_discarded_with_a_reason(here: Here, tmp_path: Path, place: tuple[str, ...]) -> None:
    _, dead, *_ = fill(tmp_path)
    assert here("dead", "discard", dead, *place).code == 2
    assert here("dead", "discard", *place, "--all", "--dry-run").out.startswith("1 dead events would be discarded")
    assert counts(tmp_path)[DEAD] == 1
    assert here("dead", "discard", *place, "--all", "--reason", "known", "--yes").out == "1 discarded\n"
    assert "discarded: known" in here("show", dead, *place).out
    assert here("dead", "discard", dead, *place, "--yes").code == 1


def test_what_waits_is_cancelled_and_what_is_done_replayed(here: Here, tmp_path: Path, place: tuple[str, ...]) -> None:
    done, dead, first, second = fill(tmp_path)
    assert here("cancel", first, *place).code == 2
    assert here("cancel", first, *place, "--dry-run").out == "1 would be cancelled\n"
    assert here("cancel", first, dead, *place, "--yes").code == 5
    assert counts(tmp_path) == {NEW: 1, RETRY: 0, DEAD: 1, DONE: 2}
    assert here("replay", done, *place).code == 2
    assert here("replay", done, *place, "--yes").out == "1 replayed\n"
    assert counts(tmp_path) == {NEW: 2, RETRY: 0, DEAD: 1, DONE: 1}
    assert here("replay", second, *place, "--yes").code == 1


def test_old_rows_are_purged_and_dead_ones_only_when_asked_for(
    here: Here, tmp_path: Path, place: tuple[str, ...]
) -> None:
    fill(tmp_path)
    assert here("purge", *place, "--yes").code == 2  # how old is old?
    assert here("purge", *place, "--older-than", "0s").code == 2
    assert here("purge", *place, "--older-than", "1h", "--yes").out == "0 rows deleted\n"
    assert here("purge", *place, "--older-than", "0s", "--yes").out == "1 rows deleted\n"
    assert here("purge", *place, "--older-than", "0s", "--dead", "--yes").out == "1 rows deleted\n"
    assert counts(tmp_path) == {NEW: 2, RETRY: 0, DEAD: 0, DONE: 0}


def test_a_handler_or_a_type_is_paused_and_resumed_and_the_status_tells(
    here: Here, tmp_path: Path, place: tuple[str, ...]
) -> None:
    fill(tmp_path)
    assert here("pause", *place).code == 2
    assert here("pause", "charge", "--type", "Bad", *place).code == 2
    assert here("pause", "charge", *place, "--reason", "psp is down").out == "the handler charge is paused\n"
    assert here("pause", "--type", "Later", *place, "--for", "30m").out == "the type Later is paused for 30m\n"
    paused = here("status", *place, "--json").json["paused"]
    assert [(each["name"], each["reason"], each["until"] is None) for each in paused] == [
        ("charge", "psp is down", True),
        ("Later", "", False),
    ]
    shown = here("status", *place).out
    assert "paused: the handler charge for " in shown
    assert ": psp is down\n" in shown
    assert here("resume", "charge", *place).out == "the handler charge goes on\n"
    assert here("resume", "charge", *place).code == 1
    assert len(here("status", *place, "--json").json["paused"]) == 1

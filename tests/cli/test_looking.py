"""The commands that look: status, list, show, tail, doctor and migrate, in this process; every store is looked at by
tests/cli/test_every_store.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aftercommit import NoRetry, Outbox
from aftercommit.cli import looking
from aftercommit.cli.looking import Changes
from tests.cli.kit import Here, write_shop

CANARY = "hunter2canary"


def fill(folder: Path, **options: Any) -> list[str]:
    """One done, one dead, two that wait; the ids of all."""
    with Outbox(f"sqlite:///{folder}/shop.db", retry_policy=NoRetry(), **options) as outbox:
        outbox.register("Good", lambda event: None)

        @outbox.handler("Bad", id="charge")
        def charge(event: Any) -> None:
            raise ConnectionError(f"postgresql://me:{CANARY}@host: token={CANARY}")

        ids = []
        for kind in ("Good", "Bad"):
            with outbox.transaction():
                ids.append(outbox.write(kind, {"n": 1}, key="k", headers={"Authorization": f"Bearer {CANARY}"}))
        outbox.drain()
        with outbox.transaction():
            ids += [outbox.write("Later", {"n": number}, deliver_after="1h") for number in (2, 3)]
    return [str(each) for each in ids]


@pytest.fixture
def place(tmp_path: Path) -> tuple[str, ...]:
    return "--url", f"sqlite:///{tmp_path}/shop.db"


def test_status_tells_what_waits_by_type_and_fails_when_it_is_told_to(
    here: Here, tmp_path: Path, place: tuple[str, ...]
) -> None:
    fill(tmp_path)
    found = here("status", *place, "--json").json
    assert found["schema"] == "aftercommit.status/1"
    assert (found["pending"], found["retrying"], found["dead"], found["in_flight"]) == (2, 0, 1, 0)
    assert {(each["event_type"], each["pending"], each["dead"]) for each in found["types"]} == {
        ("Bad", 0, 1),
        ("Later", 2, 0),
    }
    shown = here("status", *place)
    assert shown.out.startswith("pending 2  retrying 0  in flight 0  dead 1  oldest 0ms\n")
    assert "Later" in shown.out
    assert here("status", *place, "--fail-if", "oldest>5m or dead>1").code == 0
    judged = here("status", *place, "--fail-if", "oldest > 5m or dead>=1")
    assert (judged.code, "dead is 1, limit 1" in judged.err) == (1, True)
    for wrong in ("dead", "cats>1", "dead>many", "oldest>1 parsec"):
        assert here("status", *place, "--fail-if", wrong).code in (2, 3), wrong


def test_status_of_an_ordered_table_tells_of_keys_and_instances(here: Here, tmp_path: Path) -> None:
    fill(tmp_path, ordered=True)
    found = here("status", "--url", f"sqlite:///{tmp_path}/shop.db", "--json").json
    assert [each["key"] for each in found["blocked"]] == ["k"]
    assert (found["instances"], found["unowned_partitions"]) == ([], 256)
    shown = here("status", "--url", f"sqlite:///{tmp_path}/shop.db").out
    assert "blocked: the key k behind" in shown
    assert "partitions without an owner: 256" in shown


def test_rows_are_listed_by_what_they_are_and_payloads_only_when_asked_for(
    here: Here, tmp_path: Path, place: tuple[str, ...]
) -> None:
    ids = fill(tmp_path)
    rows = here("list", *place, "--json").json["rows"]
    assert {row["event_id"] for row in rows} == set(ids)
    assert not [row for row in rows if "payload" in row]
    assert [row["status"] for row in here("list", *place, "--state", "dead", "--json").json["rows"]] == ["dead"]
    later = here("list", *place, "--type", "Later", "--limit", "1", "--payload", "--json").json["rows"]
    assert [row["payload"] for row in later] == ['{"n":3}']
    table = here("list", *place, "--error", "ConnectionError")
    assert "charge" not in table.out  # it was written for whoever takes the type
    assert (table.out.count("\n"), ids[1] in table.out) == (2, True)


def test_an_event_is_shown_by_the_beginning_of_its_id(here: Here, tmp_path: Path, place: tuple[str, ...]) -> None:
    with Outbox(f"sqlite:///{tmp_path}/shop.db") as outbox, outbox.transaction():
        outbox.write("Order", {"total": 7}, key="k", headers={"trace": "abc", "Authorization": f"Bearer {CANARY}"})
    (event_id,) = [row["event_id"] for row in here("list", *place, "--json").json["rows"]]
    shown = here("show", event_id[:20], *place)
    assert shown.code == 0
    assert shown.out.startswith(f"{event_id}  Order  new\n  key k  partition ")
    assert "total" not in shown.out
    whole = here("show", event_id, *place, "--payload").out
    assert '{"total":7}' in whole
    assert "trace: abc" in whole
    assert CANARY not in whole
    assert here("show", event_id, *place, "--payload", "--json").json["rows"][0]["payload"] == '{"total":7}'
    missing = here("show", "01ARZ3NDEKTSV4RRFFQ69G5FAV", *place)
    assert (missing.code, missing.out) == (1, "")
    with Outbox(f"sqlite:///{tmp_path}/shop.db") as outbox, outbox.transaction():
        outbox.write("Order", {"total": 8})
    several = here("show", event_id[:6], *place)
    assert (several.code, "several events begin with" in several.err) == (2, True)


def test_an_event_is_shown_with_what_became_of_its_deliveries(
    here: Here, tmp_path: Path, place: tuple[str, ...]
) -> None:
    _, dead, *_ = fill(tmp_path)
    (row,) = here("show", dead, *place, "--json").json["rows"]
    (failure,) = row["failures"]
    assert (failure["attempt"], failure["handler"], failure["error_class"]) == (1, "charge", "ConnectionError")
    shown = here("show", dead, *place).out
    assert "  #1 " in shown
    assert "charge" in shown
    assert "ConnectionError: " in shown


def test_tail_tells_what_is_written_and_what_becomes_of_it(
    here: Here, tmp_path: Path, place: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two looks something happens; where it would wait, the test goes on instead."""
    outbox = Outbox(f"sqlite:///{tmp_path}/shop.db", retry_policy=NoRetry())
    outbox.create_schema()
    outbox.register("Good", lambda event: None)

    def write() -> None:
        with outbox.transaction():
            outbox.write("Good", {})

    turns = iter([write, outbox.drain])
    monkeypatch.setattr("time.sleep", lambda _: next(turns)())
    told = here("tail", *place, "--jsonl", "--count", "2")
    outbox.close()
    lines = [json.loads(line) for line in told.out.splitlines()]
    assert [(line["change"], line["status"]) for line in lines] == [("written", "new"), ("done", "done")]
    turns = iter([write, write])
    monkeypatch.setattr("time.sleep", lambda _: next(turns)())
    assert " written  " in here("tail", *place, "--count", "1").out
    outbox.close()


def test_tail_tells_of_rows_that_are_gone_but_not_of_those_that_are_out_of_sight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Outbox(f"sqlite:///{tmp_path}/shop.db") as outbox:
        with outbox.transaction():
            outbox.write_all([])
            for number in range(4):
                outbox.write("T", {"n": number})
        rows = outbox.records.query()
    monkeypatch.setattr(looking, "_WATCHED", 3)
    changes = Changes()
    assert changes.since_last(rows[1:]) == []
    assert changes.since_last(rows[:3]) == [("written", rows[0])]
    assert changes.since_last([rows[0], rows[2]]) == [("removed", rows[1])]


def test_doctor_ends_by_what_it_finds(here: Here, tmp_path: Path, place: tuple[str, ...]) -> None:
    absent = here("doctor", *place)
    assert (absent.code, absent.out.startswith("FAIL  AC100 there is no file ")) == (4, True)
    assert not (tmp_path / "shop.db").exists()
    fill(tmp_path)
    looked = here("doctor", *place)
    assert looked.code == 0
    assert "warn  AC108 1 dead letters\n      fix: " in looked.out
    assert "?     AC121" in looked.out
    assert looked.err == "1 problems (0 failures, 1 warnings)\n"
    assert here("doctor", *place, "--strict").code == 1
    found = here("doctor", *place, "--json").json
    assert (found["schema"], found["failures"], found["warnings"]) == ("aftercommit.doctor/1", 0, 1)
    assert {each["level"] for each in found["findings"]} == {"ok", "warning", "unknown"}


@pytest.mark.parametrize("name", ["outbox", "aio"])
def test_doctor_knows_the_handlers_of_a_program_of_either_colour(here: Here, tmp_path: Path, name: str) -> None:
    write_shop(tmp_path)
    with Outbox(f"sqlite:///{tmp_path}/shop.db") as outbox, outbox.transaction():
        outbox.write("OrderPlacd", {})
    looked = here("doctor", f"shop:{name}")
    assert looked.code == 1
    assert "FAIL  AC121 no listener or handler takes OrderPlacd, of which 1 rows wait; the closest is" in looked.out


def test_doctor_looks_at_an_ordered_table_as_it_was_made(here: Here, tmp_path: Path, place: tuple[str, ...]) -> None:
    fill(tmp_path, ordered=True)
    looked = here("doctor", *place)
    assert "ok    AC101" in looked.out
    assert "FAIL  AC109 the key k stands still" in looked.out


def test_migrate_makes_the_schema_tells_it_and_guards_a_pipeline(
    here: Here, tmp_path: Path, place: tuple[str, ...]
) -> None:
    assert here("migrate", "check", *place).code == 1
    assert not (tmp_path / "shop.db").exists()
    assert "would make" in here("migrate", "up", *place, "--dry-run").out
    assert here("migrate", "check", *place).code == 1
    made = here("migrate", "up", *place)
    assert (made.code, made.out.startswith("the schema is at version ")) == (0, True)
    assert here("migrate", "up", *place).out.startswith("nothing to do")
    checked = here("migrate", "check", *place, "--json")
    assert (checked.code, checked.json["fits"]) == (0, True)
    status = here("migrate", "status", *place, "--json").json
    assert status["version"] == status["needed"] > 1
    whole = here("migrate", "sql", *place).out
    assert "CREATE TABLE" in whole
    step = here("migrate", "sql", *place, "--from", "1", "--to", "2").out
    assert "CREATE TABLE" not in step
    assert "CREATE INDEX" in step


def test_no_command_shows_a_password_of_an_error_or_a_header(
    here: Here, tmp_path: Path, place: tuple[str, ...]
) -> None:
    _, dead, *_ = fill(tmp_path)
    for words in (
        ("status",),
        ("list",),
        ("list", "--json", "--payload"),
        ("show", dead, "--payload"),
        ("show", dead, "--payload", "--json"),
        ("dead", "list"),
        ("dead", "list", "--json", "--payload"),
        ("doctor", "--json"),
        ("tail", "--jsonl", "--count", "1", "--interval", "no time"),
        ("migrate", "status"),
        ("dead", "retry", dead, "--dry-run"),
    ):
        ended = here(*words, *place)
        assert CANARY not in ended.out + ended.err, words
    for words in (("status",), ("doctor",), ("list",), ("migrate", "status"), ("dead", "list")):
        ended = here(*words, "--url", f"postgresql://me:{CANARY}@127.0.0.1:1/shop")
        assert ended.code == 4, words
        assert CANARY not in ended.out + ended.err, words

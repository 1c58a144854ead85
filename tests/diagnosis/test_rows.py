"""`outbox.diagnose()`: what rows say of those who deliver them, on every store and in both colours."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from aftercommit import EventStatus, Finding, Level, NoRetry, Outbox
from aftercommit.events.findings import CHECKS, LeaseHolder, said
from aftercommit.polling import diagnosis
from aftercommit.polling.diagnosis import lease_findings
from examples.memory_store.rows import Rows
from examples.memory_store.store import MemoryStore
from tests.support import World

HOUR = 3_600_000_000


def of(code: str, findings: list[Finding]) -> list[Finding]:
    found = [each for each in findings if each.code == code]
    assert found, f"nobody looked at {code}: {findings}"
    return found


def problems(findings: list[Finding]) -> set[str]:
    return {each.code for each in findings if each.is_problem}


def refuse(event: Any) -> None:
    raise ValueError("no")


def test_rows_tell_what_is_late_dead_forgotten_and_without_a_handler(
    any_server_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One outbox that has everything wrong with it, and one look at it."""
    world = any_server_world
    monkeypatch.setattr(diagnosis, "MANY_OLD", 1)

    async def scenario() -> None:
        outbox = world.outbox(retry_policy=NoRetry())
        outbox.register("Good", lambda event: None)
        outbox.register("Bad", refuse)
        outbox.handler("Good", id="send_receipt")(lambda event: None)
        async with outbox.transaction():
            await outbox.write("Good", {})
            await outbox.write("Bad", {})
        await outbox.drain()
        well = await outbox.diagnose()
        assert problems(well) & {"AC105", "AC106", "AC107", "AC121"} == set()
        assert [each.what for each in of("AC108", well)] == ["1 dead letters"]

        writer = world.outbox()
        async with writer.transaction():
            await writer.write("Goood", {})
            await writer.write("Good", {})
        past = world.now() - 24 * 30 * HOUR
        world.change("UPDATE outbox_event SET done_at = ? WHERE status = 1", past)
        world.change("UPDATE outbox_event SET available_at = ? WHERE event_type = 'Goood'", past)
        world.change(
            "UPDATE outbox_event SET handler_id = 'send_recipt', locked_by = 'gone', locked_at = ?, lease_until = ?"
            " WHERE event_type = 'Good' AND status = 0",
            past,
            past,
        )
        ill = await outbox.diagnose()
        assert {"AC105", "AC106", "AC107", "AC108", "AC121"} <= problems(ill)
        (lease,) = of("AC105", ill)
        assert lease.what.startswith("1 leases of gone are over, the first for 30d")
        assert "1 done rows or more are older than 7d" in of("AC106", ill)[0].what
        assert "has been due for 30d" in of("AC107", ill)[0].what
        lost = sorted(each.what for each in of("AC121", ill))
        assert lost == [
            "no handler is called 'send_recipt', for which 1 rows of Good wait; the closest is 'send_receipt'",
            "no listener or handler takes Goood, of which 1 rows wait; the closest is 'Good'",
        ]
        assert all(each.level is Level.FAILURE and each.fix for each in of("AC121", ill))

    world.run(scenario)


def test_keys_behind_a_dead_event_and_a_fleet_without_life_are_found(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(wiring="ordered", retry_policy=NoRetry())
        outbox.register("Bad", refuse)
        async with outbox.transaction():
            await outbox.write("Bad", {}, key="order-7")
        await outbox.drain()
        findings = await outbox.diagnose()
        (blocked,) = of("AC109", findings)
        assert blocked.level is Level.FAILURE
        assert blocked.what.startswith("the key order-7 stands still behind the dead Bad ")
        assert of("AC110", findings)[0].level is Level.WARNING
        async with outbox:
            assert of("AC110", await outbox.diagnose())[0].what == "instances that are alive: 1"

    world.run(scenario)


def test_leases_of_an_ordered_fleet_belong_to_living_instances() -> None:
    def holder(owner: str, held: timedelta) -> LeaseHolder:
        return LeaseHolder(owner, 3, 0, timedelta(seconds=-5), held)

    holders = [holder("here", timedelta(hours=1)), holder("gone", timedelta(hours=1)), holder("new", timedelta(0))]
    (found,) = lease_findings(holders, {"here"})
    assert found.what == "3 leases are held for 1h by gone, which is no living instance"
    assert [each.level for each in lease_findings(holders, None)] == [Level.OK]


def test_a_look_changes_nothing_where_there_is_nothing_yet(world: World) -> None:
    """Not even where the outbox would make its tables on first use."""

    async def scenario() -> None:
        outbox = world.outbox()
        (finding,) = await outbox.diagnose()
        assert (finding.code, finding.level) == ("AC100", Level.FAILURE)
        assert not world.path.exists()
        world.path.touch()
        findings = await outbox.diagnose()
        assert of("AC101", findings)[0].level is Level.FAILURE
        assert of("AC117", findings)
        assert not world.rows("SELECT name FROM sqlite_master")

    world.run(scenario)


def test_without_handlers_it_says_what_it_cannot_know(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        await outbox.create_schema()
        (finding,) = of("AC121", await outbox.diagnose())
        assert finding.level is Level.UNKNOWN
        assert not finding.is_problem

    world.run(scenario)


def test_a_check_that_fails_hides_no_other(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        await outbox.create_schema()
        world.change("ALTER TABLE outbox_event RENAME COLUMN locked_by TO owner")
        findings = await outbox.diagnose()
        (leases,) = of("AC105", findings)
        assert leases.level is Level.UNKNOWN
        assert "locked_by" in leases.what
        assert of("AC106", findings)[0].level is Level.OK

    world.run(scenario)


def test_a_store_that_says_nothing_of_itself_is_looked_at_all_the_same() -> None:
    outbox = Outbox(MemoryStore(Rows()))
    findings = outbox.diagnose()
    assert {each.code for each in findings} == {"AC100", "AC107", "AC108"}
    assert {each.level for each in findings} == {Level.OK}
    assert outbox.records.counts() == dict.fromkeys(EventStatus, 0)


def test_findings_read_as_errors_do() -> None:
    finding = Finding("AC106", Level.WARNING, "many old rows", "purge them")
    assert str(finding) == "warning: [AC106] many old rows\n  Fix: purge them"


def test_the_docs_tell_of_every_check_and_of_no_other() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "doctor.md").read_text()
    assert set(re.findall(r"^\| (AC\d+) \|", page, re.MULTILINE)) == set(CHECKS)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0004, "0.4 ms"), (0.25, "250 ms"), (3.14, "3.1 s"), (724, "12m 4s"), (3600, "1h"), (90_061, "1d 1h")],
)
def test_times_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert said(timedelta(seconds=seconds)) == text

"""A loop that goes on: it survives its errors, says so, backs off, and ends when it is told to."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from aftercommit import StoreUnavailable
from aftercommit.service import ENDS_WITHIN, FIRST_PAUSE, LONGEST_PAUSE, Countdown, Service, Troubles
from tests.delivery.faulty import (
    count_from_here,  # noqa: F401  (used by every test here)
    ours,
    with_runtime,
)
from tests.support import PATIENCE, Collector, Signal, World


class Steps(Service):
    """Does what it is told, once per nudge."""

    def __init__(self, runtime: Any, work: Callable[[], None]) -> None:
        super().__init__(runtime, "aftercommit-steps")
        self.work = work
        self.nudges = 0
        self.stepped = Collector()
        self.pauses: list[float | None] = []
        wait_for = self.monitor.wait_for

        async def watched(predicate: Any, timeout: float | None = None) -> Any:
            if timeout is None:
                return await wait_for(predicate)
            self.pauses.append(timeout)
            return await wait_for(predicate, 0.0)  # nobody waits for a pause here

        self.monitor.wait_for = watched

    async def step(self) -> None:
        await self.monitor.wait_for(lambda: self.nudges or self.is_stopping)
        if self.is_stopping:
            return
        self.nudges -= 1
        try:
            self.work()
        finally:
            self.stepped.add(None)

    def nudge(self, times: int = 1) -> None:
        with self.monitor:
            self.nudges += times
            self.monitor.notify_all()


def fail() -> None:
    raise ValueError("the loop broke with token=abc123")


def test_a_loop_survives_its_errors_and_logs_them_as_such(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """000 §16.2: loop errors are ERRORs, with the traceback and without secrets; however many there are in a row, one
    line tells of their beginning and one of their end."""

    async def scenario(runtime: Any) -> None:
        service = Steps(runtime, fail)
        service.start()
        service.nudge(3)
        await service.stepped.reach(3)
        service.work = lambda: None
        service.nudge()
        await service.stepped.reach(4)
        assert await service.stop(PATIENCE)
        assert service.failures_in_a_row == 0, "one good step makes it whole"

    with caplog.at_level(logging.INFO, "aftercommit"):
        with_runtime(world, scenario)
    failed, works = caplog.records
    assert (failed.levelname, works.levelname) == ("ERROR", "INFO")
    assert "aftercommit-steps failed and goes on: ValueError: the loop broke" in failed.getMessage()
    assert failed.exc_info[0] is ValueError
    assert (failed.outbox_loop, failed.outbox_error_type) == ("aftercommit-steps", "ValueError")
    assert "aftercommit-steps works again" in works.getMessage()
    assert "3 failed tries" in works.getMessage()
    assert "Traceback" in caplog.text
    assert "abc123" not in caplog.text


def test_an_outage_is_one_trouble_of_all_loops_and_a_long_one_is_said_once_a_minute(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(runtime: Any) -> None:
        now = [0.0]
        runtime.clock = lambda: now[0]
        troubles = Troubles(runtime, is_outage=lambda error: isinstance(error, OSError))
        for second in range(130):
            now[0] = float(second)
            troubles.begin("poller", StoreUnavailable("no answer", fix="wait"))
            troubles.begin("keeper", OSError("a driver's own word for it"))
        troubles.over("settler")
        troubles.over("keeper")
        assert not [record for record in caplog.records if "is back" in record.getMessage()], "not for the poller"
        troubles.over("poller")
        troubles.over("poller")
        troubles.begin("poller", ValueError("a fault"))
        troubles.begin("poller", KeyError("another"))
        troubles.over("poller")

    with caplog.at_level(logging.INFO, "aftercommit"):
        with_runtime(world, scenario)
    said = [(record.levelname, record.getMessage().split(":")[0]) for record in caplog.records]
    assert said == [
        ("ERROR", "the store is away, and is asked again and again"),
        ("ERROR", "the store is still away after 60 s, 121 failed tries"),
        ("ERROR", "the store is still away after 120 s, 241 failed tries"),
        ("INFO", "the store is back after 129 s, 260 failed tries"),
        ("ERROR", "poller failed and goes on"),
        ("ERROR", "poller failed and goes on"),
        ("INFO", "poller works again after 0 s, 1 failed tries"),
        ("INFO", "poller works again after 0 s, 1 failed tries"),
    ]
    assert [bool(record.exc_info) for record in caplog.records[:4]] == [True, False, False, False]


def test_pauses_grow_to_a_limit_and_begin_anew_after_a_good_step(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        service = Steps(runtime, fail)
        service.start()
        service.nudge(20)
        await service.stepped.reach(20)
        service.work = lambda: None
        service.nudge()
        await service.stepped.reach(21)
        service.work = fail
        service.nudge()
        await service.stepped.reach(22)
        assert await service.stop(PATIENCE)
        assert service.pauses[:4] == [FIRST_PAUSE, FIRST_PAUSE * 2, FIRST_PAUSE * 4, FIRST_PAUSE * 8]
        assert service.pauses[7:20] == [LONGEST_PAUSE] * 13
        assert service.pauses[20] == FIRST_PAUSE

    with_runtime(world, scenario)


def test_progress_is_the_end_of_a_good_step(world: World) -> None:
    """F109"""

    async def scenario(runtime: Any) -> None:
        now = [5.0]
        runtime.clock = lambda: now[0]
        service = Steps(runtime, fail)
        service.start()
        now[0] = 50.0
        service.nudge()
        await service.stepped.reach(1)
        assert service.progressed_at == 5.0
        service.work = lambda: None
        service.nudge()
        await service.stepped.reach(2)
        assert await service.stop(PATIENCE)
        assert service.progressed_at == 50.0

    with_runtime(world, scenario)


def test_starting_twice_starts_one_loop(world: World) -> None:
    """TC-177"""

    async def scenario(runtime: Any) -> None:
        service = Steps(runtime, lambda: None)
        service.start()
        service.start()
        assert len(ours()) == (0 if world.is_async else 1)
        service.nudge()
        await service.stepped.reach(1)
        assert await service.stop(PATIENCE)
        assert await service.stop(PATIENCE), "again is fine"
        assert ours() == set()

    with_runtime(world, scenario)


def test_stopping_before_starting_is_fine(world: World) -> None:
    """TC-177"""

    async def scenario(runtime: Any) -> None:
        assert await Steps(runtime, lambda: None).stop(0)

    with_runtime(world, scenario)


def test_a_loop_that_does_not_end_in_time_is_reported(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        entered, release = Signal(), Signal()

        class Stuck(Service):
            async def step(self) -> None:
                entered.set()
                await release.wait()

        service = Stuck(runtime, "aftercommit-stuck")
        service.start()
        await entered.wait()
        assert not await service.stop(0)
        release.set()
        assert await service.stop(PATIENCE)

    with_runtime(world, scenario)


def test_a_pause_ends_when_the_loop_is_stopped(world: World) -> None:
    """With the real pauses: nobody waits five seconds for a broken loop to end."""

    async def scenario(runtime: Any) -> None:
        failed = Collector()

        class Broken(Service):
            async def step(self) -> None:
                failed.add(None)
                raise ValueError("always")

        service = Broken(runtime, "aftercommit-broken")
        service.failures_in_a_row = 30  # the longest pause from the first
        service.start()
        await failed.reach(1)
        started = runtime.clock()
        assert await service.stop(PATIENCE)
        assert runtime.clock() - started < LONGEST_PAUSE / 2

    with_runtime(world, scenario)


def test_loops_that_end_one_after_the_other_share_the_time_of_one(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        now = runtime.clock()
        runtime.clock = lambda: now
        time = Countdown(runtime)
        assert time.left() == ENDS_WITHIN
        now += ENDS_WITHIN - 1
        assert Countdown(runtime).left() == ENDS_WITHIN
        assert time.left() == pytest.approx(1)
        now += 2
        assert time.left() == 0

    with_runtime(world, scenario)

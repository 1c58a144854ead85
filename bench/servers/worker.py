"""A process that delivers: `python -m bench.servers.worker`, told by a line what to do (a `Job`).

It says `ready`, begins with the next line, and from then on answers every line with a `Report`. After `stop` it takes
the next job.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from aftercommit import AsyncOutbox, Outbox
from bench.handlers import handle, handle_async, parse, parse_async
from bench.servers import drivers
from bench.servers.drivers import Driver
from bench.servers.places import place_of

#: What the hand-written loop is tuned to.
_BATCH = 500


class Job(msgspec.Struct, frozen=True):
    """Where, who delivers, and what its handler does: parse the JSON, wait for so many seconds, or note the time."""

    url: str
    driver: str
    who: Literal["hand", "outbox"] = "outbox"
    options: dict[str, Any] = {}
    ordered: bool = False
    handler: Literal["parse", "wait", "note"] = "parse"
    wait: float = 0.0
    #: Its handler takes so many events at once; 0: one each time.
    batch: int = 0


class Report(msgspec.Struct, frozen=True):
    """Seconds of processor time since it began, memory now and at most (MB), and when each event began that is not
    yet reported."""

    cpu: float
    resident: float
    peak: float
    began: dict[str, int] = {}


def serve(driver_of: Callable[[Job], Driver]) -> None:
    """One job after the other."""
    while line := sys.stdin.readline():
        job = msgspec.json.decode(line, type=Job)
        _do(job, driver_of(job))


def _do(job: Job, driver: Driver) -> None:
    talk = Talk()
    match (job.who, driver.is_async):
        case ("hand", False):
            _hand(driver, talk)
        case ("hand", True):
            asyncio.run(_hand_async(driver, talk))
        case (_, False):
            _outbox(driver, job, talk)
        case _:
            asyncio.run(_outbox_async(driver, job, talk))


class Talk:
    """With whoever measures."""

    def __init__(self) -> None:
        #: When each event began.
        self.began: dict[str, int] = {}
        self._cpu = 0.0

    def go(self) -> None:
        print("ready", flush=True)
        sys.stdin.readline()
        self._cpu = time.process_time()

    def answer(self) -> None:
        """Every line until the job ends."""
        while (line := sys.stdin.readline()) not in ("", "stop\n"):
            self._report()
        if line:
            self._report()

    def _report(self) -> None:
        report = Report(
            cpu=time.process_time() - self._cpu,
            resident=_resident(),
            peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            began={event_id: self.began.pop(event_id) for event_id in list(self.began)},
        )
        print(msgspec.json.encode(report).decode(), flush=True)


def _resident() -> float:
    """MB, where the platform tells."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
    except OSError:
        return 0.0


def _hand(driver: Driver, talk: Talk) -> None:
    by_hand = driver.hand().open()
    talk.go()
    by_hand.drain(_BATCH, parse)
    talk.answer()
    by_hand.close()


async def _hand_async(driver: Driver, talk: Talk) -> None:
    by_hand = await driver.hand().open()
    talk.go()
    await by_hand.drain(_BATCH, parse_async)
    await asyncio.to_thread(talk.answer)
    await by_hand.close()


def _outbox(driver: Driver, job: Job, talk: Talk) -> None:
    def note(event: Any) -> None:
        talk.began[event.event_id] = time.perf_counter_ns()

    handlers: dict[str, Callable[[Any], None]] = {
        "parse": handle,
        "wait": lambda _: time.sleep(job.wait),
        "note": note,
    }
    outbox = Outbox(driver.url, ordered=job.ordered, **job.options)
    if job.batch:
        outbox.handler("OrderPlaced", id="many", batch=job.batch)(many_of(handlers[job.handler], job.handler))
    else:
        outbox.register("OrderPlaced", handlers[job.handler])
    outbox.stats()  # so that it is connected, as the other one is
    talk.go()
    with outbox:
        talk.answer()


def many_of(handle: Callable[[Any], None], kind: str) -> Callable[[list[Any]], None]:
    """The same for many events: what waits does so once for all of them."""

    def many(events: list[Any]) -> None:
        for event in events[:1] if kind == "wait" else events:
            handle(event)

    return many


async def _outbox_async(driver: Driver, job: Job, talk: Talk) -> None:
    async def note(event: Any) -> None:
        talk.began[event.event_id] = time.perf_counter_ns()

    async def wait(_: Any) -> None:
        await asyncio.sleep(job.wait)

    handlers: dict[str, Any] = {"parse": handle_async, "wait": wait, "note": note}
    outbox = AsyncOutbox(driver.url, ordered=job.ordered, **job.options).register("OrderPlaced", handlers[job.handler])
    await outbox.stats()
    talk.go()
    async with outbox:
        await asyncio.to_thread(talk.answer)


if __name__ == "__main__":
    serve(lambda job: drivers.named(place_of(job.url), job.driver))

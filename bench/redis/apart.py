"""How soon an event reaches a worker process after its append in another process, which only writes."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Final

from aftercommit import Outbox
from aftercommit.stores.redis.threads import BlockingLink
from bench import hand as work
from bench.paced import Latency, Plan, Times, beside, now, pace
from bench.redis.drains import WORKER, job
from bench.redis.latency import stamped
from bench.redis.place import Redis
from bench.results import Goal, Line
from bench.rounds import Rival, Stopwatch, in_turn
from bench.servers.apart import Nobody
from bench.servers.team import Team, Worker, until
from bench.sizes import Sizes

_GOALS: Final = (Goal("P6c", "figure", 3.0),)


def redis_apart(sizes: Sizes, workshop: Path) -> list[Line]:
    """At each pace; the worker of each colour has keys of its own and stays up from round to round."""
    lines = []
    with Redis.opened() as first, Redis.opened() as second, Team(WORKER) as team:
        places = {"threads": first, "asyncio": second}
        jobs = [job(place, colour, handler="note") for colour, place in places.items()]
        workers = dict(zip(places, team.take(*jobs), strict=True))
        for worker in workers.values():
            worker.go()
        for rate, count in sizes.paces.items():
            plan = Plan(count // 2, rate)
            rivals: dict[str, Rival[Latency]] = {
                colour: partial(_round, place, workers[colour], plan) for colour, place in places.items()
            }
            samples = in_turn(rivals, sizes.rounds, workshop)
            lines += [
                beside("redis_apart", f"{colour}, {plan}", "", samples[colour], goals=_GOALS) for colour in samples
            ]
        for worker in workers.values():
            worker.stop()
    return lines


def _round(place: Redis, worker: Worker, plan: Plan, _: Path) -> Latency:
    times, answered = Times(), dict[int, int]()

    def write(number: int) -> None:
        times.ids[number] = outbox.write("OrderPlaced", work.payload(number))
        times.committed[number], times.left[number] = answered[threading.get_ident()], now()

    with (
        stamped(BlockingLink, place.scripts["append"], answered, threading.get_ident),
        Outbox.writer_only(place.url, table=place.table) as outbox,
    ):
        with Stopwatch() as watch:
            pace(plan, write, Nobody())  # type: ignore[arg-type]
        until(lambda: not place.is_pending())
    times.began.update(worker.report().began)
    return times.latency(watch)

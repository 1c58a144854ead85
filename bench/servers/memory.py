"""What a worker process needs when very many events wait."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from bench.results import Goal, Line, Spread
from bench.servers.places import Postgres
from bench.servers.team import Team, until
from bench.servers.worker import Job, Report
from bench.sizes import Sizes

#: Looks at the process while it delivers; so many times the size of a window apart, together.
_LOOKS: Final = 10


def postgres_memory(sizes: Sizes, _: Path) -> list[Line]:
    """Resident memory while it delivers, beside the same process once it has started on an empty table."""
    with Postgres.opened() as place:
        idle = _looks(place, sizes, 1)[0]
        place.fill_pending(sizes.pending_rows)
        place.tidy()
        looks = _looks(place, sizes, _LOOKS)
    first, last = looks[_LOOKS // 5], looks[-1]
    return [
        Line(
            measure="postgres_memory",
            variant=f"{sizes.pending_rows:,} pending, psycopg, default options",
            rival="nothing pending",
            unit="MB at most",
            ours=Spread.of([last.peak]),
            theirs=Spread.of([idle.peak]),
            goals=(Goal("P13", "figure", 80),),
            details={"resident_mb": [look.resident for look in looks], "growth_mb": last.resident - first.resident},
        )
    ]


def _looks(place: Postgres, sizes: Sizes, times: int) -> list[Report]:
    """A process of its own each time, so that its peak is of this job."""
    looks = []
    with Team() as team:
        [worker] = team.take(Job(place.url, "psycopg"))
        worker.go()
        until(lambda: times == 1 or place.count("status = 1") > 0)
        for _ in range(times):
            time.sleep(4 * sizes.window / _LOOKS)
            looks.append(worker.report())
        worker.stop()
    return looks

"""The walk of one event is short: how many calls it makes from write() to DONE, and through how many files."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import aftercommit
from aftercommit import Outbox
from tests.promises.waiting import until
from tests.support import PATIENCE

PACKAGE = str(Path(aftercommit.__file__).parent) + "/"

#: What has no name of its own is part of who calls it.
NAMELESS = {"<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<module>"}


class Counter:
    """Counts calls of the package's own functions, in all threads, while it is on."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls: list[str] = []

    def __call__(self, frame: Any, kind: str, _: object) -> None:
        code = frame.f_code
        if self.is_on and kind == "call" and code.co_filename.startswith(PACKAGE) and code.co_name not in NAMELESS:
            self.calls.append(code.co_filename)


def walks(folder: Path, **options: Any) -> list[list[str]]:
    """The files of the calls of several walks, one event each."""
    counter, delivered, written = Counter(), threading.Event(), list[None]()
    before = threading.getprofile(), sys.getprofile()
    threading.setprofile(counter)
    sys.setprofile(counter)
    try:
        outbox = Outbox(f"sqlite:///{folder}/walk.db", worker_count=1, poll_interval="1h", **options)
        outbox.register("Happened", lambda _: delivered.set())

        def one() -> list[str]:
            delivered.clear()
            counter.calls, counter.is_on = [], True
            with outbox.transaction():
                outbox.write("Happened", "{}", key="k")
            assert delivered.wait(PATIENCE)
            settled = outbox._engine.meter._counts  # looked at, not asked for: a question would be counted
            written.append(None)
            until(lambda: settled["dispatch_success"] == len(written), what="its outcome is written")
            counter.is_on = False
            return counter.calls

        with outbox:
            return [one() for _ in range(12)]
    finally:
        threading.setprofile(before[0])
        sys.setprofile(before[1])


@pytest.mark.parametrize(
    ("options", "calls", "files"),
    [({}, 120, 22), ({"hot_path": False}, 160, 25), ({"ordered": True}, 200, 30)],
    ids=["hot", "cold", "ordered"],
)
def test_the_walk_of_one_event_is_short(tmp_path: Path, options: dict[str, Any], calls: int, files: int) -> None:
    """The shortest of several: a heartbeat or a renewal may come between."""
    shortest = min(walks(tmp_path, **options), key=len)
    assert 50 < len(shortest) <= calls
    assert 15 < len(set(shortest)) <= files, sorted(set(shortest))

"""Programs that fork while an outbox of Django runs, as servers do that load the application first."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.db import connections, transaction

from aftercommit.runtime.threads import run
from tests.django import kit
from tests.support import Collector


def main(program: str, path: str) -> None:
    kit.set_up()
    kit.add_database("sqlite", kit.sqlite_settings(Path(path)))
    kit.make_tables("sqlite")
    from aftercommit.django import DjangoOutbox

    outbox, seen = DjangoOutbox("sqlite", poller_enabled=False), Collector()
    outbox.register("Placed", lambda event: seen.add(int(event.payload_json)))
    with outbox:
        PROGRAMS[program](outbox, seen)
    print("parent: ok")


def preloaded(outbox: Any, seen: Collector) -> None:
    """Started before the fork: each process delivers what it writes."""
    connections["sqlite"].close()
    own = outbox._store.executor._own._own  # of the executor that is not Django's, the connections that are no user's
    parents = [id(each) for each in own._idle]
    assert parents

    def serve() -> None:
        assert own._idle == []
        write(outbox, 1)
        run(seen.reach(1))
        assert seen == [1]
        outbox.drain()
        assert not {id(each) for each in own._idle} & set(parents)
        outbox.close()

    in_child(serve)
    write(outbox, 2)
    run(seen.reach(1))
    assert seen == [2]


def in_a_block(outbox: Any, seen: Collector) -> None:
    """The child drops its copy of what waits for the commit; the transaction is the parent's."""

    def drop() -> None:
        waiting = connections["sqlite"].run_on_commit.pop()[1]
        told: list[str] = []
        waiting.on_rollback[:] = [lambda: told.append("rolled back")]
        del waiting
        assert told == []

    with transaction.atomic(using="sqlite"):
        outbox.write("Placed", 1)
        in_child(drop)
    run(seen.reach(1))


def write(outbox: Any, number: int) -> None:
    with transaction.atomic(using="sqlite"):
        outbox.write("Placed", number)


def in_child(work: Callable[[], None]) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            print("child: ok", flush=True)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


PROGRAMS = {"preloaded": preloaded, "in_a_block": in_a_block}

if __name__ == "__main__":
    main(*sys.argv[1:])

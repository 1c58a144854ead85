"""Several processes of a web server on one database, each of which writes and delivers."""

from __future__ import annotations

import pytest

from tests.serving.kit import Server

UVICORN_WORKERS = "gunicorn --worker-class=uvicorn_worker.UvicornWorker"

slow = pytest.mark.slow

#: Each framework, each way to start it and each database, and what forks with each of these. All pairs are slow.
SERVERS = [
    ("flask", "gunicorn", "sqlite"),
    ("flask", "gunicorn --preload", "postgres"),
    ("fastapi", "uvicorn", "sqlite"),
    ("fastapi", UVICORN_WORKERS, "postgres"),
    ("fastapi", f"{UVICORN_WORKERS} --preload", "postgres"),
    ("django", "gunicorn --preload", "sqlite"),
    ("django/async", "uvicorn", "postgres"),
    pytest.param(("flask", "gunicorn --preload", "sqlite"), marks=slow),
    pytest.param(("fastapi", "uvicorn", "postgres"), marks=slow),
    pytest.param(("fastapi", f"{UVICORN_WORKERS} --preload", "sqlite"), marks=slow),
]


@pytest.mark.parametrize("server", SERVERS, indirect=True, ids=" ".join)
def test_the_workers_of_a_server_deliver_each_event_once_and_end_in_order(server: Server) -> None:
    """F64, F65. One test, as the start of a server is what costs."""
    workers_are_on_their_own(server)
    each_event_is_delivered_once_by_a_worker(server)
    what_a_killed_worker_held_is_delivered_by_another(server)
    sigterm_leaves_nothing_leased(server)


def workers_are_on_their_own(server: Server) -> None:
    """A master that has loaded the program runs no thread: it would deliver, too, and fork in the middle of it."""
    workers = server.workers()
    assert server.master not in workers
    assert server.threads_of_the_master() in (1, None)
    assert len({worker["owner"] for worker in workers.values()}) == len(workers)
    if (sessions := {worker["session"] for worker in workers.values()}) != {None}:
        assert len(sessions) == len(workers)


def each_event_is_delivered_once_by_a_worker(server: Server) -> None:
    workers, numbers = server.workers(), server.orders(40)
    delivered = server.until_noted("effect", numbers)
    server.until_settled()
    assert {number: len(by) for number, by in delivered.items()} == dict.fromkeys(numbers, 1)
    assert {by for pids in delivered.values() for by in pids} <= workers.keys()


def what_a_killed_worker_held_is_delivered_by_another(server: Server) -> None:
    number = server.order(waits=True)
    ((victim,),) = server.until_noted("enter", [number]).values()
    server.kill(victim)
    server.gate.touch()
    server.end_leases()
    ((heir,),) = server.until_noted("effect", [number]).values()
    assert heir not in (victim, server.master)
    server.until_settled()
    server.gate.unlink()


def sigterm_leaves_nothing_leased(server: Server) -> None:
    """Handlers run, and more events wait behind them, when it comes."""
    workers = server.workers()
    begun = [server.order(waits=True) for _ in range(12)]
    server.until_noted("enter", begun[:1])
    assert server.terminate(workers) == 0
    assert server.table.read("SELECT count(*) FROM outbox_event WHERE locked_by IS NOT NULL")[0][0] == 0
    done = server.table.read("SELECT count(*) FROM outbox_event WHERE status = 1")[0][0]
    assert done == len(server.journal.lines("effect"))

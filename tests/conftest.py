"""Worlds, colours and servers for every test that wants them."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from hypothesis import settings

from tests import brokers, finding, redis_servers, servers
from tests.support import World, painted

# A busy machine is no reason to call a property false. Each run looks at the same examples; `make soak` at new ones.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.register_profile("soak", deadline=None)
settings.load_profile("suite")

#: How the reason begins when a test found no server.
NO_SERVER = "no server: "


def pytest_configure(config: pytest.Config) -> None:
    """Workers hear by their environment which servers there are; without workers the first test that asks finds out."""
    if not hasattr(config, "workerinput") and "TMPDIR" not in os.environ and is_there_memory_for_files():
        config.add_cleanup(keep_files_in_memory())
    gc.disable()  # until all is collected: it stays, and to look through it again and again takes a fifth of the time
    if not hasattr(config, "workerinput") and getattr(config.option, "numprocesses", None):
        finding.find_all()


#: Where files are in memory, on systems that have that. Nothing here is about a power cut of the machine, and most
#: tests commit to a file of their own, again and again: on a disk they wait for it for half of their time.
MEMORY = "/dev/shm"


def is_there_memory_for_files() -> bool:
    """Enough of it, and programs may be run there: tests build some."""
    try:
        found = os.statvfs(MEMORY)
    except (OSError, AttributeError):
        return False
    room = found.f_bavail * found.f_frsize
    return os.access(MEMORY, os.W_OK) and not found.f_flag & os.ST_NOEXEC and room >= 2 * 1024**3


def keep_files_in_memory() -> Callable[[], None]:
    """Of tests, of what they start, and of servers. What is left of them at the end goes: a process that was killed
    removes nothing. The folders of tests that failed are pytest's, and stay."""
    folder = tempfile.mkdtemp(prefix="aftercommit-", dir=MEMORY)
    os.chmod(folder, 0o755)  # noqa: S103  (servers that root may not run are run by somebody else)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)
    return lambda: shutil.rmtree(folder, ignore_errors=True)


#: Where tests wait for processes and servers of their own, and take seconds each.
LONG = ("promises", "serving", "model")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the long tests evenly among the files of the others: each worker begins with an equal part of the list,
    and one that is all long tests would end last, alone."""
    items[:] = [item for item in items if not is_more_than_enough(item)]
    long = [item for item in items if item.path.parent.name in LONG]
    others = [item for item in items if item.path.parent.name not in LONG]
    files = [list(group) for _, group in groupby(others, key=lambda item: item.path)]
    total, passed, taken = max(1, len(others)), 0, 0
    items.clear()
    for file in files:
        items += file
        passed += len(file)
        due = len(long) * passed // total
        items += long[taken:due]
        taken = due
    items += long[taken:]


def is_more_than_enough(item: pytest.Item) -> bool:
    """Whether a test of every store has a handler of the colour that its server does not need."""
    values = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    server, colour = values.get("every_world"), values.get("colour")
    return server in ELSEWHERE and colour is not None and colour != ELSEWHERE[server][1]


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was collected stays to the end: nobody who looks for garbage has to look at it."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """What a test kept on itself goes with it. pytest has its object until the end of the run, and with it the stores
    of thousands of tests: whoever looks for garbage would look at all of them, again and again."""
    yield
    if isinstance(item, pytest.Function) and item.instance is not None:
        vars(item.instance).clear()


def pytest_unconfigure(config: pytest.Config) -> None:
    finding.stop_all()
    servers.forget_all()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What was not tested: a line for each reason, however many tests share it."""
    reports = [each for each in terminalreporter.stats.get("skipped", []) if isinstance(each.longrepr, tuple)]
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)
    if reasons:
        terminalreporter.section("not tested")
        for reason, count in sorted(reasons.items()):
            terminalreporter.line(f"{count} tests: {reason}")
        if any(reason.startswith(NO_SERVER) for reason in reasons):
            terminalreporter.line("docs/contributing-tests.md tells how to give them a server.")


def server(name: str) -> str:
    """The address of a server. Without one the test is skipped; where the suite must be whole it fails."""
    try:
        return finding.find(name)
    except servers.NoServer as error:
        without(f"{finding.KINDS[name].name}: {error}", is_expected=finding.KINDS[name].private is not None)


def without(reason: str, *, is_expected: bool = True) -> Any:
    """There is no server. A continuous integration has all but those that cannot be had there."""
    if servers.is_ci() and is_expected:
        pytest.fail(f"{NO_SERVER}{reason}")
    pytest.skip(f"{NO_SERVER}{reason}")


@pytest.fixture(autouse=True)
def _logging_is_left_alone() -> Iterator[None]:
    """A level that one test leaves behind hides the log from tests after it, which fail far from the cause."""
    before = _logging()
    yield
    assert _logging() == before, "the test has changed the logging of those that follow"


def _logging() -> tuple[object, ...]:
    ours, root = logging.getLogger("aftercommit"), logging.getLogger()
    return root.level, logging.root.manager.disable, ours.level, ours.disabled, ours.propagate


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL database of this worker's own."""
    server_url, name = server("postgres"), f"aftercommit_{uuid4().hex[:12]}"
    execute_postgres(server_url, f"CREATE DATABASE {name}")
    execute_postgres(server_url, f"ALTER DATABASE {name} SET synchronous_commit = off")
    yield other_database(server_url, name)
    execute_postgres(server_url, f"DROP DATABASE {name} WITH (FORCE)")


def execute_postgres(url: str, sql: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql)


#: What both servers must do that are called MySQL: for a test, a class or a module.
on_both_mysqls = pytest.mark.parametrize("mysql_url", ["mysql", "real_mysql"], indirect=True, scope="session")
on_real_mysql = pytest.mark.parametrize("mysql_url", ["real_mysql"], indirect=True, scope="session")


@pytest.fixture(scope="session")
def mysql_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A MySQL or MariaDB database of this worker's own; one after the other where a test is for both."""
    server_url, name = server(getattr(request, "param", "mysql")), f"aftercommit_{uuid4().hex[:12]}"
    execute_mysql(server_url, f"CREATE DATABASE {name}")
    yield other_database(server_url, name)
    execute_mysql(server_url, f"DROP DATABASE {name}")


def execute_mysql(url: str, sql: str) -> None:
    with servers.pymysql_connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(sql)


@pytest.fixture(scope="session")
def redis_url() -> str:
    """A Redis that others use as well: a test has the keys of its own `redis_table`."""
    return server("redis")


@pytest.fixture(scope="session")
def valkey_url() -> str:
    """A Valkey that others use as well."""
    return server("valkey")


@pytest.fixture
def redis_table(redis_url: str) -> Iterator[str]:
    """A table, which on Redis is what keys begin with, of this test's own; nothing is left of it."""
    table = f"aftercommit_{uuid4().hex[:12]}"
    yield table
    redis_servers.forget(redis_url, table)


@pytest.fixture(scope="session")
def rabbitmq_url() -> str:
    """A RabbitMQ that others use as well: a test has queues and exchanges of its own."""
    return server("rabbitmq")


@pytest.fixture(scope="session")
def nats_url() -> str:
    """A NATS with JetStream that others use as well: a test has streams of its own."""
    return server("nats")


@pytest.fixture(scope="session")
def sqlserver_url() -> str:
    """A SQL Server that somebody named; there is none to be had otherwise."""
    return server("sqlserver")


def other_database(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()


@pytest.fixture
def private_postgres() -> Iterator[servers.PrivatePostgres]:
    """A PostgreSQL that the test may stop and start."""
    yield from started(servers.PrivatePostgres)


@pytest.fixture
def private_mariadb() -> Iterator[servers.PrivateMariadb]:
    """A MariaDB that the test may stop and start."""
    yield from started(servers.PrivateMariadb)


@pytest.fixture
def private_redis(request: pytest.FixtureRequest) -> Iterator[redis_servers.PrivateRedis]:
    """A Redis that the test may stop, kill and start; with the settings of its mark `redis_settings`, if it has one."""
    mark = request.node.get_closest_marker("redis_settings")
    yield from started(lambda: redis_servers.PrivateRedis(**(mark.kwargs if mark else {})))


@pytest.fixture
def private_valkey(request: pytest.FixtureRequest) -> Iterator[redis_servers.PrivateValkey]:
    """A Valkey likewise."""
    mark = request.node.get_closest_marker("redis_settings")
    yield from started(lambda: redis_servers.PrivateValkey(**(mark.kwargs if mark else {})))


@pytest.fixture
def private_rabbitmq() -> Iterator[brokers.PrivateRabbitmq]:
    """A RabbitMQ that the test may stop, kill and start."""
    yield from started(brokers.PrivateRabbitmq)


@pytest.fixture
def redis_replicas() -> Iterator[redis_servers.RedisReplicas]:
    """A master and its replica, which the test may let fail over."""
    yield from started(redis_servers.RedisReplicas)


@pytest.fixture
def redis_sentinels() -> Iterator[redis_servers.RedisSentinels]:
    """A master and its replica, and three Sentinels that let it fail over."""
    yield from started(redis_servers.RedisSentinels)


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[redis_servers.RedisCluster]:
    """Three private nodes. It is there for all tests of a worker: each has a table of its own."""
    yield from started(redis_servers.RedisCluster)


@pytest.fixture
def pgbouncer(postgres_url: str) -> Iterator[servers.Pgbouncer]:
    """A pooler in transaction mode before this worker's PostgreSQL database."""
    yield from started(lambda: servers.Pgbouncer(postgres_url))


def started(make: Callable[[], Any]) -> Iterator[Any]:
    with ExitStack() as stack:
        try:
            made = stack.enter_context(make())
        except servers.NoServer as error:
            without(str(error))
        yield made


@pytest.fixture(params=["threads", "asyncio"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Either runtime, over a SQLite file of its own."""
    return World(request.param, tmp_path)


#: Every way to a server: the database, the runtime, and the scheme of its URL.
WAYS = {
    "postgres-threads": ("postgres", "threads", "postgresql"),
    "postgres-asyncio": ("postgres", "asyncio", "postgresql"),
    "postgres-asyncpg": ("postgres", "asyncio", "postgresql+asyncpg"),
    "mariadb-threads": ("mariadb", "threads", "mysql"),
    "mariadb-asyncio": ("mariadb", "asyncio", "mysql"),
}


@pytest.fixture(params=WAYS)
def server_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Either runtime over each server and driver, with empty tables."""
    yield from _world_on(request, *WAYS[request.param], tmp_path)


def _world_on(
    request: pytest.FixtureRequest, database: str, runtime: str, scheme: str, tmp_path: Path
) -> Iterator[World]:
    url: str = request.getfixturevalue("postgres_url" if database == "postgres" else "mysql_url")
    made = World(runtime, tmp_path, database, urlsplit(url)._replace(scheme=scheme).geturl())
    made.somebody.clear()
    yield made
    made.somebody.close()


#: Each differs from another one by its driver alone, or by its runtime. Scenarios in which these have no part are slow
#: there.
SELDOM = {"postgres-asyncio", "mariadb-threads", "redis-asyncio"}


def ways(*names: str) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow) if name in SELDOM else name for name in names]


@pytest.fixture(params=ways(*WAYS, "redis-threads", "redis-asyncio"))
def any_server_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """The same, and Redis: for scenarios that run no SQL of their own in a transaction."""
    if request.param in WAYS:
        yield from _world_on(request, *WAYS[request.param], tmp_path)
    else:
        yield from _world_on_redis(request, request.param.removeprefix("redis-"), tmp_path)


def _world_on_redis(request: pytest.FixtureRequest, runtime: str, tmp_path: Path) -> Iterator[World]:
    url, table = request.getfixturevalue("redis_url"), request.getfixturevalue("redis_table")
    made = World(runtime, tmp_path, "redis", url, table)
    yield made
    made.somebody.close()


#: Both runtimes and colours of handlers are tried on SQLite. What a server adds is its store, for which one of each is
#: enough: the runtime and the colour.
ELSEWHERE = {"postgres": ("threads", "async"), "mariadb": ("asyncio", "sync"), "redis": ("threads", "sync")}


@pytest.fixture(params=["threads", "asyncio", *ELSEWHERE])
def every_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Either runtime over a SQLite file, and one over each server. A module that concerns every store makes it
    its `world`."""
    name = request.param
    if name not in ELSEWHERE:
        yield World(name, tmp_path)
    elif name == "redis":
        yield from _world_on_redis(request, ELSEWHERE[name][0], tmp_path)
    else:
        scheme = "postgresql" if name == "postgres" else "mysql"
        yield from _world_on(request, name, ELSEWHERE[name][0], scheme, tmp_path)


#: Of those worlds: where an event needs a transaction, and a block inside of another is a savepoint.
in_transactions = pytest.mark.parametrize(
    "every_world", ["threads", "asyncio", *(name for name in ELSEWHERE if name != "redis")], indirect=True
)


#: Of those worlds: in a module that concerns every store, what is decided before anything is stored.
in_either_runtime = pytest.mark.parametrize("every_world", ["threads", "asyncio"], indirect=True)


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Either colour of handler: `colour(function)`."""
    return lambda function: painted(request.param, function)

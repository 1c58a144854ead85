"""The servers of a run: one that answers, else a private one from what is installed, else none.

Found once per run and told to all workers by environment variables.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tests.brokers import PrivateNats, PrivateRabbitmq, nats_answers, rabbitmq_answers
from tests.redis_servers import PrivateRedis, PrivateValkey, redis_answers, valkey_answers
from tests.servers import (
    NoServer,
    PrivateMariadb,
    PrivateMysql,
    PrivatePostgres,
    PrivateServer,
    mysql_answers,
    postgres_answers,
    real_mysql_answers,
)


@dataclass(frozen=True)
class Kind:
    """A kind of server: how people call it, who tells its address, and how to find or make one."""

    name: str
    variable: str
    default: str | None = None
    answers: Callable[[str], bool] = lambda url: True
    private: Callable[[], PrivateServer] | None = None


KINDS = {
    "postgres": Kind(
        "PostgreSQL",
        "AFTERCOMMIT_TEST_POSTGRES_URL",
        "postgresql://postgres@127.0.0.1:5432/test",
        postgres_answers,
        PrivatePostgres,
    ),
    "mysql": Kind(
        "MySQL or MariaDB",
        "AFTERCOMMIT_TEST_MYSQL_URL",
        "mysql://root@127.0.0.1:3306/test",
        mysql_answers,
        PrivateMariadb,
    ),
    "real_mysql": Kind(
        "MySQL itself",
        "AFTERCOMMIT_TEST_REAL_MYSQL_URL",
        "mysql://root@127.0.0.1:3306/test",
        real_mysql_answers,
        PrivateMysql,
    ),
    "redis": Kind(
        "Redis or Valkey", "AFTERCOMMIT_TEST_REDIS_URL", "redis://127.0.0.1:6379", redis_answers, PrivateRedis
    ),
    "valkey": Kind(
        "Valkey itself", "AFTERCOMMIT_TEST_VALKEY_URL", "redis://127.0.0.1:6379", valkey_answers, PrivateValkey
    ),
    "rabbitmq": Kind(
        "RabbitMQ",
        "AFTERCOMMIT_TEST_RABBITMQ_URL",
        "amqp://guest:guest@127.0.0.1:5672/",
        rabbitmq_answers,
        PrivateRabbitmq,
    ),
    "nats": Kind(
        "NATS with JetStream", "AFTERCOMMIT_TEST_NATS_URL", "nats://127.0.0.1:4222", nats_answers, PrivateNats
    ),
    "sqlserver": Kind("SQL Server", "AFTERCOMMIT_TEST_SQLSERVER_URL"),
}

#: Private servers that this process has started for the run.
_started: list[PrivateServer] = []


def find(name: str) -> str:
    """The address of a server, found or started for the first who asks. NoServer tells why there is none."""
    kind = KINDS[name]
    missing = f"{kind.variable}_MISSING"
    if reason := os.environ.get(missing):
        raise NoServer(reason)
    try:
        url = _find(kind)
    except NoServer as error:
        os.environ[missing] = str(error)
        raise
    os.environ[kind.variable] = url
    return url


def _find(kind: Kind) -> str:
    given = os.environ.get(kind.variable)
    if given:
        if not kind.answers(given):
            raise NoServer(f"nobody answers at {kind.variable}")
        return given
    if kind.default is None or kind.private is None:
        raise NoServer(f"{kind.variable} is not set")
    if kind.answers(kind.default):
        return kind.default
    server = kind.private()
    server.__enter__()
    _started.append(server)
    return server.url


def find_all() -> None:
    """Before workers are started, so that they all hear of the same servers."""
    for name in KINDS:
        with suppress(NoServer):
            find(name)


def stop_all() -> None:
    while _started:
        _started.pop().__exit__()

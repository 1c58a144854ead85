"""Private brokers for tests: a RabbitMQ and a NATS with JetStream, each a context manager as the databases are."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import aio_pika
import nats

from tests.servers import PrivateServer, free_port, installed, program


def rabbitmq_answers(url: str) -> bool:
    async def ask() -> bool:
        connection = await aio_pika.connect(url, timeout=5)
        await connection.close()
        return True

    # Its driver reports a server that is not there yet in many ways, some of them cancellations.
    with suppress(Exception, asyncio.CancelledError):
        return is_listened_to(url, 5672) and asyncio.run(ask())
    return False


def nats_answers(url: str) -> bool:
    """And it has JetStream."""

    async def ignore(_: Exception) -> None: ...

    async def ask() -> bool:
        client = await nats.connect(url, connect_timeout=5, allow_reconnect=False, error_cb=ignore)
        try:
            await client.jetstream().account_info()
            return True
        finally:
            await client.close()

    with suppress(Exception, asyncio.CancelledError):
        return is_listened_to(url, 4222) and asyncio.run(ask())
    return False


def is_listened_to(url: str, port: int) -> bool:
    """Which drivers find out slowly."""
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "localhost", parts.port or port), 2).close()
    except OSError:
        return False
    return True


class PrivateRabbitmq(PrivateServer):
    """A node of its own, with a name server of its own; what it has confirmed is on disk."""

    name: ClassVar[str] = "rabbitmq"
    users: ClassVar[tuple[str, ...]] = ("rabbitmq",)

    def __init__(self, **settings: str) -> None:
        super().__init__()
        self._settings = settings
        self._is_ending = False
        self._names, self._distribution = free_port(), free_port()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))},
            "HOME": str(self.folder),
            "RABBITMQ_NODENAME": f"aftercommit{self.port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(self.folder / "generated"),
            "ERL_EPMD_PORT": str(self._names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_RELAXED_COMMAND_CHECK": "1",
            "ERL_CRASH_DUMP_SECONDS": "0",
            "RUNNING_UNDER_SYSTEMD": "1",  # the process that is started is the broker itself
        }
        self._as = {**self._as, "env": environment}

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def _prepare(self) -> None:
        self._find()
        self._make()

    def _find(self) -> None:
        # That on the path asks who calls it.
        inner = Path("/usr/lib/rabbitmq/bin")
        self._server = program("rabbitmq-server", inner) or installed("rabbitmq-server", inner)
        self._names_program = installed("epmd")

    def _make(self) -> None:
        settings = {"loopback_users.guest": "false", "disk_free_limit.absolute": "1MB", **self._settings}
        (self.folder / "rabbitmq.conf").write_text("".join(f"{k} = {v}\n" for k, v in settings.items()))
        (self.folder / "plugins").write_text("[].\n")
        # Before the broker does it, which would leave it behind as a daemon.
        self._names_process = subprocess.Popen(
            [self._names_program], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            **self._as,
        )  # fmt: skip

    def _command(self) -> list[str | Path]:
        return [self._server]

    def _answers(self) -> bool:
        return rabbitmq_answers(self.url)

    def start(self) -> None:
        watch = threading.Event()
        for _ in range(500):  # a node that was killed is known by its name until the name server has noticed
            if not self._is_known():
                break
            watch.wait(0.02)
        super().start()

    def stop(self, immediate: bool = False) -> None:
        """Which queues there are it writes down when it likes, whatever it has confirmed to who declared them. What is
        in them is another matter."""
        if immediate and self._process is not None and self._process.poll() is None and not self._is_ending:
            control = program("rabbitmqctl", self._server.resolve().parent) or installed("rabbitmqctl")
            self._run(control, "-q", "eval", "mnesia:sync_log().")
        super().stop(immediate)

    def _is_known(self) -> bool:
        told = subprocess.run(
            [self._names_program, "-names"], check=False, capture_output=True, text=True, **self._as
        ).stdout
        return f"aftercommit{self.port} " in told

    def _remove(self) -> None:
        self._is_ending = True
        names = getattr(self, "_names_process", None)
        if names is not None:
            self.stop(immediate=True)
            names.send_signal(signal.SIGTERM)
            names.wait()
        super()._remove()


class PrivateNats(PrivateServer):
    """JetStream in a folder of its own."""

    name: ClassVar[str] = "nats"
    users: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **settings: str) -> None:
        super().__init__()
        self._as = {}
        self._settings = settings

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def _prepare(self) -> None:
        self._find()
        self._make()

    def _find(self) -> None:
        beside = Path(sys.executable).parent  # a wheel has one
        self._server = program("nats-server", beside) or installed("nats-server")

    def _make(self) -> None:
        lines = [
            *("host: 127.0.0.1", f"port: {self.port}"),
            f'jetstream {{ store_dir: "{self.folder / "data"}", sync_interval: always }}',
            *(f"{name}: {value}" for name, value in self._settings.items()),
        ]
        (self.folder / "nats.conf").write_text("\n".join(lines) + "\n")

    def _command(self) -> list[str | Path]:
        return [self._server, "-c", "nats.conf"]

    def _answers(self) -> bool:
        return nats_answers(self.url)

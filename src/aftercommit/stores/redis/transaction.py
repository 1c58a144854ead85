"""Transactions: the outbox's own, which collects commands and events and sends them as one script, and a MULTI
pipeline of the user's, which takes the events along."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from typing import Any, Final, NoReturn

from redis.commands import CoreCommands
from redis.crc import key_slot
from redis.exceptions import DataError

from aftercommit.errors import UnsupportedTransaction
from aftercommit.events.claims import NewEvent, QueryResult, RowKey
from aftercommit.stores.redis.faults import duplicate
from aftercommit.stores.redis.rows import new_row
from aftercommit.stores.redis.scripts import Script, Word

#: Commands that only give a value, which there is not before the commit.
_READS: Final = frozenset(
    """
    BITCOUNT BITFIELD_RO BITPOS DBSIZE DUMP EXISTS EXPIRETIME GEODIST GEOHASH GEOPOS GEORADIUS_RO
    GEORADIUSBYMEMBER_RO GEOSEARCH GET GETBIT GETRANGE HEXISTS HGET HGETALL HKEYS HLEN HMGET HRANDFIELD HSCAN HSTRLEN
    HVALS INFO KEYS LCS LINDEX LLEN LPOS LRANGE MEMORY MGET OBJECT PEXPIRETIME PFCOUNT PTTL RANDOMKEY SCAN SCARD SDIFF
    SINTER SINTERCARD SISMEMBER SMEMBERS SMISMEMBER SORT_RO SRANDMEMBER SSCAN STRLEN SUBSTR SUNION TIME TTL TYPE XINFO
    XLEN XPENDING XRANGE XREAD XREVRANGE ZCARD ZCOUNT ZDIFF ZINTER ZINTERCARD ZLEXCOUNT ZMSCORE ZRANDMEMBER ZRANGE
    ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE ZUNION
    """.split()  # noqa: SIM905
)

#: Commands that a server runs in no script.
_REFUSED: Final = frozenset(
    """
    ACL AUTH BGREWRITEAOF BGSAVE CLIENT CLUSTER COMMAND CONFIG DEBUG DISCARD EVAL EVALSHA EVAL_RO EVALSHA_RO EXEC
    FAILOVER FCALL FCALL_RO FUNCTION HELLO LATENCY MIGRATE MONITOR MULTI PSUBSCRIBE PUNSUBSCRIBE QUIT READONLY
    READWRITE REPLICAOF RESET SAVE SCRIPT SELECT SHUTDOWN SLAVEOF SLOWLOG SSUBSCRIBE SUBSCRIBE SUNSUBSCRIBE SWAPDB
    SYNC UNSUBSCRIBE UNWATCH WAIT WAITAOF WATCH
    """.split()  # noqa: SIM905
)

#: Commands whose first word is no key.
_KEYLESS: Final = frozenset({"PUBLISH", "SPUBLISH", "FLUSHALL", "FLUSHDB"})


def _encode(word: Any) -> bytes:
    """As the driver sends it, which refuses the same."""
    match word:
        case bytes() | memoryview():
            return bytes(word)
        case str():
            return word.encode()
        case int() | float() if not isinstance(word, bool):
            return repr(word).encode()
    raise DataError(f"a word of a command is a {type(word).__qualname__}; make it bytes, str, int or float first")


class Queued(Awaitable[None]):
    """What a command in a transaction gives: nothing, before the commit. It may be awaited, and need not be."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()

    def __repr__(self) -> str:
        return "<queued until the commit>"


QUEUED: Final = Queued()


class Commands(CoreCommands):
    """The driver's commands, collected. What reads is refused: its value would be known only after the commit."""

    #: What the driver's commands tell events of theirs to: nobody.
    _event_dispatcher: Any = None

    def __init__(self, tag: str | None = None) -> None:
        """With a `tag` keys have to have it: on a cluster, where they must lie in the slot of the outbox."""
        self.collected: list[tuple[bytes, ...]] = []
        self.is_open = True
        self._tag = tag

    def execute_command(self, *words: Any, **_: Any) -> Queued:
        name = str(words[0]).upper().partition(" ")[0]
        if not self.is_open:
            raise UnsupportedTransaction(f"{name} was called after the end of the transaction", fix="call it inside")
        if name in _READS:
            raise UnsupportedTransaction(
                f"{name} only reads, and commands of a transaction run all together at its commit",
                fix="read with your own client before the block; a Lua script of your own can read and write at once",
            )
        if name in _REFUSED:
            raise UnsupportedTransaction(
                f"{name} cannot be part of a transaction, which the server runs as one script",
                fix="call it on your own client, outside of the block",
            )
        command = tuple(map(_encode, words[1:]))
        if self._tag is not None and name not in _KEYLESS:
            self._refuse_other_slot(name, command)
        # The driver writes some commands as one text of two words.
        self.collected.append((*str(words[0]).encode().split(), *command))
        return QUEUED

    def _refuse_other_slot(self, name: str, command: Sequence[bytes]) -> None:
        """By the first key; what else lies elsewhere the server refuses at the commit."""
        slot, key = key_slot(f"{{{self._tag}}}".encode()), command[0] if command else b""
        if key_slot(key) != slot:
            raise UnsupportedTransaction(
                f"{name} has the key {key.decode(errors='replace')!r}, which lies in another slot of the cluster than "
                "the outbox",
                fix=f"give your keys the tag of the outbox: {{{self._tag}}}order:7",
            )


class RedisTransaction:
    """Commands and events, which nobody sees before the commit sends them all."""

    def __init__(self, append: Callable[[Sequence[Word]], Awaitable[None]], tag: str | None = None) -> None:
        self._append = append
        #: By their keys.
        self._rows: dict[tuple[str, str], tuple[Word, ...]] = {}
        #: Made when they are asked for: a write by itself has none.
        self._commands: Commands | None = None
        self._tag = tag
        self.is_open = True

    @property
    def connection(self) -> Commands:
        """Where the user's own commands are called."""
        if self._commands is None:
            self._commands = Commands(self._tag)
            self._commands.is_open = self.is_open
        return self._commands

    def add(self, events: Sequence[NewEvent]) -> None:
        """All or none."""
        rows: dict[tuple[str, str], tuple[Word, ...]] = {}
        for each in events:
            rows[each.event.event_id, each.handler_id] = new_row(each)
        if len(rows) < len(events) or not self._rows.keys().isdisjoint(rows):
            raise duplicate("an event that was written twice in one transaction, or its row for one handler,")
        self._rows |= rows

    def has(self, keys: Collection[RowKey]) -> set[RowKey]:
        return {key for key in keys if key in self._rows}

    async def commit(self) -> None:
        commands, rows = () if self._commands is None else self._commands.collected, self._rows.values()
        if commands or rows:
            words: list[Word] = [len(commands)]
            for command in commands:
                words += (len(command), *command)
            for row in rows:
                words += row
            await self._append(words)
        self._close()

    async def end(self) -> None:
        self._close()

    def _close(self) -> None:
        self.is_open = False
        if self._commands is not None:
            self._commands.is_open = False

    async def savepoint(self, name: str) -> None:
        raise _no_savepoints()

    async def release(self, name: str) -> None:
        raise _no_savepoints()

    async def rollback_to(self, name: str) -> None:
        raise _no_savepoints()

    async def query(self, sql: str, parameters: Any = ()) -> QueryResult:
        _refuse_sql()

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        _refuse_sql()

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        _refuse_sql()

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        _refuse_sql()


class AdoptedPipeline:
    """A MULTI pipeline of the user's. The events are one more command in it, and share the fate of the others."""

    #: Nothing is locked on the server before EXEC.
    is_begun = False
    mark = None

    def __init__(self, pipeline: Any, append: Script) -> None:
        self.pipeline = pipeline
        self._append = append

    @property
    def is_active(self) -> bool:
        """Behind a WATCH commands are run at once, until multi() is called."""
        pipeline = self.pipeline
        # `transaction` is a method of the async ones.
        is_multi = pipeline.is_transaction if hasattr(pipeline, "is_transaction") else pipeline.transaction
        return bool(pipeline.explicit_transaction or (is_multi and not pipeline.watching))

    def add(self, events: Sequence[NewEvent]) -> None:
        """The whole script: inside of MULTI it would be too late to hear that the server does not know it."""
        words: list[Word] = [0]
        for each in events:
            words += new_row(each)
        self.pipeline.execute_command(*self._append.whole(words))

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        _refuse_sql()

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        _refuse_sql()

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        _refuse_sql()


def _refuse_sql() -> NoReturn:
    raise UnsupportedTransaction("Redis runs no SQL", fix='call commands by their names: tx.set("order:7", "…")')


def _no_savepoints() -> UnsupportedTransaction:
    return UnsupportedTransaction("Redis has no savepoints", fix="one outbox.transaction() around all of the work")

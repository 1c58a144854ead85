"""The event store over Redis, written once for both colours: it names scripts and binds values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any
from weakref import WeakSet

from redis.exceptions import ResponseError

from aftercommit.errors import (
    EffectsUnsupported,
    InvalidOption,
    OutboxError,
    UniqueKeyUnsupported,
    UnsupportedTransaction,
)
from aftercommit.events.claims import Claim, ClaimRequest, Inserted, Lease, NewEvent, RowKey, Settlement, refuse_nobody
from aftercommit.events.order import Head, Heads, HeadsRequest, HeadState, KeyClaimRequest, Order
from aftercommit.events.outcome import Dead, Retry
from aftercommit.events.records import KEPT_FAILURES
from aftercommit.ports import (
    AdoptedTx,
    Capabilities,
    Diagnosis,
    Membership,
    OpenTransaction,
    Pauses,
    Records,
    SchemaStatus,
    Tx,
    Wakeups,
)
from aftercommit.stores.redis.diagnosis import RedisDiagnosis
from aftercommit.stores.redis.durability import Durability
from aftercommit.stores.redis.faults import explained, is_outage
from aftercommit.stores.redis.link import Link
from aftercommit.stores.redis.membership import RedisMembership
from aftercommit.stores.redis.own_script import AdoptedScript, OwnScript
from aftercommit.stores.redis.pauses import RedisPauses
from aftercommit.stores.redis.records import RedisRecords
from aftercommit.stores.redis.rows import claimed_of, fence_words, lane_of, order_key_of, outcome_words, packed_notes
from aftercommit.stores.redis.scripts import KeyNames, Word
from aftercommit.stores.redis.server import Server
from aftercommit.stores.redis.transaction import AdoptedPipeline, RedisTransaction
from aftercommit.stores.redis.wakeups import RedisWakeups
from aftercommit.stores.sql.rows import to_micros
from aftercommit.stores.sql.runs import REACH, rest_of


class RedisStore:
    """Events in Redis or Valkey, under keys that begin with `{table}:`. The link's colour is the store's colour.

    Rows that are done are deleted, unless `delete_completed` is False: memory is dear.
    """

    sql_table = replication = None

    def __init__(
        self,
        link: Link,
        *,
        where: str = "Redis",
        database: int = 0,
        pipelines: tuple[type, ...] = (),
        is_cluster: bool = False,
        table: str = "outbox_event",
        schema: str | None = None,
        create_schema: bool = True,
        delete_completed: bool | None = None,
        ordered: bool = False,
        on_dead: str = "block",
        serialize_keys: bool = False,
        durability: str | None = None,
        header_codec: object = None,
    ) -> None:
        if header_codec is not None:
            raise InvalidOption(
                "header_codec was given, and on Redis headers are a part of the packed event", fix="leave it out"
            )
        if schema is not None:
            raise InvalidOption(f"schema is {schema!r}, and Redis has no schemas", fix="leave it out; use table=…")
        self.colour = link.colour
        self.where = where
        self.order = Order(ordered, on_dead)
        names = KeyNames(table)
        self.server = Server(link, names, self.order, Durability.of(durability), where=where, creates=create_schema)
        # What is written together is one script, so writers of a key never overlap: it costs nothing to promise it.
        self.capabilities = Capabilities(
            needs_transaction=False,
            has_savepoints=False,
            serializes_keys=serialize_keys,
            keeps_order=True,
            wakes_others=True,
            takes_commands=True,
        )
        self._deletes = delete_completed is not False
        self._pipelines = pipelines
        self._tag = table if is_cluster else None
        self._own_pools: WeakSet[Any] = WeakSet()
        #: Channels are the server's and not a database's, so their names tell the database.
        self._channel = names[f"wake:{database}"]
        self._listening: set[RedisWakeups] = set()
        self.records: Records = RedisRecords(self.server, self._deletes)
        self.diagnosis: Diagnosis | None = RedisDiagnosis(self.server)
        self.pauses: Pauses | None = RedisPauses(self.server)
        self.membership: Membership | None = RedisMembership(self.server)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.where})"

    @property
    def wakeups(self) -> Wakeups | None:
        return RedisWakeups(self.server, self._channel, self._listening)

    @property
    def warnings(self) -> Sequence[str]:
        return self.server.warnings

    # ------------------------------------------------------------ life

    @property
    def requires_active_transaction(self) -> bool:
        return self.capabilities.needs_transaction

    @property
    def is_ready(self) -> bool:
        return self.server.is_ready

    async def open(self) -> None:
        await self.server.open()

    async def create_schema(self) -> None:
        await self.server.create()

    async def schema_status(self) -> SchemaStatus:
        return await self.server.status()

    def schema_sql(self, from_version: int = 0, to_version: int | None = None) -> str:
        raise InvalidOption(
            "Redis has no tables, so there is no script that makes them",
            fix="nothing: the outbox makes its keys by itself when it starts, or by create_schema()",
        )

    async def drop_schema(self) -> None:
        """Remove its keys and all that is in them: for an outbox that was made to try something."""
        await self.server.drop()

    async def close(self) -> None:
        for each in list(self._listening):
            await each.close()
        await self.server.link.close()

    def abandon(self) -> None:
        for each in list(self._listening):
            each.abandon()
        self.server.link.abandon()

    # ------------------------------------------------------------ writing

    async def begin(self, isolation: str | None = None) -> OpenTransaction:
        return RedisTransaction(self._append, self._tag)

    async def _append(self, words: Sequence[Word]) -> None:
        reply = await self.server.run_sure("append", words)
        if isinstance(reply, list):
            _, number, text = reply
            error = ResponseError(text.decode(errors="replace"))
            self.server.explain(error)  # a full server refuses the first one, and nothing has run
            raise UnsupportedTransaction(
                f"command {number} of the transaction failed: {error}; those before it have run, those behind it and "
                "the events have not",
                fix="mend the command; Redis takes nothing back",
            )

    def outage(self, error: Exception) -> OutboxError | None:
        if isinstance(error, OutboxError) or not is_outage(error):
            return None
        return explained(error, self.server.names.table, self.where)

    def adopt(self, handle: object) -> AdoptedTx | None:
        if isinstance(handle, OwnScript):
            return AdoptedScript(handle, self.server.scripts["append"])
        if not isinstance(handle, self._pipelines):
            return None
        return AdoptedPipeline(handle, self.server.scripts["append"])

    async def refuse_foreign(self, handle: object, tx: AdoptedTx) -> None:
        if not isinstance(tx, AdoptedPipeline) or (pool := tx.pipeline.connection_pool) in self._own_pools:
            return
        await self.open()
        (found,) = await self.server.link.over(pool).call((b"HGET", self.server.names["meta"], b"store_id"))
        if found != self.server.store_id:
            raise UnsupportedTransaction(
                f"the pipeline leads to another server or database than the outbox, which is in {self.where}",
                fix="make the pipeline with a client of the outbox's own server and database",
            )
        self._own_pools.add(pool)

    async def insert(self, tx: Tx, events: Sequence[NewEvent]) -> None:
        if not isinstance(tx, RedisTransaction | AdoptedPipeline | AdoptedScript):
            raise UnsupportedTransaction(
                f"tx is a {type(tx).__qualname__}",
                fix="pass what begin() gave, a pipeline or an OwnScript",
            )
        if events:
            tx.add(events)

    async def insert_unique(self, tx: Tx, events: Sequence[NewEvent]) -> Inserted:
        raise UniqueKeyUnsupported(f"{self!r} keeps no unique keys", fix="leave unique_key out")

    async def surviving(self, tx: Tx, keys: Sequence[RowKey]) -> Collection[RowKey]:
        return tx.has(keys) if isinstance(tx, RedisTransaction) else set(keys)

    # ------------------------------------------------------------ delivering

    async def claim(self, request: ClaimRequest) -> Claim:
        refuse_nobody(request.owner)
        floor = request.floor if isinstance(request.floor, tuple) else (b"", b"")
        now, next_due, floor_at, floor_position, *rows = await self.server.run(
            "claim",
            request.owner,
            request.limit,
            to_micros(request.lock_timeout),
            to_micros(request.skip_recent),
            *floor,
        )
        rows.sort()
        return Claim(
            [claimed_of(row, request, now) for row in rows],
            None if floor_at is None else (floor_at, floor_position),
            None if next_due is None else next_due / 1_000_000,
        )

    async def heads(self, request: HeadsRequest) -> Heads:
        if not request.partitions:
            return Heads(())
        partitions, after = rest_of(request)
        rule = request.rule
        found = await self.server.run(
            "heads",
            request.limit,
            int(rule.stops),
            int(rule.blocks),
            REACH,
            after,
            *(f"{each:03}" for each in partitions),
        )
        heads = [
            Head(order_key_of(lane.decode()), HeadState(state.decode()), wait / 1_000_000)
            for lane, state, wait in found
        ]
        return Heads(heads, heads[-1].key if len(heads) >= request.limit else None)

    async def claim_keys(self, request: KeyClaimRequest) -> Claim:
        refuse_nobody(request.owner)
        if not request.keys:
            return Claim(())
        rule = request.rule
        now, *rows = await self.server.run(
            "claim_keys",
            request.owner,
            request.run,
            to_micros(request.lock_timeout),
            int(rule.stops),
            int(rule.blocks),
            REACH,
            *(lane_of(*key) for key in request.keys),
        )
        rows.sort()
        return Claim([claimed_of(row, request, now, is_ordered=True) for row in rows])

    async def settle(self, settlements: Sequence[Settlement]) -> Collection[RowKey]:
        if not settlements:
            return ()
        words: list[Word] = []
        notes: list[Word] = []
        for number, each in enumerate(settlements):
            words += (*fence_words(each.lease), *outcome_words(each.outcome))
            if isinstance(each.outcome, Retry | Dead) and each.outcome.failures:
                notes += (number, packed_notes(each.outcome.failures))
        head: tuple[Word, ...] = (int(self._deletes), KEPT_FAILURES, len(notes) // 2)
        refused = await self.server.run_sure("settle", [*head, *notes, *words])
        return {settlements[number].lease.key for number in refused}

    async def settle_in(self, tx: Tx, lease: Lease, done_handlers: tuple[str, ...] = ()) -> bool:
        raise EffectsUnsupported(f"{self!r} settles in no transaction of others", fix="call settle() by itself")

    async def renew(self, leases: Sequence[Lease], lock_timeout: timedelta) -> Collection[RowKey]:
        if not leases:
            return ()
        fences = (word for lease in leases for word in fence_words(lease))
        renewed = await self.server.run("renew", to_micros(lock_timeout), *fences)
        return {leases[number].key for number in renewed}

    async def mark_suspect(self, lease: Lease, count: int = 1) -> bool:
        return bool(await self.server.run("mark_suspect", *fence_words(lease), count))

    def is_row_fault(self, error: Exception) -> bool:
        """A text that cannot be sent. The server itself takes any."""
        return isinstance(error, UnicodeError)

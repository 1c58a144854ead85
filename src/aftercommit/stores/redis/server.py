"""The server as the store speaks to it: scripts by their names, errors in our words, and how sure an answer is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from redis.exceptions import NoScriptError, ResponseError

from aftercommit.errors import OutboxError, SchemaMismatch
from aftercommit.events.claims import HASH_NAME, PARTITION_COUNT
from aftercommit.events.log import Log
from aftercommit.events.order import UNORDERED, Order
from aftercommit.ports import SchemaStatus
from aftercommit.stores.redis.durability import Durability
from aftercommit.stores.redis.faults import explained, missing
from aftercommit.stores.redis.link import Link
from aftercommit.stores.redis.scripts import LAYOUT, KeyNames, Script, Word, scripts_of

log = Log("aftercommit.stores.redis")

_MISSING: Final = "NOLAYOUT"


class Server:
    """One outbox on one server."""

    def __init__(
        self, link: Link, names: KeyNames, order: Order, durability: Durability, *, where: str, creates: bool
    ) -> None:
        self.link = link
        self.names = names
        self.where = where
        self.scripts = scripts_of(names)
        self.durability = durability
        self.is_ready = False
        self.store_id = b""
        #: What people should know of how the server keeps what it is given.
        self.warnings: tuple[str, ...] = ()
        self._order = order
        self._creates = creates

    # ------------------------------------------------------------ life

    async def open(self) -> None:
        """Look whether the outbox is there and fits; make it, when that was asked for."""
        if self.is_ready:
            return
        facts = await self._facts(makes=self._creates)
        if (problem := self._problem(facts)) is not None:
            raise problem
        self.store_id = facts["store_id"].encode()
        self.warnings = await self.durability.look(self.link, self.where, self.explain)
        self.is_ready = True

    async def examined(self) -> str:
        """The layout of the outbox, which fits. Raises what `open` would where it makes nothing."""
        facts = await self._facts(makes=False)
        if (problem := self._problem(facts)) is not None:
            raise problem
        return facts["layout"]

    async def create(self) -> None:
        """Also change the order that is kept to the one that is wanted here."""
        facts = await self._facts(makes=True)
        if _order_of(facts) != self._order and facts.get("layout") == LAYOUT:
            await self.run("reorder", int(self._order.ordered), self._order.on_dead)
        self.is_ready = False
        await self.open()

    async def status(self) -> SchemaStatus:
        """The layout of the keys counts as the version."""
        facts = await self._facts(makes=False)
        return SchemaStatus(int(facts.get("layout", 0)), int(LAYOUT), problem=self._problem(facts))

    async def _facts(self, *, makes: bool) -> dict[str, str]:
        new: dict[str, Word] = {
            "layout": LAYOUT,
            "store_id": str(uuid4()),
            "partitions": PARTITION_COUNT,
            "hash": HASH_NAME,
            "ordered": int(self._order.ordered),
            "on_dead": self._order.on_dead,
        }
        words = [word for fact in new.items() for word in fact]
        reply = await self._send(self.scripts["setup"], [int(makes), *words])
        return {reply[n].decode(): reply[n + 1].decode() for n in range(0, len(reply), 2)}

    async def drop(self) -> None:
        """Remove every key that a script of this outbox knows."""
        keys = {key for script in self.scripts.values() for key in script.keys}
        (reply,) = await self.link.call((b"EVAL", b"return redis.call('UNLINK', unpack(KEYS))", len(keys), *keys))
        if isinstance(reply, Exception):
            self.explain(reply)
            raise reply
        self.is_ready = False

    def _problem(self, facts: Mapping[str, str]) -> OutboxError | None:
        """Why this release cannot work with what is there."""
        table = self.names.table
        if not facts:
            return missing(table, self.where)
        if facts.get("layout") != LAYOUT:
            return SchemaMismatch(
                f"the keys of {table} have the layout {facts.get('layout')}, this release has {LAYOUT}",
                fix="run one release of aftercommit on one outbox, or give this one another table=…",
            )
        ours = (str(PARTITION_COUNT), HASH_NAME)
        if (facts["partitions"], facts["hash"]) != ours:
            return SchemaMismatch(
                f"{table} was made with {facts['partitions']} partitions by {facts['hash']}, this release uses "
                f"{ours[0]} by {ours[1]}",
                fix="use the release that it was made with",
            )
        if (kept := _order_of(facts)) != self._order:
            return SchemaMismatch(
                f"{table} was made with {kept}, this outbox has {self._order}",
                fix=f"give this process {kept}; or stop all others and call outbox.create_schema() of this one",
                kept={"ordered": kept.ordered, "on_dead": kept.on_dead},
            )
        return None

    # ------------------------------------------------------------ scripts

    async def run(self, name: str, *words: Word) -> Any:
        """What a script gives."""
        return await self.run_sure(name, words, is_sure=False)

    async def run_sure(self, name: str, words: Sequence[Word], *, is_sure: bool = True) -> Any:
        """The same, when as many have it as `durability` asks for."""
        script = self.scripts[name]
        try:
            return await self._send(script, words, is_sure=is_sure)
        except ResponseError as error:
            if str(error) != _MISSING or not self._creates:
                self.explain(error)
                raise
        # The server was emptied, or restarted with nothing on its disk.
        log.warning("%s has lost the outbox %s and all of its events; it is made anew", self.where, self.names.table)
        self.is_ready = False
        await self.open()
        return await self._send(script, words, is_sure=is_sure)

    async def _send(self, script: Script, words: Sequence[Word], *, is_sure: bool = False) -> Any:
        also = self.durability.commands if is_sure else ()
        try:
            reply, *sure = await self.link.call(script.by_sha(words), *also)
            if isinstance(reply, NoScriptError):  # a new server, or one whose scripts were flushed
                reply, *sure = await self.link.call(script.whole(words), *also)
        except Exception as error:
            self.explain(error)
            raise
        if isinstance(reply, Exception):
            if str(reply) != _MISSING:
                self.explain(reply)
            raise reply
        if sure:
            self.durability.check(sure, self.where)
        return reply

    def explain(self, error: Exception) -> None:
        """Raise our own word for what a user can mend, instead of the driver's."""
        ours = explained(error, self.names.table, self.where)
        if ours is not None:
            raise ours from error


def _order_of(facts: Mapping[str, str]) -> Order:
    return Order(facts.get("ordered") == "1", facts.get("on_dead", UNORDERED.on_dead))

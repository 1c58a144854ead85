"""What both colours of the outbox share. The façade alone knows stores, transactions, runtimes and core together."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar, Unpack, overload
from weakref import WeakSet

from aftercommit.config import OutboxConfig, OutboxOptions, configure
from aftercommit.delivery.agenda import EVERYWHERE, FIRST_LOOK
from aftercommit.ending import Ending, new_engine
from aftercommit.errors import ColourMismatch, InvalidOption, NotInTransaction, UnsupportedTransaction
from aftercommit.events.durations import Duration, duration, seconds_of
from aftercommit.events.log import Log
from aftercommit.events.payloads import PayloadTypes
from aftercommit.handlers.bus import Bus
from aftercommit.handlers.handler import AnyHandler, Fallback
from aftercommit.handlers.listeners import DefaultListenerRegistry
from aftercommit.handlers.routing import Router
from aftercommit.handlers.set import HandlerSet
from aftercommit.health import NOT_STARTED, Health
from aftercommit.hooks import Listener
from aftercommit.options import Wiring
from aftercommit.ports import Colour, Effects, EventStore, Runtime, TxContext
from aftercommit.relaying import Relayed
from aftercommit.runtime.threads import ThreadRuntime
from aftercommit.stores.detect import open_store
from aftercommit.tending import Tended
from aftercommit.transactions.by_hand import ByHand
from aftercommit.transactions.joined import DbapiTransaction, is_of_sqlalchemy
from aftercommit.transactions.of_handlers import session_here
from aftercommit.transactions.owned import OwnedTransaction, innermost
from aftercommit.wirings import Wired
from aftercommit.writing.compose import Composer

if TYPE_CHECKING:
    from aftercommit.engine import Engine
    from aftercommit.transactions.sqlalchemy_edge import SqlAlchemyEdge

log = Log("aftercommit.outbox")

T = TypeVar("T")
R = TypeVar("R")
Step = TypeVar("Step", bound=Callable[[Any], Any])


class OutboxBase(Wired, Tended, Relayed, HandlerSet, ABC):
    """What both colours share: configuration, registration, and everything that needs no waiting."""

    _colour: ClassVar[Colour]

    def __init__(self, target: Any, *, config: OutboxConfig | None = None, **options: Unpack[OutboxOptions]) -> None:
        self._set_up(target, configure(Wiring.CUSTOM, options, config))

    def _set_up(self, target: Any, config: OutboxConfig) -> None:
        HandlerSet.__init__(self)
        self._payloads = PayloadTypes(config.serializer)
        self._composer = Composer(self._payloads, config.context_providers)
        store = open_store(target, self._colour, **config.store_options)
        if store.colour is not self._colour:
            raise ColourMismatch(
                f"{type(self).__name__} is {self._colour.value}, {store!r} is {store.colour.value}",
                fix="use Outbox with blocking drivers and AsyncOutbox with async ones",
            )
        given = config.listener_registry
        self._registry: Any = DefaultListenerRegistry() if given is None else given
        self._router = Router(self._registry, self._roster, self._payloads)
        self._router.effects_of = self._effects_of
        self._bus = Bus(
            self._colour,
            enabled=config.publish_enabled,
            publish_after_save=config.publish_after_save,
            handlers_for=self._router.handlers_for,
        )
        self._life = ThreadRuntime().lock()
        self._settle_in(target, store, config)
        _living.add(self)

    def _settle_in(
        self, target: Any, store: EventStore, config: OutboxConfig, engine: Callable[..., Engine] = new_engine
    ) -> None:
        """All that has to do with where its events are, and nothing else; tests lead an outbox elsewhere and back."""
        self.config = config
        self._store = store
        self._target, self._needs_transaction = target, store.capabilities.needs_transaction
        self._sqlalchemy: SqlAlchemyEdge | None = None
        self._engine: Engine | None = None
        self._make_engine = engine
        self._ending = Ending(store)
        self._resumes = False

    # ------------------------------------------------------------ registering

    @overload
    def register(self, event_type: str | Enum, listener: Listener, /) -> Self: ...
    @overload
    def register(self, aggregate_type: str | Enum, event_type: str | Enum, listener: Listener, /) -> Self: ...
    def register(self, *route_and_listener: Any) -> Self:
        """`register(event_type, listener)` or `register(aggregate_type, event_type, listener)`.

        The listener, a function or an EventListener, may be sync or async. One route has one listener.
        """
        self._refuse_receivers()
        if not hasattr(self._registry, "register"):
            raise InvalidOption(
                f"the listener_registry {self._registry!r} has no register()", fix="register with it directly"
            )
        self._registry.register(*route_and_listener)
        self._wake()
        return self

    def upcast(self, kind: type, *, from_version: int) -> Callable[[Step], Step]:
        """Declare a function that leads the plain data of a class from this version to the next."""
        return lambda step: self._payloads.upcaster(kind, from_version, step)

    @overload
    def subscribe(self, kind: type[T], subscriber: Callable[[T], R]) -> Callable[[T], R]: ...
    @overload
    def subscribe(self, kind: type[T]) -> Callable[[Callable[[T], R]], Callable[[T], R]]: ...
    def subscribe(self, kind: type, subscriber: Any = None) -> Any:
        """Call a function with every object of the class that is published here; also as a decorator.

        It runs in the publisher's thread or task and in its transaction.
        """
        return self._bus.subscribe(kind, subscriber)

    def _check(self, handlers: Sequence[AnyHandler], fallbacks: Sequence[Fallback]) -> None:
        self._refuse_receivers()
        super()._check(handlers, fallbacks)
        for handler in handlers:
            if handler.settings.transactional:
                self._effects_of(handler, is_new=True)
        receivers: list[AnyHandler | Fallback] = [*handlers, *fallbacks]
        for kind in (kind for each in receivers for kind in each.payload_types):
            self._payloads.names_for(kind)

    def _add(self, handlers: Sequence[AnyHandler], fallbacks: Sequence[Fallback]) -> None:
        super()._add(handlers, fallbacks)
        self._wake()

    def _effects_of(self, handler: AnyHandler, *, is_new: bool = False) -> Effects:
        """How a transactional handler is called; a new one is refused that cannot be."""
        from aftercommit.effects import effects_of  # noqa: PLC0415  (loaded for the first of them)

        return effects_of(self, handler, is_new=is_new)

    def _refuse_receivers(self) -> None:
        if not self.config.delivers:
            raise InvalidOption(
                "a writer-only outbox delivers nothing, so it has no listeners or handlers", fix="use Outbox(…)"
            )

    def _wake(self) -> None:
        if self._engine is not None:
            self._engine.agenda.add(EVERYWHERE)

    def _look(self, after: float = 0.0) -> None:
        """A commit is done that could not be seen, or under way, and nobody will tell when it is done."""
        if self._engine is not None:
            self._engine.agenda.look_for_expected(after)

    # ------------------------------------------------------------ looking

    def health(self) -> Health:
        """Whether the loops of this process turn, and make progress. Asks no database, and never waits."""
        return self._engine.health() if self._engine is not None else NOT_STARTED

    async def _check_health(self, max_backlog_age: Duration | None, timeout: Duration) -> Health:
        age = None if max_backlog_age is None else duration(max_backlog_age, name="max_backlog_age")
        limit = seconds_of(timeout, name="timeout")
        return NOT_STARTED if self._engine is None else await self._engine.check_health(age, limit)

    @property
    def owner_id(self) -> str | None:
        """Who holds the leases of this start: the option, if it was given, and a uuid. None before the first use."""
        return None if self._engine is None else self._engine.owner

    @property
    def is_started(self) -> bool:
        return self._engine is not None and self._engine.is_started

    # ------------------------------------------------------------ inside

    @abstractmethod
    def _runtime(self) -> Runtime: ...

    def _current(self) -> Engine:
        """The engine of this start, of this process; made when first needed."""
        if self._engine is None:
            self._engine = self._new_engine()
        return self._engine

    def _new_engine(self) -> Engine:
        for method in self._not_included():
            log.warning(
                "the handler %s is declared in a class and gets no events: outbox.include() has had no instance of it",
                method.id,
            )
        return self._make_engine(self._runtime(), self._store, self._router, self.config)

    async def _begin(self, engine: Engine) -> None:
        """Start it whole, or leave nothing of it: an error, a cancellation or a close() may come between."""
        try:
            if self._ending:  # the close() of an earlier start was broken off
                await self._close(None)
            await engine.start()
        except BaseException:
            await self._close(engine)
            raise
        if not engine.is_started:
            await self._close(engine)

    async def _close(self, engine: Engine | None) -> None:
        runtime = self._runtime() if engine is None else engine.runtime
        if engine is not None:
            self._ending.add(engine)
        if self._engine is engine:
            self._engine = None
        await self._ending.end(runtime)

    def _context(self, tx: Any) -> TxContext:
        """The transaction that a write belongs to."""
        if tx is None:
            transaction = innermost(self)
            if transaction is None and (tx := session_here(self, self._runtime().identity())) is not None:
                return self._context(tx)
            if transaction is None:
                raise NotInTransaction(
                    "write() was called outside a transaction, so the event could be saved without your change",
                    fix=self._how_to_write(),
                )
            return transaction
        if isinstance(tx, ByHand):
            tx = tx.transaction
        if isinstance(tx, OwnedTransaction):
            return self._own(tx)
        if is_of_sqlalchemy(tx):
            unit = self._edge().join(tx)
            if unit is not None:
                return unit
        adopted = self._store.adopt(tx)
        if adopted is None:
            raise UnsupportedTransaction(
                f"tx is a {type(tx).__module__}.{type(tx).__qualname__}",
                fix="pass what outbox.transaction() gave, or a session or connection of the outbox's own database",
            )
        return DbapiTransaction(tx, adopted)

    def _how_to_write(self) -> str:
        call = "await " if self._colour is Colour.ASYNC else ""
        own = f"{self._colour.block} outbox.transaction() as tx: …; {call}outbox.write(event)"
        is_sqlalchemys = self._sqlalchemy is not None or is_of_sqlalchemy(self._target)
        return f"{call}outbox.write(event, tx=session), or {own}" if is_sqlalchemys else own

    def _edge(self) -> SqlAlchemyEdge:
        """Whoever has a session has SQLAlchemy; nobody else loads it."""
        if self._sqlalchemy is None:
            from aftercommit.transactions.sqlalchemy_edge import SqlAlchemyEdge  # noqa: PLC0415

            self._sqlalchemy = SqlAlchemyEdge(self._store, self._target, self._look, lambda: self._look(FIRST_LOOK))
        return self._sqlalchemy

    def schema_sql(self, from_version: int = 0, to_version: int | None = None) -> str:
        """The script that makes the tables; or the one from one version of them to another, up or down."""
        return self._store.schema_sql(from_version, to_version)

    def attach(self, metadata: Any) -> Any:
        """Describe the outbox's tables in your SQLAlchemy MetaData, so that Alembic's autogenerate knows them."""
        from aftercommit.transactions.sqlalchemy_schema import attach  # noqa: PLC0415

        return attach(self._store, metadata)

    def _own(self, tx: OwnedTransaction) -> OwnedTransaction:
        if tx.outbox is not self:
            raise UnsupportedTransaction(
                f"tx was opened by another outbox ({tx.outbox!r})",
                fix="use that outbox's write(), or this one's transaction()",
            )
        if not tx.is_here():
            raise NotInTransaction(
                "the transaction has ended, or was opened by another thread or task",
                fix="write inside the block, in the thread or task that opened it",
            )
        return tx

    def _needs_delivery(self, method: str) -> None:
        if not self.config.delivers:
            raise InvalidOption(
                f"{method}() makes no sense on a writer-only outbox, which delivers nothing", fix="use Outbox(…)"
            )

    def _after_fork(self) -> None:
        """Nothing of the parent's may be used in a child: its threads are not here, its connections are its own."""
        self._resumes = (self._resumes or self.is_started) and self._colour is Colour.BLOCKING
        self._engine = None
        self._ending = Ending(self._store)
        self._life = ThreadRuntime().lock()  # a thread of the parent may have held the other one
        self._store.abandon()
        for resource in self._router.resources:
            resource.abandon()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store!r})"


_living: Final[WeakSet[OutboxBase]] = WeakSet()


def _after_fork_in_child() -> None:
    for outbox in list(_living):
        outbox._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

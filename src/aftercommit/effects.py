"""Transactional handlers: what they do and the mark of their event are one transaction, begun and ended around the
call, where the call is. What cannot be so is refused when the handler is registered."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import wraps
from inspect import isawaitable, iscoroutine
from typing import Any, ClassVar, Protocol

from aftercommit.errors import (
    CommitUnknown,
    EffectsUnsupported,
    HandlerTimeout,
    LeaseLost,
    OutboxError,
    StoreBusy,
    StoreFull,
    StoreUnavailable,
)
from aftercommit.events.claims import Claimed
from aftercommit.events.log import Log
from aftercommit.events.outcome import COMMITTED, NOTHING, Raised, Result, RetryAfter, Unavailable
from aftercommit.events.redact import error_text
from aftercommit.handlers.handler import AnyHandler
from aftercommit.handlers.signatures import UNTYPED
from aftercommit.handlers.transactional import TxKind, kind_of_tx
from aftercommit.ports import Colour, EventStore, HandlerTx, Runtime
from aftercommit.runtime.colours import is_async, returned
from aftercommit.runtime.threads import run
from aftercommit.stores.detect import is_engine
from aftercommit.transactions.of_handlers import AsyncHandlersTransaction, HandlersTransaction, OwnTx

log = Log("aftercommit.delivery")


class HasEffects(Protocol):
    """The outbox, as far as transactional handlers need it."""

    _colour: ClassVar[Colour]
    _store: EventStore
    _target: Any


#: What makes the transaction of one call.
MakesTx = Callable[[HasEffects, AnyHandler, Runtime], HandlerTx]


def effects_of(outbox: HasEffects, handler: AnyHandler, *, is_new: bool) -> HandlerEffects:
    """With transactions of the outbox's own, or sessions on its engine."""
    if is_new:
        refuse_impossible(outbox, handler)
    return HandlerEffects(outbox, handler, handler_tx)


# ---------------------------------------------------------------- which transaction


def refuse_impossible(outbox: HasEffects, handler: AnyHandler, *, is_ambient: bool = False) -> None:
    """Before it is registered. Where the transaction is ambient, a handler need not take it."""
    name, colour, store = handler.id, outbox._colour, outbox._store
    if not store.capabilities.has_transactional_effects:
        raise EffectsUnsupported(
            f"the handler {name} is transactional, and {store!r} commits no change of a handler's with its event",
            fix="leave transactional out and make the handler idempotent, or use an outbox on a SQL database",
        )
    if is_async(handler.function) is not (colour is Colour.ASYNC):
        wanted, given = ("async def", "def") if colour is Colour.ASYNC else ("def", "async def")
        raise EffectsUnsupported(
            f"the transactional handler {name} is {given}, and its transaction is of a {colour.value} outbox",
            fix=f"write it as {wanted}: where it shares a connection with the outbox it cannot have another colour",
        )
    if not is_ambient:
        _refuse_tx(outbox, handler)
    elif handler.tx is not None and (kind := kind_of_tx(handler.tx.annotation)) is not None:
        raise EffectsUnsupported(
            f"the transactional handler {name} takes a {kind.value} as its tx, and its transaction is an atomic block",
            fix=f"leave tx out: def {name}(event), whose queries are in that block",
        )


def _refuse_tx(outbox: HasEffects, handler: AnyHandler) -> None:
    is_async_outbox = outbox._colour is Colour.ASYNC
    if handler.tx is None:
        raise EffectsUnsupported(
            f"the transactional handler {handler.id} takes no transaction, so nothing it does would be part of one",
            fix=f"def {handler.id}(event, tx): tx.execute(…)",
        )
    annotation, session = handler.tx.annotation, "AsyncSession" if is_async_outbox else "Session"
    kind, name = kind_of_tx(annotation), getattr(annotation, "__name__", repr(annotation))
    if annotation is UNTYPED or (kind is TxKind.OWN and ("Async" in name) is is_async_outbox):
        return
    if kind is not (TxKind.ASYNC_SESSION if is_async_outbox else TxKind.SESSION):
        own = "AsyncTransaction" if is_async_outbox else "Transaction"
        raise EffectsUnsupported(
            f"the transactional handler {handler.id} takes a {name} as its tx",
            fix=f"annotate tx as {own}, or as {session} of SQLAlchemy, or not at all",
        )
    if not is_engine(outbox._target):
        build = "AsyncOutbox(create_async_engine(…))" if is_async_outbox else "Outbox(create_engine(…))"
        raise EffectsUnsupported(
            f"the transactional handler {handler.id} takes a {session}, and the outbox has no engine to make one with",
            fix=f"build the outbox with the engine: {build}; or take tx without annotation, and tx.execute(…)",
        )


def handler_tx(outbox: HasEffects, handler: AnyHandler, runtime: Runtime) -> HandlerTx:
    """The transaction of one call."""
    kind = None if handler.tx is None else kind_of_tx(handler.tx.annotation)
    if handler.tx is not None and kind in (TxKind.SESSION, TxKind.ASYNC_SESSION):
        if not is_engine(outbox._target):  # the outbox was led elsewhere since the handler was declared
            raise EffectsUnsupported(
                f"the transactional handler {handler.id} takes a session, and where the outbox has been led to by "
                "outbox_test there is no engine to make one with",
                fix="test it with an outbox on an engine; outbox_test has a tx for handlers that do not annotate it",
            )
        # Whoever has a session has SQLAlchemy; nobody else loads it.
        from aftercommit.transactions.sqlalchemy_handlers import SessionTx  # noqa: PLC0415

        return SessionTx(outbox, outbox._store, runtime, handler.tx.annotation, outbox._target)
    own = AsyncHandlersTransaction if outbox._colour is Colour.ASYNC else HandlersTransaction
    return OwnTx(own(outbox, outbox._store, runtime), outbox._store, runtime)


# ---------------------------------------------------------------- the call


class HandlerEffects:
    """A transactional handler of one outbox, as the walk calls it."""

    def __init__(self, outbox: HasEffects, handler: AnyHandler, make_tx: MakesTx) -> None:
        self.outbox, self.handler, self.make_tx = outbox, handler, make_tx
        self.is_async = outbox._colour is Colour.ASYNC
        self.function = _async_call(handler.function) if self.is_async else _call(handler.function)

    def call(self, runtime: Runtime, claimed: Claimed) -> HandlerEffect:
        return HandlerEffect(self, runtime, claimed)


def _call(function: Callable[..., object]) -> Callable[..., object]:
    """One for all calls of a handler: runtimes remember what they have found out about a function."""

    @wraps(function, updated=())
    def in_transaction(effect: HandlerEffect, *arguments: object) -> object:
        return run(effect.conduct(arguments))

    return in_transaction


def _async_call(function: Callable[..., object]) -> Callable[..., object]:
    @wraps(function, updated=())
    async def in_transaction(effect: HandlerEffect, *arguments: object) -> object:
        return await effect.conduct(arguments)

    return in_transaction


class Step(Enum):
    """How far a call has come. Only what still runs can be left."""

    RUNS = "runs"
    #: Its mark and its commit are under way.
    ENDS = "ends"
    LEFT = "left behind"
    COMMITTED = "committed"
    UNDONE = "rolled back"


class HandlerEffect:
    """One call, from its BEGIN to its COMMIT."""

    def __init__(self, effects: HandlerEffects, runtime: Runtime, claimed: Claimed) -> None:
        self._effects, self._claimed = effects, claimed
        self._store = effects.outbox._store
        self._tx = effects.make_tx(effects.outbox, effects.handler, runtime)
        self._step, self._lock = Step.RUNS, runtime.lock()

    @property
    def function(self) -> Callable[..., object]:
        return self._effects.function

    @property
    def handler(self) -> Callable[..., object]:
        return self._effects.handler.function

    @property
    def has_settled(self) -> bool:
        """Whether it is committed that the row is done."""
        return self._step is Step.COMMITTED and not self._claimed.done_then

    def seen(self, result: Result) -> Result:
        with self._lock:
            step = self._step
            if step is Step.RUNS:
                self._step = Step.LEFT
        if step is Step.COMMITTED:  # whatever came upon it afterwards: a cancellation, or the end of its time
            return NOTHING if self._claimed.done_then else COMMITTED
        return Raised(self._unknown()) if step is Step.ENDS else result

    async def conduct(self, arguments: tuple[object, ...]) -> object:
        """Where the handler is called, and in its place."""
        try:
            value = await self._run(arguments, await self._begun())
            if isinstance(value, RetryAfter):  # not now: what it did until here is done again then
                await self._undo(None)
                return value
            await self._end()
        except BaseException as error:
            if self._tx.is_committed:
                self._step = Step.COMMITTED
                if not isinstance(error, Exception):
                    raise
                log.warning("a callback after the commit of %s failed: %s", self._name, error_text(error), error=error)
                return None
            await self._undo(error)
            raise
        return None

    async def _begun(self) -> object:
        try:
            return await self._tx.begin()
        except Exception as error:  # nobody was called
            self._defer_if_away(error, is_away=isinstance(error, StoreBusy))
            raise

    async def _run(self, arguments: tuple[object, ...], tx: object) -> object:
        handler = self._effects.handler
        if handler.tx is not None:
            arguments = (*arguments[: handler.tx.place], tx, *arguments[handler.tx.place :])
        value: Any = handler.function(*arguments)
        while value is not None and isawaitable(value):
            if not self._effects.is_async:
                if iscoroutine(value):
                    value.close()
                raise EffectsUnsupported(
                    f"the transactional handler {self._name} returned an awaitable, and its outbox awaits nothing",
                    fix="write it as plain def, with blocking calls",
                )
            value = await value
        result = NOTHING if value is None else returned(handler.function, value)
        if isinstance(result, Raised):
            raise result.error
        return value

    async def _end(self) -> None:
        """The mark, and the commit."""
        with self._lock:
            if self._step is Step.LEFT:
                raise HandlerTimeout(
                    f"{self._name} has ended after its time was over, and is rolled back",
                    fix="give its own calls a shorter timeout, or raise timeout= of the handler",
                )
            self._step = Step.ENDS
        try:
            stands = await self._tx.mark(self._claimed.lease, self._claimed.done_then)
        except Exception as error:
            self._defer_if_away(error)
            raise
        if not stands:
            raise LeaseLost(
                f"the lease on {self._claimed.event!r} was lost while {self._name} ran; what it did is rolled back",
                fix="nothing is lost: whoever has the event now delivers it",
            )
        try:
            await self._tx.commit()
        except Exception as error:
            if not self._tx.is_committed and isinstance(self._outage(error), StoreUnavailable):
                raise self._unknown() from error
            raise
        self._step = Step.COMMITTED

    async def _undo(self, cause: BaseException | None) -> None:
        try:
            await self._tx.undo(cause)
        finally:
            with self._lock:
                if self._step is not Step.LEFT:
                    self._step = Step.UNDONE

    def _defer_if_away(self, error: Exception, *, is_away: bool = False) -> None:
        """The outbox's own database is away: no failure of the handler's, and worth no attempt."""
        if is_away or self._outage(error) is not None:
            raise Unavailable(self._store.where) from error

    def _outage(self, error: BaseException | None) -> OutboxError | None:
        """What an error says of the database as a whole, also one that a library has wrapped."""
        while isinstance(error, Exception):
            if isinstance(error, StoreUnavailable | StoreFull):
                return error
            if (outage := self._store.outage(error)) is not None:
                return outage
            error = getattr(error, "orig", None) or error.__cause__
        return None

    @property
    def _name(self) -> str:
        return self._effects.handler.id

    def _unknown(self) -> CommitUnknown:
        return CommitUnknown(
            f"the commit of {self._name} for {self._claimed.event!r} got no answer",
            fix="nothing is to be done: if it happened the event is done, and if not it is delivered again",
        )

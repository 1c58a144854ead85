"""The chain for events that go together: one call for all of them, and an outcome for each. A call that fails is made
again in halves, so that only what fails in a call of its own is charged."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from aftercommit.delivery.attempt import Entered, context_of_none
from aftercommit.delivery.batch import Batch, claimed_of
from aftercommit.delivery.chain import Caller, Delivery
from aftercommit.delivery.leases import Holding
from aftercommit.delivery.limits import Limiter
from aftercommit.delivery.tracking import LATER
from aftercommit.errors import HandlerTimeout, UnroutableEvent
from aftercommit.events.log import Log
from aftercommit.events.order import OrderKey
from aftercommit.events.outcome import Defer, Raised, Result, RetryAfterError, Unavailable, results_of
from aftercommit.events.redact import error_text
from aftercommit.ports import Runtime

log = Log("aftercommit.delivery")


class Call(msgspec.Struct):
    """Events of a batch for one destination, which are counted as one call, in how many parts ever it is made."""

    caller: Caller
    holdings: list[Holding] = msgspec.field(default_factory=list)
    limiter: Limiter | None = None
    #: Its destination is away, for so many seconds: what was not called waits too.
    away: tuple[Unavailable, float] | None = None


class Together:
    """Calls handlers of batches. Never raises but for the caller's own end."""

    def __init__(self, runtime: Runtime, delivery: Delivery) -> None:
        self._clock = runtime.clock
        self._delivery = delivery
        self._chain, self._attempt = delivery.chain, delivery.chain.attempt

    async def deliver(self, batch: Batch, holdings: Sequence[Holding]) -> None:
        """All steps for all of them."""
        tracked, passed = self._delivery.tracked, list[Holding]()
        try:
            for holding in holdings:
                if batch.begins(holding) and self._passes(batch, holding):
                    passed.append(holding)
            for call in await self._calls(batch, passed):
                try:
                    await self._make(batch, call)
                except (Exception, SystemExit) as error:  # a destination that is no text, or a fault of ours
                    self._break_off(batch, call.holdings, error)
        finally:
            if tracked is not None:
                for holding in passed:
                    tracked.leave(claimed_of(holding))

    def _passes(self, batch: Batch, holding: Holding) -> bool:
        """Whether it still goes to this handler, is not paused, and may pass the tracker."""
        claimed, delivery = claimed_of(holding), self._delivery
        try:
            routes = delivery.router.routes_of_row(claimed.event, claimed.lease.key.handler_id)
        except UnroutableEvent as error:
            batch.end(holding, delivery.unknown(claimed, error), is_told=True)
            return False
        except (Exception, SystemExit) as error:
            batch.end(holding, delivery.broken_off(claimed, error), is_told=True)
            return False
        wait = delivery.pauses.wait(batch.route.id, claimed.event.event_type) if delivery.pauses.known else 0.0
        if len(routes) > 1 or routes[0] is not batch.route:  # handlers were added meanwhile
            batch.end(holding, Defer(LATER))
        elif wait > 0:
            batch.end(holding, Defer(timedelta(seconds=wait)))
        elif delivery.tracked is not None and not delivery.tracked.enter(claimed):
            batch.end(holding, Defer(LATER))
        else:
            return True
        return False

    async def _calls(self, batch: Batch, holdings: Sequence[Holding]) -> list[Call]:
        """Only events for the same destination are in one call; of a key each call has what comes behind the ones
        before."""
        calls: list[Call] = []
        last_for: dict[str | None, int] = {}
        last_of: dict[OrderKey | None, int] = {None: 0}
        for holding in holdings:
            if not batch.is_left(holding):
                continue
            try:
                caller = self._chain.caller_of(claimed_of(holding), batch.route)
                place = last_for.get(caller[1], -1)
            except Exception as error:  # a function of the user's own
                await self._judge(batch, holding, (batch.route.caller, None), Raised(error), is_telling=True)
                continue
            if place < last_of.get(holding.order_key, 0):
                last_for[caller[1]] = place = len(calls)
                calls.append(Call(caller))
            if holding.order_key is not None:
                last_of[holding.order_key] = place
            calls[place].holdings.append(holding)
        return calls

    async def _make(self, batch: Batch, call: Call) -> None:
        """With a look at the limits and the destination before."""
        ready = [holding for holding in call.holdings if batch.is_left(holding)]
        if not ready:
            return
        circuits = self._chain.circuits
        call.limiter = self._chain.limiters.of(batch.route.id, batch.route.options)
        wait = self._chain.wait(claimed_of(ready[0]), call.caller, call.limiter)
        if wait is not None:
            for holding in ready:
                if batch.is_left(holding):
                    batch.end(holding, Defer(timedelta(seconds=wait)))
            return
        started = self._clock()
        try:
            await self._in_parts(batch, call, ready)
        except BaseException:  # the caller is cancelled: no word of the destination
            circuits.interrupted(*call.caller)
            raise
        finally:
            if call.limiter is not None:
                call.limiter.leave(self._clock() - started)

    async def _in_parts(self, batch: Batch, call: Call, holdings: list[Holding]) -> None:
        """The call, and when it fails its halves, in order: behind a failed one nothing of its key is called."""
        parts = deque([holdings])
        while parts:
            part = parts.popleft()
            if call.away is not None:
                self._put_off(batch, part, *call.away)
            else:
                parts.extendleft(reversed(await self._part(batch, call, part)))

    def _break_off(self, batch: Batch, holdings: Sequence[Holding], error: BaseException) -> None:
        """Given back uncounted, they would come again for ever."""
        for holding in holdings:
            if batch.is_left(holding):
                batch.end(holding, self._delivery.broken_off(claimed_of(holding), error), is_told=True)

    def _put_off(self, batch: Batch, holdings: Sequence[Holding], error: Unavailable, wait: float) -> None:
        for holding in holdings:
            if batch.is_left(holding):
                batch.end(holding, self._chain.put_off(claimed_of(holding), batch.route, error, wait))

    async def _part(self, batch: Batch, call: Call, holdings: Sequence[Holding]) -> list[list[Holding]]:
        """One call of the handler; what it has to be called again with."""
        context = context_of_none()
        called: list[Holding] = []
        entered: list[Entered] = []
        for holding in holdings:
            if batch.begins(holding):
                each = await self._attempt.enter(claimed_of(holding), batch.route, context)
                if each.error is not None:  # nobody was called
                    await self._judge(batch, holding, call.caller, each.error, is_telling=False)
                else:
                    called.append(holding)
                    entered.append(each)
        if not called:
            self._chain.circuits.interrupted(*call.caller)
            return []
        for holding in called:
            batch.calls(holding)
        try:
            whole = await self._attempt.call(entered, batch.route, call.limiter, context)
        except BaseException as error:  # the caller is cancelled
            for each in entered:
                if each.end_span is not None:
                    each.end_span(error)
            raise
        results = results_of(whole, len(called))
        for each, result in zip(entered, results, strict=True):
            await self._attempt.leave(each, result, context)
        if len(called) > 1 and isinstance(whole, Raised) and is_split(whole):
            return self._halves(batch, called, whole)
        if isinstance(whole, Raised) and isinstance(whole.error, Unavailable) and not whole.interrupted:
            call.away = whole.error, self._chain.circuits.away(*call.caller, whole.error)
            self._put_off(batch, called, *call.away)
            return []
        is_away = any(isinstance(each, Raised) and isinstance(each.error, Unavailable) for each in results)
        for holding, result in zip(called, results, strict=True):
            if holding.order_key in batch.stopped:
                batch.give_back(holding)
            else:
                await self._judge(batch, holding, call.caller, result, is_telling=not is_away)
        return []

    def _halves(self, batch: Batch, called: list[Holding], whole: Raised) -> list[list[Holding]]:
        """One of them may be to blame, and the others must not be charged for it."""
        text, count = error_text(whole.error), len(called)
        log.warning(
            "a call of %s with %d events failed and is made again in halves: %s", batch.route.id, count, text,
            error=whole.error, handler=batch.route.id,
        )  # fmt: skip
        return [called[: count // 2], called[count // 2 :]]

    async def _judge(self, batch: Batch, holding: Holding, caller: Caller, result: Result, *, is_telling: bool) -> None:
        """What follows for one event, as if a handler of it alone had given this."""
        claimed = claimed_of(holding)
        try:
            outcome = await self._chain.after(claimed, batch.route, caller, result, is_telling=is_telling)
        except UnroutableEvent as error:
            batch.end(holding, self._delivery.unknown(claimed, error), is_told=True)
        except (Exception, SystemExit) as error:
            batch.end(holding, self._delivery.broken_off(claimed, error), is_told=True)
        else:
            batch.end(holding, outcome)


def is_split(whole: Raised) -> bool:
    """Whether a call that ended so says nothing of each of its events. A timeout and a chosen delay cost all of them
    an attempt, for to try each half at once would cost as much time, or disregard the delay."""
    return not whole.interrupted and not isinstance(whole.error, Unavailable | HandlerTimeout | RetryAfterError)

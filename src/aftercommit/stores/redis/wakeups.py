"""Wake-ups over pub/sub: sent like any command, heard on a connection that does nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aftercommit.stores.redis.link import Subscription
from aftercommit.stores.redis.server import Server

#: Seconds without a message after which the connection has to show that it is alive. What is cut off in silence is
#: known by nothing else.
SILENCE: Final = 10.0


@dataclass(eq=False)
class RedisWakeups:
    """The port. Those that listen are in `_listening`, so that the store can end what it lent."""

    _server: Server
    _channel: bytes
    _listening: set[RedisWakeups]
    _subscription: Subscription | None = None
    _is_interrupted: bool = False

    async def send(self, message: str) -> None:
        try:
            (reply,) = await self._server.link.call((b"PUBLISH", self._channel, message.encode()))
        except Exception as error:
            self._server.explain(error)
            raise
        if isinstance(reply, Exception):
            self._server.explain(reply)
            raise reply

    async def receive(self) -> list[str]:
        subscription = self._subscription
        if subscription is None or not subscription.is_here:
            await self._begin()
            return []
        try:
            return await self._heard(subscription)
        except Exception as error:
            if self._subscription is not subscription:
                return []  # somebody has closed it
            await self._end(subscription)
            self._server.explain(error)
            raise
        except BaseException:
            await self._end(subscription)
            raise

    async def _begin(self) -> None:
        await self.close()  # what belongs to a loop that has ended
        try:
            self._subscription = await self._server.link.listen(self._channel)
        except Exception as error:
            self._server.explain(error)
            raise
        self._listening.add(self)

    async def _heard(self, subscription: Subscription) -> list[str]:
        while not self._is_over(subscription):
            message = await subscription.wait(SILENCE)
            if message:
                return [message.decode(errors="replace")]
            if message is None and not self._is_over(subscription):
                await subscription.ping()
        self._is_interrupted = False
        return []

    def _is_over(self, subscription: Subscription) -> bool:
        """It was interrupted, or somebody has closed it."""
        return self._is_interrupted or self._subscription is not subscription

    def interrupt(self) -> None:
        self._is_interrupted = True  # also for a `receive` that has yet to begin to wait
        if (subscription := self._subscription) is not None:
            subscription.wake()

    async def close(self) -> None:
        if (subscription := self._subscription) is not None:
            await self._end(subscription)

    async def _end(self, subscription: Subscription) -> None:
        if self._subscription is subscription:
            self._subscription = None
            self._listening.discard(self)
        if subscription.is_here:
            await subscription.close()
        else:
            subscription.drop()

    def abandon(self) -> None:
        if self._subscription is not None:
            self._subscription.drop()
        self._subscription = None
        self._listening.discard(self)

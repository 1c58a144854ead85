"""The brokers: a place of one's own on each, the relay to it, and its client used by hand.

By hand each message has the event's id, its content type, and no more; a hundred are on the way at once, and each is
confirmed before its event is marked.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar, Final

from aftercommit.relays import Kafka, Nats, RabbitMQ, RedisStreams, Relay
from bench.servers.places import Absent

#: Messages that are on the way at once.
TOGETHER: Final = 100

JSON: Final = "application/json"


class Broker(ABC):
    """One that answers. `name` is that of the place."""

    variable: ClassVar[str]
    default: ClassVar[str]

    def __init__(self, name: str | None = None) -> None:
        self.url = os.environ.get(self.variable) or self.default
        self.name = name or f"aftercommit_bench_{secrets.token_hex(4)}"

    @property
    @abstractmethod
    def relay(self) -> Relay: ...

    @property
    def to(self) -> str:
        return self.name

    @abstractmethod
    def connected(self) -> AbstractAsyncContextManager[Any]:
        """The client by hand."""

    @abstractmethod
    async def make(self, client: Any) -> None: ...

    @abstractmethod
    async def count(self, client: Any) -> int:
        """Messages that are stored; none are left."""

    @abstractmethod
    async def drop(self, client: Any) -> None: ...

    @abstractmethod
    async def publish(self, client: Any, messages: list[tuple[str, str]]) -> None:
        """Ids and texts, to the end."""

    def ask(self, what: str) -> Any:
        """One of these things, on a connection of its own."""

        async def ask() -> Any:
            async with self.connected() as client:
                return await getattr(self, what)(client)

        try:
            return asyncio.run(ask())
        except Exception as error:  # each driver has its own
            raise Absent(f"no broker answers; {self.variable} names one ({type(error).__name__})") from None


class RabbitmqBroker(Broker):
    variable = "AFTERCOMMIT_TEST_RABBITMQ_URL"
    default = "amqp://guest:guest@127.0.0.1:5672/"

    @property
    def relay(self) -> Relay:
        return RabbitMQ(self.url)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Any]:
        import aio_pika  # noqa: PLC0415  (an extra)

        async with await aio_pika.connect(self.url, timeout=10) as connection:
            yield await connection.channel(publisher_confirms=True, on_return_raises=True)

    async def make(self, client: Any) -> None:
        await client.declare_queue(self.name, durable=True)

    async def count(self, client: Any) -> int:
        queue = await client.declare_queue(self.name, passive=True, durable=True)
        await queue.purge()
        return int(queue.declaration_result.message_count)

    async def drop(self, client: Any) -> None:
        await client.queue_delete(self.name)

    async def publish(self, client: Any, messages: list[tuple[str, str]]) -> None:
        from aio_pika import DeliveryMode, Message  # noqa: PLC0415

        publish = client.default_exchange.publish
        for start in range(0, len(messages), TOGETHER):
            await asyncio.gather(
                *(
                    publish(
                        Message(
                            text.encode(),
                            message_id=event_id,
                            content_type=JSON,
                            delivery_mode=DeliveryMode.PERSISTENT,
                        ),
                        self.name,
                    )
                    for event_id, text in messages[start : start + TOGETHER]
                )
            )


class NatsBroker(Broker):
    variable = "AFTERCOMMIT_TEST_NATS_URL"
    default = "nats://127.0.0.1:4222"

    @property
    def relay(self) -> Relay:
        return Nats(self.url)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Any]:
        import nats  # noqa: PLC0415

        client = await nats.connect(self.url, connect_timeout=10, allow_reconnect=False)
        try:
            yield client.jetstream()
        finally:
            await client.close()

    async def make(self, client: Any) -> None:
        await client.add_stream(name=self.name, subjects=[self.name])

    async def count(self, client: Any) -> int:
        count = (await client.stream_info(self.name)).state.messages
        # Purged, it would still know the ids, and drop what the next round sends.
        await self.drop(client)
        await self.make(client)
        return int(count)

    async def drop(self, client: Any) -> None:
        await client.delete_stream(self.name)

    async def publish(self, client: Any, messages: list[tuple[str, str]]) -> None:
        for start in range(0, len(messages), TOGETHER):
            acks = [
                await client.publish_async(
                    self.name, text.encode(), headers={"Nats-Msg-Id": event_id, "content-type": JSON}
                )
                for event_id, text in messages[start : start + TOGETHER]
            ]
            await asyncio.gather(*acks)


class RedisBroker(Broker):
    variable = "AFTERCOMMIT_TEST_REDIS_URL"
    default = "redis://127.0.0.1:6379/0"

    @property
    def relay(self) -> Relay:
        return RedisStreams(self.url)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Any]:
        from redis.asyncio import Redis  # noqa: PLC0415

        client = Redis.from_url(self.url)
        try:
            yield client
        finally:
            await client.aclose()

    async def make(self, client: Any) -> None:
        await client.delete(self.name)

    async def count(self, client: Any) -> int:
        count = await client.xlen(self.name)
        await client.delete(self.name)
        return int(count)

    async def drop(self, client: Any) -> None:
        await client.delete(self.name)

    async def publish(self, client: Any, messages: list[tuple[str, str]]) -> None:
        for start in range(0, len(messages), TOGETHER):
            pipeline = client.pipeline(transaction=False)
            for event_id, text in messages[start : start + TOGETHER]:
                pipeline.xadd(self.name, {"id": event_id, "content_type": JSON, "data": text})
            await pipeline.execute()


class KafkaBroker(Broker):
    """librdkafka's mock cluster, in the process that measures, unless the variable names a real one."""

    variable = "AFTERCOMMIT_BENCH_KAFKA"
    default = ""
    #: Keeps the cluster alive; workers find it by the variable.
    _mock: ClassVar[Any] = None

    def __init__(self, name: str | None = None) -> None:
        if not os.environ.get(self.variable):
            os.environ[self.variable] = self._started()
        super().__init__(name)
        self._counted = 0

    @classmethod
    def _started(cls) -> str:
        from confluent_kafka import Producer  # noqa: PLC0415

        cls._mock = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = cls._mock.list_topics(timeout=10).brokers.values()
        return f"{broker.host}:{broker.port}"

    @property
    def relay(self) -> Relay:
        return Kafka(self.url)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Any]:
        from confluent_kafka import Producer  # noqa: PLC0415

        yield Producer({"bootstrap.servers": self.url, "enable.idempotence": True, "linger.ms": 1, "log_level": 0})

    async def make(self, client: Any) -> None:
        client.list_topics(self.name, timeout=10)

    async def count(self, client: Any) -> int:
        from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415

        consumer = Consumer({"bootstrap.servers": self.url, "group.id": "bench", "log_level": 0})
        partitions = consumer.list_topics(self.name, timeout=10).topics[self.name].partitions
        ends = [consumer.get_watermark_offsets(TopicPartition(self.name, each), timeout=10)[1] for each in partitions]
        consumer.close()
        before, self._counted = self._counted, sum(ends)
        return self._counted - before

    async def drop(self, client: Any) -> None:
        """It goes with the cluster."""

    async def publish(self, client: Any, messages: list[tuple[str, str]]) -> None:
        for start in range(0, len(messages), TOGETHER):
            failed: list[Any] = []
            for event_id, text in messages[start : start + TOGETHER]:
                headers = [("id", event_id.encode()), ("content-type", JSON.encode())]
                client.produce(self.name, text.encode(), headers=headers, on_delivery=_noting(failed))
            await asyncio.to_thread(client.flush)
            assert not failed


def _noting(failed: list[Any]) -> Any:
    return lambda error, _: None if error is None else failed.append(error)


BROKERS: Final[dict[str, type[Broker]]] = {
    "rabbitmq": RabbitmqBroker,
    "nats": NatsBroker,
    "redis": RedisBroker,
    "kafka": KafkaBroker,
}

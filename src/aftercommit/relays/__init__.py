"""Relays: handlers that pass events on to a broker or another service, and are done when it has confirmed them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from aftercommit.relays.aws.sns import Sns as Sns
    from aftercommit.relays.aws.sqs import Sqs as Sqs
    from aftercommit.relays.kafka.relay import Kafka as Kafka
    from aftercommit.relays.message import Message as Message
    from aftercommit.relays.message import Outgoing as Outgoing
    from aftercommit.relays.nats import Nats as Nats
    from aftercommit.relays.rabbitmq import RabbitMQ as RabbitMQ
    from aftercommit.relays.rabbitmq import Route as Route
    from aftercommit.relays.redis_streams import RedisStreams as RedisStreams
    from aftercommit.relays.relay import Relay as Relay
    from aftercommit.relays.webhooks.relay import Webhook as Webhook

#: Where each is. A module loads the library of its broker, which nobody needs for another one.
_MODULES: Final = {
    "Kafka": "kafka.relay",
    "Message": "message",
    "Nats": "nats",
    "Outgoing": "message",
    "RabbitMQ": "rabbitmq",
    "RedisStreams": "redis_streams",
    "Relay": "relay",
    "Route": "rabbitmq",
    "Sns": "aws.sns",
    "Sqs": "aws.sqs",
    "Webhook": "webhooks.relay",
}

__all__ = [
    "Kafka",
    "Message",
    "Nats",
    "Outgoing",
    "RabbitMQ",
    "RedisStreams",
    "Relay",
    "Route",
    "Sns",
    "Sqs",
    "Webhook",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

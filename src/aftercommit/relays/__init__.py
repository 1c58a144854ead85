"""Relays: handlers that pass events on to a broker or another service, and are done when it has confirmed them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aftercommit.relays.amqp import Route as Route
    from aftercommit.relays.aws.sns import Sns as Sns
    from aftercommit.relays.aws.sqs import Sqs as Sqs
    from aftercommit.relays.kafka.relay import Kafka as Kafka
    from aftercommit.relays.message import Message as Message
    from aftercommit.relays.message import Outgoing as Outgoing
    from aftercommit.relays.nats import Nats as Nats
    from aftercommit.relays.rabbitmq import RabbitMQ as RabbitMQ
    from aftercommit.relays.redis_streams import RedisStreams as RedisStreams
    from aftercommit.relays.relay import Relay as Relay
    from aftercommit.relays.webhooks.relay import Webhook as Webhook

#: Where each name is at home. A module is loaded with its first name, and needs the library of its broker alone.
_HOMES = {
    "Kafka": "kafka.relay",
    "Message": "message",
    "Nats": "nats",
    "Outgoing": "message",
    "RabbitMQ": "rabbitmq",
    "RedisStreams": "redis_streams",
    "Relay": "relay",
    "Route": "amqp",
    "Sns": "aws.sns",
    "Sqs": "aws.sqs",
    "Webhook": "webhooks.relay",
}

if not TYPE_CHECKING:  # a checker that saw __getattr__ would take every misspelt name for one that is there
    __all__ = list(_HOMES)

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

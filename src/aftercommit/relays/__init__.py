"""Relays: handlers that pass events on to a broker or another service, and are done when it has confirmed them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aftercommit.relays.amqp import Route as Route
    from aftercommit.relays.message import Message as Message
    from aftercommit.relays.message import Outgoing as Outgoing
    from aftercommit.relays.nats import Nats as Nats
    from aftercommit.relays.rabbitmq import RabbitMQ as RabbitMQ
    from aftercommit.relays.redis_streams import RedisStreams as RedisStreams
    from aftercommit.relays.relay import Relay as Relay

__all__ = ["Message", "Nats", "Outgoing", "RabbitMQ", "RedisStreams", "Relay", "Route"]


def __getattr__(name: str) -> Any:
    """Each loads the library of its broker, which nobody needs for another one."""
    module: Any
    if name in ("Message", "Outgoing"):
        from aftercommit.relays import message as module  # noqa: PLC0415
    elif name == "Relay":
        from aftercommit.relays import relay as module  # noqa: PLC0415
    elif name == "Route":
        from aftercommit.relays import amqp as module  # noqa: PLC0415
    elif name == "RabbitMQ":
        from aftercommit.relays import rabbitmq as module  # noqa: PLC0415
    elif name == "Nats":
        from aftercommit.relays import nats as module  # noqa: PLC0415
    elif name == "RedisStreams":
        from aftercommit.relays import redis_streams as module  # noqa: PLC0415
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(module, name)

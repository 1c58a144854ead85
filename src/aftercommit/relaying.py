"""Declaring relays, as a part of either outbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from aftercommit.config import OutboxConfig
from aftercommit.events.payloads import PayloadTypes
from aftercommit.handlers.handler import AnyHandler
from aftercommit.handlers.options import any_event
from aftercommit.handlers.routing import Router
from aftercommit.handlers.set import HandlerSet

if TYPE_CHECKING:
    from aftercommit.relays.options import RelayOptions
    from aftercommit.relays.relay import Relay


class Relayed(HandlerSet):
    """Events that are passed on to brokers and other services."""

    config: OutboxConfig
    _payloads: PayloadTypes
    _router: Router

    def relay(self, relay: Relay, /, **options: Unpack[RelayOptions]) -> AnyHandler:
        """Pass events on to a broker or another service; an event is done when it was confirmed.

        >>> from aftercommit import Outbox
        >>> from aftercommit.relays import RabbitMQ, Route
        >>> outbox = Outbox("sqlite://")
        >>> rabbit = RabbitMQ("amqp://guest:guest@localhost")
        >>> outbox.relay(rabbit, to=lambda event: Route(exchange="shop", key=event.event_type), only="order.*")
        <handler rabbitmq>

        `to=` says where, `only=` which events. It is a handler: its retries, fallback, limits, pauses and dead letters
        are those of handlers, and what it gives is one: `outbox.relay(…).fallback`. docs/relays.md has the rest.
        """
        from aftercommit.relays.options import Relaying  # noqa: PLC0415  (nobody else loads relays)

        table = self.config.table if self.config.schema is None else f"{self.config.schema}.{self.config.table}"
        given: dict[str, Any] = dict(options)
        made = Relaying(relay, given, self._payloads, table=table, is_ordered=self.config.ordered)
        handler: AnyHandler = self.handler(any_event, **made.options)(made.function)
        self._router.resources.append(made.line)
        return handler

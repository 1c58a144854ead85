"""What librdkafka is told: the user's settings, what follows from the promises of a relay, and what hides secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from aftercommit.errors import InvalidOption

Settings = dict[str, Any]

#: Without these a confirmed message could be lost, and a repeated one be stored twice or out of order.
PROMISED: Final[Settings] = {"enable.idempotence": True, "acks": "all"}

#: What else differs from librdkafka, unless the user says something.
DEFAULTS: Final[Settings] = {
    "client.id": "aftercommit",
    # Events come in batches, and each batch waits for its reports: a message that waits for more of them waits in vain.
    "linger.ms": 1,
    # Below the timeout of a relay's call. librdkafka's five minutes would keep a worker, and close(), for as long.
    "delivery.timeout.ms": 20_000,
    # A broker that is back is found within two seconds, and not ten.
    "reconnect.backoff.max.ms": 2_000,
}

#: Seconds for which a topic may be unknown: one that was just made is not known everywhere at once.
MOST_UNKNOWN: Final = 5.0

#: Other names of the same.
_ALIASES: Final = {
    "message.timeout.ms": "delivery.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    "metadata.broker.list": "bootstrap.servers",
}

#: Of the relay itself, and why.
_OWN: Final = {
    "bootstrap.servers": "it is the first argument",
    "transactional.id": "messages are confirmed one by one, not in transactions",
    "delivery.report.only.error": "the relay needs the report of every message",
    "on_delivery": "the relay needs the report of every message",
    "dr_cb": "the relay needs the report of every message",
    "dr_msg_cb": "the relay needs the report of every message",
}

_SECRET: Final = re.compile(r"password|secret|\.pem$|token|sasl\.oauthbearer\.config", re.IGNORECASE)
_ALL: Final = ("all", -1, "-1")


def settings_of(servers: str | Iterable[str], config: Mapping[str, Any], options: Mapping[str, Any]) -> Settings:
    """The whole configuration. What would take a promise back is refused."""
    given = {_name(name): value for name, value in {**config, **options}.items()}
    for name, value in given.items():
        if name in _OWN:
            raise InvalidOption(f"Kafka() takes no {name}: {_OWN[name]}", fix=f"leave {name} out")
        promised = value in _ALL if name == "acks" else str(value).lower() == "true"
        if name in PROMISED and not promised:
            raise InvalidOption(
                f"Kafka() was given {name}={value!r}: a message that was confirmed could be lost, or come out of order",
                fix=f"leave {name} out",
            )
    settings = {"bootstrap.servers": _servers(servers), **DEFAULTS, **given, **PROMISED}
    timeout = delivery_timeout(settings)
    if timeout <= 0:
        raise InvalidOption("Kafka() was given delivery.timeout.ms=0, which is for ever", fix="pass a number above 0")
    # What waits for a topic that is not there must hear so, before its time is over and the brokers seem to be away.
    settings.setdefault("topic.metadata.propagation.max.ms", int(min(MOST_UNKNOWN, timeout / 2) * 1000))
    return settings


def delivery_timeout(settings: Settings) -> float:
    """Seconds after which librdkafka has given up on a message."""
    value = settings["delivery.timeout.ms"]
    try:
        return int(value) / 1000
    except (TypeError, ValueError):
        raise InvalidOption(
            f"Kafka() was given delivery.timeout.ms={value!r}", fix="pass a number of milliseconds"
        ) from None


def without_secrets(text: str, settings: Settings) -> str:
    """A text of librdkafka's, which may quote what it was given."""
    for name, value in settings.items():
        if _SECRET.search(name) and isinstance(value, str) and value:
            text = text.replace(value, "***")
    return text


def _name(name: str) -> str:
    """`sasl_username` is `sasl.username`; names with a dot, and those of callbacks, are as they are."""
    is_as_written = "." in name or name.endswith("_cb") or name in ("on_delivery", "logger", "log_level")
    dotted = name if is_as_written else name.replace("_", ".")
    return _ALIASES.get(dotted, dotted)


def _servers(servers: str | Iterable[str]) -> str:
    text = servers if isinstance(servers, str) else ",".join(map(str, servers))
    if not text.strip(", "):
        raise InvalidOption("Kafka() was given no servers", fix='pass their addresses: Kafka("localhost:9092")')
    if "@" in text:
        raise InvalidOption(
            "Kafka() was given servers with a login in them",
            fix='pass it apart: Kafka("host:9092", security_protocol="SASL_SSL", sasl_mechanism="PLAIN", '
            "sasl_username=…, sasl_password=…)",
        )
    return text

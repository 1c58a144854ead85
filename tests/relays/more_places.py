"""Places that relays without a server of the suite's own send to: a mock cluster, a receiver, a mock of AWS."""

from __future__ import annotations

import json
import threading
from base64 import b64decode
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import boto3
from botocore.config import Config
from moto.backends import get_backend
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.server import ThreadedMotoServer

from aftercommit.relays import Kafka, Relay, Sns, Sqs, Webhook
from aftercommit.relays.testing import Stored
from tests.relays.kafka_cluster import Cluster
from tests.relays.receiver import Receiver, Request, status


def kafka_stored(cluster: Cluster, topic: str) -> list[Stored]:
    return [_from_kafka(each) for each in cluster.read(topic, 0)]


def _from_kafka(message: Any) -> Stored:
    headers = {name: value.decode() for name, value in message.headers() or ()}
    attributes = {name.removeprefix("ce_"): headers.pop(name) for name in list(headers) if name.startswith("ce_")}
    content_type = headers.pop("content-type")
    return Stored(attributes.get("id") or _id_in(message.value()), message.value(), content_type, attributes, headers)


def _id_in(body: bytes) -> str | None:
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found.get("id") if isinstance(found, dict) else None


class Inbox:
    """A receiver that keeps what it took, by path. `/nowhere…` is 404; more than `most` bytes are too many."""

    def __init__(self, most: int = 500_000) -> None:
        self._most = most
        self._lock = threading.Lock()
        self.kept: list[Request] = []
        self.receiver = Receiver(self._answer)

    def close(self) -> None:
        self.receiver.__exit__()

    def _answer(self, request: Request, handler: BaseHTTPRequestHandler) -> None:
        if request.path.startswith("/nowhere"):
            status(404)(request, handler)
        else:
            with self._lock:
                self.kept.append(request)
            status(204)(request, handler)

    def stored(self, path: str) -> list[Stored]:
        with self._lock:
            return [_from_request(each) for each in self.kept if each.path == path]


_OF_HTTP = ("host", "content-length", "content-type", "accept-encoding", "user-agent")


def _from_request(request: Request) -> Stored:
    attributes = {
        name.removeprefix("ce-"): unquote(value) for name, value in request.headers.items() if name.startswith("ce-")
    }
    headers = {
        name: value
        for name, value in request.headers.items()
        if not name.startswith(("ce-", "webhook-")) and name not in _OF_HTTP
    }
    return Stored(request.headers["webhook-id"], request.body, request.headers["content-type"], attributes, headers)


class OnePlace(Webhook):
    """Paths for places: the host is that of the relay, which may be a wire."""

    def place(self, given: Any) -> Any:
        return super().place(self.where + given if isinstance(given, str) else given)


#: How long a relay waits for an answer, in seconds: where a wire may swallow it, and where somebody is there, and busy.
IN_VAIN, FOR_A_BUSY_ONE = 3.0, 60.0


def webhook(host: str, port: int, timeout: float) -> Relay:
    return OnePlace(f"http://{host}:{port}", allow_private=True, timeout=timeout, concurrency=100)


class Aws:
    """Queues and topics of a mock, in this process."""

    def __init__(self) -> None:
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        self.host, self.port = self._server.get_host_and_port()
        self.login = {"region_name": "eu-west-1", "aws_access_key_id": "x", "aws_secret_access_key": "guest@"}
        self.url = f"http://{self.host}:{self.port}"
        self._sqs, self._sns = (boto3.client(name, endpoint_url=self.url, **self.login) for name in ("sqs", "sns"))

    def close(self) -> None:
        self._sqs.close()
        self._sns.close()
        self._server.stop()

    def queue(self, *, is_fifo: bool = False) -> str:
        name, options = _named("FifoQueue" if is_fifo else None)
        return str(self._sqs.create_queue(QueueName=name, Attributes=options)["QueueUrl"])

    def topic(self, *, is_fifo: bool = False) -> str:
        name, options = _named("FifoTopic" if is_fifo else None)
        return str(self._sns.create_topic(Name=name, Attributes=options)["TopicArn"])

    def relay(self, kind: type[Sqs | Sns], place: str | None, url: str | None = None, **options: Any) -> Any:
        timeout = FOR_A_BUSY_ONE if url in (None, self.url) else IN_VAIN
        config = Config(connect_timeout=timeout, read_timeout=timeout, retries={"total_max_attempts": 1})
        return kind(place, endpoint_url=url or self.url, config=config, **self.login, **options)

    def in_queue(self, url: str) -> list[Any]:
        """Messages of the mock's own."""
        return list(get_backend("sqs")[DEFAULT_ACCOUNT_ID]["eu-west-1"].queues[url.rpartition("/")[2]]._messages)

    def in_topic(self, arn: str) -> list[Any]:
        return list(get_backend("sns")[DEFAULT_ACCOUNT_ID]["eu-west-1"].topics[arn].sent_notifications)

    def stored(self, place: str, *, unfolds: bool) -> list[Stored]:
        """`unfolds`: as a consumer of CloudEvents reads it, for whom both modes are the same."""
        if place.startswith("arn:"):
            return [_from_aws(each[1], _plain(each[3]), unfolds) for each in self.in_topic(place)]
        return [
            _from_aws(each.body, {name: _text(value) for name, value in each.message_attributes.items()}, unfolds)
            for each in self.in_queue(place)
        ]


def _plain(attributes: Any) -> dict[str, str]:
    return {name: value["Value"] for name, value in (attributes or {}).items()}


def _named(fifo: str | None) -> tuple[str, dict[str, str]]:
    name = f"aftercommit-{uuid4().hex}"
    return (name, {}) if fifo is None else (f"{name}.fifo", {fifo: "true"})


def _from_aws(text: str, given: Mapping[str, str], unfolds: bool) -> Stored:
    headers = dict(given)
    content_type = headers.pop("content-type")
    attributes = {name.removeprefix("ce_"): headers.pop(name) for name in list(headers) if name.startswith("ce_")}
    body = text.encode()
    if unfolds and content_type == "application/cloudevents+json":
        attributes = json.loads(body)
        content_type = attributes.pop("datacontenttype")
        if "data_base64" in attributes:
            body = b64decode(attributes.pop("data_base64"))
        else:  # the text as it stands there
            body = text[text.index('"data":') + len('"data":') : -1].encode()
            del attributes["data"]
    return Stored(attributes.get("id") or _id_in(body), body, content_type, attributes, headers)


def kafka(servers: str, **options: Any) -> Kafka:
    return Kafka(servers, **{"delivery_timeout_ms": 2_000, "reconnect_backoff_max_ms": 200, **options})


def _text(value: dict[str, Any]) -> str:
    return str(value["StringValue"] if "StringValue" in value else value["string_value"])

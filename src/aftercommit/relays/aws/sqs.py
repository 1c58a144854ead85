"""The relay to Amazon SQS: an event is done when its queue has stored it."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from aftercommit.relays.aws.batches import Batches

_URL: Final = re.compile(r"https?://[^/@?#\s]+/[^@?#\s]+")
_REGION: Final = re.compile(r"https?://(?:sqs\.([a-z0-9-]+)\.|([a-z0-9-]+)\.queue\.)amazonaws\.com")


class Sqs(Batches):
    """Sends to queues of Amazon SQS.

    >>> from aftercommit import Outbox
    >>> from aftercommit.relays import Sqs
    >>> outbox = Outbox("sqlite://")
    >>> outbox.relay(Sqs("https://sqs.eu-west-1.amazonaws.com/123456789012/orders"))
    <handler sqs>

    Without a URL, `outbox.relay(…, queue=…)` gives one, or a function of the event that does. In a FIFO queue the
    group is the key of the event, else its id, and repetitions are known by its id. Other options are those of
    `boto3.client`; or pass a client of your own.
    """

    name: ClassVar[str] = "sqs"
    words: ClassVar[tuple[str, ...]] = ("queue",)
    _service = "sqs"
    _body_name = "MessageBody"
    _kind = "URL of a queue"
    _example = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"

    def __init__(self, queue_url: str | None = None, *, client: Any = None, **options: Any) -> None:
        super().__init__(queue_url, client, options)

    def _is_place(self, given: str) -> bool:
        return _URL.fullmatch(given) is not None

    def _region_of(self, place: str) -> str | None:
        found = _REGION.match(place)
        return found and (found[1] or found[2])

    def _request(self, place: str, entries: list[dict[str, Any]]) -> Any:
        return self._client.send_message_batch(QueueUrl=place, Entries=entries)

"""The relay to Amazon SNS: an event is done when its topic has stored it."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from aftercommit.relays.aws.batches import Batches

_ARN: Final = re.compile(r"arn:[a-z-]+:sns:([a-z0-9-]+):[0-9]+:[A-Za-z0-9_-]{1,256}(?:\.fifo)?")


class Sns(Batches):
    """Publishes to topics of Amazon SNS.

    >>> from aftercommit import Outbox
    >>> from aftercommit.relays import Sns
    >>> outbox = Outbox("sqlite://")
    >>> outbox.relay(Sns("arn:aws:sns:eu-west-1:123456789012:orders"), only="order.*")
    <handler sns>

    Without an ARN, `outbox.relay(…, topic=…)` gives one, or a function of the event that does. In a FIFO topic the
    group is the key of the event, else its id, and repetitions are known by its id. Other options are those of
    `boto3.client`; or pass a client of your own.
    """

    name: ClassVar[str] = "sns"
    words: ClassVar[tuple[str, ...]] = ("topic",)
    _service = "sns"
    _body_name = "Message"
    _kind = "ARN of a topic"
    _example = "arn:aws:sns:eu-west-1:123456789012:orders"

    def __init__(self, topic_arn: str | None = None, *, client: Any = None, **options: Any) -> None:
        super().__init__(topic_arn, client, options)

    def _is_place(self, given: str) -> bool:
        return _ARN.fullmatch(given) is not None

    def _region_of(self, place: str) -> str | None:
        found = _ARN.fullmatch(place)
        return found and found[1]

    def _request(self, place: str, entries: list[dict[str, Any]]) -> Any:
        return self._client.publish_batch(TopicArn=place, PublishBatchRequestEntries=entries)

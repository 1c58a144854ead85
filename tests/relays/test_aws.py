"""SNS and SQS: what their limits and answers mean for events."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto")

from botocore.exceptions import ClientError, EndpointConnectionError

from aftercommit import DeadLetter, InvalidOption, Unavailable
from aftercommit.errors import MessageRefused
from aftercommit.relays import Sns, Sqs
from aftercommit.relays.aws.entries import MOST_BYTES
from tests.relays.kit import message, opened
from tests.relays.more_places import Aws
from tests.support import World

QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"
TOPIC = "arn:aws:sns:eu-west-1:123456789012:orders"


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    aws = Aws()
    yield aws
    aws.close()


class Told:
    """A client that answers with what it is told, once for each request."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[list[str]] = []

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:  # noqa: N803
        self.requests.append([each["Id"] for each in Entries])
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, Exception):
            raise answer
        failed = {each["Id"] for each in answer.get("Failed", ())}
        stored = [{"Id": each["Id"]} for each in Entries if each["Id"] not in failed]
        return {"Successful": stored, **answer}


def refused(code: str, status: int = 400, text: str = "no") -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": text}, "ResponseMetadata": {"HTTPStatusCode": status}}, "SendMessageBatch"
    )


def failed(number: int, code: str, text: str = "no") -> dict[str, Any]:
    return {"Failed": [{"Id": str(number), "Code": code, "Message": text, "SenderFault": True}]}


def sent(client: Any, count: int = 3, **shape: Any) -> list[Any]:
    relay = opened(Sqs(QUEUE, client=client))
    return relay.publish([message(relay, **shape) for _ in range(count)])


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (failed(1, "InvalidMessageContents"), DeadLetter),
        (failed(1, "InvalidParameterValue", "Message must be shorter than 1000 bytes."), DeadLetter),
        (failed(1, "InvalidParameterValue", "something else"), MessageRefused),
        (failed(1, "InternalError"), MessageRefused),
        (failed(1, "ThrottlingException"), Unavailable),
        ({"Successful": [{"Id": "0"}, {"Id": "2"}]}, MessageRefused),
    ],
)
def test_each_message_has_an_answer_of_its_own(answer: Any, kind: type) -> None:
    first, second, third = sent(Told(answer))
    assert (first, type(second), third) == (None, kind, None)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (EndpointConnectionError(endpoint_url=QUEUE), Unavailable),
        (refused("RequestThrottled"), Unavailable),
        (refused("AWS.SimpleQueueService.RequestThrottled"), Unavailable),
        (refused("ExpiredToken", 403), Unavailable),
        (refused("Whatever", 503), Unavailable),
        (refused("AWS.SimpleQueueService.NonExistentQueue"), MessageRefused),
        (refused("AccessDenied", 403), MessageRefused),
    ],
)
def test_what_a_failed_request_says_holds_for_all_its_messages(error: Any, kind: type) -> None:
    client = Told(error)
    answers = sent(client, 25)
    assert [type(answer) for answer in answers[:10]] == [kind] * 10
    if kind is Unavailable:  # nobody is asked again
        assert [type(answer) for answer in answers] == [kind] * 25
        assert len(client.requests) == 1


def test_of_a_request_that_is_refused_for_one_message_the_others_arrive() -> None:
    bad = refused("InvalidMessageContents")
    client = Told(bad, {}, bad, {})
    assert [type(answer) for answer in sent(client)] == [type(None), DeadLetter, type(None)]
    assert client.requests == [["0", "1", "2"], ["0"], ["1"], ["2"]]


def test_requests_keep_to_the_limits_of_the_services() -> None:
    client = Told()
    relay = opened(Sqs(QUEUE, client=client))
    large = [message(relay, f'"{"x" * (MOST_BYTES // 3)}"') for _ in range(4)]
    alone = message(relay, f'"{"x" * (MOST_BYTES + 1)}"')
    small = [message(relay) for _ in range(12)]
    assert relay.publish([*large, alone, *small]) == [None] * 17
    assert [len(each) for each in client.requests] == [2, 2, 1, 10, 2]


def test_what_cannot_be_sent_is_a_dead_letter_with_advice() -> None:
    client = Told()
    relay = opened(Sqs(QUEUE, client=client))
    many = {f"h{n}": "x" for n in range(10)}
    answers = relay.publish(
        [
            message(relay, headers=many),
            message(relay, headers={"a b": "x"}),
            message(relay, headers={"aws.mine": "x"}),
            message(relay, b"\xff", layout="plain"),
            message(relay, headers={"empty": ""}),
        ]
    )
    assert [type(answer) for answer in answers] == [DeadLetter] * 4 + [type(None)]
    assert all("message=" in answer.fix for answer in answers[:4])


def test_an_event_with_many_headers_is_sent_as_one_json_text(aws: Aws) -> None:
    place = aws.queue()
    relay = opened(aws.relay(Sqs, place))
    few = message(relay, '{"n": 1}', headers={"a": "1"})
    many = message(relay, '{"n": 1}', headers={f"h{n}": str(n) for n in range(8)})
    assert relay.publish([few, many]) == [None, None]
    relay.close()

    kinds = [each.content_type for each in aws.stored(place, unfolds=False)]
    binary, structured = aws.stored(place, unfolds=True)
    assert kinds == ["application/json", "application/cloudevents+json"]
    assert binary.body == structured.body == b'{"n": 1}'
    assert set(binary.attributes) == set(structured.attributes)
    assert structured.headers == {f"h{n}": str(n) for n in range(8)}


def test_a_fifo_queue_gets_the_key_as_its_group_and_knows_repetitions(aws: Aws) -> None:
    place = aws.queue(is_fifo=True)
    relay = opened(aws.relay(Sqs, place))
    keyed, other, odd = message(relay, key="k"), message(relay), message(relay, key="two words" * 20)
    assert relay.publish([keyed, other, odd]) == [None] * 3
    assert relay.publish([keyed]) == [None]
    relay.close()
    groups = [each.group_id for each in aws.in_queue(place)]
    assert groups[:2] == ["k", other.id]
    assert len(groups) == 3
    assert len(groups[2]) == 64


@pytest.mark.parametrize(
    "declare",
    [
        lambda: Sqs("orders"),
        lambda: Sqs("https://user:geheim@host/123/orders"),
        lambda: Sns("orders"),
        lambda: Sns(QUEUE),
        lambda: Sqs().route(None),
        lambda: Sqs(QUEUE, region="eu"),
        lambda: Sqs(QUEUE, aws_secret_acces_key="geheim"),
        lambda: Sqs(QUEUE, client=SimpleNamespace(), region_name="eu-west-1"),
    ],
)
def test_what_makes_no_sense_is_refused_when_it_is_declared(declare: Any) -> None:
    with pytest.raises(InvalidOption) as refusal:
        declare()
    assert "geheim" not in str(refusal.value)


def test_the_region_is_that_of_the_queue_or_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for relay in (Sqs(QUEUE, aws_access_key_id="x", aws_secret_access_key="geheim"), Sns(TOPIC)):
        used = opened(relay)
        assert used._client.meta.region_name == "eu-west-1"
        used.close()
        assert "geheim" not in repr(relay)


def test_events_of_an_outbox_arrive_at_a_topic_and_a_queue(aws: Aws, world: World) -> None:
    queue, topic = aws.queue(), aws.topic()

    async def scenario() -> None:
        outbox = world.outbox()
        outbox.relay(aws.relay(Sqs, queue), only="Order*")
        outbox.relay(aws.relay(Sns, None), topic=lambda event: topic, only="Invoice*")
        async with outbox:
            async with outbox.transaction():
                for number in range(15):
                    await outbox.write("OrderPlaced", {"n": number})
                    await outbox.write("InvoiceSent", {"n": number})
            await world.until_settled(30)

    world.run(scenario)
    assert (len(aws.in_queue(queue)), len(aws.in_topic(topic))) == (15, 15)

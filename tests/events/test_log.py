"""What leaves through the log: the exception itself for tools, its text for people, keys for both, and no secrets."""

from __future__ import annotations

import gc
import io
import logging
import traceback
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from aftercommit import EventEnvelope
from aftercommit.events.log import Log
from aftercommit.events.masked import masked
from tests.support import Collector, World

SECRET = "s3cr" + "3t"  # in no line of this source as a whole


class Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.lines.append(self.format(record))

    def text(self) -> str:
        return "\n".join(self.lines)


@pytest.fixture
def heard() -> Iterator[Heard]:
    handler, logger = Heard(), logging.getLogger("aftercommit.test")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


log = Log("aftercommit.test")


def caught(raise_it: Any) -> BaseException:
    try:
        raise_it()
    except BaseException as error:
        return error
    raise AssertionError


def leak() -> None:
    try:
        raise ConnectionError(f"cannot reach postgresql://app:{SECRET}@db/shop")
    except ConnectionError as error:
        error.add_note(f"Authorization: Bearer {SECRET}")
        raise ValueError("no order 7") from error


def leak_in_a_group() -> None:
    first = KeyError(f"token={SECRET}")
    raise ExceptionGroup(f"password={SECRET}", [first, ValueError("clean")])


def test_an_error_without_secrets_is_passed_on_itself(heard: Heard) -> None:
    error = caught(lambda: int("x"))
    log.warning("it failed", error=error)
    (record,) = heard.records
    assert record.exc_info == (ValueError, error, error.__traceback__)
    assert record.outbox_error_type == "ValueError"
    assert record.funcName == "test_an_error_without_secrets_is_passed_on_itself", "who spoke"
    assert "Traceback" in heard.text()


@pytest.mark.parametrize("raise_it", [leak, leak_in_a_group])
def test_a_secret_anywhere_behind_an_error_is_masked_and_the_rest_stays(heard: Heard, raise_it: Any) -> None:
    error = caught(raise_it)
    log.error("it failed", error=error)
    (record,) = heard.records
    kind, value, frames = record.exc_info
    assert kind is type(error)
    assert (type(value).__name__, type(value).__module__) == (kind.__name__, kind.__module__)
    assert frames is error.__traceback__
    printed = "".join(traceback.format_exception(value))  # as tools do it that have formatters of their own
    for text in (heard.text(), printed, str(value), repr(vars(record))):
        assert SECRET not in text
        assert "***" in printed
    names = [line.split(":")[0].strip(" |+-") for line in traceback.format_exception(error) if ":" in line]
    assert names == [line.split(":")[0].strip(" |+-") for line in traceback.format_exception(value) if ":" in line]
    assert SECRET in str(error.__cause__ or error), "the program's own error is left as it was"


def test_links_between_errors_are_kept() -> None:
    error = caught(leak)
    copy = masked(error)
    assert str(copy) == "no order 7"
    assert str(copy.__cause__) == "cannot reach postgresql://app:***@db/shop"
    assert copy.__cause__.__notes__ == ["Authorization: ***"]
    assert copy.__suppress_context__
    one, other = ValueError(f"secret={SECRET}"), ValueError("other")
    one.__context__, other.__context__ = other, one  # a ring
    assert masked(other).__context__.__context__ is masked(other) or SECRET not in str(masked(other).__context__)


def test_a_line_of_the_source_that_names_a_password_is_masked_in_text(heard: Heard) -> None:
    def connect(password: str) -> None:
        raise ValueError("refused")

    log.error("it failed", error=caught(lambda: connect(password="in-the-source")))
    assert "in-the-source" not in heard.text()
    assert "connect(password=***" in heard.text()


def test_a_formatter_with_its_own_way_of_printing_errors_is_heard(heard: Heard) -> None:
    class OneLine(logging.Formatter):
        def formatException(self, exc_info: Any) -> str:  # noqa: N802
            return f"<{exc_info[0].__name__} {exc_info[1]}>"

    heard.setFormatter(OneLine())
    log.error("it failed", error=ValueError("clean"))
    assert heard.text() == "it failed\n<ValueError clean>"


def test_an_error_that_cannot_be_printed_is_logged_all_the_same(heard: Heard) -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise SystemExit("in your __str__")

    log.error("it failed", error=Hostile())
    (record,) = heard.records
    assert record.exc_info[0] is Hostile
    assert "cannot be printed" in heard.text()


def test_facts_are_attributes_and_those_that_are_not_known_are_left_out(heard: Heard) -> None:
    log.info("an event", event_id="e1", key=None, attempt=1)
    (record,) = heard.records
    assert {name: value for name, value in vars(record).items() if name.startswith("outbox_")} == {
        "outbox_event_id": "e1",
        "outbox_attempt": 1,
    }
    log.debug("unheard", event_id="e1")
    assert len(heard.records) == 1


def test_logging_that_raises_harms_nobody(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(record: logging.LogRecord) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(heard, "emit", broken)
    said = io.StringIO()
    monkeypatch.setattr("sys.stderr", said)
    log.error("it failed", error=ValueError("x"), event_id="e1")
    assert "aftercommit.test could not log: ValueError: broken" in said.getvalue()


def test_what_was_logged_is_not_kept(heard: Heard) -> None:
    error: Any = caught(leak)
    gone = weakref.ref(masked(error))
    log.error("it failed", error=error)
    heard.records.clear()
    del error
    gc.collect()
    assert gone() is None


# ---------------------------------------------------------------- what an outbox says


def test_the_life_of_an_outbox_and_each_delivery_have_a_line_with_its_keys(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        outbox, seen = world.outbox(retry_policy={"policy": "fixed", "delay": "1ms"}, max_attempts=2), Collector()

        def pay(event: EventEnvelope) -> None:
            seen.add(event.event_id)
            if len(seen) == 1:
                raise ValueError(f"refused with password={SECRET}")

        outbox.handler("Ordered", id="pay")(pay)
        async with outbox:
            async with outbox.transaction():
                await outbox.write("Ordered", {"card": "4111-payload"}, key="order-7")
            await world.until_settled(1)

    with caplog.at_level(logging.DEBUG, "aftercommit"):
        world.run(scenario)
    lives = [record for record in caplog.records if record.name == "aftercommit.engine" and record.levelname == "INFO"]
    assert [record.getMessage().split(":")[0] for record in lives] == ["started", "stopped"]
    assert [record.outbox_handlers for record in lives] == [1, 1]
    assert lives[0].outbox_owner == lives[1].outbox_owner
    assert lives[0].outbox_store in lives[0].getMessage()
    deliveries = [record for record in caplog.records if hasattr(record, "outbox_duration_ms")]
    assert [(each.levelname, each.outbox_outcome, each.outbox_attempt) for each in deliveries] == [
        ("DEBUG", "retry", 1),
        ("DEBUG", "done", 2),
    ]
    for each in (*deliveries, *(record for record in caplog.records if record.exc_info)):
        assert (each.outbox_event_type, each.outbox_handler, each.outbox_key) == ("Ordered", "pay", "order-7")
        assert len(each.outbox_event_id) == 26
    for record in caplog.records:
        said = logging.Formatter().format(record) + repr(vars(record))
        assert SECRET not in said
        assert "4111-payload" not in said

"""Events in waves, and the copy of a relay that they go through."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from aftercommit import BrokenRelay, EventEnvelope, RetryAfter, Unavailable
from aftercommit.events.payloads import PayloadTypes
from aftercommit.relays import Relay
from aftercommit.relays.line import line_of
from aftercommit.relays.options import Relaying

Answering = Callable[[Any], Any]


class Book:
    """What happened to all copies of a relay."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.waves: list[list[str | None]] = []
        self.refuses = 0
        self.answer: Answering = lambda message: None


class Scripted(Relay):
    name = "scripted"
    where = "there"

    def __init__(self, book: Book) -> None:
        self.book = book

    def place(self, given: Any) -> Any:
        return given

    def open(self) -> None:
        self.book.said.append("open")
        if self.book.refuses:
            self.book.refuses -= 1
            raise ConnectionError("nobody is there")

    def close(self) -> None:
        self.book.said.append("close")

    def publish(self, messages: Any) -> Any:
        self.book.waves.append([message.key for message in messages])
        return [self.book.answer(message) for message in messages]


class AsyncScripted(Scripted):
    async def open(self) -> None:  # type: ignore[override]
        super().open()

    async def close(self) -> None:  # type: ignore[override]
        super().close()

    async def publish(self, messages: Any) -> Any:
        await asyncio.sleep(0)
        return super().publish(messages)


class Bench:
    """A relay in one colour, called as its handler is."""

    def __init__(self, kind: type[Scripted]) -> None:
        self.book = Book()
        self.runner = asyncio.Runner()
        self.kind = kind

    def send(self, *keys: str | None, ordered: bool = True, made: Relaying | None = None, **options: Any) -> list[Any]:
        made = made or self.made(ordered=ordered, **options)
        events = [EventEnvelope("It", payload_json=f"{number}", key=key) for number, key in enumerate(keys)]
        return list(self.run(made.function(events)).results)

    def made(self, *, ordered: bool = True, **options: Any) -> Relaying:
        return Relaying(self.kind(self.book), options, PayloadTypes(), table="t", is_ordered=ordered)

    def run(self, value: Any) -> Any:
        return self.runner.run(value) if asyncio.iscoroutine(value) else value


@pytest.fixture(params=[Scripted, AsyncScripted])
def bench(request: pytest.FixtureRequest) -> Any:
    made = Bench(request.param)
    yield made
    made.runner.close()


def test_where_order_is_kept_a_key_has_one_message_in_a_wave(bench: Bench) -> None:
    assert bench.send("a", "b", "a", None, "a", None, "b") == [None] * 7
    assert bench.book.waves == [["a", "b", None, None], ["a", "b"], ["a"]]


def test_where_no_order_is_kept_all_go_out_together(bench: Bench) -> None:
    assert bench.send("a", "b", "a", ordered=False) == [None] * 3
    assert bench.book.waves == [["a", "b", "a"]]


def test_what_comes_behind_a_failed_one_of_its_key_is_not_sent(bench: Bench) -> None:
    bench.book.answer = lambda message: ValueError("no") if message.body == b"1" else None
    answers = bench.send("a", "b", "a", "b", "b", "a")
    assert [type(answer) for answer in answers] == [
        *(type(None), ValueError, type(None), RetryAfter, RetryAfter, type(None)),
    ]
    assert bench.book.waves == [["a", "b"], ["a"], ["a"]]


def test_a_message_that_cannot_be_made_fails_alone(bench: Bench) -> None:
    def shape(event: EventEnvelope) -> bytes:
        return b"x" if event.payload_json != "1" else 1 / 0  # type: ignore[return-value]

    answers = bench.send("a", "b", "b", "c", message=shape)
    assert [type(answer) for answer in answers] == [type(None), ZeroDivisionError, RetryAfter, type(None)]


def test_what_a_relay_raises_holds_for_all(bench: Bench) -> None:
    def answer(message: Any) -> None:
        raise OSError("broken")

    bench.book.answer = answer
    assert [str(each) for each in bench.send("a", "b")] == ["broken", "broken"]


@pytest.mark.parametrize("given", [None, [], [None], [None, True], "ab", [None, None, None]])
def test_an_answer_that_is_missing_is_no_confirmation(bench: Bench, given: Any) -> None:
    class Broken(bench.kind):  # type: ignore[name-defined, misc]
        def publish(self, messages: Any) -> Any:
            return given

    bench.kind = Broken
    answers = bench.send("a", "b")
    assert [type(each) for each in answers] == [BrokenRelay] * 2


# ---------------------------------------------------------------- the copy in use


def test_a_relay_is_opened_once_and_closed_once(bench: Bench) -> None:
    made = bench.made()
    for _ in range(3):
        bench.send("a", made=made)
    bench.run(made.line.close())
    bench.run(made.line.close())
    assert bench.book.said == ["open", "close"]
    bench.send("a", made=made)
    assert bench.book.said == ["open", "close", "open"]


def test_a_relay_that_cannot_be_opened_is_away_and_tried_again(bench: Bench, caplog: Any) -> None:
    made, bench.book.refuses = bench.made(), 3
    bench.run(made.line.open())  # as an outbox does when it starts
    for _ in range(2):
        (answer,) = bench.send("a", made=made)
        assert isinstance(answer, Unavailable)
        assert isinstance(answer.__cause__, ConnectionError)
    assert bench.send("a", made=made) == [None]
    assert bench.book.said == ["open", "close"] * 3 + ["open"]
    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == [
        "scripted: cannot connect to there: ConnectionError: nobody is there"
    ]


def test_a_lost_connection_is_made_anew(bench: Bench) -> None:
    made = bench.made()

    def away(message: Any) -> None:
        raise Unavailable("there")

    bench.book.answer = away
    assert isinstance(bench.send("a", made=made)[0], Unavailable)
    bench.book.answer = lambda message: None
    assert bench.send("a", made=made) == [None]
    assert bench.book.said == ["open", "close", "open"]


def test_a_copy_is_closed_when_the_last_call_has_left_it() -> None:
    book, inside, goes_on = Book(), threading.Event(), threading.Event()

    def answer(message: Any) -> None:
        if message.body == b"0" and not inside.is_set():
            inside.set()
            goes_on.wait(10)
        elif message.body == b"1":
            raise Unavailable("there")

    book.answer = answer
    bench = Bench(Scripted)
    bench.book = book
    made = bench.made()
    slow = threading.Thread(target=bench.send, args=("a",), kwargs={"made": made})
    slow.start()
    assert inside.wait(10)
    bench.send("x", "y", made=made, ordered=False)  # "y" finds it lost
    assert book.said == ["open"], "somebody is still in it"
    bench.send("z", made=made)
    assert book.said == ["open", "open"]
    goes_on.set()
    slow.join(10)
    assert book.said == ["open", "open", "close"]
    bench.runner.close()


def test_who_waited_for_a_failed_connection_does_not_try_himself() -> None:
    """Four workers that find the broker away would wait for it one after the other."""
    book = Book()

    class Slow(AsyncScripted):
        async def open(self) -> None:  # type: ignore[override]
            book.said.append("open")
            for _ in range(10):
                await asyncio.sleep(0)  # the others begin to wait
            raise ConnectionError("nobody is there")

    async def scenario() -> list[Any]:
        line = line_of(Slow(book))
        return await asyncio.gather(*[line.publish([]) for _ in range(5)], return_exceptions=True)

    assert [type(each) for each in asyncio.run(scenario())] == [Unavailable] * 5
    assert book.said == ["open", "close"]


def test_a_child_forgets_what_its_parent_has_opened(bench: Bench) -> None:
    made = bench.made()
    bench.send("a", made=made)
    made.line.abandon()
    assert not made.line.is_open
    bench.send("a", made=made)
    assert bench.book.said == ["open", "open"], "nothing was said to the parent's connection"


def test_each_loop_has_a_copy_of_its_own() -> None:
    book = Book()
    made = line_of(AsyncScripted(book))
    asyncio.run(made.publish([]))
    asyncio.run(made.publish([]))
    assert book.said == ["open", "open"]

"""The conductor: kills the shop and the billing at every step, starts them again, and counts.

python -m examples.end_to_end                with databases in the current folder, and RabbitMQ at BROKER
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable

import aio_pika
from sqlalchemy import create_engine, make_url, text

from examples.end_to_end.surroundings import BILLING_DATABASE, BROKER, EXCHANGE, QUEUE, SHOP_DATABASE
from examples.end_to_end.wire import Wire

#: Seconds that anything may take.
PATIENCE = 60


class Program:
    """One of the two, as a process. It ends when its input does, also when the conductor is no more."""

    def __init__(self, name: str, *arguments: object, **environment: str) -> None:
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", f"examples.end_to_end.{name}", *map(str, arguments)],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []

    def says(self, *words: str) -> None:
        """Wait for as many lines; each begins with its word."""
        for word in words:
            line = self.process.stdout.readline().strip() if self.process.stdout else ""
            self.lines.append(line)
            expect(line.startswith(word), f"{line!r} instead of {word!r}")

    def stop(self) -> list[str]:
        """In good order, by the end of its input; all that it has said."""
        out, _ = self.process.communicate(timeout=PATIENCE)
        return self._ended(0, out)

    def dies(self) -> list[str]:
        """Of SIGKILL, and of nothing else. Its input stays open until then."""
        self.process.wait(timeout=PATIENCE)
        out, _ = self.process.communicate()
        return self._ended(-signal.SIGKILL, out)

    def _ended(self, status: int, out: str) -> list[str]:
        self.lines += out.splitlines()
        expect(self.process.returncode == status, f"a program ended with {self.process.returncode}")
        return self.lines


def expect(is_so: bool, what: str) -> None:
    if not is_so:
        raise SystemExit(f"{what}: orders {orders()}, bills {bills()}")


def numbers(url: str, query: str) -> list[int]:
    """The numbers that a database has by now."""
    engine = create_engine(make_url(url).set(drivername=url.partition("://")[0].replace("+aiosqlite", "")))
    try:
        with engine.connect() as connection:
            return [row[0] for row in connection.execute(text(query))]
    finally:
        engine.dispose()


def orders() -> list[int]:
    return numbers(SHOP_DATABASE, "SELECT number FROM shop_order ORDER BY number")


def bills() -> list[int]:
    """The order of each bill."""
    return numbers(BILLING_DATABASE, 'SELECT "order" FROM bill ORDER BY 1')


def until(has_happened: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not has_happened():
        expect(time.monotonic() < end, "it has not come to an end")
        time.sleep(0.02)


def unsettled() -> int:
    return numbers(SHOP_DATABASE, "SELECT count(*) FROM outbox_event WHERE status <> 1")[0]


def shop_goes_on(*placed: int) -> None:
    """A shop that nobody kills does what was left, and the customer asks again."""
    shop = Program("shop", *placed)
    shop.says("placed")
    until(lambda: unsettled() == 0)
    shop.stop()


def told(step: str) -> None:
    print(f"{step}: {len(orders())} orders, {len(bills())} bills", flush=True)


def kill_the_shop(said: list[str]) -> None:
    billing = Program("billing")
    billing.says("ready")

    for order, step in enumerate(("order written", "order committed", "order confirmed"), start=1):
        Program("shop", order, KILLED_AT=step).dies()
        expect((order in orders()) is (step != "order written"), step)
        told(f"shop killed with its {step}")
        shop_goes_on(order)

    # Sent, stored by the broker, and killed before it could hear of that.
    wire = Wire(BROKER, b'{"number":4}')
    shop = Program("shop", 4, BROKER=wire.url)
    until(lambda: wire.was_said.is_set() and 4 in bills())
    expect(unsettled() == 1, "the shop has heard of it")
    shop.process.kill()
    shop.dies()
    wire.close()
    told("shop killed while it published")
    shop_goes_on()

    # What was confirmed or stored before the shop died has come again; its inbox knew.
    billing.says("billed 1", "billed 2", "billed 3", "again 3", "billed 4", "again 4")
    said += billing.stop()


def kill_the_billing(said: list[str]) -> None:
    for order, step in enumerate(("bill written", "bill committed"), start=5):
        billing = Program("billing", KILLED_AT=step)
        billing.says("ready")
        shop_goes_on(order)
        said += billing.dies()
        expect((order in bills()) is (step == "bill committed"), step)
        told(f"billing killed with its {step}")
        billing = Program("billing")
        billing.says("ready", f"again {order}" if step == "bill committed" else f"billed {order}")
        said += billing.stop()


def nobody_is_killed(said: list[str]) -> None:
    billing = Program("billing")
    billing.says("ready")
    shop_goes_on(*range(7, 27))
    billing.says(*["billed"] * 20)
    said += billing.stop()


async def queued() -> int:
    """What is left in the queue, which goes with the exchange."""
    async with await aio_pika.connect(BROKER) as connection:
        channel = await connection.channel()
        left = (await channel.declare_queue(QUEUE, passive=True)).declaration_result.message_count or 0
        await channel.queue_delete(QUEUE)
        await channel.exchange_delete(EXCHANGE)
        return left


def main() -> None:
    said: list[str] = []
    kill_the_shop(said)
    kill_the_billing(said)
    nobody_is_killed(said)
    left = asyncio.run(queued())
    placed, billed = orders(), bills()
    twice = [order for order, count in Counter(billed).items() if count > 1]
    again = sum(line.startswith("again") for line in said)
    print(f"{len(placed)} orders, {len(billed)} bills, {len(twice)} of them twice; {left} messages left")
    print(f"{again} messages came again and changed nothing")
    expect(placed == billed and not left, "something was lost or came twice")


if __name__ == "__main__":
    main()

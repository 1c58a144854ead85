"""Promise 8 through relays: what arrives at a broker is in order per key, and whole, whatever dies on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import conftest
from tests.promises.ordered import BUSY, OrderedFleet
from tests.promises.relay_brokers import Broker, KafkaBroker, on_broker, private
from tests.promises.relayed import BROKER, Verdict, judged
from tests.promises.torture import HELD, Torture
from tests.promises.waiting import until
from tests.relays.kafka_cluster import Cluster

#: In the long form.
EVENTS, KEYS = 20_000, 200

#: Messages that are sent together: an instance has some such batches on the way.
BATCH = 25


class RelayTorture(Torture):
    """Instances that pass events on to a broker, which is hurt as well."""

    def __init__(self, fleet: OrderedFleet, broker: Broker | KafkaBroker, *, keys: int, seed: int) -> None:
        super().__init__(fleet, keys=keys, seed=seed)
        fleet.module, fleet.start = "relaying", "start_at_last"
        self.broker = broker
        self.spec = {**self.spec, "failures": 0.0, "relay": {**broker.relay(), "batch": BATCH}}
        self._hurt: list[int] = []

    def _somebody(self) -> Any:
        member = super()._somebody()
        self._begins("process", member.process.pid)
        return member

    def _begins(self, what: str, pid: int) -> None:
        self.fleet.journal.say("trouble", what, pid)
        self._hurt.append(pid)

    def _ends(self, what: Callable[[], None]) -> None:
        what()
        while self._hurt:
            self.fleet.journal.say("over", "", self._hurt.pop())

    def leave(self) -> None:
        self._ends(super().leave)

    def kill(self) -> None:
        self._ends(super().kill)

    def freeze(self) -> None:
        self._ends(super().freeze)

    def kill_beside_a_frozen_one(self) -> None:
        self._ends(super().kill_beside_a_frozen_one)

    def restart(self) -> None:
        assert isinstance(self.broker, Broker)
        self._begins("restart", BROKER)
        self._ends(self.broker.restart)
        self.faults["restart"] += 1

    def cut(self) -> None:
        assert isinstance(self.broker, Broker)
        wire = self.broker.wire
        until(lambda: wire.open, what="somebody who is connected")
        self._begins("cut", BROKER)
        self._ends(wire.cut)
        self.faults["cut"] += 1

    def verdict(self, *, timeout: float) -> Verdict:
        """When all is delivered, and nobody is left who might send."""
        self.end(timeout=timeout)
        self.every_partition_has_one_owner_that_lives()
        for member in self.fleet.members:
            member.process.finish()
        open_rows = "SELECT count(*) FROM outbox_event WHERE status <> 1 OR locked_by IS NOT NULL OR attempts <> 0"
        assert self.fleet.fleet.rows(open_rows)[0][0] == 0, "not done, or charged for an attempt"
        lines = self.fleet.journal.lines()
        return judged(self.fleet.written(), self.broker.copies(), lines, held=HELD)


@pytest.fixture(params=["rabbitmq"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """One that others use as well; with `-private` one of this test's own."""
    kind, _, is_private = request.param.partition("-")
    if is_private:
        for server in conftest.started(lambda: private(kind)):
            with on_broker(kind, server, server.url) as made:
                yield made
    else:
        with on_broker(kind, None, conftest.server(kind)) as made:
            yield made


@pytest.fixture
def kafka() -> Iterator[KafkaBroker]:
    cluster = Cluster()
    yield KafkaBroker(cluster)
    cluster.close()


@pytest.mark.parametrize("fleet", ["postgres"], indirect=True)
@pytest.mark.parametrize("broker", ["rabbitmq-private"], indirect=True)
def test_promise_08_a_broker_has_everything_in_order_after_kills_cuts_and_its_restart(
    ordered: OrderedFleet, broker: Broker
) -> None:
    torture = RelayTorture(ordered, broker, keys=40, seed=16)
    torture.join()
    torture.write(at_least=1500, together=8, pause=0.05)
    torture.join()
    torture.kill()
    torture.cut()
    torture.restart()
    torture.join()
    torture.kill()
    verdict = torture.verdict(timeout=60)
    assert verdict.wrong == []


@pytest.mark.parametrize("fleet", ["postgres"], indirect=True)
@pytest.mark.parametrize("broker", ["nats", "redis"], indirect=True)
def test_promise_08_a_broker_has_everything_in_order_after_kills_and_cuts(
    ordered: OrderedFleet, broker: Broker
) -> None:
    torture = RelayTorture(ordered, broker, keys=40, seed=17)
    torture.join()
    torture.write(at_least=800, together=8, pause=0.05)
    torture.join()
    torture.kill()
    torture.cut()
    torture.join()
    verdict = torture.verdict(timeout=60)
    assert verdict.wrong == []


@pytest.mark.parametrize("fleet", ["postgres"], indirect=True)
def test_promise_08_kafka_has_everything_in_order_after_kills(ordered: OrderedFleet, kafka: KafkaBroker) -> None:
    torture = RelayTorture(ordered, kafka, keys=40, seed=18)
    torture.join()
    torture.write(at_least=800, together=8, pause=0.05)
    torture.join()
    torture.kill()
    torture.join()
    torture.freeze()
    verdict = torture.verdict(timeout=60)
    assert verdict.wrong == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("fleet", ["postgres"], indirect=True)
@pytest.mark.parametrize("runtime", ["threads", "asyncio"])
@pytest.mark.parametrize("broker", ["rabbitmq-private", "nats-private", "redis-private"], indirect=True)
def test_promise_08_a_broker_has_everything_in_order_after_a_long_torture(
    ordered: OrderedFleet, broker: Broker, runtime: str
) -> None:
    ordered.times = BUSY
    ordered.open_gate()  # the writers stop as soon as they have written enough
    torture = RelayTorture(ordered, broker, keys=KEYS, seed=EVENTS)
    torture.runtimes = (runtime,)
    torture.join()
    torture.write(at_least=EVENTS, together=50, pause=0.2)
    torture.join()
    torture.freeze()
    while not torture.has_delivered(EVENTS * 9 // 10):
        torture.chance.choice([torture.cut, torture.restart, torture.anything, torture.anything])()
    verdict = torture.verdict(timeout=900)
    print(f"\n{broker.kind}, {runtime}: {verdict}, {torture.faults}")  # make soak PYTEST_ARGS="-s" shows it
    assert verdict.wrong == []
    assert verdict.events >= EVENTS
    assert min(torture.faults[each] for each in ("kill", "restart", "cut")) > 2, torture.faults

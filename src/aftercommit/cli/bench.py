"""`aftercommit bench`: how fast this store is from here, on a table that is made for it and removed again."""

from __future__ import annotations

import json
import secrets
import time
from contextlib import suppress
from statistics import quantiles
from typing import Any, Final, NamedTuple

import click

from aftercommit.cli.command import Command, json_option
from aftercommit.cli.session import Session, done
from aftercommit.cli.targets import takes_outbox
from aftercommit.errors import CannotStart, OutboxError

_BATCH: Final = 100
_LATENCIES: Final = 100
#: Rows that are written to be delivered, at most: a table of more says nothing else.
_AT_MOST: Final = 20_000


class Figures(NamedTuple):
    """Of one run, with one client."""

    #: Transactions of one event each.
    written_per_second: float
    #: Events of transactions that wrote a hundred at once.
    written_in_batches_per_second: float
    delivered_per_second: float
    #: From the return of the commit to the start of the handler, in milliseconds.
    latency_p50_ms: float
    latency_p95_ms: float


@click.command(cls=Command)
@takes_outbox(positional=True)
@json_option
@click.option(
    "--seconds", type=click.FloatRange(0.05, 60), default=2.0, show_default=True, help="How long each part writes."
)
@click.option("--size", type=click.IntRange(1, 1_000_000), default=200, show_default=True, help="Bytes of a payload.")
def bench(*, session: Session, seconds: float, size: int, as_json: bool) -> None:
    """Measure writing, delivery and latency on a scratch table.

    It is made in the database of the outbox, and removed at the end. Other events are not touched.
    """
    outbox = _scratch(session)
    figures: Figures = session.ask(lambda _: _measure(outbox, seconds, size))
    if as_json:
        session.output.json("bench/1", store=repr(outbox), table=outbox.config.table, size=size, **figures._asdict())
        return
    session.output.say(f"{outbox!r}, one client, payloads of {size} bytes")
    rows = [
        ("written, one a transaction", f"{figures.written_per_second:,.0f} /s"),
        (f"written, {_BATCH} a transaction", f"{figures.written_in_batches_per_second:,.0f} /s"),
        ("delivered", f"{figures.delivered_per_second:,.0f} /s"),
        ("commit to handler, p50", f"{figures.latency_p50_ms:.2f} ms"),
        ("commit to handler, p95", f"{figures.latency_p95_ms:.2f} ms"),
    ]
    session.output.table(("measure", "value"), rows)


def _scratch(session: Session) -> Any:
    """Another outbox on the same database, of the same colour."""
    own = session.outbox
    table = f"aftercommit_bench_{secrets.token_hex(4)}"
    scratch = type(own)(own._target, table=table, schema=own.config.schema, create_schema=True)
    if not hasattr(scratch._store, "drop_schema"):
        raise CannotStart(f"{scratch!r} cannot remove a table, so none is made", fix="measure with a store of ours")
    return scratch


async def _measure(outbox: Any, seconds: float, size: int) -> Figures:
    payload = {"text": "x" * size}
    started: list[float] = []
    outbox.register("Bench", lambda _: started.append(time.perf_counter()))
    try:
        await done(outbox.create_schema())
        singles = await _write(outbox, payload, 1, seconds)
        batches = await _write(outbox, payload, _BATCH, seconds)
        waiting = singles[0] + batches[0]
        began = time.perf_counter()
        await done(outbox.start())
        await done(outbox.drain())
        delivered = waiting / (time.perf_counter() - began)
        latencies = [await _latency(outbox, payload, started) for _ in range(_LATENCIES)]
    finally:
        with suppress(OutboxError):
            await done(outbox.close())
        await outbox._store.drop_schema()
        await done(outbox.close())
    cuts = quantiles(latencies, n=20)
    return Figures(singles[1], batches[1], delivered, cuts[9] * 1000, cuts[18] * 1000)


async def _write(outbox: Any, payload: object, batch: int, seconds: float) -> tuple[int, float]:
    """How many, and how many a second."""
    from aftercommit.events.envelope import EventEnvelope  # noqa: PLC0415  (with the engine, when it is needed)

    text, count, began = json.dumps(payload), 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds and count < _AT_MOST:
        tx = await done(outbox.begin())
        await done(outbox.write_all([EventEnvelope.of_json("Bench", text) for _ in range(batch)], tx=tx))
        await done(tx.commit())
        count += batch
    return count, count / spent


async def _latency(outbox: Any, payload: object, started: list[float]) -> float:
    started.clear()
    tx = await done(outbox.begin())
    await done(outbox.write("Bench", payload, tx=tx))
    await done(tx.commit())
    committed = time.perf_counter()
    await done(outbox.drain())
    return max(0.0, started[0] - committed)

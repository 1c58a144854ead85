"""The probes over HTTP: what they say to whom, mounted and alone, in both runtimes, also while the database is away."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from aftercommit import (
    AsyncOutbox,
    EventEnvelope,
    InvalidOption,
    MetricsExporter,
    Outbox,
    PrometheusMetrics,
    StoreUnavailable,
)
from aftercommit.events.claims import Backlog
from aftercommit.web import probes_app
from tests.promises.waiting import until
from tests.support import Collector, Signal, World, _blocking
from tests.web.kit import ELSEWHERE, door_to, get, until_says

DATA = ["/metrics", "/api/stats"]
PROBES = ["/livez", "/readyz", "/startupz"]


def bare(outbox: Any) -> Any:
    return getattr(outbox, "plain", outbox)


def test_probes_follow_the_life_of_an_outbox(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        app = probes_app(bare(outbox))
        assert [(await get(app, path)).status_code for path in PROBES] == [200, 503, 503], "nothing to restart yet"
        async with outbox:
            answers = [await get(app, path) for path in PROBES]
            assert [(each.status_code, each.text) for each in answers] == [
                (200, "live\n"),
                (200, "ready\n"),
                (200, "started\n"),
            ]
            assert answers[0].headers["cache-control"] == "no-store"
        assert [(await get(app, path)).status_code for path in PROBES] == [200, 503, 503]

    world.run(scenario)


def test_an_outbox_that_only_writes_is_ready_when_its_store_answers(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(wiring="writer_only")
        app = probes_app(bare(outbox))
        async with outbox:
            assert (await get(app, "/readyz")).status_code == 200

            async def away(limit: int | None) -> int:
                raise StoreUnavailable("gone, with password=s3cr3t", fix="bring it back")

            outbox._store.records.count_done = away
            outbox._engine.checkup._ping._answered_at = float("-inf")
            answer = await get(app, "/readyz")
            assert answer.status_code == 503
            assert "StoreUnavailable" in answer.text
            assert "s3cr3t" not in answer.text

    world.run(scenario)


def test_a_backlog_that_is_too_old_makes_it_not_ready(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(poll_interval="1h")
        strict, lenient = (probes_app(bare(outbox), max_backlog_age=age) for age in ("5s", "1h"))
        async with outbox, outbox.transaction():
            await outbox.write("Waits", {}, key="k")
        async with outbox:
            assert (await get(strict, "/readyz")).status_code == 200
            world.change("UPDATE outbox_event SET available_at = ?", world.now() - 60_000_000)
            answer = await until_says(strict, "/readyz", 503)
            assert "the oldest event has been due for 6" in answer.text
            assert (await get(lenient, "/readyz")).status_code == 200
            assert (await get(strict, "/livez")).status_code == 200

    world.run(scenario)


def test_a_store_that_does_not_answer_makes_nobody_wait_and_is_asked_by_one(world: World) -> None:
    async def scenario() -> None:
        outbox, asked, release = world.outbox(), Collector(), Signal()
        app = probes_app(bare(outbox), timeout="50ms")

        async def hang(*_: object) -> Backlog | int:
            asked.add(None)
            await release.wait()
            return 0

        async with outbox:
            outbox._store.records.count_done = outbox._store.records.backlog = hang
            for _ in range(3):
                answer = await get(app, "/readyz")
                assert (answer.status_code, "has not answered within 0.05 s" in answer.text) == (503, True)
                assert (await get(app, "/livez")).status_code == 200
            assert len(asked) == 1
            answer = await get(app, "/api/stats")
            assert answer.status_code == 503
            assert "has not answered within 0.05 s" in answer.json()["error"]
            release.set()
            await until_says(app, "/readyz", 200)

    world.run(scenario)


# ---------------------------------------------------------------- an outage


@pytest.mark.parametrize("seconds", [0, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "any_server_world", ["postgres-threads", "postgres-asyncpg", "mariadb-asyncio", "redis-threads"], indirect=True
)
def test_while_the_database_is_away_it_is_live_and_not_ready(
    any_server_world: World, seconds: int, caplog: pytest.LogCaptureFixture
) -> None:
    """And the log has a line for its going and one for its coming back."""
    world = any_server_world

    async def scenario() -> None:
        await world.outbox().create_schema()
        with door_to(world.url) as door:
            outbox, seen = world.outbox(door.url, poll_interval="20ms"), Collector()
            outbox.register("T", seen.add)
            app = probes_app(bare(outbox))
            async with outbox:
                await until_says(app, "/readyz", 200)
                door.shut()
                answer = await until_says(app, "/readyz", 503)
                assert "the store cannot be asked" in answer.text or "has failed" in answer.text
                ends_at = outbox._engine.runtime.clock() + seconds
                while outbox._engine.runtime.clock() < ends_at or seconds == 0:
                    assert (await get(app, "/livez")).status_code == 200
                    assert (await get(app, "/startupz")).status_code == 200
                    assert (await get(app, "/readyz")).status_code == 503
                    if seconds == 0:
                        break
                door.open()
                await until_says(app, "/readyz", 200)
                assert (await get(app, "/livez")).status_code == 200
                await _blocking(lambda: until(lambda: "the store is back" in caplog.text, what="all loops"))
                async with outbox.transaction():
                    await outbox.write("T", {})
                await seen.reach(1)

    with caplog.at_level(logging.INFO, "aftercommit"):
        world.run(scenario)
    loops = [record for record in caplog.records if record.name == "aftercommit.service"]
    texts = [record.getMessage() for record in loops if "still away" not in record.getMessage()]
    assert [text.split(" after ")[0].split(",")[0] for text in texts] == ["the store is away", "the store is back"]
    assert loops[0].exc_info


@pytest.mark.parametrize("server_world", ["postgres-threads", "postgres-asyncio"], indirect=True)
def test_a_database_that_says_nothing_at_all_leaves_it_live(server_world: World) -> None:
    """As behind a firewall that has forgotten the sessions: no error comes, for minutes."""
    world = server_world

    async def scenario() -> None:
        await world.outbox().create_schema()
        with door_to(world.url) as door:
            outbox = world.outbox(door.url, poll_interval="20ms", create_schema=False)
            outbox.register("T", lambda _: None)
            app = probes_app(bare(outbox), timeout="100ms")
            await outbox.start()
            await until_says(app, "/readyz", 200)
            door.is_frozen = True
            await until_says(app, "/readyz", 503)
            poller = outbox._engine.poller
            poller.progressed_at = poller.turned_at = float("-inf")  # it hangs there for a long time
            assert "the poller has not come round" in str(outbox.health().problems)
            assert (await get(app, "/livez")).status_code == 200
            door.shut()  # at last the sessions end, and so can the outbox
            await outbox.close()

    world.run(scenario)


# ---------------------------------------------------------------- who may see


@pytest.mark.parametrize("path", DATA)
def test_data_is_for_those_at_this_machine(path: str) -> None:
    outbox = Outbox("sqlite://")
    app = probes_app(outbox, registry=CollectorRegistry())

    def status(**request: str) -> int:
        return asyncio.run(get(app, path, **request)).status_code

    with outbox:
        assert status() == 200
        assert status(host="127.0.0.1:9100") == 200
        assert status(client="::1", host="[::1]") == 200
        assert status(client="::ffff:127.0.0.1") == 200
        assert status(client=ELSEWHERE) == 403
        assert status(client="testclient") == 403
        assert status(host="evil.example") == 403, "a browser here, led by a page of somebody else's"
        assert status(X_Forwarded_For=ELSEWHERE) == 403, "a proxy here, for somebody elsewhere"
        assert status(Forwarded=f"for={ELSEWHERE}") == 403


@pytest.mark.parametrize("path", DATA)
def test_access_alone_decides_when_it_is_given(path: str) -> None:
    outbox = Outbox("sqlite://")

    def by_token(request: Request) -> bool:
        return request.headers.get("authorization") == "Bearer right"

    async def by_token_async(request: Request) -> bool:
        return by_token(request)

    def broken(request: Request) -> bool:
        raise ValueError("no")

    with outbox:
        for access in (by_token, by_token_async):
            app = probes_app(outbox, access=access, registry=CollectorRegistry())
            assert asyncio.run(get(app, path, client=ELSEWHERE, Authorization="Bearer right")).status_code == 200
            assert asyncio.run(get(app, path)).status_code == 403, "from here, too"
        assert asyncio.run(get(probes_app(outbox, access=broken), path)).status_code == 403
        assert asyncio.run(get(probes_app(outbox, access=lambda _: "yes"), path)).status_code == 403, "True, or nothing"


def test_probes_are_open_and_tell_strangers_one_word(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        app = probes_app(bare(outbox))
        for path in PROBES[1:]:
            answer = await get(app, path, client=ELSEWHERE)
            assert (answer.status_code, answer.text.count("\n"), answer.text[:4]) == (503, 1, "not ")
            assert "the outbox is not started" in (await get(app, path)).text

    world.run(scenario)


# ---------------------------------------------------------------- what is shown


def test_stats_are_json_in_seconds(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(ordered=True, max_attempts=1)

        def fail(event: EventEnvelope) -> None:
            raise ValueError("no")

        outbox.register("T", fail)
        app = probes_app(bare(outbox))
        async with outbox.transaction():
            await outbox.write("T", {}, key="stuck")
        async with outbox:
            await world.until_settled(1, 3)
            await world.until_counted(outbox, counter="dispatch_dead")
            shown = (await get(app, "/api/stats")).json()
        assert shown["backlog"] == {"new": 0, "retry": 0, "dead": 1, "leased": 0, "oldest_due_seconds": 0.0}
        assert [each["key"] for each in shown["blocked"]] == ["stuck"]
        assert shown["health"]["is_live"]
        assert shown["counters"]["dispatch_dead"] == 1

    world.run(scenario)


def test_metrics_are_those_of_the_exporter_or_of_a_registry() -> None:
    class Exporter(MetricsExporter):
        def __init__(self) -> None:
            self.registry = CollectorRegistry()
            Counter("mine", "Counted.", registry=self.registry).inc()

    def text(app: Any, **headers: str) -> Any:
        return asyncio.run(get(app, "/metrics", **headers))

    answer = text(probes_app(Outbox("sqlite://", metrics=Exporter())))
    assert "mine_total 1.0" in answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=")
    other = CollectorRegistry()
    Counter("other", "Counted.", registry=other).inc()
    app = probes_app(Outbox("sqlite://", metrics=Exporter()), registry=other)
    assert "other_total 1.0" in text(app).text
    assert "openmetrics" in text(app, Accept="application/openmetrics-text; version=1.0.0").headers["content-type"]
    assert text(probes_app(Outbox("sqlite://"))).status_code == 404
    shipped = Outbox("sqlite://", metrics=PrometheusMetrics(CollectorRegistry()))
    with shipped:
        assert "outbox_build_info{" in text(probes_app(shipped)).text


def test_it_answers_below_a_prefix_in_starlette_fastapi_and_beside_django() -> None:
    from fastapi import FastAPI

    outbox = Outbox("sqlite://")
    probes = probes_app(outbox)
    fastapi = FastAPI()
    fastapi.mount("/ops/outbox", probes)
    mounted = Starlette(routes=[Mount("/ops/outbox", probes)])

    async def beside(scope: Any, receive: Any, send: Any) -> None:
        assert scope["path"].startswith("/ops/outbox/")
        await mounted(scope, receive, send)

    with outbox:
        for app in (fastapi, mounted, beside):
            for path in (*PROBES, "/api/stats"):
                assert asyncio.run(get(app, f"/ops/outbox{path}")).status_code == 200, path
        assert asyncio.run(get(fastapi, "/livez")).status_code == 404


def test_an_async_outbox_is_asked_on_its_own_loop_and_says_so_elsewhere() -> None:
    async def scenario() -> None:
        async with AsyncOutbox("sqlite://") as outbox:
            app = probes_app(outbox)
            assert (await get(app, "/readyz")).status_code == 200
            answers: list[Any] = []
            elsewhere = threading.Thread(target=lambda: answers.append(asyncio.run(get(app, "/readyz"))))
            elsewhere.start()
            await asyncio.to_thread(elsewhere.join)
            assert answers[0].status_code == 503
            assert "another event loop" in answers[0].text

    asyncio.run(scenario())


def test_what_makes_no_sense_is_refused_when_the_app_is_made() -> None:
    with pytest.raises(InvalidOption, match="given a str"):
        probes_app("sqlite://")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="max_backlog_age"):
        probes_app(Outbox("sqlite://"), max_backlog_age="soon")
    with pytest.raises(InvalidOption, match="timeout"):
        probes_app(Outbox("sqlite://"), timeout="soon")

"""docs/serving.md: its examples run, each in the framework that it is for."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest

from aftercommit import AsyncOutbox, Outbox

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/serving.md").read_text()


def played(heading: str, **names: Any) -> dict[str, Any]:
    """What the example below a heading leaves behind."""
    (example,) = re.findall(rf"## {heading}\n.*?```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(example, "docs/serving.md", "exec"), names)  # noqa: S102
    return names


def test_fastapi(tmp_path: Path) -> None:
    from fastapi import FastAPI
    from sqlalchemy.ext.asyncio import create_async_engine

    names = played(
        "FastAPI, Starlette",
        url=f"sqlite+aiosqlite:///{tmp_path}/shop.db",
        AsyncOutbox=AsyncOutbox,
        FastAPI=FastAPI,
        asynccontextmanager=asynccontextmanager,
        create_async_engine=create_async_engine,
    )
    app, outbox = names["app"], names["outbox"]

    async def live() -> None:
        async with app.router.lifespan_context(app):
            assert outbox.is_started

    asyncio.run(live())
    assert not outbox.is_started


def test_flask(tmp_path: Path) -> None:
    from flask import Flask
    from sqlalchemy import create_engine

    url = f"sqlite:///{tmp_path}/shop.db"
    names = played("Flask", __name__="shop", url=url, Outbox=Outbox, Flask=Flask, create_engine=create_engine)
    outbox = names["outbox"]
    assert not outbox.is_started
    assert names["app"].test_client().get("/nothing").status_code == 404
    assert outbox.is_started
    outbox.close()
    names["engine"].dispose()


def test_django() -> None:
    for kind in ("wsgi", "asgi"):
        source = (ROOT / f"examples/django_shop/config/{kind}.py").read_text()
        assert (
            f"from aftercommit.django.{kind} import get_{kind}_application  # instead of django.core.{kind}" in source
        )
        assert f"`aftercommit.django.{kind}`" in TEXT


def test_the_hook_of_gunicorn(monkeypatch: pytest.MonkeyPatch) -> None:
    from gunicorn.config import PostWorkerInit

    started, shop = [], ModuleType("shop")
    shop.outbox = SimpleNamespace(start=lambda: started.append(True))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop", shop)
    hook = played("gunicorn without waiting for a request")["post_worker_init"]
    PostWorkerInit().set(hook)
    hook(object())
    assert started == [True]


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", TEXT):
        assert (ROOT / "docs" / target).exists(), target


def test_probes(tmp_path: Path) -> None:
    """All three examples, one after the other."""
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from tests.web.kit import get

    section = re.search(r"## Probes\n(.*?)\n## ", TEXT, re.DOTALL)[1]
    examples = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(examples) == 3
    outbox, app, asked = Outbox(f"sqlite:///{tmp_path}/shop.db"), Starlette(), []

    async def from_django(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"])

    names = {"outbox": outbox, "app": app, "Starlette": Starlette, "Mount": Mount}
    names["get_asgi_application"] = lambda: from_django
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    names["work"] = lambda: asked.append(httpx.get(f"http://127.0.0.1:{port}/readyz").status_code)
    for example in examples:
        exec(compile(example.replace("9100", port), "docs/serving.md", "exec"), names)  # noqa: S102
    assert asked == [200]
    for mounted in (app, names["application"]):
        assert asyncio.run(get(mounted, "/outbox/livez")).text.startswith("live\n")
    asyncio.run(names["application"]({"type": "http", "path": "/shop/"}, None, None))
    assert asked == [200, "/shop/"]

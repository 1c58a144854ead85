"""docs/inbox.md and docs/end-to-end.md: what stands there runs, or stands in the program."""

from __future__ import annotations

import asyncio
import doctest
import re
import sqlite3
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks.webhooks import Webhook

from aftercommit.inbox import blocking

ROOT = Path(__file__).parents[2]


def snippets(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


def test_the_page_of_the_inbox_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect("billing.db") as connection:
        connection.execute("CREATE TABLE bill (order_id INTEGER)")
    connection.close()
    *plain, settings, django = snippets("inbox.md")
    assert "INSTALLED_APPS" in settings
    assert "aftercommit.django.inbox" in django  # tests/django/test_inbox.py
    names: dict[str, Any] = {"__name__": "page"}
    closed = []
    for snippet in plain:
        exec(compile(snippet, "docs/inbox.md", "exec"), names)  # noqa: S102
        if "def bill(" in snippet:
            for _ in range(2):
                names["bill"]("01J7", 6)
        closed.append(names["inbox"])
    bodies = [b'{"order": 10}'] * 2

    async def hooks() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(names["app"]), base_url="http://billing") as client:
            statuses = [(await client.post("/hooks", content=bodies[0])).status_code]
            for body in bodies:
                at = datetime.now(UTC)
                headers = {
                    "webhook-id": "01JB",
                    "webhook-timestamp": str(int(at.timestamp())),
                    "webhook-signature": Webhook(names["SECRET"]).sign("01JB", at, body.decode()),
                }
                statuses.append((await client.post("/hooks", content=body, headers=headers)).status_code)
        assert statuses == [401, 204, 204]
        await names["inbox_of_hooks"].close()

    asyncio.run(hooks())
    assert capsys.readouterr().out == "OrderPlaced 9 True\n"
    for inbox in closed:
        inbox.close()
    names["outbox"].close()
    names["engine"].dispose()
    with sqlite3.connect("billing.db") as connection:
        assert connection.execute("SELECT order_id FROM bill").fetchall() == [(6,), (7,), (8,), (10,)]
        assert connection.execute("SELECT event_type FROM outbox_event").fetchall() == [("BillWritten",)]
    connection.close()


def test_the_secret_of_the_page_is_one() -> None:
    assert b64encode(b"secret of the shop and us").decode() in (ROOT / "docs/inbox.md").read_text()


def test_the_page_of_the_whole_way_says_what_stands_in_the_program() -> None:
    program = "".join(path.read_text() for path in (ROOT / "examples/end_to_end").glob("*.py"))
    found = snippets("end-to-end.md")
    assert len(found) == 5
    for snippet in found:
        assert snippet in program, snippet


@pytest.mark.parametrize("page", ["inbox.md", "end-to-end.md"])
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / "docs" / page).read_text()):
        assert (ROOT / "docs" / target).exists(), target


def test_the_examples_of_the_class_run() -> None:
    assert doctest.testmod(blocking).failed == 0

"""The example runs as it stands: its tests, a server that delivers what it writes, a worker beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import django
import pytest

import aftercommit
from tests.support import PATIENCE

SHOP = Path(__file__).parents[2] / "examples" / "django_shop"

#: A request to the shop; with "server", to one that delivers.
REQUEST = """
import sys, os
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
from config.wsgi import application
from werkzeug.test import Client as Browser
from django.test import Client
from aftercommit.django import outbox
client = Browser(application) if sys.argv[1] == "server" else Client()
answers = [client.post(sys.argv[2], data={"number": each, "customer": "ada"}).status_code for each in sys.argv[3:]]
assert outbox.is_started is (sys.argv[1] == "server")
outbox.close()
print(*answers)
"""


class Shop:
    """The example with a database of its own."""

    def __init__(self, folder: Path) -> None:
        package = Path(aftercommit.__file__).parents[1]
        self._environment = {
            **os.environ,
            "SHOP_DATABASE": str(folder / "shop.sqlite3"),
            "PYTHONPATH": os.pathsep.join([str(SHOP), str(package), os.environ.get("PYTHONPATH", "")]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=SHOP,
            env=self._environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, *arguments: str) -> list[str]:
        process = self.start(*arguments)
        said, _ = process.communicate(timeout=PATIENCE * 2)
        assert process.returncode == 0, said
        return said.splitlines()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.run("manage.py", "migrate", "--verbosity=0")
    return made


def test_its_own_tests_and_checks_pass(shop: Shop) -> None:
    assert shop.run("manage.py", "test", "--verbosity=0")[-1] == "OK"
    warnings = [line for line in shop.run("manage.py", "check") if "aftercommit." in line]
    assert len(warnings) == (0 if django.VERSION >= (5, 1) else 1)
    assert shop.run("manage.py", "makemigrations", "--check", "--dry-run")[-1] == "No changes detected"


def test_a_server_delivers_what_it_writes(shop: Shop) -> None:
    assert shop.run("-c", REQUEST, "server", "/orders/", "7") == ["receipt for order 7 to ada", "201"]


def test_a_worker_delivers_what_others_write(shop: Shop) -> None:
    worker = shop.start("manage.py", "aftercommit", "run")
    assert worker.stdout is not None
    try:
        assert "delivering events of default\n" in worker.stdout  # behind what the checks have to say
        assert shop.run("-c", REQUEST, "writer", "/async-orders/", "9") == ["201"]
        assert worker.stdout.readline() == "receipt for order 9 to ada\n"
        worker.send_signal(signal.SIGTERM)
        assert worker.communicate(timeout=PATIENCE)[0] == "stopped\n"
        assert worker.returncode == 0
        assert shop.run("manage.py", "aftercommit", "status")[-1].startswith("default: 0 new, 0 to retry, 0 dead")
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()

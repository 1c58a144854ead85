"""A real server of several processes, and a client of it. They meet at a socket in a folder of their own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx

import aftercommit
from tests.databases import Database
from tests.promises.journal import Journal
from tests.promises.waiting import pause, until
from tests.support import PATIENCE

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = str(Path(aftercommit.__file__).parents[1])

#: How each is asked for two workers at a socket.
COMMANDS: Final = {
    "gunicorn": ("gunicorn", "--workers=2", "--bind=unix:{socket}", "--no-control-socket"),
    "uvicorn": ("uvicorn", "--workers=2", "--uds={socket}", "--log-level=warning"),
}


class Server:
    """Two workers that serve a shop, `at` a place of theirs."""

    def __init__(self, command: list[str], folder: Path, url: str, table: Database, at: str = "") -> None:
        self.url = url
        self.table = table
        self.journal = Journal(folder / "journal")
        self.gate = folder / "gate"
        self._log = folder / "log"
        self._home = TemporaryDirectory(prefix="shop-")  # the folder of a test may be too long a name for a socket
        self._socket = f"{self._home.name}/socket"
        self._numbers = count(1)
        self._client = httpx.Client(
            transport=httpx.HTTPTransport(uds=self._socket),
            base_url=f"http://shop/{at}",
            headers={"Connection": "close"},  # so that each request may meet another worker
            timeout=3 * PATIENCE,
        )
        program, *arguments = [word.format(socket=self._socket) for word in command]
        with self._log.open("wb") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", program, *arguments],
                cwd=ROOT,
                env={
                    **os.environ,
                    "SHOP_URL": url,
                    "SHOP_FOLDER": str(folder),
                    "PYTHONPATH": os.pathsep.join([PACKAGE, str(ROOT), os.environ.get("PYTHONPATH", "")]),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def until_ready(self) -> None:
        self.until(self._is_listening, what="a server that listens")

    @property
    def master(self) -> int:
        return self._popen.pid

    def threads_of_the_master(self) -> int | None:
        """Where the system tells."""
        tasks = Path(f"/proc/{self.master}/task")
        return len(list(tasks.iterdir())) if tasks.exists() else None

    def _is_listening(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(self._socket) == 0

    def until(self, look: Callable[[], Any], *, what: str) -> Any:
        """As `until`, as long as the server lives."""
        return until(lambda: look() or self._must_live(), what=f"{what}; {self._log}", timeout=3 * PATIENCE)

    def _must_live(self) -> None:
        assert self._popen.poll() is None, self._log.read_text()

    # -------------------------------------------------------- requests

    def workers(self) -> dict[int, dict[str, Any]]:
        """What each of two workers says of itself, by its pid."""
        met: dict[int, dict[str, Any]] = {}

        def meet() -> bool | None:
            said = self._client.get("/about").raise_for_status().json()
            met[said["pid"]] = said
            return len(met) >= 2 or pause(0.02)  # one that is still beginning has more need of the machine

        self.until(meet, what="a second worker")
        return met

    def order(self, *, waits: bool = False) -> int:
        """Place one; its number."""
        number = next(self._numbers)
        answer = self._client.post(f"/orders/{number}{'/waits' if waits else ''}")
        assert answer.status_code == 201, (answer.text, self._log.read_text())
        return number

    def orders(self, many: int) -> list[int]:
        """Place as many, several at a time."""
        with ThreadPoolExecutor(4) as clients:
            return list(clients.map(lambda _: self.order(), range(many)))

    # -------------------------------------------------------- deliveries

    def until_noted(self, kind: str, numbers: list[int]) -> dict[int, list[int]]:
        """Wait until the journal has them all; who noted each."""
        self.until(lambda: set(numbers) <= self._noted(kind).keys(), what=f"{kind} of {numbers}")
        return {number: self._noted(kind)[number] for number in numbers}

    def _noted(self, kind: str) -> dict[int, list[int]]:
        noted: dict[int, list[int]] = {}
        for line in self.journal.lines(kind):
            noted.setdefault(line.number, []).append(line.pid)
        return noted

    def until_settled(self) -> None:
        sql = "SELECT count(*) FROM outbox_event WHERE status <> 1 OR locked_by IS NOT NULL"
        self.until(lambda: self.table.read(sql)[0][0] == 0, what="all rows DONE")

    # -------------------------------------------------------- ends

    def kill(self, worker: int) -> None:
        assert worker != self.master
        os.kill(worker, signal.SIGKILL)

    def end_leases(self) -> None:
        """As time would."""
        assert self.table.write("UPDATE outbox_event SET lease_until = 0 WHERE locked_by IS NOT NULL") == 1

    def terminate(self, workers: Collection[int]) -> int:
        """How it ended. Handlers that wait are let go when every worker has begun to end."""
        self._popen.send_signal(signal.SIGTERM)
        self.until(lambda: set(workers) <= {line.pid for line in self.journal.lines("ending")}, what="the end")
        self.gate.touch()
        return self._popen.wait(3 * PATIENCE)

    def close(self) -> None:
        self._client.close()
        self._popen.terminate()
        try:
            self._popen.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._home.cleanup()
        self.journal.close()
        self.table.close()

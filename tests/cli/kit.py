"""The program as its users call it: in a process of its own where that matters, else in this one."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Far longer than anything takes.
PATIENCE = 60.0

#: A shop with an outbox of each colour, a factory, and a few things that are none.
SHOP = """
import asyncio
from dataclasses import dataclass
from pathlib import Path
from aftercommit import AsyncOutbox, Outbox

URL = {url!r}
OPTIONS = {options!r}
journal = Path({journal!r})
outbox = Outbox(URL, **OPTIONS)
aio = AsyncOutbox(URL, **OPTIONS)
number = 7


@dataclass
class OrderPlaced:
    total: int


async def note(event: OrderPlaced) -> None:
    if event.total < 0:  # until the process is told to stop
        await asyncio.Event().wait()
    with journal.open("a") as file:
        print(event.total, file=file)


outbox.handler(note, id="send_receipt")
aio.handler(note, id="send_receipt")


def make():
    return outbox
"""


@dataclass
class Ended:
    """A call that is over."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def surroundings(**variables: str) -> dict[str, str]:
    """This environment, without what would configure an outbox."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AFTERCOMMIT_")}
    return {**plain, "PYTHONDONTWRITEBYTECODE": "", "COLUMNS": "200", **variables}


def started(*arguments: str, folder: Path, variables: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """The real program, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "aftercommit", *arguments],
        cwd=folder,
        env=surroundings(**(variables or {})),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def program(*arguments: str, folder: Path, variables: Mapping[str, str] | None = None) -> Ended:
    """The real program, to its end."""
    process = started(*arguments, folder=folder, variables=variables)
    out, err = process.communicate(timeout=120)
    return Ended(process.returncode, out, err)


class Here:
    """The program in this process: for what is about words and codes, and not about processes."""

    def __init__(self, folder: Path, monkeypatch: Any, capsys: Any) -> None:
        self._folder, self._monkeypatch, self._capsys = folder, monkeypatch, capsys

    def __call__(self, *arguments: str, **variables: str) -> Ended:
        from aftercommit.cli.program import run_program

        with self._monkeypatch.context() as patch:
            patch.chdir(self._folder)
            patch.setattr(sys, "path", [*sys.path])
            for name in [name for name in os.environ if name.startswith("AFTERCOMMIT_")]:
                patch.delenv(name)
            for name, value in variables.items():
                patch.setenv(name, value)
            root, own = logging.getLogger(), logging.getLogger("aftercommit")
            handlers, level = [*root.handlers], own.level
            self._capsys.readouterr()
            try:
                code = run_program(arguments)
            finally:
                root.handlers[:] = handlers
                own.setLevel(level)
                self._forget_modules()
        said = self._capsys.readouterr()
        return Ended(int(code), said.out, said.err)

    def _forget_modules(self) -> None:
        """Those of the test; the next one has others of the same names."""
        for name in [name for name, each in sys.modules.items() if _is_below(each, self._folder)]:
            del sys.modules[name]


def _is_below(module: Any, folder: Path) -> bool:
    return str(getattr(module, "__file__", "") or "").startswith(str(folder))


def write_shop(folder: Path, url: str | None = None, **options: Any) -> Path:
    """`shop.py` in that folder; where its handlers write what they got."""
    journal = folder / "journal.txt"
    journal.touch()
    text = SHOP.format(url=url or f"sqlite:///{folder / 'shop.db'}", options=options, journal=str(journal))
    (folder / "shop.py").write_text(text)
    return journal


class Running:
    """The real program, under way: what it says is waited for."""

    def __init__(self, *arguments: str, folder: Path, variables: Mapping[str, str] | None = None) -> None:
        self.process = started(*arguments, folder=folder, variables=variables)
        self.said: list[str] = []
        self._changed = threading.Condition()
        self._is_over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.said.append(line)
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def until(self, words: str, times: int = 1) -> list[str]:
        """The lines with these words, when there are that many."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or len(self._with(words)) >= times, PATIENCE)
            assert len(self._with(words)) >= times, f"{words!r} was not said {times} times: {self.said}"
            return self._with(words)

    def _with(self, words: str) -> list[str]:
        return [line for line in self.said if words in line]

    def workers(self, count: int) -> list[int]:
        """The process ids of the first workers that began to deliver."""
        return [int(line.split("process ")[1].split()[0]) for line in self.until(" delivers from ", count)]

    def until_nobody_is_left(self) -> None:
        """Every process that was started for it holds the other end of the pipe."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._is_over, PATIENCE), self.said

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def until_noted(journal: Path, *totals: int) -> None:
    """Wait until the handlers of the shop have got these, in any order and any number of times."""
    over = time.monotonic() + PATIENCE
    while not {*map(str, totals)} <= {*journal.read_text().split()}:
        assert time.monotonic() < over, f"{totals} did not come: {journal.read_text().split()}"
        time.sleep(0.02)

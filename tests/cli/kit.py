"""The program as its users call it: in a process of its own where that matters, else in this one."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: A shop with an outbox of each colour, a factory, and a few things that are none.
SHOP = """
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


def note(event: OrderPlaced) -> None:
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
            patch.setattr(sys, "modules", {**sys.modules})
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
        said = self._capsys.readouterr()
        return Ended(int(code), said.out, said.err)


def write_shop(folder: Path, url: str | None = None, **options: Any) -> Path:
    """`shop.py` in that folder; where its handlers write what they got."""
    journal = folder / "journal.txt"
    journal.touch()
    text = SHOP.format(url=url or f"sqlite:///{folder / 'shop.db'}", options=options, journal=str(journal))
    (folder / "shop.py").write_text(text)
    return journal

"""Many calls of the real program, each a process of its own, for the price of one start of Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from tests.cli.kit import Ended, surroundings

#: Forks for every line of arguments. What is loaded is the program, and nothing of a user's.
_SCRIPT = """
import atexit, gc, json, os, sys, threading
from aftercommit.cli.importing import load_command
from aftercommit.cli.program import COMMANDS, run_program
from aftercommit import AsyncOutbox, Outbox
for home in COMMANDS.values():
    load_command(home.module, home.attribute)
AsyncOutbox(sys.argv[1]), Outbox(sys.argv[1])  # loads the drivers, and connects to nothing
gc.collect(), gc.freeze()  # else each child looks for garbage in all of it when it ends
for line in sys.stdin:
    arguments = json.loads(line)
    pid = os.fork()
    if pid == 0:
        for number, name in enumerate(("in", "out", "err")):
            file = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, number)
        sys.stdin = open(0, closefd=False)
        code = run_program(arguments)
        threading._shutdown(), atexit._run_exitfuncs(), sys.stdout.flush()
        os._exit(code)  # to throw away all its modules would copy the memory that they are in
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Launcher:
    """`launcher("status", "--json")`: the program in its folder, to its end."""

    def __init__(self, folder: Path, url: str) -> None:
        self._files = folder / ".launched"
        self._files.mkdir()
        script = _SCRIPT.replace("os.open(name", f"os.open({str(self._files)!r} + '/' + name")
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, url],
            cwd=folder,
            env=surroundings(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, stdin: str = "") -> Ended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        (self._files / "in").write_text(stdin)
        print(json.dumps(arguments), file=self._process.stdin, flush=True)
        code = int(self._process.stdout.readline())
        return Ended(code, (self._files / "out").read_text(), (self._files / "err").read_text())

    def good(self, *arguments: str, stdin: str = "") -> Any:
        """What it gives as JSON, when it ends with 0."""
        ended = self(*arguments, "--json", stdin=stdin)
        assert ended.code == 0, ended
        return ended.json

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate("")

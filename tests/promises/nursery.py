"""Where the processes of a test are born: an interpreter that has imported everything forks them, so a start costs
next to nothing. It has one thread and no outbox, so each child begins as a new process would. It ends as one does, too,
but for the last thing: a Python that throws away all its modules writes to all of its memory, which is copied for that,
and takes longer than most children have lived. Those that are about forks do that as well.

Run as `python -m tests.promises.nursery FD`; it ends with the socket, and takes along what is left of its children.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

#: What its children run: each has a `main(argument)`. Others are imported when the first child needs them.
MODULES = [f"tests.promises.{name}" for name in ("worker", "instance", "storm", "walk", "forking")]

#: What they would import themselves, when they are told of their database.
STORES = [
    *(f"aftercommit.stores.{name}.target" for name in ("sqlite", "postgres", "mysql", "redis")),
    *(f"aftercommit.stores.postgres.{name}" for name in ("psycopg_pools", "asyncpg_driver")),
    *(f"aftercommit.stores.mysql.{name}" for name in ("pymysql_driver", "asyncmy_driver")),
]

#: Of a request; arguments are small.
LARGEST = 65536


class Nursery:
    """The test's end of it."""

    def __init__(self) -> None:
        self._socket, there = socket.socketpair(socket.AF_UNIX)
        with there:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", __name__, str(there.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
            )

    def bear(
        self,
        module: str,
        argument: object,
        descriptors: list[int],
        *,
        environment: dict[str, str],
        is_fresh: bool = False,
    ) -> int:
        """The pid of a new child with these as its stdin, stdout and stderr; a fresh one gets a new interpreter."""
        birth = {"module": module, "argument": argument, "environment": environment, "is_fresh": is_fresh}
        return int(self._ask(descriptors, do="bear", **birth))

    def signal(self, pid: int, number: int) -> None:
        """Only to a child that has not ended. Of SIGSTOP it is known afterwards that it has stopped."""
        assert self._ask(do="signal", pid=pid, number=number), f"{pid} has ended"

    def status(self, pid: int) -> int | None:
        """How it ended, negative for a signal; None while it lives."""
        answer: int | None = self._ask(do="status", pid=pid)
        return answer

    def _ask(self, descriptors: list[int] | None = None, **request: Any) -> Any:
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors or [])
        answer = self._socket.recv(LARGEST)
        assert answer, f"the nursery has ended with {self._popen.wait(10)}"
        return json.loads(answer)

    def close(self) -> None:
        self._socket.close()
        self._popen.wait(10)


class Children:
    """The other end: what has been born here, by pid, and how it ended."""

    def __init__(self) -> None:
        self._ended: dict[int, int | None] = {}

    def signal(self, pid: int, number: int) -> bool:
        if self.status(pid) is not None:
            return False
        os.kill(pid, number)
        if number == signal.SIGSTOP:
            _, status = os.waitpid(pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                self._ended[pid] = os.waitstatus_to_exitcode(status)
                return False
        return True

    def status(self, pid: int) -> int | None:
        if self._ended.get(pid) is None:
            found, status = os.waitpid(pid, os.WNOHANG)
            self._ended[pid] = os.waitstatus_to_exitcode(status) if found else None
        return self._ended[pid]

    def born(self, pid: int) -> int:
        self._ended[pid] = None
        return pid

    def put_away(self) -> None:
        for pid in self._ended:
            if self.status(pid) is None:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def main(descriptor: int) -> None:
    for module in (*MODULES, *STORES):
        learn(module)
    children = Children()
    with socket.socket(fileno=descriptor) as there:
        while True:
            message, descriptors, _, _ = socket.recv_fds(there, LARGEST, 3)
            if not message:
                break
            request = json.loads(message)
            match request.pop("do"):
                case "bear":
                    learn(request["module"])
                    if not (pid := os.fork()):
                        break
                    answer: object = children.born(pid)
                case "signal":
                    answer = children.signal(**request)
                case "status":
                    answer = children.status(**request)
            for each in descriptors:
                os.close(each)
            there.send(json.dumps(answer).encode())
    if not message:
        children.put_away()
    else:  # in the child
        live_and_end(request, descriptors)


def live_and_end(request: dict[str, Any], descriptors: list[int]) -> None:
    """As any program: its threads are waited for, and what is to be called at the end is called."""
    if request["module"].endswith(".forking"):
        live(request, descriptors)
        return
    status = 0
    try:
        live(request, descriptors)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        status = 1
        sys.excepthook(*sys.exc_info())
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status)


def learn(module: str) -> None:
    """No child looks for garbage among what it was born with: it would write to all of it, and so copy all of it."""
    if module not in sys.modules:
        import_module(module)
        gc.freeze()


def live(request: dict[str, Any], descriptors: list[int]) -> None:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.update(request["environment"])
    if request["is_fresh"]:
        os.execv(sys.executable, [sys.executable, "-m", request["module"], json.dumps(request["argument"])])  # noqa: S606
    import_module(request["module"]).main(request["argument"])


if __name__ == "__main__":
    main(int(sys.argv[1]))

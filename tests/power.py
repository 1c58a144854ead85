"""Cuts the power of a private Redis: what it has written and not yet synced to disk is gone.

A killed process loses nothing of that, for the system still has it. A shim below the server notes how long a file was
when it was last synced; after a kill the file is cut back to that length.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.redis_servers import PrivateRedis, until

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int noted(int fd, const char *name) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    struct stat before;
    int is_known = fstat(fd, &before) == 0;
    int result = real(fd);
    const char *log = getenv("AFTERCOMMIT_SYNCED");
    if (result == 0 && is_known && log) {
        char line[64];
        int length = snprintf(line, sizeof line, "%lu %lld\n", (unsigned long)before.st_ino, (long long)before.st_size);
        int out = open(log, O_WRONLY | O_APPEND | O_CREAT, 0600);
        if (out >= 0) { if (write(out, line, length) < 0) _exit(9); close(out); }
    }
    return result;
}

int fsync(int fd) { return noted(fd, "fsync"); }
int fdatasync(int fd) { return noted(fd, "fdatasync"); }
"""


class PoweredRedis(PrivateRedis):
    """A private Redis whose power can be cut."""

    def __init__(self, **settings: str) -> None:
        super().__init__(appendonly="yes", **settings)
        self._synced = self.folder / "synced"

    def _make(self) -> None:
        super()._make()
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("needs a C compiler")
        source, self._library = self.folder / "synced.c", self.folder / "synced.so"
        source.write_text(SHIM)
        self._run(compiler, "-shared", "-fPIC", "-o", self._library, source, "-ldl")

    def _command(self) -> list[str | Path]:
        below = [f"LD_PRELOAD={self._library}", f"AFTERCOMMIT_SYNCED={self._synced}"]
        return ["env", *below, *super()._command()]

    def synced(self) -> int:
        """How much of the file that it appends to is on disk."""
        inode = self.aof.stat().st_ino
        lines = [line.split() for line in self._synced.read_text().splitlines()]
        return max((int(size) for number, size in lines if int(number) == inode), default=0)

    def until_synced(self) -> None:
        """All that is written by now is on disk."""
        written = self.aof.stat().st_size
        until(lambda: self.synced() >= written, "a file that is synced")

    def stands_unsynced(self) -> bool:
        """Stop it; whether it has written what is not on disk yet. It goes on if it has not."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)
        if self.aof.stat().st_size > self.synced():
            return True
        self._process.send_signal(signal.SIGCONT)
        return False

    def cut_power(self) -> int:
        """It is dead, and so is what was not on disk: how many bytes."""
        self.stop(immediate=True)
        kept, written = self.synced(), self.aof.stat().st_size
        os.truncate(self.aof, kept)
        return written - kept

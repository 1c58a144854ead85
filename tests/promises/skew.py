"""A process whose clock is wrong while its database's is right: by patching Python, or below it with a C shim."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

#: Seconds to add to what Python reads; by patching.
PATCHED = "AFTERCOMMIT_SKEW_PATCHED"

#: The same for the shim, which is loaded by LD_PRELOAD.
SHIMMED = "AFTERCOMMIT_SKEW_SHIMMED"

# Python asks clock_gettime(), SQLite asks gettimeofday(): the application's clock is wrong, the database's is not.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static long skew(void) {
    const char *text = getenv("AFTERCOMMIT_SKEW_SHIMMED");
    return text ? atol(text) : 0;
}

int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, at);
    if (result == 0 && id == CLOCK_REALTIME) at->tv_sec += skew();
    return result;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


def built_shim(folder: Path) -> Path | None:
    """The shim as a library; None where it cannot be built or loaded."""
    compiler = shutil.which("cc")
    if compiler is None or not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    source, library = folder / "skew.c", folder / "skew.so"
    source.write_text(SHIM)
    built = subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], capture_output=True, check=False
    )
    return library if built.returncode == 0 else None


def apply_from_environment() -> None:
    """Patch every clock that the library reads, where the environment asks for it."""
    if PATCHED in os.environ:
        _patch(float(os.environ[PATCHED]))


def _patch(seconds: float) -> None:
    real_time, real_time_ns = time.time, time.time_ns
    time.time = lambda: real_time() + seconds
    time.time_ns = lambda: real_time_ns() + int(seconds * 1_000_000_000)

    import aftercommit.events.envelope

    class AnyDatetime(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, datetime)

    class Wrong(datetime, metaclass=AnyDatetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(seconds=seconds)

    aftercommit.events.envelope.datetime = Wrong  # type: ignore[misc]


def clocks() -> dict[str, float]:
    """The time as this process's Python, its library and its SQLite take it to be."""
    import aftercommit.events.envelope

    with sqlite3.connect(":memory:") as connection:
        database = connection.execute("SELECT (julianday('now') - 2440587.5) * 86400.0").fetchone()[0]
    return {
        "python": time.time(),
        "library": aftercommit.events.envelope.datetime.now(UTC).timestamp(),
        "database": float(database),
    }

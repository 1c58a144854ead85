"""A SQLite file under examination: how it is written, on what disk it lies, and by which library."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path
from typing import Final

from aftercommit.events.findings import Check, Finding, failure, ok, unknown, warning
from aftercommit.stores.sql.diagnosis import SqlDiagnosis
from aftercommit.stores.sqlite.executor import SqliteExecutor

#: The first that always has the JSON functions which outcomes are written by; before it a build may lack them.
CURRENT: Final = (3, 38, 0)

#: Where the system says which disks there are.
MOUNTS = Path("/proc/mounts")

#: Kinds of disks on another machine. Their locks do not hold between machines, and WAL needs shared memory.
_FAR: Final = frozenset(
    {
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "9p",
            "afs",
            "ceph",
            "lustre",
            "glusterfs",
            "ncpfs",
            "davfs",
            "beegfs",
        ),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.blobfuse", "fuse.davfs2", "fuse.rclone"),
    }
)

_AT_EACH_COMMIT: Final = 2

#: How a blank is written there.
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


class SqliteDiagnosis(SqlDiagnosis):
    """What only SQLite suffers from."""

    def _of_server(self) -> list[Check]:
        return [
            *super()._of_server(),
            ("AC117", self._journal),
            ("AC111", self._synchronous),
            ("AC118", self._disk),
            ("AC119", self._version),
        ]

    async def _reach(self) -> Finding:
        """A connection would make the file that is not there."""
        if isinstance(self._executor, SqliteExecutor) and not os.path.exists(self._executor.path):
            return failure(
                "AC100",
                f"there is no file {self._executor.path}",
                fix="check the path; or make it with `aftercommit migrate up`, or by starting the outbox",
            )
        return await super()._reach()

    async def _journal(self) -> list[Finding]:
        mode = (await self._read("journal_mode"))[0][0]
        if mode == "wal":
            return [ok("AC117", "changes are written ahead (journal_mode wal)")]
        return [
            warning(
                "AC117",
                f"journal_mode is {mode}: whoever writes keeps all readers waiting, and readers keep writers",
                fix="let the outbox open the file itself, by its URL; or set it in your connection factory",
                sql="PRAGMA journal_mode = WAL",
            )
        ]

    async def _synchronous(self) -> list[Finding]:
        level = int((await self._read("synchronous"))[0][0])
        if level >= _AT_EACH_COMMIT:
            return [ok("AC111", "commits wait for the disk (synchronous FULL)")]
        return [
            warning(
                "AC111",
                f"synchronous is {('OFF', 'NORMAL')[level]}: a power cut takes back the last transactions that were "
                "answered, your changes and their events together",
                fix="let the outbox open the file itself, by its URL; or set it in your connection factory",
                sql="PRAGMA synchronous = FULL",
            )
        ]

    async def _disk(self) -> list[Finding]:
        path = next((row[2] for row in await self._read("files") if row[1] == "main"), "")
        try:
            mounts = MOUNTS.read_text()
        except OSError:
            return [unknown("AC118", f"{MOUNTS} cannot be read on this system")]
        kind = disk_of(os.path.realpath(path), mounts)
        if kind not in _FAR:
            return [ok("AC118", f"the file is on a local disk ({kind})")]
        return [
            failure(
                "AC118",
                f"{path} is on a network disk ({kind}): its locks do not hold between machines, and a database in WAL "
                "mode is damaged by a second one",
                fix="move it to a local disk, or use a server (PostgreSQL, MySQL, Redis) for several machines",
            )
        ]

    async def _version(self) -> list[Finding]:
        if sqlite3.sqlite_version_info >= CURRENT:
            return [ok("AC119", f"SQLite {sqlite3.sqlite_version} is current enough")]
        return [
            warning(
                "AC119",
                f"this Python has SQLite {sqlite3.sqlite_version}; before {'.'.join(map(str, CURRENT))} a build may "
                "lack the JSON functions that outcomes are written by",
                fix="use a newer Python build",
            )
        ]


def disk_of(path: str, mounts: str) -> str:
    """The kind of the disk that a path lies on: the longest mount point that leads to it."""
    found, longest = "unknown", -1
    for line in mounts.splitlines():
        _, _, rest = line.partition(" ")
        point, _, rest = rest.partition(" ")
        point = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), point)
        # Of two at one place the later one hides the other.
        if len(point) >= longest and (path == point or path.startswith(point.rstrip("/") + "/")):
            found, longest = rest.partition(" ")[0], len(point)
    return found

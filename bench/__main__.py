"""Run the benchmarks: `python -m bench [--quick] [--only NAME] [--peers] [--rounds N] [--out FOLDER]`."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench import drains, imports, latency, writes
from bench.facts import facts, filesystem, is_on_disk, load
from bench.plot import draw
from bench.report import notes, save, table
from bench.results import Line
from bench.servers import MEASURES as ON_SERVERS
from bench.servers import ON_REQUEST
from bench.servers import facts as server_facts
from bench.servers.places import Absent
from bench.sizes import FULL, QUICK, Sizes


def _sessions(sizes: Sizes, workshop: Path) -> list[Line]:
    """SQLAlchemy is an extra."""
    try:
        from bench.sessions import sqlalchemy_session  # noqa: PLC0415
    except ImportError as error:
        raise Absent(f"{error.name} is not installed") from error
    return sqlalchemy_session(sizes, workshop)


MEASURES: Final[dict[str, Callable[[Sizes, Path], list[Line]]]] = {
    "write_threads": writes.write_threads,
    "write_asyncio": writes.write_asyncio,
    "write_all": writes.write_all,
    "drain": drains.drain,
    "latency": latency.latency,
    "import": imports.imports,
    "sqlalchemy_session": _sessions,
    **ON_SERVERS,
}

_RESULTS: Final = Path(__file__).resolve().parent / "results"


def main() -> None:
    options = _options()
    sizes = QUICK if options.quick else FULL
    if options.rounds is not None:
        sizes = replace(sizes, rounds=options.rounds, imports=min(sizes.imports, max(3, options.rounds)))
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that databases are removed
    names = _names(options)
    workshop = _workshop(options.folder)
    try:
        about = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": " ".join(["python", "-m", "bench", *_told(options)]),
            "facts": {**facts(workshop), **server_facts(names)},
            "sizes": asdict(sizes),
        }
        _say_what(about)
        lines, left_out = _measure(names, sizes, workshop)
        about["left_out"] = left_out
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    about["facts"]["load_after"] = load()
    _keep(options, about, lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="The outbox beside hand-written code on the same driver."
    )
    parser.add_argument("--quick", action="store_true", help="little work and few rounds: to see that it runs")
    parser.add_argument("--only", action="append", choices=list(MEASURES), help="one measure; may be given again")
    parser.add_argument("--peers", action="store_true", help="also other libraries that are installed, on PostgreSQL")
    parser.add_argument("--rounds", type=_at_least_one, help="rounds that count, besides the one that warms up")
    parser.add_argument("--out", type=Path, default=_RESULTS, help="where JSON and the picture go")
    parser.add_argument("--folder", type=Path, help="where databases are made; must be on a disk")
    return parser.parse_args()


def _names(options: argparse.Namespace) -> list[str]:
    names = options.only or [name for name in MEASURES if name != ON_REQUEST]
    return names + [ON_REQUEST] * (options.peers and ON_REQUEST not in names)


def _at_least_one(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _told(options: argparse.Namespace) -> list[str]:
    """The options that matter for the figures; folders are the reader's own."""
    told = ["--quick"] if options.quick else []
    for name in options.only or ():
        told += ["--only", name]
    told += ["--peers"] if options.peers else []
    return told + (["--rounds", str(options.rounds)] if options.rounds is not None else [])


def _workshop(wanted: Path | None) -> Path:
    """A temporary folder on a disk: in memory a commit would cost nothing, and every ratio would be too bad."""
    candidates = [wanted] if wanted else [Path(tempfile.gettempdir()), Path("/var/tmp"), _RESULTS.parent]  # noqa: S108
    for candidate in candidates:
        if candidate.is_dir() and is_on_disk(candidate):
            return Path(tempfile.mkdtemp(prefix="aftercommit-bench-", dir=candidate))
    sys.exit(f"{candidates[0]} is on {filesystem(candidates[0])}: name a folder on a disk with --folder")


def _say_what(about: dict[str, dict[str, object]]) -> None:
    print(about["command"], "·", about["date"])
    print(" · ".join(f"{name.replace('_', ' ')} {value}" for name, value in about["facts"].items()))
    print(" · ".join(f"{name} {value}" for name, value in about["sizes"].items()), flush=True)


def _measure(names: list[str], sizes: Sizes, workshop: Path) -> tuple[list[Line], dict[str, str]]:
    """One after the other; each is told when it is known. What has no server here is left out, and said."""
    lines: list[Line] = []
    left_out: dict[str, str] = {}
    for name in names:
        try:
            found = MEASURES[name](sizes, workshop)
        except Absent as reason:
            left_out[name] = str(reason)
            print(f"\n{name.upper()} is left out: {reason}", flush=True)
            continue
        print("", table(found), *notes(found), sep="\n", flush=True)
        lines += found
    return lines, left_out


def _keep(options: argparse.Namespace, about: dict[str, dict[str, object]], lines: list[Line]) -> None:
    """A whole run draws latest.png; a quick or partial one has a picture of its own."""
    is_whole = not options.quick and not options.only
    parts = [str(about["date"])[:10], str(about["facts"]["revision"])]
    parts += ["quick"] * options.quick + (options.only or []) + ["peers"] * options.peers
    stem = "-".join(parts)
    path = options.out / f"{stem}.json"
    save(path, lines, **about)
    picture = options.out / ("latest.png" if is_whole else f"{stem}.png")
    title = f"aftercommit {about['facts']['aftercommit']} ({about['facts']['revision']}), {about['facts']['python']}"
    drawn = draw(picture, lines, title)
    print(f"\nsaved {path.name}" + (f" and {picture.name}" if drawn else "; no picture: matplotlib is not installed"))


if __name__ == "__main__":
    main()

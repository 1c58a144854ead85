"""Run the benchmarks: `python -m bench [--quick | --long] [--peers] [--only NAME] …`; `--help` tells all."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bench.catalogue import MEASURES, Measure, taken
from bench.facts import facts, filesystem, is_on_disk, load, server_facts, versions
from bench.pages import DOCS, PAGES, RESULTS, write
from bench.report import notes, table
from bench.results import Line
from bench.run import Found, run
from bench.sizes import FORMS, Sizes

#: What is set beside the outbox, as it is installed.
_PEERS: Final = ("txoutbox", "pgqueuer", "faststream-outbox", "procrastinate", "oban")


def main() -> None:
    options = _options()
    measures = list(taken(only=options.only, is_long=options.long, peers=options.peers))
    sizes = _sizes(options)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that databases are removed
    workshop = _workshop(options.folder)
    try:
        about = _about(options, measures, sizes, workshop)
        _say_what(about)
        keeper = Keeper(options, about)
        found = run(measures, sizes, workshop, keeper.told)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    keeper.publish(found)
    sys.exit(1 if found.failed else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="The outbox beside hand-written code on the same driver."
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--quick", action="store_true", help="little work and few rounds: to see that it runs")
    form.add_argument("--long", action="store_true", help="all measures, without regard to time")
    parser.add_argument("--peers", action="store_true", help="beside other libraries that are installed, on PostgreSQL")
    names = [measure.name for measure in MEASURES]
    parser.add_argument("--only", action="append", choices=names, help="one measure; may be given again")
    parser.add_argument("--rounds", type=_at_least_one, help="rounds that count, besides the one that warms up")
    parser.add_argument("--done-rows", type=_at_least_one, help="delivered events of postgres_done_rows")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the JSON goes")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the pages of a whole run go")
    parser.add_argument("--folder", type=Path, help="where databases are made; must be on a disk")
    return parser.parse_args()


def _at_least_one(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _sizes(options: argparse.Namespace) -> Sizes:
    sizes = FORMS["quick" if options.quick else "long" if options.long else "full"]
    if options.rounds is not None:
        sizes = replace(sizes, rounds=options.rounds, imports=min(sizes.imports, max(3, options.rounds)))
    if options.done_rows is not None:
        sizes = replace(sizes, done_rows=options.done_rows, patience=max(sizes.patience, options.done_rows / 2_000))
    return sizes


def _workshop(wanted: Path | None) -> Path:
    """A temporary folder on a disk: in memory a commit would cost nothing, and every ratio would be too bad."""
    candidates = [wanted] if wanted else [Path(tempfile.gettempdir()), Path("/var/tmp"), RESULTS.parent]  # noqa: S108
    for candidate in candidates:
        if candidate.is_dir() and is_on_disk(candidate):
            return Path(tempfile.mkdtemp(prefix="aftercommit-bench-", dir=candidate))
    sys.exit(f"{candidates[0]} is on {filesystem(candidates[0])}: name a folder on a disk with --folder")


def _about(options: argparse.Namespace, measures: Sequence[Measure], sizes: Sizes, workshop: Path) -> dict[str, Any]:
    kinds = {word for measure in measures for word in measure.words}
    peers = _peers() if any(measure.when == "peers" for measure in measures) else {}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python", "-m", "bench", *_told(options)]),
        "facts": {**facts(workshop), **server_facts(kinds), **peers},
        "sizes": asdict(sizes),
    }


def _peers() -> dict[str, str]:
    here = versions(_PEERS)
    return here | {peer: "not installed" for peer in _PEERS if peer not in here}


def _told(options: argparse.Namespace) -> list[str]:
    """The options that matter for the figures; folders are the reader's own."""
    told = [f"--{form}" for form in ("quick", "long", "peers") if getattr(options, form)]
    for name in options.only or ():
        told += ["--only", name]
    for name in ("rounds", "done_rows"):
        if (value := getattr(options, name)) is not None:
            told += [f"--{name.replace('_', '-')}", str(value)]
    return told


def _say_what(about: dict[str, Any]) -> None:
    print(about["command"], "·", about["date"])
    print(" · ".join(f"{name.replace('_', ' ')} {value}" for name, value in about["facts"].items()))
    print(" · ".join(f"{name} {value}" for name, value in about["sizes"].items()), flush=True)


class Keeper:
    """Says and saves what is found, after every measure: a run that is cut off leaves what it had."""

    def __init__(self, options: argparse.Namespace, about: dict[str, Any]) -> None:
        self._about = about
        self._docs: Path = options.docs
        form = "peers" if options.peers else "long" if options.long else "latest"
        #: A quick run, a part of one, and one with other rounds are nobody's page.
        self._is_whole = not (options.quick or options.only or options.rounds or options.done_rows)
        parts = [form] + ["quick"] * options.quick + (options.only or [])[:1] + ["part"] * (not self._is_whole)
        self._stem = "-".join(parts)
        self._file: Path = options.out / f"{self._stem}.json"

    def told(self, name: str, found: Found, lines: list[Line]) -> None:
        if lines:
            print("", table(lines), *(f"  {note}" for note in notes(lines)), sep="\n")
        elif name in found.left_out:
            print(f"\n{name.upper()} is left out: {found.left_out[name]}")
        elif name in found.failed:
            print(f"\n{name.upper()} FAILED: {found.failed[name]}")
        print(f"  {found.seconds[name]:g} s, {sum(found.seconds.values()) / 60:.1f} minutes so far", flush=True)
        self._save(found)

    def _save(self, found: Found) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        record = json.dumps(self._record(found), indent=1, ensure_ascii=False)
        partial = self._file.with_suffix(".tmp")
        partial.write_text(record + "\n")
        partial.replace(self._file)

    def _record(self, found: Found) -> dict[str, Any]:
        return {
            **self._about,
            "seconds": found.seconds,
            "left_out": found.left_out,
            "failed": found.failed,
            "results": [line.as_json() for line in found.lines],
        }

    def publish(self, found: Found) -> None:
        self._about["facts"]["load_after"] = load()
        self._save(found)
        goals = [goal.is_met(line) for line in found.lines for goal in line.goals]
        print(f"\n{goals.count(True)} of {len(goals)} targets reached; saved {self._file.name}", end="")
        if self._is_whole and self._stem in PAGES:
            write(self._stem, self._record(found), self._docs)
            print(f" and the page {self._stem}.md", end="")
        print(f"; FAILED: {', '.join(found.failed)}" if found.failed else "")


if __name__ == "__main__":
    main()

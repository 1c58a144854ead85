"""The pages of docs/performance from the saved results: `python -m bench.pages` writes them anew."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.catalogue import MEASURES
from bench.plot import draw_latencies, draw_ratios
from bench.report import markdown, notes, number, wanted
from bench.results import Line

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "bench" / "results"
DOCS: Final = ROOT / "docs" / "performance"

#: Results that have a page, and its title.
PAGES: Final = {
    "latest": "The last run beside hand-written SQL",
    "long": "The last long run beside hand-written SQL",
    "peers": "The last run beside other libraries",
}

_TITLES: Final = {measure.name: measure.title for measure in MEASURES}


def main() -> None:
    for stem in PAGES:
        file = RESULTS / f"{stem}.json"
        if file.exists():
            write(stem, json.loads(file.read_text()))


def write(stem: str, record: dict[str, Any], docs: Path = DOCS) -> None:
    """A page, its pictures, and the verdicts between the marks of the page that explains them."""
    docs.mkdir(parents=True, exist_ok=True)
    lines = [msgspec.convert(line, Line) for line in record["results"]]
    pictures = _pictures(stem, lines, docs)
    (docs / f"{stem}.md").write_text("\n".join(_page(stem, record, lines, pictures)) + "\n")
    explained = docs / "README.md"
    if explained.exists():
        explained.write_text(_between_marks(explained.read_text(), stem, verdicts(record, lines)))


def _between_marks(text: str, stem: str, table: str) -> str:
    marks = re.compile(rf"(<!-- verdicts: {stem} -->\n).*?(<!-- end -->)", re.DOTALL)
    return marks.sub(lambda found: f"{found[1]}\n{table}\n\n{found[2]}", text)


def _page(stem: str, record: dict[str, Any], lines: list[Line], pictures: list[str]) -> Iterator[str]:
    yield f"# {PAGES[stem]}\n"
    yield f"<!-- Made from bench/results/{stem}.json by `{record['command']}`: do not change it by hand. -->\n"
    yield "What the figures mean, and what they do not, is in [README.md](README.md).\n"
    yield from _how(record)
    yield f"\n## Targets\n\n{verdicts(record, lines)}"
    yield from (f"\n![{picture}]({picture})" for picture in pictures)
    for measure, group in groupby(lines, key=lambda line: line.measure):
        found = list(group)
        yield f"\n## {_TITLES.get(measure, measure)}\n\n`{measure}`, {record['seconds'].get(measure, 0):g} s\n"
        yield markdown(found)
        if told := notes(found):
            yield ""
            yield from (f"- {note}" for note in told)


def _how(record: dict[str, Any]) -> Iterator[str]:
    yield f"`{record['command']}`, {record['date']}, {sum(record['seconds'].values()) / 60:.1f} minutes.\n"
    yield "| | |\n| --- | --- |"
    yield from (f"| {name.replace('_', ' ')} | {value} |" for name, value in record["facts"].items())
    sizes = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in record["sizes"].items())
    yield f"| sizes | {sizes} |"
    for name, reason in {**record["left_out"], **record["failed"]}.items():
        told = "left out" if name in record["left_out"] else "FAILED"
        yield f"\n**{name}** {told}: {reason.splitlines()[-1]}"


def verdicts(record: dict[str, Any], lines: list[Line]) -> str:
    """Every goal with what was found."""
    rows = ["| target | measured | found | reached |", "| --- | --- | --- | --- |"]
    goals = [(goal, line) for line in lines for goal in line.goals]
    for goal, line in sorted(goals, key=lambda pair: _order(pair[0].id)):
        value = goal.value(line)
        found = "" if value is None else number(value)
        reached = {True: "yes", False: "**no**", None: "not measured"}[goal.is_met(line)]
        beside = f" / {line.rival}" if line.rival and goal.what in ("ratio", "cpu") else ""
        unit = f" ({line.unit})" if goal.what == "figure" else ""
        rows.append(f"| {wanted(goal)}{unit} | {line.measure}: {line.variant}{beside} | {found} | {reached} |")
    met = [bool(goal.is_met(line)) for goal, line in goals]
    head = f"Revision {record['facts']['revision']}, {record['date'][:10]}: {sum(met)} of {len(met)} reached."
    return "\n".join([head, "", *rows])


def _order(target: str) -> tuple[int, str]:
    digits = re.search(r"\d+", target)
    return (int(digits[0]) if digits else 99, target)


def _pictures(stem: str, lines: list[Line], docs: Path) -> list[str]:
    """None when matplotlib is not installed."""
    drawn = {f"{stem}-ratios.png": draw_ratios, f"{stem}-latency.png": draw_latencies}
    return [name for name, draw in drawn.items() if draw(docs / name, lines)]


if __name__ == "__main__":
    main()

"""Write the tables of options.md from the declarations of the options: `make options`. The prose around them stays."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from datetime import timedelta
from pathlib import Path

from aftercommit.config import OPTIONS, OutboxConfig
from aftercommit.options import REASONS, Of, Wiring

PAGE = Path(__file__).with_name("options.md")

PURPOSES = {
    Wiring.CUSTOM: ("Outbox(target, …)", "any mix"),
    Wiring.SINGLE_NODE: ("Outbox.single_node", "one process"),
    Wiring.MULTI_NODE: ("Outbox.multi_node", "several processes on one database"),
    Wiring.ORDERED: ("Outbox.ordered", "one or several processes, order per key"),
    Wiring.WRITER_ONLY: (
        "Outbox.writer_only",
        "programs whose events another one delivers, or change data capture",
    ),
}


def page(text: str) -> str:
    """The page with its tables as the declarations have them now."""
    for name, rows in {"options": _options(), "wirings": _wirings()}.items():
        table = "\n".join(rows)
        marks = rf"(<!-- table: {name} -->\n\n).*?(\n\n<!-- end -->)"
        text, found = re.subn(marks, lambda mark, table=table: f"{mark[1]}{table}{mark[2]}", text, flags=re.DOTALL)
        assert found == 1, name
    return text


def _options() -> Iterator[str]:
    yield "| option | takes | default | meaning |"
    yield "|---|---|---|---|"
    defaults = {each.name: each.default for each in fields(OutboxConfig)}
    for name, option in OPTIONS.items():
        assert option.shown or defaults[name] is not MISSING, name
        default = option.shown or _shown(defaults[name])
        own = {}
        for wiring, value in option.default_in.items():
            own.setdefault(_shown(value), []).append(f"`{wiring.value}`")
        default += "".join(f" ({', '.join(wirings)}: {value})" for value, wirings in own.items())
        meaning = option.meaning + ("; only with `ordered=True`" if Of.ORDER in option.of else "")
        yield f"| `{name}` | {option.kind.words} | {default} | {meaning} |"


def _wirings() -> Iterator[str]:
    yield "| wiring | for | refuses |"
    yield "|---|---|---|"
    for wiring, (call, purpose) in PURPOSES.items():
        refused = ", ".join(f"`{name}`" for name, option in OPTIONS.items() if option.is_refused_by(wiring))
        yield f"| `{call}` | {purpose} | {f'{refused}: {REASONS[wiring]}' if refused else '–'} |"


def _shown(value: object) -> str:
    if isinstance(value, timedelta):
        return _duration(value)
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def _duration(value: timedelta) -> str:
    """In the largest unit that fits without a rest, as an option takes it."""
    for unit, size in {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}.items():
        if value and not value % size:
            return f"`{value // size}{unit}`"
    return f"`{value.total_seconds():g}s`" if value else "`0`"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))

"""The page about payloads says what the code does: its examples run, and print what stands beside them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from aftercommit.events import classes as declared
from aftercommit.events.context import PREFIX, TRACE_NAMES

PAGE = (Path(__file__).parents[2] / "docs/payloads.md").read_text()


def test_the_examples_run_and_print_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    promised = re.findall(r"print\(.*\)  # (.*)", PAGE)
    monkeypatch.chdir(tmp_path)
    page = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", page)  # dataclasses and annotations look there
    outboxes = set()
    for block in blocks:
        exec(compile(block, "payloads.md", "exec", dont_inherit=True), vars(page))  # noqa: S102
        outboxes.add(page.outbox)
    for outbox in outboxes:
        outbox.close()
    assert len(blocks) == 6
    assert capsys.readouterr().out.splitlines() == promised


def test_names_on_the_page_are_those_of_the_code() -> None:
    assert all(f"`{name}`" in PAGE for name in (PREFIX, *TRACE_NAMES))
    marks = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert sorted(marks) == sorted(declared.Marks.__struct_fields__)


def test_the_example_of_the_decorator_runs() -> None:
    import doctest

    assert doctest.testmod(declared).failed == 0

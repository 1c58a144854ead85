"""The page about the components says what they are."""

from __future__ import annotations

import ast
import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

import aftercommit
from aftercommit import components
from aftercommit.components import threads
from aftercommit.components.dispatching import DispatcherOptions
from aftercommit.components.polling import PollerOptions

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/components.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_wiring_on_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(SNIPPETS[0], "components.md", "exec"), {"__name__": "__main__"})  # noqa: S102
    assert capsys.readouterr().out == '{"id": 123}\n'


def test_its_snippets_import_what_they_use() -> None:
    for snippet in SNIPPETS:
        nodes = list(ast.walk(ast.parse(snippet)))
        imported = {name.name for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names}
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        assert used & {*aftercommit.__all__, *components.__all__} <= imported, snippet


@pytest.mark.parametrize("options", [DispatcherOptions, PollerOptions])
def test_every_option_is_named_on_it(options: type) -> None:
    assert [name for name in options.__annotations__ if f"`{name}`" not in PAGE] == []


def test_every_name_of_the_room_is_there_and_on_the_page() -> None:
    for name in components.__all__:
        assert getattr(components, name).__name__ == name
    assert [name for name in components.__all__ if name not in PAGE] == []
    with pytest.raises(AttributeError, match="OtuboxWriter"):
        components.OtuboxWriter  # noqa: B018


def test_threads_load_no_asyncio() -> None:
    script = "import sys, aftercommit.components; print({'asyncio', 'aftercommit.components.aio'} & {*sys.modules})"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


def test_examples_in_docstrings_run() -> None:
    assert doctest.testmod(threads).failed == 0


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target

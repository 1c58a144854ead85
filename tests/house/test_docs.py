"""The documents say what the code does: every option, every example."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path
from runpy import run_path

import pytest

import aftercommit
from aftercommit import EventStatus, OutboxConfig

ROOT = Path(__file__).parents[2]


def test_every_option_stands_in_the_docs_and_no_other() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \|", (ROOT / "docs/options.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(option.name for option in fields(OutboxConfig) if option.name != "wiring")


def test_the_tables_of_the_options_are_those_of_their_declarations() -> None:
    """`make options` writes them."""
    text = (ROOT / "docs/options.md").read_text()
    assert run_path(str(ROOT / "docs/make_options.py"))["page"](text) == text


def test_every_option_of_a_handler_stands_in_the_docs_and_no_other() -> None:
    from aftercommit.handlers.options import OPTIONS

    rows = re.findall(r"^\| `([a-z_]+)` \|", (ROOT / "docs/handlers.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(OPTIONS)


def test_every_keyword_of_write_stands_in_the_docs_and_no_other() -> None:
    from aftercommit import AsyncOutbox, Outbox
    from aftercommit.writing.compose import WriteOptions

    rows = re.findall(r"^\| `([a-z_]+)` \| [^|]+ \|$", (ROOT / "docs/transactions.md").read_text(), re.MULTILINE)
    assert rows == list(WriteOptions.__annotations__)
    for outbox in (Outbox, AsyncOutbox):
        assert all(name in str(outbox.write.__doc__) for name in rows)


def test_the_fifteen_lines_of_the_readme_run(tmp_path: Path, monkeypatch, capsys) -> None:
    readme = (ROOT / "README.md").read_text()
    (example,) = re.findall(r"## Fifteen lines\n\n```python\n(.*?)```", readme, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})  # noqa: S102
    assert capsys.readouterr().out == "receipt over 4200\n"


def test_snippets_of_the_readme_import_what_they_use() -> None:
    for snippet in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL):
        nodes = list(ast.walk(ast.parse(snippet)))
        imported = {name.name for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names}
        used = {node.id for node in nodes if isinstance(node, ast.Name)} & set(aftercommit.__all__)
        assert used <= imported, snippet


def test_the_numbers_of_statuses_are_explained() -> None:
    rows = re.findall(r"^\| (\d) \| ([A-Z]+) \|", (ROOT / "docs/stores.md").read_text(), re.MULTILINE)
    assert rows == [(str(status.value), status.name) for status in EventStatus]


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_between_documents_lead_somewhere(document: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / document).read_text()):
        assert (ROOT / target).exists(), target


def test_docstring_examples_run() -> None:
    import doctest

    from aftercommit import outbox
    from aftercommit.events import envelope, ids, retry, retry_settings
    from aftercommit.handlers import handler, objects
    from aftercommit.testing import outbox_test

    for module in (outbox, envelope, handler, objects, ids, retry, retry_settings, outbox_test):
        assert doctest.testmod(module).failed == 0

"""The house as a whole: what may not be in it, and what importing it costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import aftercommit

PACKAGE = Path(aftercommit.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_is_unpickled_evaluated_or_imported_by_name(source: Path) -> None:
    """A row must never be able to choose what code runs."""
    text = source.read_text()
    assert not re.search(r"\b(pickle|marshal|shelve|import_module|__import__)\b|(?<![\w.])(eval|exec)\(", text)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_has_one_noun(source: Path) -> None:
    assert len(source.read_text().splitlines()) <= 320


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_pytest_is_for_the_room_of_tests_alone(source: Path) -> None:
    """Who uses the outbox need not have it."""
    if (PACKAGE / "testing") not in source.parents:
        assert not re.search(r"^\s*(import|from) (_?pytest|aftercommit\.testing)\b", source.read_text(), re.MULTILINE)


#: Where a database may be called by its name.
_KNOWS_DATABASES = (
    "stores/",
    "demo/",
    "django/databases.py",  # from Django's word for a database to its store
    "transactions/sqlalchemy_table.py",  # SQLAlchemy's types for the columns of each database
    "transactions/sqlalchemy_schema.py",
)

#: A name of a database, or a text with a word that only one of them understands.
_OF_ONE_DATABASE = re.compile(
    r"(sqlite|postgres(ql)?|mysql|mariadb|mssql|sql ?server)"
    r"|.*\b(PRAGMA|pg_\w+|advisory\w*|JSON_TABLE|OPENJSON|unnest)\b.*",
    re.IGNORECASE | re.DOTALL,
)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_stores_know_databases_by_name(source: Path) -> None:
    """Everybody else asks what a store can do. Texts for people may name whatever they like."""
    if str(source.relative_to(PACKAGE)).startswith(_KNOWS_DATABASES):
        return
    tree = ast.parse(source.read_text())
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert [each.value for each in strings if id(each) not in told and _OF_ONE_DATABASE.fullmatch(each.value)] == []


def test_importing_it_loads_no_event_loop_and_no_third_package() -> None:
    script = "import sys; before = set(sys.modules); import aftercommit; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    ).stdout.split()
    ours = {
        "aftercommit",
        "mmh3",
        "msgspec",
        "typing_extensions",
    }  # the last is loaded by msgspec where it is installed
    roots = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    assert roots <= ours
    assert "asyncio" not in loaded


def test_importing_it_has_no_effects(tmp_path: Path) -> None:
    script = (
        "import threading, aftercommit; o = aftercommit.Outbox('sqlite:///here.db'); print(threading.active_count())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert done.stdout.split() == ["1"]
    assert list(tmp_path.iterdir()) == []

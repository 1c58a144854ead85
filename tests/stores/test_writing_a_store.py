"""The guide for authors of stores is true: its example is collected, and passes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from aftercommit.ports import Capabilities, EventStore
from aftercommit.testing import SqlConformance, StoreConformance, StoreHooks

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/writing-a-store.md").read_text()


#: The hooks of the example, a test of one's own beside the suite, and the hooks of a store over SQL.
MEMORY, OWN, SQL = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


def pytest_in(folder: Path, words: str) -> subprocess.CompletedProcess[str]:
    """In a project of its own: no conftest of ours is at hand, only the examples."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-k", words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def passed(done: subprocess.CompletedProcess[str]) -> int:
    assert done.returncode == 0, done.stdout
    found = re.search(r"(\d+) passed", done.stdout)
    assert found is not None
    return int(found[1])


def test_the_example_of_the_guide_passes_the_suite(tmp_path: Path) -> None:
    own = OWN[OWN.index("    @played") :]
    imports = OWN[: OWN.index("\n\nclass")]
    (tmp_path / "test_my_store.py").write_text(f"{imports}\n{MEMORY}\n{own}")
    assert passed(pytest_in(tmp_path, "claim or view_of_mine or born")) > 30


def test_the_example_of_a_store_over_sql_passes_the_suite(tmp_path: Path) -> None:
    (tmp_path / "test_my_store.py").write_text(SQL)
    assert passed(pytest_in(tmp_path, "claim or born")) > 30


def test_a_failed_promise_is_explained(tmp_path: Path) -> None:
    """The asserts of the suite show their values although its files are no test files."""
    lie = "\n    def rows(self):\n        return [{'event_id': '', 'status': 9, 'attempts': 0, 'abandoned': 0}]\n"
    (tmp_path / "test_my_store.py").write_text(MEMORY + lie)
    done = pytest_in(tmp_path, "born_new")
    assert done.returncode == 1
    assert "assert (9, 0, 0) ==" in done.stdout


def test_the_guide_names_every_hook_and_every_part() -> None:
    hooks = {*StoreHooks.__abstractmethods__, "make_store_in_zone", "make_schema", "skips_locked", "has_schemas"}
    hooks |= {"locked", "held_open"}
    assert [name for name in sorted(hooks) if f"`{name}" not in GUIDE] == []
    bases = {*StoreConformance.__mro__, *SqlConformance.__mro__}
    parts = {base.__module__.rpartition(".")[2] for base in bases if base.__name__.endswith("Contract")}
    assert len(parts) == 21
    assert [part for part in sorted(parts) if f"| {part} |" not in GUIDE] == []


def test_the_guide_names_everything_that_the_port_has() -> None:
    members = {name for name in (*vars(EventStore), *EventStore.__annotations__) if not name.startswith("_")}
    assert [name for name in sorted(members) if f"`{name}`" not in GUIDE] == []


def test_the_guide_names_every_capability() -> None:
    assert [name for name in Capabilities.__slots__ if f"| `{name}` |" not in GUIDE] == []


def test_the_example_is_small_enough_to_be_read() -> None:
    """Nobody starts from a file of a thousand lines."""
    files = {path.name: path.read_text().count("\n") for path in (ROOT / "examples/memory_store").glob("*.py")}
    assert max(files.values()) < 200, files

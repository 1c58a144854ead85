"""The guide for authors of stores is true: its example is collected, and passes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from aftercommit.ports import EventStore
from aftercommit.testing import SqlConformance, StoreConformance, StoreHooks

GUIDE = (Path(__file__).parents[2] / "docs/writing-a-store.md").read_text()


def pytest_in(folder: Path, words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-k", words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_example_of_the_guide_passes_the_suite(tmp_path: Path) -> None:
    """In a project of its own: no conftest of ours is at hand."""
    first, second = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    own = second[second.index("    @played") :]
    imports = second[: second.index("\n\nclass")]
    (tmp_path / "test_my_store.py").write_text(f"{imports}\n{first}\n{own}")
    done = pytest_in(tmp_path, "claim or view_of_mine or born")
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 30


def test_a_failed_promise_is_explained(tmp_path: Path) -> None:
    """The asserts of the suite show their values although its files are no test files."""
    first, _ = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    broken = (
        first + "\n    def rows(self):\n        return [{'event_id': '', 'status': 9, 'attempts': 0, 'abandoned': 0}]\n"
    )
    (tmp_path / "test_my_store.py").write_text(broken)
    done = pytest_in(tmp_path, "born_new")
    assert done.returncode == 1
    assert "assert (9, 0, 0) ==" in done.stdout


def test_the_guide_names_every_hook_and_every_part() -> None:
    hooks = {*StoreHooks.__abstractmethods__, "make_store_in_zone", "make_schema", "skips_locked", "has_schemas"}
    hooks |= {"locked", "held_open"}
    assert [name for name in sorted(hooks) if f"`{name}" not in GUIDE] == []
    bases = {*StoreConformance.__mro__, *SqlConformance.__mro__}
    parts = {base.__module__.rpartition(".")[2] for base in bases if base.__name__.endswith("Contract")}
    assert len(parts) == 14
    assert [part for part in sorted(parts) if f"| {part} |" not in GUIDE] == []


def test_the_guide_names_everything_that_the_port_has() -> None:
    members = {name for name in (*vars(EventStore), *EventStore.__annotations__) if not name.startswith("_")}
    assert [name for name in sorted(members) if f"`{name}`" not in GUIDE] == []

"""The pytest plugin: a fixture that comes with the package, and that costs those who do without it nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "tested_shop"


def pytest_of(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def test_the_example_passes() -> None:
    ran = pytest_of(EXAMPLE)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "8 passed" in ran.stdout


def test_the_page_about_testing_runs_as_it_stands(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    program, settings, *tests = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "shop.py").write_text(program)
    (tmp_path / "conftest.py").write_text(settings)
    (tmp_path / "test_page.py").write_text("\n".join(tests))
    ran = pytest_of(tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{sum(each.count('def test_') for each in tests)} passed" in ran.stdout
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page):
        assert (ROOT / "docs" / target).exists(), target


PROGRAM = """
from aftercommit import Outbox
class app:
    outbox = Outbox("postgresql://nowhere.invalid/shop")
app.outbox.handler("Placed", id="place")(print)
"""

TESTS = """
import sys
import unittest
import pytest

def test_nothing_is_loaded_before_the_fixture_is_used():
    loaded = {name for name in sys.modules if name.startswith("aftercommit")}
    assert loaded == {"aftercommit", "aftercommit.pytest_plugin"}

def test_by_its_name(outbox_test):
    from shop import app
    with app.outbox.transaction():
        app.outbox.write("Placed", {"id": 7})
    outbox_test.assert_written("Placed", id=7)
    assert outbox_test.drain().delivered == 1
    assert "aftercommit.testing.conformance" not in sys.modules
    assert "sqlalchemy" not in sys.modules

class Case(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def kit(self, outbox_test):
        self.outbox_test = outbox_test

    def test_in_a_class_of_unittest(self):
        self.outbox_test.assert_nothing_written()

def test_that_fails(outbox_test):
    outbox_test.write("Placed", {"id": 8})
    outbox_test.assert_written("Placed", id=7)

class TestWithoutAName:
    @pytest.fixture
    def outbox_under_test(self, request):
        request.config._inicache["aftercommit_outbox"] = ""
        return request.getfixturevalue("outbox_under_test")

    def test_unknown(self, outbox_test):
        pass
"""


def test_a_fixture_by_a_name_in_the_settings_fails_as_users_can_read_it(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naftercommit_outbox = shop:app.outbox\npythonpath = .\n")
    (tmp_path / "shop.py").write_text(PROGRAM)
    (tmp_path / "test_shop.py").write_text(TESTS)
    ran = pytest_of(tmp_path)
    assert "3 passed" in ran.stdout, ran.stdout + ran.stderr
    assert "1 failed" in ran.stdout
    assert "1 error" in ran.stdout
    assert 'aftercommit_outbox = "shop:outbox"' in ran.stdout, "what is to be done is said"
    assert "no Placed with id=7 was written" in ran.stdout
    assert "id: expected 7, was 8" in ran.stdout
    assert "bench.py" not in ran.stdout, "only lines of the test are shown"


def test_a_type_checker_knows_what_the_kit_gives() -> None:
    """With the settings of the package, which are strict."""
    pytest.importorskip("mypy")
    sample = Path(__file__).with_name("typed_sample.py")
    files = [sample, *sorted(EXAMPLE.glob("*.py"))]
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *map(str, files)]
    checked = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, check=False, env={"MYPYPATH": f"src:{EXAMPLE}"}
    )
    found = {line.split(":")[1] for line in checked.stdout.splitlines() if "error:" in line}
    wrong = {str(number) for number, line in enumerate(sample.read_text().splitlines(), 1) if line.endswith("# wrong")}
    assert len(wrong) > 4
    assert found == wrong, checked.stdout + checked.stderr
    assert all("typed_sample.py" in line for line in checked.stdout.splitlines() if "error:" in line)

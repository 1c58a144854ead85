"""Each of the sixteen promises can be found by its number and its name: a file of tests/promises, and tests in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1] / "promises"

PROMISES = {
    1: "atomic",
    2: "nothing_lost",
    3: "fail_fast",
    4: "fenced",
    5: "one_holder",
    6: "failed_mark",
    7: "terminal",
    8: "order",
    9: "bounded",
    10: "silent_backpressure",
    11: "any_exception",
    12: "verbatim",
    13: "clock_proof",
    14: "fork_safe",
    15: "clean_stop",
    16: "observable",
}


@pytest.mark.parametrize(("number", "name"), PROMISES.items())
def test_a_promise_has_a_test_of_its_name(number: int, name: str) -> None:
    files = [file for file in HERE.glob(f"test_{number:02}_*.py") if name in file.stem]
    tests = [
        each for file in files for each in re.findall(rf"^def (test_promise_{number:02}_\w+)", file.read_text(), re.M)
    ]
    assert any(name in test for test in tests), f"tests/promises/test_{number:02}_{name}.py"

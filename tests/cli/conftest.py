"""Fixtures of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.kit import Here


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(tmp_path, monkeypatch, capsys)

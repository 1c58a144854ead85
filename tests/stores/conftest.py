"""The contract's modules are no test files; their asserts are to be explained all the same."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "tests.stores.contract",
    "tests.stores.contract_claiming",
    "tests.stores.contract_fencing",
    "tests.stores.contract_hooks",
    "tests.stores.contract_records",
    "tests.stores.contract_settling",
    "tests.stores.contract_writing",
    "tests.stores.kit",
)

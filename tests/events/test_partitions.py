"""The partition of a key is fixed for ever: rows carry the number, and other implementations compute it too."""

from __future__ import annotations

from collections import Counter

import mmh3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aftercommit import InvalidOption, PartitionHasher
from aftercommit.events.claims import HASH_NAME, PARTITION_COUNT, partition_of

#: Key, murmur3_x86_32 with seed 0, partition.
TABLE = [
    ("", 0x0, 0),
    ("customer-123", 0x40C33925, 37),
    ("customer-456", 0xE35B1FB1, 177),
    ("customer-1", 0x7C1E52A4, 164),
    ("order-abc123", 0xB1887A19, 25),
    ("user-xyz789", 0x93A66063, 99),
    ("product-def456", 0xDED18FE0, 224),
    ("invoice-ghi789", 0xD2A65B49, 73),
    ("customer-with-@-symbol", 0x15768E38, 56),
    ("order#123!", 0x459AB257, 87),
    ("user_with_underscores", 0x125D7CB5, 181),
    ("product.with.dots", 0xD6BAA593, 147),
    ("invoice-with-äöü-umlauts", 0x630566F7, 247),
    ("customer-abc", 0x682B8AC9, 201),
    ("CUSTOMER-ABC", 0x39ED8F2A, 42),
    ("Customer-Abc", 0x8E7E2909, 9),
    ("order-123", 0xADAE14BD, 189),
    ("order-456", 0x258C0F5E, 94),
    ("order-789", 0xE74781F4, 244),
    ("user-456", 0x1DD4D016, 22),
    ("test-record-key", 0x8E30BDAC, 172),
    ("550e8400-e29b-41d4-a716-446655440000", 0x38D60CDC, 220),
    ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", 0x38BD905B, 91),
    ("6ba7b811-9dad-11d1-80b4-00c04fd430c8", 0xE655729C, 156),
    ("customer-" + "a" * 1000, 0xB6B2F72C, 44),
]


@pytest.mark.parametrize(("key", "hashed", "partition"), TABLE, ids=[key[:36] for key, _, _ in TABLE])
def test_every_key_has_the_partition_of_the_table(key, hashed, partition):
    """TC-257, TC-258."""
    assert mmh3.hash(key.encode(), 0, signed=False) == hashed
    assert partition_of(key) == partition == partition_of(key)


@pytest.mark.parametrize(("key", "hashed", "partition"), TABLE, ids=[key[:36] for key, _, _ in TABLE])
def test_everybody_can_ask_for_the_partition_of_a_key(key, hashed, partition):
    """TC-257"""
    assert PartitionHasher.get_partition_for_aggregate(key) == partition == hashed & 0x7FFFFFFF & 255


@pytest.mark.parametrize("wrong", [None, 7, b"order-123"])
def test_a_key_is_hashed_as_the_event_has_it(wrong):
    with pytest.raises(InvalidOption, match="the key is a"):
        PartitionHasher.get_partition_for_aggregate(wrong)


def test_the_count_and_the_name_of_the_hash_are_fixed():
    """TC-264; both are kept in the table, and a process that disagrees does not start."""
    assert PARTITION_COUNT == PartitionHasher.TOTAL_PARTITIONS == 256
    assert HASH_NAME == "murmur3_x86_32"


@pytest.mark.parametrize(
    "keys",
    [
        ("customer-123", "customer-456"),  # TC-259
        ("customer-abc", "CUSTOMER-ABC", "Customer-Abc"),  # TC-262
        (
            "550e8400-e29b-41d4-a716-446655440000",  # TC-263
            "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
            "6ba7b811-9dad-11d1-80b4-00c04fd430c8",
        ),
    ],
    ids=["numbers", "case", "uuids"],
)
def test_keys_that_are_alike_are_spread(keys):
    assert len({partition_of(key) for key in keys}) == len(keys)


def test_a_thousand_keys_use_almost_all_partitions():
    """TC-261."""
    used = Counter(partition_of(f"record-key-{number}") for number in range(1, 1001))

    assert len(used) == 253
    assert max(used.values()) < 20


@settings(deadline=None)
@given(st.text())
def test_any_key_has_a_partition(key):
    """TC-260."""
    assert 0 <= partition_of(key) < 256

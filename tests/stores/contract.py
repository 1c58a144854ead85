"""What every event store promises, as tests. A database joins by binding the hooks; it inherits the rest."""

from __future__ import annotations

from tests.stores.contract_claiming import ClaimingContract
from tests.stores.contract_fencing import FencingContract
from tests.stores.contract_records import RecordsContract
from tests.stores.contract_settling import SettlingContract
from tests.stores.contract_writing import WritingContract


class StoreContract(WritingContract, ClaimingContract, SettlingContract, FencingContract, RecordsContract):
    """All of it: bind `make_store`, `run`, `rows`, `change` and `now` (see contract_hooks)."""

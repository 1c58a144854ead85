"""What every event store promises, as tests. A store joins by binding the hooks; it inherits the rest."""

from __future__ import annotations

from aftercommit.testing.claiming import ClaimingContract
from aftercommit.testing.fencing import FencingContract
from aftercommit.testing.fidelity import FidelityContract
from aftercommit.testing.fleet import FleetContract
from aftercommit.testing.heads import HeadsContract
from aftercommit.testing.naming import NamingContract
from aftercommit.testing.ordering import OrderingContract
from aftercommit.testing.passing import PassingContract
from aftercommit.testing.purging import PurgingContract
from aftercommit.testing.records import RecordsContract
from aftercommit.testing.scheduling import SchedulingContract
from aftercommit.testing.settling import SettlingContract
from aftercommit.testing.sharing import SharingContract
from aftercommit.testing.writing import WritingContract


class StoreConformance(
    WritingContract,
    SchedulingContract,
    FidelityContract,
    ClaimingContract,
    SharingContract,
    SettlingContract,
    FencingContract,
    HeadsContract,
    OrderingContract,
    PassingContract,
    RecordsContract,
    PurgingContract,
    FleetContract,
    NamingContract,
):
    """All of it. Inherit, bind `make_store`, `run`, `rows`, `change` and `now`, and let pytest collect the class.

    A store may declare what its database cannot do, and the tests that ask for it are skipped or turned round:

    - `skips_locked = False`: a claim waits for somebody's open transaction instead of passing over its rows.
    - `has_schemas = False`: the option `schema` is refused.

    A database whose sessions have a time zone binds `make_store_in_zone`; one with schemas binds `make_schema`.
    """

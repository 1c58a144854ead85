"""What every event store promises, as tests. A store joins by binding the hooks; it inherits the rest."""

from __future__ import annotations

from aftercommit.testing.claiming import ClaimingContract
from aftercommit.testing.effects import EffectsContract
from aftercommit.testing.failing import FailuresContract
from aftercommit.testing.fencing import FencingContract
from aftercommit.testing.fidelity import FidelityContract
from aftercommit.testing.fleet import FleetContract
from aftercommit.testing.groups import GroupsContract
from aftercommit.testing.heads import HeadsContract
from aftercommit.testing.looking import LookingContract
from aftercommit.testing.mending import MendingContract
from aftercommit.testing.naming import NamingContract
from aftercommit.testing.ordering import OrderingContract
from aftercommit.testing.passing import PassingContract
from aftercommit.testing.pausing import PausingContract
from aftercommit.testing.purging import PurgingContract
from aftercommit.testing.records import RecordsContract
from aftercommit.testing.scheduling import SchedulingContract
from aftercommit.testing.settling import SettlingContract
from aftercommit.testing.sharing import SharingContract
from aftercommit.testing.uniques import UniquesContract
from aftercommit.testing.writing import WritingContract


class CoreConformance(
    WritingContract,
    SchedulingContract,
    FidelityContract,
    ClaimingContract,
    SharingContract,
    SettlingContract,
    GroupsContract,
    EffectsContract,
    FencingContract,
    RecordsContract,
    LookingContract,
    MendingContract,
    FailuresContract,
    PurgingContract,
    PausingContract,
    UniquesContract,
):
    """What a store promises that keeps no order and knows no fleet."""


class OrderConformance(HeadsContract, OrderingContract, PassingContract):
    """What a store promises more whose `capabilities.keeps_order` is true."""


class StoreConformance(CoreConformance, OrderConformance, FleetContract):
    """All of it, whatever lies behind the store. Inherit, bind `make_store`, `run`, `rows`, `change` and `now`, and let
    pytest collect the class.

    A store that declares `skips_locked = False` waits for somebody's open transaction instead of passing over its rows,
    and the tests that ask for it are skipped. Others bind `locked` and `held_open`, which `SqlConformance` has ready.
    Where sessions have a time zone, bind `make_store_in_zone`.
    """


class SqlConformance(NamingContract):
    """What a store over SQL promises more, and the hooks that are the same for all of them. Inherit it first:
    `class TestMyStore(SqlConformance, StoreConformance)`. A database with schemas binds `make_schema`; another declares
    `has_schemas = False`, and the option `schema` is refused."""

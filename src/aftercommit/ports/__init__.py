"""The seams: what the walk needs of runtimes, stores and transactions.

The walk's functions are `async def` and await only what is declared here. Under threads none of it ever suspends. All
ports are imported from this door.
"""

from __future__ import annotations

from aftercommit.ports.effects import Effect, Effects, HandlerTx
from aftercommit.ports.pauses import Pauses
from aftercommit.ports.records import Records
from aftercommit.ports.replication import Mark, Reading, Replication, SlotState
from aftercommit.ports.resources import Resource
from aftercommit.ports.runtime import Colour, Monitor, Runtime, Task
from aftercommit.ports.schema import SchemaStatus
from aftercommit.ports.sql_table import SqlNames, SqlTable
from aftercommit.ports.store import (
    Capabilities,
    Diagnosis,
    EventStore,
    Membership,
    Transactional,
    Wakeups,
    WakeupsUnavailable,
)
from aftercommit.ports.transactions import AdoptedTx, Callback, OpenTransaction, Tx, TxContext, WrittenRows

__all__ = [
    "AdoptedTx",
    "Callback",
    "Capabilities",
    "Colour",
    "Diagnosis",
    "Effect",
    "Effects",
    "EventStore",
    "HandlerTx",
    "Mark",
    "Membership",
    "Monitor",
    "OpenTransaction",
    "Pauses",
    "Reading",
    "Records",
    "Replication",
    "Resource",
    "Runtime",
    "SchemaStatus",
    "SlotState",
    "SqlNames",
    "SqlTable",
    "Task",
    "Transactional",
    "Tx",
    "TxContext",
    "Wakeups",
    "WakeupsUnavailable",
    "WrittenRows",
]

"""One batch on its way: each of its events ends once, and of a key that has stopped none begins any more."""

from __future__ import annotations

from aftercommit.delivery.chain import Delivery
from aftercommit.delivery.leases import Holding
from aftercommit.delivery.outcomes import goes_on
from aftercommit.delivery.said import log, tell_end
from aftercommit.delivery.settler import Settler
from aftercommit.delivery.starts import Starts
from aftercommit.events.claims import Claimed
from aftercommit.events.measures import result_of
from aftercommit.events.order import KeyRule, OrderKey
from aftercommit.events.outcome import Outcome, Release
from aftercommit.handlers.routing import Route
from aftercommit.ports import Runtime


class Batch:
    """Knows what has become of its events. Outcomes go to the settler as soon as there are any."""

    def __init__(
        self, runtime: Runtime, delivery: Delivery, settler: Settler, starts: Starts, rule: KeyRule, route: Route
    ) -> None:
        self._clock = runtime.clock
        self._delivery, self._settler, self._starts, self._rule = delivery, settler, starts, rule
        self.route = route
        self.began = runtime.clock()
        #: The keys of which nothing more may follow: something of them was not completed.
        self.stopped: set[OrderKey] = set()

    def is_left(self, holding: Holding) -> bool:
        """Whether nothing is decided of it. Behind what has stopped its key it is given back: asked in the order of
        keys."""
        if holding.is_reported:
            return False
        if holding.order_key is not None and holding.order_key in self.stopped:
            self.give_back(holding)
            return False
        return True

    def begins(self, holding: Holding) -> bool:
        """The same before it is called: it must be this instance's still."""
        if not self.is_left(holding):
            return False
        if not self._starts.may(holding):
            self.give_back(holding)
            return False
        return True

    def calls(self, holding: Holding) -> None:
        """It is in the call that is made now."""
        holding.is_running = True

    def give_back(self, holding: Holding) -> None:
        """Uncounted, whatever was said of it: it comes again behind what its key waits for."""
        self.end(holding, Release(was_started=holding.is_running))

    def end(self, holding: Holding, outcome: Outcome, *, is_told: bool = False) -> None:
        """This is its outcome. `is_told`: exporters know of it already."""
        if not is_told and (holding.is_running or not isinstance(outcome, Release)):
            self._tell(claimed_of(holding), outcome)
        holding.is_running = False
        self._settler.add(holding, outcome)
        key = holding.order_key
        # A lease that was lost meanwhile is another's, and so is what comes after it.
        if key is not None and not (self._starts.is_kept(holding) and goes_on(outcome, self._rule)):
            self.stopped.add(key)

    def _tell(self, claimed: Claimed, outcome: Outcome) -> None:
        self._delivery.tell(claimed, self.route.id, result_of(outcome), self.began)
        if log.is_verbose():
            tell_end(claimed, self.route, outcome, self._clock() - self.began)


def claimed_of(holding: Holding) -> Claimed:
    if holding.claimed is None:
        raise ValueError(f"{holding} cannot be decoded, and such a row is never offered")
    return holding.claimed

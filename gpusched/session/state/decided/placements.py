"""Places that gangs were given in this session: what becomes the bindings of its plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpusched.api.meta.identity import UID, GangKey
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.session.state.decided.nominations import Nominations
from gpusched.session.state.decided.placement_effects import PlacementEffects
from gpusched.session.state.statement import Assignment, Statement


@frozen(slots=True, eq=False)
class NodePoolVariant:
    """The gang with the pool's labels in its pods' node selectors.

    Attributes:
        pool: the pool's name, empty when its queue has no pools.
        node_selector: what the pool adds, pairs sorted by label.
    """

    gang: Gang
    pool: str = ""
    node_selector: tuple[tuple[str, str], ...] = ()


class Placements:
    """Assignments of one session by gang, with the node pool and the proof of each.

    Args:
        gangs: of the session, by key.
        nominations: given up by gangs that are placed.
        effects: on queues and reservations.
    """

    def __init__(
        self,
        gangs: Mapping[GangKey, Gang],
        nominations: Nominations,
        effects: PlacementEffects,
        binds_max: int,
    ) -> None:
        self._binds_max = binds_max
        self._gangs = gangs
        self._nominations = nominations
        self._effects = effects
        self._places: dict[GangKey, list[Assignment]] = {}
        self._variants: dict[GangKey, NodePoolVariant] = {}
        self._proofs: dict[GangKey, str] = {}
        self._nominated: set[GangKey] = set()
        self._pods = 0
        self.changes = 0
        """How often places were given or taken back."""
        self._sorted: tuple[int, list[tuple[GangKey, list[Assignment]]]] = (0, [])
        """Gangs by key with their places, after so many changes."""

    def __bool__(self) -> bool:
        """Whether any gang was given places."""
        return bool(self._places)

    @property
    def is_full(self) -> bool:
        """Whether the plan holds as many binds as one plan may."""
        return self._pods >= self._binds_max

    @property
    def binds_left(self) -> int:
        """How many more binds the plan may hold."""
        return self._binds_max - self._pods

    def from_nomination(self, gang: Gang) -> bool:
        """Whether the gang was given places in this session for which it was nominated before."""
        return gang.key in self._nominated

    def assigned(self, gang: Gang) -> Sequence[Assignment]:
        """Places given to the gang in this session, in the order in which they were given."""
        return self._places.get(gang.key, ()) if self._places else ()

    def assigned_to(self, gang: Gang, uid: UID) -> Assignment | None:
        """The place given to a member of the gang in this session; None for none."""
        return next((place for place in self.assigned(gang) if place.pod.uid == uid), None)

    def by_gang(self) -> Iterator[tuple[Gang, Sequence[Assignment]]]:
        """Gangs that were given places, sorted by key, with these places."""
        if self._sorted[0] != self.changes:
            self._sorted = (self.changes, sorted(self._places.items()))
        for key, places in self._sorted[1]:
            yield self._gangs[key], places

    def in_order(self) -> Iterator[Gang]:
        """Gangs that were given places, in the order in which they got their first ones."""
        return (self._gangs[key] for key, places in self._places.items() if places)

    def by_gang_with_nominations(self) -> Iterator[tuple[Gang, Sequence[Assignment]]]:
        """Gangs with places given in this session or nominated in any, sorted by key, with these."""
        for key in sorted({*self._places, *self._nominations.nominated_keys()}):
            gang = self._gangs[key]
            places = [*self._places.get(key, ()), *self._nominations.nominated_places(gang)]
            if places:
                yield gang, places

    def nominated_after(self, seen: int) -> Iterator[Gang]:
        """Gangs with a nomination, in the order of their first one, without so many at the beginning."""
        return map(self._gangs.__getitem__, self._nominations.nominated_after(seen))

    def variant(self, gang: Gang) -> NodePoolVariant:
        """The node pool in which the gang was placed; without a pool when none was chosen."""
        return self._variants.get(gang.key) or NodePoolVariant(gang)

    def proof(self, gang: Gang) -> str:
        """How good the gang's places are proven to be; empty when nothing is known."""
        return self._proofs.get(gang.key, "")

    def broken_reservation(self, gang: Gang, statement: Statement) -> Gang | None:
        """The gang whose reservation an outside author's statement breaks; None for none."""
        return self._effects.broken_reservation(gang, statement)

    def commit(
        self, gang: Gang, statement: Statement, *, variant: NodePoolVariant | None = None
    ) -> None:
        """Add the statement's places to the plan, and charge the gang's queues up the tree.

        Args:
            gang: that gets the places.
            statement: with the places; what it took back of nominations is given up for good.
            variant: the node pool with which a suspended Job is to be started.
        """
        if self._effects.enforces_reservations:
            self._effects.must_leave_reservations(gang, statement)
        taken_back = statement.unnominated
        places = statement.commit()
        if variant is not None:
            self._variants[gang.key] = variant
        if taken_back:
            self._nominations.forget(gang)
            self._nominated.add(gang.key)
        if not places:
            return
        self._places.setdefault(gang.key, []).extend(places)
        self.changes += 1
        # What was proven of fewer members says nothing of more.
        self._set_proof(gang, statement.proof)
        self._pods += len(places)
        self._effects.charge_placed(gang, places)
        if not taken_back:
            self._effects.announce_started(gang, places)

    def withdraw(self, gang: Gang, places: Sequence[Assignment]) -> None:
        """Take places out of the plan that a committed statement has taken back."""
        self.changes += 1
        gone = {place.pod.uid for place in places}
        left = [place for place in self._places[gang.key] if place.pod.uid not in gone]
        self._pods -= len(gone)
        if left:
            self._places[gang.key] = left
        else:
            for known in (self._places, self._variants, self._proofs):
                known.pop(gang.key, None)
        self._effects.announce_unassigned(gang, places)

    def replace(self, gang: Gang, places: Sequence[Assignment], *, proof: str) -> None:
        """Move a gang that was given places in this session to others, or for now to none.

        Queues are charged for the same members before and after, so nothing changes for them.
        """
        self.changes += 1
        before = self._places.get(gang.key, ())
        if places:
            self._places[gang.key] = list(places)
        else:  # nothing is left to be bound, and a commit of nothing is none
            self._places.pop(gang.key, None)
        self._set_proof(gang, proof)
        self._effects.announce_unassigned(gang, before)
        self._effects.announce_started(gang, places)

    def charge_replaced(
        self, gang: Gang, before: Sequence[Assignment], places: Sequence[Assignment]
    ) -> None:
        """Charge the gang's queues with the members that ``replace`` gave places to, or took them from.

        Args:
            gang: whose places were replaced.
            before: the places that its queues are charged with.
            places: in place of them.
        """
        had = {place.pod.uid for place in before}
        has = {place.pod.uid for place in places}
        self._effects.charge_placed(gang, [each for each in places if each.pod.uid not in had])
        lost = [each for each in before if each.pod.uid not in has]
        self._effects.charge_placed(gang, lost, times=-1)
        self._pods += len(places) - len(before)

    def drop_proof(self, gang: Gang) -> None:
        """Claim nothing of the gang's places any more: others have moved since."""
        self._set_proof(gang, "")

    def _set_proof(self, gang: Gang, proof: str) -> None:
        if proof:
            self._proofs[gang.key] = proof
        else:
            self._proofs.pop(gang.key, None)

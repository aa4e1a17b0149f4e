"""Devices for all claims of one pod, or of several pods at once, on one node: an exact search.

The rules are those of Kubernetes' structured allocator (k8s.io/dynamic-resource-allocation): requests
in their order, alternatives best first, devices of a request as a set. Where that allocator takes the
first device that fits, candidates are ordered here so that what is left stays useful: what is
broken already before what is whole, the fullest share that suffices, the smallest group of devices
that have a value in common. Devices that no rule tells apart are tried once, and claims that are
alike get their devices in one order, so that a refusal does not go through all permutations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import attrs

from gpusched.api.devices.dynamic.claims import (
    AllocatedConfig,
    AllocationMode,
    ClaimAllocation,
    DeviceConstraint,
)
from gpusched.api.devices.dynamic.slices import CapacityPolicy
from gpusched.base.classes import define, frozen
from gpusched.devices.inventory import (
    DeviceId,
    DeviceInventory,
    NodeDevices,
    PoolDevice,
    PoolId,
)
from gpusched.devices.requests import RESULTS_MAX, ReadyClaim, ReadyRequest
from gpusched.devices.search.candidates import Candidate, looked_at_by, ordered_candidates
from gpusched.devices.search.counter_bound import counters_suffice
from gpusched.devices.search.given_devices import GivenDevice, make_allocation
from gpusched.devices.search.nearness import move_together
from gpusched.devices.selector_verdicts import Mismatch
from gpusched.devices.usage import DeviceHolding, DeviceUsage

STEPS_MAX: Final = 20_000
"""Devices that one search tries before it gives up without a proof."""
REPELS: Final = frozenset({"NoSchedule", "NoExecute"})


class AllocationOutcome(StrEnum):
    """How a search ended. BOUNDED is no proof of anything."""

    ALLOCATED = "allocated"
    NONE = "none"
    ERROR = "error"
    """The claim cannot be judged, on any node."""
    BOUNDED = "bounded"


@frozen(slots=True, kw_only=True)
class Allocation:
    """Devices for claims, or why there are none.

    Attributes:
        claims: one for each claim, in their order; empty where there are none.
        given: the same by places of devices.
        ranks: of the alternatives taken, summed over all requests; 0 is best.
        message: why not, without its subject.
        steps: devices that were tried.
    """

    outcome: AllocationOutcome
    claims: tuple[ClaimAllocation, ...] = ()
    given: tuple[tuple[GivenDevice, ...], ...] = ()
    ranks: int = 0
    message: str = ""
    steps: int = 0


class _ClaimFault(Exception):
    """A claim that cannot be judged."""


class _OutOfSteps(Exception):
    """The search has tried as much as it may."""


@define(slots=True, eq=False)
class _Taken:
    """A device given in this search, with what undoes it."""

    claim: int
    request: ReadyRequest
    candidate: Candidate
    share: bool
    consumed: tuple[tuple[str, int], ...]
    narrowed: list[tuple[int, frozenset[object] | None]]


def allocate(
    inventory: DeviceInventory,
    usage: DeviceUsage,
    node: NodeDevices,
    claims: Sequence[ReadyClaim],
    *,
    alike: Sequence[int] = (),
    steps_max: int = STEPS_MAX,
    near: bool = True,
    listed: bool = False,
    nodes: Sequence[NodeDevices] = (),
) -> Allocation:
    """Give all claims their devices on one node, or prove that there is no way.

    Args:
        inventory: with the classes.
        usage: of all devices; the same afterwards.
        node: its devices.
        claims: in the order in which they are served.
        alike: for each claim the number of an earlier claim with which it may change places with all
            that belongs to it, -1 for none; empty for none at all.
        steps_max: devices that are tried before the search gives up.
        near: whether equal devices of a claim are chosen so that they lie together.
        listed: whether devices are tried in the order in which drivers list them, as Kubernetes'
            own allocator does; experiments compare with it.
        nodes: for each claim the node that it is to be used on, where these are several; ``node`` has
            then all that any of them reaches, and claims for all devices are not served.
    """
    fault = next((each.fault for each in claims if each.fault), "")
    if fault:
        return Allocation(outcome=AllocationOutcome.ERROR, message=fault)
    if nodes and any(_asks_for_all(each) for each in claims):
        return Allocation(outcome=AllocationOutcome.BOUNDED)
    search = _Search(
        inventory, usage, node, claims, alike=alike, steps_max=steps_max, listed=listed
    )
    if nodes:
        search.confine_claims(nodes)
    try:
        found = search.run()
        if found and near:
            search.move_together()
        given = search.given_devices() if found else ()
    except _ClaimFault as why:
        return Allocation(outcome=AllocationOutcome.ERROR, message=str(why), steps=search.steps)
    except _OutOfSteps:
        return Allocation(outcome=AllocationOutcome.BOUNDED, steps=search.steps)
    finally:
        search.undo_all()
    if not found:
        return Allocation(outcome=AllocationOutcome.NONE, steps=search.steps)
    return Allocation(
        outcome=AllocationOutcome.ALLOCATED,
        claims=tuple(
            make_allocation(its_node, each, settings)
            for its_node, each, settings in zip(
                [NodeDevices(each.node, node.pools) for each in nodes] or [node] * len(claims),
                given,
                search.driver_configs(),
                strict=True,
            )
        ),
        given=given,
        ranks=search.ranks,
        steps=search.steps,
    )


def _asks_for_all(claim: ReadyClaim) -> bool:
    return any(
        each.request.mode is AllocationMode.ALL for request in claim.requests for each in request
    )


class _Search:
    """One search; ``usage`` follows what is given and is put back at the end."""

    def __init__(
        self,
        inventory: DeviceInventory,
        usage: DeviceUsage,
        node: NodeDevices,
        claims: Sequence[ReadyClaim],
        *,
        alike: Sequence[int],
        steps_max: int,
        listed: bool,
    ) -> None:
        self._inventory = inventory
        self._usage = usage
        self._node = node
        self._claims = claims
        self._alike = alike or [-1] * len(claims)
        self._steps_max = steps_max
        self.steps = 0
        self.ranks = 0
        self._taken: list[_Taken] = []
        self._states: list[list[frozenset[object] | None]] = [
            [None] * len(claim.constraints) for claim in claims
        ]
        self._distinct: list[list[Counter[object]]] = [
            [Counter() for _ in claim.constraints] for claim in claims
        ]
        self._administers = any(
            each.request.admin
            for claim in claims
            for alternatives in claim.requests
            for each in alternatives
        )
        self._admin: Counter[tuple[PoolId, str, str]] = Counter()
        """Counters that devices given for administration take inside of this search."""
        self._chosen: list[list[tuple[int, ReadyRequest]]] = [[] for _ in claims]
        self._first: list[int] = [0] * len(claims)
        """Number of the first device of each claim."""
        self._selected: dict[tuple[str, ...], list[Candidate | Mismatch]] = {}
        self._looked_at = looked_at_by(claims)
        self._candidates = ordered_candidates(
            inventory, usage, node, claims, looked_at=self._looked_at, listed=listed
        )
        self._all: dict[ReadyRequest, list[Candidate]] = {}
        self._reached: list[frozenset[DeviceId]] = []
        """For each claim the devices that its node reaches; empty where all reach all."""

    def confine_claims(self, nodes: Sequence[NodeDevices]) -> None:
        """Let each claim have devices that its own node reaches alone."""
        reached = {each.node: frozenset([device.id for device, _ in each.usable]) for each in nodes}
        self._reached = [reached[each.node] for each in nodes]
        kinds: dict[object, int] = {}
        self._candidates = [
            attrs.evolve(each, kind=kinds.setdefault((each.kind, each.device.reach), len(kinds)))
            for each in self._candidates
        ]

    # -- search ------------------------------------------------------------------------------
    def run(self) -> bool:
        """Whether all claims have their devices; then ``results`` has them."""
        self._all = self._list_all()
        if not self._enough_devices():
            return False
        if len(self._claims) > 1 and not counters_suffice(
            self._claims, self._node.usable, self._usage
        ):
            return False
        if not self._serve(0, 0):
            return False
        self.ranks = sum(rank for chosen in self._chosen for rank, _ in chosen)
        return True

    def given_devices(self) -> tuple[tuple[GivenDevice, ...], ...]:
        """What each claim was given, once ``run`` has found it; of a request in the node's order."""
        found: list[dict[str, list[GivenDevice]]] = [{} for _ in self._claims]
        for each in self._taken:
            given = GivenDevice(each.candidate.place, each.request, each.share, each.consumed)
            found[each.claim].setdefault(each.request.name, []).append(given)
        return tuple(
            tuple(
                given
                for of_request in of_claim.values()
                for given in sorted(of_request, key=lambda one: one.place)
            )
            for of_claim in found
        )

    def driver_configs(self) -> tuple[tuple[AllocatedConfig, ...], ...]:
        """Settings for the drivers of what each claim was given."""
        return tuple(
            claim.configs([each for _, each in chosen], self._inventory.classes)
            for claim, chosen in zip(self._claims, self._chosen, strict=True)
        )

    def move_together(self) -> None:
        """Change what was found among equal whole devices so that those of a claim lie together."""
        move_together(
            [each for each in self._taken if not each.request.request.admin],
            self._candidates,
            self._usage,
        )

    def undo_all(self) -> None:
        """Put usage back."""
        while self._taken:
            self._give_back()

    def _enough_devices(self) -> bool:
        """False where requests of one sort need more whole devices than are free."""
        needed: Counter[tuple[str, ...]] = Counter()
        for claim in self._claims:
            for alternatives in claim.requests:
                request = alternatives[0].request
                if (
                    len(alternatives) == 1
                    and request.mode is AllocationMode.EXACT
                    and not request.admin
                ):
                    needed[alternatives[0].selectors] += request.count
        for selectors, count in needed.items():
            room = 0
            for each in self._candidates:
                answer = each.device.matches_selectors(selectors)
                if isinstance(answer, Mismatch) or (answer and each.device.device.shareable):
                    room = count  # what the search comes to first decides
                    break
                room += bool(answer) and self._usage.find_holding(each.device.id) is None
            if room < count:
                return False
        return True

    def _serve(self, claim: int, request: int) -> bool:
        """Serve what is left from this request of this claim on."""
        if claim == len(self._claims):
            return True
        ready = self._claims[claim]
        if request == len(ready.requests):
            return self._serve(claim + 1, 0)
        for rank, each in enumerate(ready.requests[request]):
            self._chosen[claim].append((rank, each))
            if self._serve_alternative(claim, request, each):
                return True
            self._chosen[claim].pop()
        return False

    def _serve_alternative(self, claim: int, request: int, chosen: ReadyRequest) -> bool:
        given = sum(each.claim == claim for each in self._taken)
        if chosen.request.mode is AllocationMode.ALL:
            return self._take_all(claim, request, chosen, given)
        if given + chosen.request.count > RESULTS_MAX:
            return False
        start = 0
        if request == 0 and self._alike[claim] >= 0:
            start = self._first[self._alike[claim]]
        return self._take_some(claim, request, chosen, chosen.request.count, start)

    def _take_some(
        self, claim: int, request: int, chosen: ReadyRequest, left: int, start: int
    ) -> bool:
        if left == 0:
            return self._serve(claim, request + 1)
        tried: set[object] = set()
        for candidate in self._candidates[start:]:
            if self._reached and candidate.device.id not in self._reached[claim]:
                continue
            if self._is_in_use(candidate, chosen, claim):
                continue
            if not self._is_selected(candidate, chosen):
                continue
            key = (candidate.kind, self._state_of(candidate))
            if key in tried:
                continue
            tried.add(key)
            if not self._take_device(claim, chosen, candidate):
                continue
            if request == 0 and left == chosen.request.count:
                self._first[claim] = candidate.number
            if self._take_some(claim, request, chosen, left - 1, candidate.number + 1):
                return True
            self._give_back()
        return False

    def _list_all(self) -> dict[ReadyRequest, list[Candidate]]:
        """Devices of each request that asks for all, as they were before this search."""
        found: dict[ReadyRequest, list[Candidate]] = {}
        for claim in self._claims:
            for alternatives in claim.requests:
                for each in alternatives:
                    if each.request.mode is AllocationMode.ALL:
                        found[each] = self._all_devices(claim, each)
        return found

    def _all_devices(self, claim: ReadyClaim, chosen: ReadyRequest) -> list[Candidate]:
        for part in self._node.pools:
            if not part.pool.complete:
                raise _ClaimFault(
                    f"claim {claim.name}, request {chosen.name}: asks for all devices, but pool "
                    f"{part.pool.id.pool} of {part.pool.id.driver} is not complete"
                )
        found = [
            each
            for each in self._candidates
            if self._is_selected(each, chosen)
            and self._consumed_capacities(each.device, chosen, {}) is not None
        ]
        if len(found) > RESULTS_MAX:
            raise _ClaimFault(
                f"claim {claim.name}, request {chosen.name}: {len(found)} devices, and a claim may "
                f"get {RESULTS_MAX}"
            )
        return found

    def _take_all(self, claim: int, request: int, chosen: ReadyRequest, given: int) -> bool:
        """Every device that matches: one that cannot be had ends it, on this node."""
        wanted = self._all[chosen]
        if not wanted or given + len(wanted) > RESULTS_MAX:
            return False
        before = len(self._taken)
        for candidate in wanted:
            held = not chosen.must or candidate.device.matches_selectors(chosen.must) is True
            if (
                not held
                or self._is_in_use(candidate, chosen, claim)
                or not self._take_device(claim, chosen, candidate, must=True)
            ):
                break
        else:
            if self._serve(claim, request + 1):
                return True
        while len(self._taken) > before:
            self._give_back()
        return False

    def _is_selected(self, candidate: Candidate, chosen: ReadyRequest) -> bool:
        answer = candidate.device.matches_selectors(chosen.selectors)
        if isinstance(answer, Mismatch):
            pool = candidate.device.id
            raise _ClaimFault(
                f"request {chosen.name}: selector on device {'/'.join(pool)}: {answer.message}"
            )
        return answer

    def _is_in_use(self, candidate: Candidate, chosen: ReadyRequest, claim: int) -> bool:
        device = candidate.device
        held = self._usage.find_holding(device.id)
        shareable = device.device.shareable
        if not (shareable or self._administers):
            return held is not None
        in_claim = [
            each.request
            for each in self._taken
            if each.claim == claim and each.candidate.device is device
        ]
        if chosen.request.admin or (shareable and not (held and held.whole)):
            return any(each is chosen or not shareable for each in in_claim)
        # Given for administration in this claim it is taken, though for nobody else.
        return held is not None or bool(in_claim)

    def _state_of(self, candidate: Candidate) -> object:
        """What is taken of a device, as far as it tells equal ones apart."""
        held = self._usage.find_holding(candidate.device.id)
        if held is None:
            return None
        return (held.whole, held.shares, tuple(sorted(held.consumed.items())))

    # -- one device --------------------------------------------------------------------------
    def _take_device(
        self, claim: int, chosen: ReadyRequest, candidate: Candidate, *, must: bool = False
    ) -> bool:
        self.steps += 1
        if self.steps > self._steps_max:
            raise _OutOfSteps
        device, request = candidate.device, chosen.request
        for taint in device.taints:
            if taint.effect in REPELS and not any(
                each.tolerates(taint) for each in request.tolerations
            ):
                return False
        consumed = self._consumed_capacities(
            device, chosen, self._administered_capacities(claim, device)
        )
        if consumed is None or not self._has_counters(candidate, admin=request.admin):
            return False
        narrowed = self._narrow_values(claim, chosen, device)
        if narrowed is None:
            if must:
                raise _ClaimFault(
                    f"claim {self._claims[claim].name}, request {chosen.name}: all devices are asked "
                    f"for, and with {'/'.join(device.id)} a constraint of the claim does not hold"
                )
            return False
        share = device.device.shareable
        if request.admin:
            for place, amount in _counters_of(candidate):
                self._admin[place] += amount
        else:
            self._usage.add_device(device.id, share=share, consumed=consumed)
        self._taken.append(_Taken(claim, chosen, candidate, share, consumed, narrowed))
        return True

    def _give_back(self) -> None:
        last = self._taken.pop()
        device = last.candidate.device
        if last.request.request.admin:
            for place, amount in _counters_of(last.candidate):
                self._admin[place] -= amount
        else:
            self._usage.add_device(device.id, share=last.share, consumed=last.consumed, times=-1)
        rules = self._claims[last.claim].constraints
        for number, before in last.narrowed:
            if rules[number].match:
                self._states[last.claim][number] = before
            else:
                self._distinct[last.claim][number].subtract(
                    device.compared_values(rules[number].distinct) or ()
                )

    def _narrow_values(
        self, claim: int, chosen: ReadyRequest, device: PoolDevice
    ) -> list[tuple[int, frozenset[object] | None]] | None:
        """Apply the constraints that are about a request; None where the device breaks one."""
        done: list[tuple[int, frozenset[object] | None]] = []
        rules: Sequence[DeviceConstraint] = self._claims[claim].constraints
        changes: list[tuple[int, frozenset[object]]] = []
        for number in chosen.constraints:
            rule = rules[number]
            values = device.compared_values(rule.match or rule.distinct)
            if not values:
                return None
            if rule.match:
                before = self._states[claim][number]
                common = values if before is None else before & values
                if not common:
                    return None
                changes.append((number, common))
            elif any(self._distinct[claim][number][value] for value in values):
                return None
            else:
                changes.append((number, values))
        for number, values in changes:
            done.append((number, self._states[claim][number]))
            if rules[number].match:
                self._states[claim][number] = values
            else:
                self._distinct[claim][number].update(values)
        return done

    def _has_counters(self, candidate: Candidate, *, admin: bool) -> bool:
        """Whether the pool's counters suffice for a device that is not in use yet."""
        held = self._usage.find_holding(candidate.device.id)
        if held is not None and not admin:
            return True  # a share of a device that consumes its counters already
        pool = candidate.pool
        return all(
            self._usage.consumed_counter(*place) + self._admin[place] + amount
            <= pool.counters[place[1], place[2]]
            for place, amount in _counters_of(candidate)
        )

    def _administered_capacities(self, claim: int, device: PoolDevice) -> Counter[str]:
        """Capacities of a device that a claim's requests for administration take, in billionths."""
        found: Counter[str] = Counter()
        for each in self._taken if self._administers else ():
            if each.request.request.admin and each.claim == claim:
                found.update(dict(each.consumed) if each.candidate.device is device else ())
        return found

    def _consumed_capacities(
        self, device: PoolDevice, chosen: ReadyRequest, administered: Mapping[str, int]
    ) -> tuple[tuple[str, int], ...] | None:
        """What a share takes of the device's capacities; None where they do not suffice."""
        driver = device.id.driver
        asked = {
            name if "/" in name else f"{driver}/{name}": amount
            for name, amount in chosen.request.capacity
        }
        content = device.device
        if asked and not asked.keys() <= {each.name for each in content.capacities}:
            return None
        if not content.shareable:
            fits = all(asked.get(each.name, 0) <= each.amount for each in content.capacities)
            return () if fits else None
        held = self._usage.find_holding(device.id) or DeviceHolding()
        found = []
        for each in content.capacities:
            amount = share_of_capacity(each.amount, each.policy, asked.get(each.name))
            taken = held.consumed.get(each.name, 0) + administered.get(each.name, 0)
            if amount is None or taken + amount > each.amount:
                return None
            found.append((each.name, amount))
        return tuple(found)

    # -- result ------------------------------------------------------------------------------


def share_of_capacity(
    capacity: int, policy: CapacityPolicy | None, asked: int | None
) -> int | None:
    """What a share takes of a capacity, rounded up to what its policy gives; None for none.

    Args:
        capacity: of the whole device, billionths.
        policy: of its shares.
        asked: by the request, None where it names no amount.
    """
    if policy is None:
        return capacity if asked is None else asked
    if asked is None:
        return capacity if policy.default is None else policy.default
    if policy.values:
        return next((each for each in policy.values if each >= asked), None)
    amount = asked if policy.least is None else max(asked, policy.least)
    if policy.step:
        base = policy.least or 0
        amount = base + -(-(amount - base) // policy.step) * policy.step
    return None if policy.most is not None and amount > policy.most else amount


def _counters_of(candidate: Candidate) -> Iterator[tuple[tuple[PoolId, str, str], int]]:
    for part in candidate.device.device.consumes:
        for name, amount in part.counters:
            yield (candidate.pool.id, part.name, name), amount


def device_text(device: DeviceId) -> str:
    """Driver, pool and name in one text, as Kubernetes writes it."""
    return "/".join(device)

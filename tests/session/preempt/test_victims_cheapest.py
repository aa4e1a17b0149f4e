"""Who leaves costs exactly as little as the best of all sets of victims, enumerated, in whole sessions."""

from __future__ import annotations

import itertools
import random

import attrs
import pytest

from gpusched.api.gang.pod_group import TopologyRequest
from gpusched.testing import entities
from gpusched.testing.given import Given
from tests.populations import one_of
from tests.session.running import runs

pytestmark = pytest.mark.long

GPUS, CPU = 4, 8
RACKS = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}


@attrs.frozen
class Running:
    """A gang that runs: node of each pod, what each holds, seconds it ran, its minimum."""

    name: str
    nodes: tuple[str, ...]
    gpus: int
    cpu: int
    ran: int
    least: int

    def sets(self):
        """Numbers of pods that may leave together: some spare ones, or all."""
        numbers = range(len(self.nodes))
        for count in range(len(self.nodes) - self.least + 1):
            yield from itertools.combinations(numbers, count)
        yield tuple(numbers)

    def loss(self, leaving):
        """Whether it ends, and what is lost."""
        ends = len(leaving) == len(self.nodes)
        whole = ends and len(self.nodes) - self.least < len(self.nodes)
        return whole, len(leaving) * (self.ran * self.gpus * 1024 + 1) + (16 if leaving else 0)


@attrs.frozen
class Case:
    """Free amounts by node, who runs, what each newcomer asks for, and the level of its domain."""

    free: dict[str, tuple[int, int]]
    gangs: tuple[Running, ...]
    asks: tuple[tuple[int, int], ...]
    required: str
    preferred: str


def case(seed, *, roles):
    rng = random.Random(seed)
    free = {name: [GPUS, CPU] for name in RACKS}
    gangs = []
    for number in range(rng.randint(4, 7)):
        gpus, cpu = rng.choice(((1, 1), (1, 2), (2, 2), (4, 4), (0, 4)))
        at = []
        for _ in range(rng.randint(1, 3)):
            able = [n for n, (g, c) in free.items() if g >= gpus and c >= cpu]
            if able:
                node = rng.choice(able)
                free[node] = [free[node][0] - gpus, free[node][1] - cpu]
                at.append(node)
        if at:
            least = rng.choice((len(at), len(at), rng.randint(1, len(at))))
            gangs.append(
                Running(f"v{number}", tuple(at), gpus, cpu, rng.choice((1, 50, 600, 7200)), least)
            )
    kinds = rng.sample(((2, 1), (1, 2), (4, 2), (3, 3), (0, 5)), roles)
    if all(g == 0 for g, _ in kinds):
        kinds = [(2, 1)]
    asks = tuple(kind for kind in kinds for _ in range(rng.randint(1, 2)))
    wish = rng.choice((("rack", ""), ("rack", ""), ("", ""), ("", "rack")))
    return Case({n: tuple(f) for n, f in free.items()}, tuple(gangs), asks, *wish)


def cluster(found, **newcomer):
    c = Given()
    for name, rack in RACKS.items():
        c.node(name, gpus=GPUS, cpu=CPU * 1000, labels={"gpusched.io/rack": rack})
    newcomer_queue = newcomer.get("queue", "default")
    if newcomer_queue != "default":
        c.queue("mine", limits={"deserved": {entities.GPU: 16, "cpu": 64_000}})
        c.queue("theirs", limits={"deserved": {entities.GPU: 0, "cpu": 0}})
    for gang in found.gangs:
        runs(
            c, gang.name, " ".join(gang.nodes), gpus=gang.gpus, cpu=gang.cpu * 1000,
            min_member=gang.least, since=entities.NOW - gang.ran,
            queue="default" if newcomer_queue == "default" else "theirs",
        )  # fmt: skip
    c.group(
        "new", queue=newcomer_queue, min_member=len(found.asks),
        topology=TopologyRequest(required=found.required, preferred=found.preferred),
    )  # fmt: skip
    for number, (gpus, cpu) in enumerate(found.asks):
        c.pod(
            f"new-{number}", group="new", gpus=gpus, cpu=cpu * 1000, rank=number,
            priority=newcomer.get("priority", 0), role=f"g{gpus}c{cpu}",
        )  # fmt: skip
    return c


def fits(found, free):
    """Whether all newcomers have room together, by trying every way."""
    domains = ["a", "b"] if found.required else [""]
    for domain in domains:
        room = [list(f) for name, f in free.items() if not domain or RACKS[name] == domain]
        if packed(sorted(found.asks, reverse=True), room):
            return True
    return False


def packed(asks, room):
    if not asks:
        return True
    gpus, cpu = asks[0]
    for node in room:
        if node[0] >= gpus and node[1] >= cpu:
            node[0] -= gpus
            node[1] -= cpu
            done = packed(asks[1:], room)
            node[0] += gpus
            node[1] += cpu
            if done:
                return True
    return False


def least_loss(found):
    """Of all sets of victims that make room: whether somebody must end, and the least loss."""
    best = None
    for leaving in itertools.product(*(list(gang.sets()) for gang in found.gangs)):
        losses = [gang.loss(some) for gang, some in zip(found.gangs, leaving, strict=True)]
        loss = (any(ends for ends, _ in losses), sum(lost for _, lost in losses))
        if best is not None and loss >= best:
            continue
        free = {name: list(f) for name, f in found.free.items()}
        for gang, some in zip(found.gangs, leaving, strict=True):
            for number in some:
                free[gang.nodes[number]][0] += gang.gpus
                free[gang.nodes[number]][1] += gang.cpu
        if fits(found, free):
            best = loss
    return best


def loss_of(found, evicted):
    of = {gang.name: [] for gang in found.gangs}
    for pod in evicted:
        name, number = pod.rsplit("-", 1)
        of[name].append(int(number))
    losses = [gang.loss(of[gang.name]) for gang in found.gangs]
    return any(ends for ends, _ in losses), sum(lost for _, lost in losses)


@pytest.mark.parametrize("roles", [1, 2, 3])
@pytest.mark.parametrize(
    "newcomer", [{"priority": 9}, {"queue": "mine"}], ids=["preempt", "reclaim"]
)
@pytest.mark.parametrize("seeds", [one_of(3, range(25)), [1200]], ids=["first", "a tie"])
def test_a_session_evicts_at_the_least_loss_there_is(seeds, newcomer, roles):
    """One role or several, a required or preferred rack or none, preempt and reclaim."""
    for seed in seeds:
        evicts_at_least_loss(seed, newcomer, roles)


def evicts_at_least_loss(seed, newcomer, roles):
    """One case; of equal work lost the fewest gangs lose anybody, then the fewest pods leave."""
    found = case(seed, roles=roles)
    c = cluster(found, **newcomer)
    plan = c.when.one_session()
    assert c.then.faults() == ()
    best = least_loss(found)
    if fits(found, found.free):
        assert c.then.evicted() == []
    elif best is None:
        assert plan.preemptions == ()
    else:
        assert [claim.gang.name for claim in plan.preemptions] == ["new"]
        assert loss_of(found, c.then.evicted()) == best

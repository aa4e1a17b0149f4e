"""Random small clusters with one gang: as a question for the oracle, and as a session's cluster."""

from __future__ import annotations

import random
from collections.abc import Sequence

import attrs

from gpusched.api.affinity.pod_terms import PodTerm, SpreadTerm
from gpusched.api.affinity.selector import Requirement, Selector
from gpusched.api.gang.pod_group import SubGroup, TopologyRequest
from gpusched.api.pod.pod import PodPhase
from gpusched.testing.entities import NOW
from gpusched.testing.given import Given
from tests.placement.whole.oracle import HOST, Kind, Machine, Part, Places, Question, broken, worth

LABELS = ("topology.kubernetes.io/zone", "gpusched.io/block", "gpusched.io/rack")
NAMES = ("zone", "block", "rack")
HOST_LABEL = "kubernetes.io/hostname"
OWN = {"app": "gang"}
OWN_PODS = Selector((Requirement("app", "In", ("gang",)),))


def machines(rng: random.Random, count: int) -> tuple[Machine, ...]:
    """Nodes of 4 and 8 GPUs in a few zones, blocks and racks, most of them used in part."""
    found = []
    for number in range(count):
        zone, block, rack = (
            f"z{rng.randint(0, 1)}",
            f"b{rng.randint(0, 1)}",
            f"r{rng.randint(0, 2)}",
        )
        path = (zone, f"{zone}{block}", f"{zone}{block}{rack}")
        size = rng.choice((4, 8, 8))
        free = rng.choice((size, size, rng.randint(0, size)))
        found.append(
            Machine(f"n{number:02}", path, free, rng.choice((8, 16, 16, rng.randint(1, 16))))
        )
    return tuple(found)


def elastic(rng: random.Random) -> Question:
    """Equal pods of which some must start and more may; sometimes in one domain of a level."""
    pods = rng.randint(2, 10)
    return Question(
        machines=machines(rng, rng.randint(3, 9)),
        levels=3,
        kinds=(Kind(pods, rng.choice((1, 2, 4, 4, 8)), rng.choice((1, 2))),),
        least=rng.randint(1, pods),
        required=rng.choice((None, None, 0, 1, 2)),
    )


def roles(rng: random.Random) -> Question:
    """Pods of two sizes; of each some must start."""
    kinds = tuple(
        Kind(pods, gpus, 1, rng.randint(0, pods))
        for gpus in rng.sample((0, 1, 2, 3, 4, 8), 2)
        for pods in (rng.randint(1, 5),)
    )
    least = max(1, sum(kind.least for kind in kinds))
    return Question(
        machines=machines(rng, rng.randint(3, 7)),
        levels=3,
        kinds=kinds,
        least=rng.randint(least, sum(kind.pods for kind in kinds)),
        required=rng.choice((None, None, None, 1, 2)),
    )


def apart(rng: random.Random) -> Question:
    """Pods that keep apart by host or by a level, or are spread over hosts."""
    asked = elastic(rng)
    rule = rng.choice(("host", "host", "rack", "block", "spread", "spread"))
    pods = rng.randint(2, 6)
    kinds = (attrs.evolve(asked.kinds[0], pods=pods),)
    asked = attrs.evolve(asked, kinds=kinds, least=rng.randint(1, pods))
    if rule == "spread":
        return attrs.evolve(asked, spread=((HOST, rng.randint(1, 2)),))
    level = {"host": HOST, "rack": 2, "block": 1}[rule]
    required = asked.required if level == HOST or (asked.required or 0) < level else None
    return attrs.evolve(asked, most=((level, 1),), required=required)


def apart_roles(rng: random.Random) -> Question:
    """Pods of two sizes that keep apart from each other, whichever size they are."""
    asked = roles(rng)
    level = rng.choice((HOST, HOST, 2))
    pods = sum(kind.pods for kind in asked.kinds)
    return attrs.evolve(asked, most=((level, 1),), least=rng.randint(1, pods), required=None)


def together(rng: random.Random) -> Question:
    """Pods that want to be in one domain of a level by affinity to their own kind."""
    return attrs.evolve(elastic(rng), required=rng.choice((0, 1, 2)))


def sub_groups(rng: random.Random) -> Question:
    """Two or three sub-groups without a preference: racks of each are counted."""
    parts, kinds = [], []
    for number in range(rng.randint(2, 3)):
        pods = rng.randint(1, 4)
        required = rng.choice((None, None, None, 2))
        parts.append(Part(pods, required, 2))
        kinds.append(Kind(pods, rng.choice((1, 2, 4)), 1, 0, number))
    return Question(
        machines=machines(rng, rng.randint(3, 8)),
        levels=3,
        kinds=tuple(kinds),
        least=sum(kind.pods for kind in kinds),
        parts=tuple(parts),
        parts_least=len(parts),
    )


def growing_sub_groups(rng: random.Random) -> Question:
    """Sub-groups of which each has its own minimum, and more pods than that."""
    parts, kinds, least = [], [], 0
    for number in range(2):
        pods = rng.randint(1, 4)
        needed = rng.randint(1, pods)
        parts.append(Part(needed, rng.choice((None, None, 2)), 2))
        kinds.append(Kind(pods, rng.choice((1, 2, 4)), 1, 0, number))
        least += needed
    return Question(
        machines=machines(rng, rng.randint(3, 7)),
        levels=3,
        kinds=tuple(kinds),
        least=least,
        parts=tuple(parts),
        parts_least=2,
    )


def spread_over_racks(rng: random.Random) -> Question:
    """Pods of which racks may differ by one or two."""
    asked = elastic(rng)
    pods = rng.randint(2, 6)
    kinds = (attrs.evolve(asked.kinds[0], pods=pods),)
    spread = ((rng.choice((1, 2)), rng.randint(1, 2)),)
    return attrs.evolve(
        asked, kinds=kinds, least=rng.randint(1, pods), required=None, spread=spread
    )


# -- as a cluster of a session ---------------------------------------------------------------
def rules_of(asked: Question, *, by_affinity: bool) -> dict[str, list]:
    """The question's rules as fields of pods."""
    keys = {HOST: HOST_LABEL, **dict(enumerate(LABELS))}
    found: dict[str, list] = {}
    for level, _ in asked.most:
        found.setdefault("pod_anti_affinity", []).append(PodTerm(keys[level], OWN_PODS))
    for level, skew in asked.spread:
        found.setdefault("spread", []).append(SpreadTerm(keys[level], skew, OWN_PODS))
    if by_affinity and asked.required is not None:
        found["pod_affinity"] = [PodTerm(keys[asked.required], OWN_PODS)]
    return found


def cluster(asked: Question, *, by_affinity: bool = False) -> Given:
    """The question's nodes, what others use of them, and the gang ``g``."""
    c = Given()
    add_nodes(c, asked.machines)
    required = "" if asked.required is None or by_affinity else NAMES[asked.required]
    parts = tuple(
        SubGroup(f"part-{n}", part.least,
                 TopologyRequest(required="" if part.required is None else NAMES[part.required]))
        for n, part in enumerate(asked.parts)
    )  # fmt: skip
    c.group(
        "g", queue="default", min_member=asked.least, sub_groups=parts,
        min_sub_groups=asked.parts_least, topology=TopologyRequest(required=required),
        roles={f"role-{n}": kind.least for n, kind in enumerate(asked.kinds) if kind.least},
    )  # fmt: skip
    rules = rules_of(asked, by_affinity=by_affinity)
    add_pods(c, asked, rules)
    return c


def add_nodes(c: Given, nodes: Sequence[Machine]) -> None:
    """Nodes of which others use what is not free."""
    for machine in nodes:
        labels = dict(zip(LABELS, machine.path, strict=True)) | {HOST_LABEL: machine.name}
        size = 4 if machine.gpus <= 4 else 8
        c.node(machine.name, gpus=size, cpu=16_000, labels=labels)
        gpus, cpu = size - machine.gpus, 16 - machine.cpu
        if gpus or cpu:
            c.pod(f"other-{machine.name}", gpus=gpus, cpu=cpu * 1000, node=machine.name,
                  scheduler="theirs", phase=PodPhase.RUNNING)  # fmt: skip


def add_pods(c: Given, asked: Question, rules: dict[str, list]) -> None:
    """The gang's pods, named by kind and number."""
    rank = 0
    for n, kind in enumerate(asked.kinds):
        for number in range(kind.pods):
            c.pod(f"g-{n}-{number}", group="g", rank=rank, role=f"role-{n}", labels=OWN,
                  sub_group=f"part-{kind.part}" if kind.part >= 0 else "",
                  gpus=kind.gpus, cpu=kind.cpu * 1000, memory=0, **rules)  # fmt: skip
            rank += 1


def places_of(asked: Question, c: Given) -> Places:
    """Where the session put the gang's pods: kind and number of the machine."""
    row = {machine.name: n for n, machine in enumerate(asked.machines)}
    return [
        (int(name.split("-")[1]), row[node])
        for name, node in sorted(c.then.nodes().items())
        if name.startswith("g-")
    ]


def judged(asked: Question, places: Places, best: tuple[int, ...] | None, terms: int) -> str:
    """What is wrong with places: a broken rule, or dearer than the best; empty for nothing."""
    wrong = broken(asked, places)
    if wrong:
        return wrong
    if best is None:
        return "places were found where there are none" if places else ""
    if not places:
        return f"refused, but {best} is possible"
    found = worth(asked, places)
    return "" if found[:terms] == best[:terms] else f"{found} for a possible {best}"


__all__ = [
    "NOW",
    "apart",
    "cluster",
    "elastic",
    "judged",
    "places_of",
    "roles",
    "sub_groups",
    "together",
]

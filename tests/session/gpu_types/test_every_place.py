"""The choice of types against all places of tiny gangs, each worth what the documentation says."""

from __future__ import annotations

import random

import pytest

from gpusched.api.devices.gpu_types import GpuTypeRequest
from gpusched.session.allocate.gang_placement import OPTIMAL
from gpusched.testing.given import Given
from tests.populations import one_of
from tests.session.gpu_types.every_place import TinyGang, TinyNode, best_value, lost_by_kind, value

KINDS = ("NVIDIA-A100-SXM4-40GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S")
PRODUCT = "nvidia.com/gpu.product"


def tiny_cluster(rng: random.Random) -> list[TinyNode]:
    """Up to six nodes of two or three types in racks and blocks that do not follow the types."""
    kinds = KINDS[: rng.choice((2, 2, 3))]
    return [
        TinyNode(
            name=f"n{number}",
            kind=rng.choice(kinds),
            block=f"b{rng.randrange(2)}",
            rack=f"r{rng.randrange(2)}",
            free=rng.choice((2, 4, 4)),
        )
        for number in range(rng.randint(3, 6))
    ]


def tiny_gang(rng: random.Random, name: str) -> TinyGang:
    """A gang with speeds or none, that must, may or need not be of one type."""
    speeds: tuple[tuple[str, int], ...] = ()
    if rng.random() < 0.6:
        chosen = rng.sample(KINDS, rng.randint(1, 3))
        speeds = tuple((kind, rng.choice((300, 450, 900, 1_000))) for kind in chosen)
    return TinyGang(
        name=name,
        pods=rng.randint(1, 4),
        gpus=rng.choice((1, 2, 4)),
        speeds=speeds,
        same=rng.choice((None, None, True, False)),
        only=rng.choice(("", "", "", "", KINDS[0], KINDS[1])),
    )


def add(c: Given, gang: TinyGang, *, created: float) -> None:
    """The gang as a PodGroup with its pods."""
    speeds = tuple(sorted(gang.speeds))
    c.group(
        gang.name, min_member=gang.pods, created=created,
        gpu_types=GpuTypeRequest(same_type=gang.same, speeds=speeds),
    )  # fmt: skip
    selector = {PRODUCT: gang.only} if gang.only else {}
    c.pods(
        gang.name, gang.pods, group=gang.name, gpus=gang.gpus, created=created,
        node_selector=selector,
    )  # fmt: skip


def cluster(nodes: list[TinyNode]) -> Given:
    """The nodes, the room that is taken on them left out."""
    c = Given()
    for node in nodes:
        labels = {
            PRODUCT: node.kind, "gpusched.io/block": node.block, "gpusched.io/rack": node.rack,
        }  # fmt: skip
        c.node(node.name, gpus=node.free, labels=labels)
    return c


@pytest.mark.parametrize("seed", one_of(4, range(400)))
def test_a_gang_gets_the_best_place_there_is(seed: int) -> None:
    """Where it is the only one, or first of three that wait: as good as every place says."""
    rng = random.Random(seed)
    nodes = tiny_cluster(rng)
    first = tiny_gang(rng, "g0")
    others = [tiny_gang(rng, f"g{number}") for number in range(1, rng.choice((1, 2, 3)))]
    c = cluster(nodes)
    for age, gang in enumerate((first, *others)):
        add(c, gang, created=1_000.0 + age)
    c.when.one_session()
    _check(c, first, others, nodes)


def _check(c: Given, gang: TinyGang, others: list[TinyGang], nodes: list[TinyNode]) -> None:
    kinds = sorted({node.kind for node in nodes})
    rivals = [
        each
        for each in others
        if len(set(each.relative_speeds(kinds).values())) > 1
        or len(each.relative_speeds(kinds)) < len(kinds)
    ]
    best = best_value(gang, rivals, nodes)
    where = c.then.nodes()
    mine = {name: node for name, node in where.items() if name.startswith(f"{gang.name}-")}
    assert bool(mine) == (best is not None), c.then.why(gang.name)
    if best is None:
        return
    counts = [sum(1 for each in mine.values() if each == node.name) for node in nodes]
    got = value(gang, counts, nodes, lost_by_kind(gang, rivals, nodes))
    if gang.pods == 1 or len(c.then.started()) > 1:
        # A lone pod goes where scores say, and one that makes room for another may sit less compactly.
        terms = 1 if gang.same is False else 2
        assert got[:terms] == best[:terms]
        return
    assert got == best
    (bind,) = [each for each in c.then.plan.binds if each.gang.name == gang.name]
    assert bind.proof == OPTIMAL

"""Two mixes of gangs that months of equal pods leave out: several roles, and two types of GPUs.

Both are generated, with the shapes stated below; no comparable numbers are published. Gangs are
PodGroups with pods, and tell how long they run (at speed 1). Nobody is evicted, so that order and
places alone differ.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from gpusched import API_VERSION
from gpusched.api.meta.duration import NANOSECONDS, format_duration
from gpusched.base.classes import frozen
from gpusched.config.model import DEFAULT, SOLVERS, Config, PluginChoice
from gpusched.engine.job_records import CLASS_LABEL
from gpusched.engine.objects import Obj
from gpusched.engine.run_record import RunRecord
from gpusched.engine.simulation import Arrival, SimulationCase, run_simulation
from gpusched.engine.world import RUN_FOR, RUN_SPEEDS
from gpusched.lab.simulate.traces.workload import (
    CPUS_PER_GPU,
    GIB_PER_GPU,
    NAMESPACE,
    node_manifest,
)

NODE_GPUS: Final = 8
_SPREAD: Final = 0.8
"""Standard deviation of the logarithm of run times."""
H100: Final = "NVIDIA-H100-80GB-HBM3"
A100: Final = "NVIDIA-A100-SXM4-80GB"


@frozen(kw_only=True)
class GangShape:
    """One kind of gang in a mix.

    Attributes:
        share: of the gangs, relative.
        roles: number of pods and GPUs of each, by role; no GPUs is a launcher.
        required: level of which one domain holds it; empty for none.
        median_s: of its run times at speed 1.
        a100: speed on A100, of that on H100.
    """

    name: str
    share: float
    roles: Mapping[str, tuple[int, int]]
    required: str = ""
    median_s: float = 3_600.0
    a100: float = 1.0

    @property
    def gpus(self) -> int:
        """GPUs of the whole gang."""
        return sum(pods * gpus for pods, gpus in self.roles.values())


ROLES: Final = (
    GangShape(name="trainer", share=3, required="block", median_s=7_200,
              roles={"worker": (6, 8), "evaluator": (2, 2), "launcher": (1, 0)}),
    GangShape(name="pipeline", share=4, required="rack", median_s=5_400,
              roles={"stage": (3, 8), "loader": (2, 3)}),
    GangShape(name="reinforcement", share=4, required="rack", median_s=3_600,
              roles={"learner": (2, 8), "actor": (5, 2)}),
    GangShape(name="search", share=4, median_s=2_700, roles={"model": (4, 4), "ranker": (3, 1)}),
    GangShape(name="equal", share=4, required="rack", median_s=3_600, roles={"worker": (7, 4)}),
    GangShape(name="small", share=10, median_s=1_800, roles={"worker": (1, 2)}),
    GangShape(name="odd", share=5, median_s=1_800, roles={"worker": (1, 5)}),
)  # fmt: skip
"""Several roles with required levels; pods that do not divide a node leave holes."""

SPEEDS: Final = (
    GangShape(name="transformer", share=4, median_s=5_400, a100=0.40, roles={"worker": (2, 8)}),
    GangShape(name="large-transformer", share=2, median_s=7_200, a100=0.35,
              roles={"worker": (4, 8)}),
    GangShape(name="vision", share=4, median_s=3_600, a100=0.70, roles={"worker": (2, 4)}),
    GangShape(name="recommender", share=4, median_s=3_600, a100=0.92, roles={"worker": (2, 8)}),
    GangShape(name="small", share=6, median_s=1_800, a100=0.60, roles={"worker": (1, 2)}),
)  # fmt: skip
"""Models that gain much, some and hardly anything from the faster type."""


@frozen(kw_only=True)
class Mix:
    """What is simulated.

    Attributes:
        load: share of the GPUs that the gangs would use if nobody waited, at speed 1.
        types: products of the nodes, one after another; empty for nodes without a label.
    """

    shapes: Sequence[GangShape]
    gangs: int
    nodes: int
    per_rack: int
    racks_per_block: int
    load: float
    types: Sequence[str] = ()
    seed: int = 1


ROLES_MIX: Final = Mix(shapes=ROLES, gangs=200, nodes=24, per_rack=4, racks_per_block=3, load=0.95)
TYPES_MIX: Final = Mix(
    shapes=SPEEDS, gangs=200, nodes=16, per_rack=4, racks_per_block=2, load=0.6,
    types=(H100, A100),
)  # fmt: skip


def without_evictions(config: Config) -> Config:
    """The configuration with nothing that evicts."""
    actions = tuple(each for each in config.actions if each not in ("preempt", "reclaim"))
    return attrs.evolve(config, actions=actions, action_lines=())


def with_topology(config: Config, **arguments: Any) -> Config:
    """The configuration with other arguments of the plugin ``topology``."""
    tiers = tuple(
        attrs.evolve(
            tier,
            plugins=tuple(
                PluginChoice("topology", {**each.arguments, **arguments})
                if each.name == "topology"
                else each
                for each in tier.plugins
            ),
        )
        for tier in config.tiers
    )
    return attrs.evolve(config, tiers=tiers)


def role_configurations() -> dict[str, Config]:
    """How places are searched for, by name, the simplest first."""
    return {
        solver: attrs.evolve(DEFAULT, placement=attrs.evolve(DEFAULT.placement, solver=solver))
        for solver in reversed(SOLVERS)
    }


@frozen(kw_only=True)
class TypePolicy:
    """One policy about types of GPUs; ``told`` says whether gangs tell their speeds."""

    config: Config
    told: bool


def type_policies() -> dict[str, TypePolicy]:
    """What is known of types, by name, the least first."""
    mixed = with_topology(DEFAULT, mixGpuTypes="freely")
    own = with_topology(DEFAULT, fastGpus="firstCome")
    return {
        "types unknown": TypePolicy(config=mixed, told=False),
        "one type": TypePolicy(config=DEFAULT, told=False),
        "speeds, first come": TypePolicy(config=own, told=True),
        "speeds, most gain": TypePolicy(config=DEFAULT, told=True),
    }


def play_roles(name: str, *, mix: Mix = ROLES_MIX) -> RunRecord:
    """The mix of roles under one configuration."""
    return _play(name, role_configurations()[name], mix, told=False)


def play_types(name: str, *, mix: Mix = TYPES_MIX) -> RunRecord:
    """The mix of types under one policy."""
    policy = type_policies()[name]
    return _play(name, policy.config, mix, told=policy.told)


def _play(name: str, config: Config, mix: Mix, *, told: bool) -> RunRecord:
    case = SimulationCase(
        name=name,
        config=without_evictions(config),
        objects=list(mix_nodes(mix)),
        arrivals=mix_arrivals(mix, told=told),
        seed=mix.seed,
    )
    return run_simulation(case)


def mix_nodes(mix: Mix) -> Iterator[Obj]:
    """Nodes in racks and blocks; a rack is of one type."""
    offer = {
        "cpu": str(CPUS_PER_GPU * NODE_GPUS + 16),
        "memory": f"{GIB_PER_GPU * NODE_GPUS + 64}Gi",
        "pods": "256",
        "nvidia.com/gpu": str(NODE_GPUS),
    }
    for number in range(mix.nodes):
        rack = number // mix.per_rack
        name = f"node-{number:03d}"
        labels = {
            "kubernetes.io/hostname": name,
            "gpusched.io/rack": f"rack-{rack:02d}",
            "gpusched.io/block": f"block-{rack // mix.racks_per_block:02d}",
        }
        if mix.types:
            labels["nvidia.com/gpu.product"] = mix.types[rack % len(mix.types)]
        yield node_manifest(name, labels, offer)


def mix_arrivals(
    mix: Mix, *, told: bool, tell: Callable[[str], None] = lambda _doing: None
) -> Iterator[Arrival]:
    """Gangs by time, at random moments of a span in which they load the cluster as asked."""
    tell(f"{mix.gangs} gangs")
    rng = random.Random(mix.seed)  # noqa: S311 - nothing secret is drawn
    shapes = rng.choices(mix.shapes, [each.share for each in mix.shapes], k=mix.gangs)
    lengths = [max(60, int(each.median_s * math.exp(rng.gauss(0, _SPREAD)))) for each in shapes]
    work = sum(shape.gpus * length for shape, length in zip(shapes, lengths, strict=True))
    span = work / (mix.nodes * NODE_GPUS * mix.load)
    moments = sorted(rng.uniform(0, span) for _ in shapes)
    for number, (at, shape, length) in enumerate(zip(moments, shapes, lengths, strict=True)):
        name = f"{shape.name}-{number:04d}"
        yield Arrival(float(int(at)), tuple(_gang(name, shape, length, mix, told=told)))


def _gang(name: str, shape: GangShape, length: int, mix: Mix, *, told: bool) -> Iterator[Obj]:
    spec: dict[str, Any] = {
        "minMember": sum(pods for pods, _ in shape.roles.values()),
        "minTaskMember": {role: pods for role, (pods, _) in shape.roles.items()},
        "expectedDuration": format_duration(length * NANOSECONDS),
    }
    if shape.required:
        spec["topology"] = {"required": shape.required}
    speeds = {"h100": 1.0, "a100": shape.a100} if mix.types else {}
    if told:
        spec["gpuTypes"] = {"speeds": speeds}
    yield {
        "apiVersion": API_VERSION, "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    }  # fmt: skip
    notes = {RUN_FOR: format_duration(length * NANOSECONDS)}
    if speeds:
        notes[RUN_SPEEDS] = json.dumps(speeds)
    rank = 0
    for role, (pods, gpus) in shape.roles.items():
        labels = {"gpusched.io/role": role, CLASS_LABEL: shape.name}
        for _ in range(pods):
            yield _pod(f"{name}-{rank}", name, labels, gpus, notes)
            rank += 1


def _pod(
    name: str, group: str, labels: Mapping[str, str], gpus: int, notes: Mapping[str, str]
) -> Obj:
    asks = {"cpu": str(max(1, CPUS_PER_GPU * gpus)), "memory": f"{max(1, GIB_PER_GPU * gpus)}Gi"}
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "resources": {"requests": asks | limits, "limits": limits},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "annotations": dict(notes),
            "labels": {"gpusched.io/pod-group": group, **labels},
        },
        "spec": {
            "schedulerName": "gpusched", "restartPolicy": "Never", "containers": [container],
        },
    }  # fmt: skip

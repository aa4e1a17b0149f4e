"""What is different under a configuration beside the configuration itself: queues, wishes, walltimes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

import attrs

from gpusched import API_VERSION
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError
from gpusched.config.model import Config, PluginChoice
from gpusched.config.yaml_tree import list_names
from gpusched.engine.objects import Obj
from gpusched.engine.simulation import Arrival
from gpusched.engine.world import RUN_FOR
from gpusched.topology.levels import DEFAULT_NAME, well_known_levels

FIFO: Final = "fifo"
FIFO_ACTIONS: Final = ("enqueue", "allocate", "backfill")
_AMOUNTS: Final = ("deserved", "capability", "guarantee")
_EXPECTED: Final = "gpusched.io/expected-duration"
_QUEUE: Final = "gpusched.io/queue"


@frozen(kw_only=True)
class Variations:
    """What one setting changes beside the configuration.

    Attributes:
        queues: pattern of names, field of the spec, and its value: amounts are GPUs.
        topology: ``required`` and ``preferred`` levels of every gang of several pods.
        told: whether Jobs tell their true run time to the scheduler; with False no workload tells any, and with None
            each tells what it does by itself.
        fifo: all workloads wait in one queue, first in, first out, the head blocks all others.
    """

    queues: tuple[tuple[str, str, Any], ...] = ()
    topology: Mapping[str, str] = attrs.Factory(dict)
    told: bool | None = None
    fifo: bool = False


def fifo_config(config: Config) -> Config:
    """The configuration under which a StrictFifo queue is a line that no gang passes.

    No job is evicted. Lengths are not learned, as a job known to end in time may pass the head;
    the action ``backfill`` stays, without which nothing is kept for the head.
    """
    tiers = tuple(
        attrs.evolve(tier, plugins=tuple(_without_learning(each) for each in tier.plugins))
        for tier in config.tiers
    )
    return attrs.evolve(config, actions=FIFO_ACTIONS, action_lines=(), tiers=tiers)


def _without_learning(choice: PluginChoice) -> PluginChoice:
    if choice.name != "walltime":
        return choice
    return attrs.evolve(choice, arguments={**choice.arguments, "learn": False})


@frozen(kw_only=True)
class ChangeableNames:
    """What changes may be about in a cluster.

    Attributes:
        queues: their names.
        levels: names of topology levels, widest first.
        labels: keys of labels that nodes have, each of which may stand for a level.
    """

    queues: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    labels: frozenset[str] = frozenset()


def changeable_names(objects: Iterable[Obj]) -> ChangeableNames:
    """The names in the objects of the beginning."""
    queues: list[str] = []
    labels: set[str] = set()
    topologies: dict[str, list[str]] = {}
    for obj in objects:
        kind, name = obj.get("kind"), obj["metadata"]["name"]
        if kind == "Queue":
            queues.append(name)
        elif kind == "Node":
            labels.update(obj["metadata"].get("labels") or ())
        elif kind == "Topology" and obj.get("apiVersion") == API_VERSION:
            levels = (obj.get("spec") or {}).get("levels") or ()
            topologies[name] = [str(each.get("name")) for each in levels]
    counts = DEFAULT_NAME if DEFAULT_NAME in topologies else min(topologies, default="")
    well_known = [name for name, _ in well_known_levels(labels)]
    return ChangeableNames(
        queues=tuple(sorted(queues)),
        levels=tuple(topologies.get(counts, well_known)),
        labels=frozenset(labels),
    )


def wrong_changes(changes: Variations, names: ChangeableNames) -> Iterator[tuple[str, str]]:
    """Key of ``--set`` and sentence for each change that is about a queue or level that is not there."""
    for pattern, field, _ in changes.queues:
        if not any(fnmatchcase(name, pattern) for name in names.queues):
            there = list_names(names.queues)
            yield f"queue.{pattern}.{field}", f"there is no such queue; there are {there}"
    for wish, level in changes.topology.items():
        if level not in names.levels and level not in names.labels:
            there = list_names(names.levels)
            yield f"topology.{wish}", f"the nodes have no such level; there are {there}"


def vary_objects(objects: Iterable[Obj], changes: Variations) -> list[Obj]:
    """The objects of the beginning; where all wait in one queue, it takes the place of one of its name.

    Raises:
        ConfigError: a change is about a queue or level that is not there.
    """
    given = list(objects)
    for key, sentence in wrong_changes(changes, changeable_names(given)):
        raise ConfigError(f"{key}: {sentence}")
    more: list[Obj] = []
    if changes.fifo:
        spec = {"ordering": "StrictFifo"}
        more.append({"apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": FIFO},
                     "spec": spec})  # fmt: skip
        given = [
            obj for obj in given if obj.get("kind") != "Queue" or obj["metadata"]["name"] != FIFO
        ]
    return [*more, *(vary_object(obj, changes) for obj in given)]


def vary_arrivals(arrivals: Iterable[Arrival], changes: Variations) -> Iterator[Arrival]:
    """Arrivals with the variations applied to each workload."""
    for each in arrivals:
        yield Arrival(each.at, tuple(vary_object(obj, changes) for obj in each.objects))


def vary_object(obj: Obj, changes: Variations) -> Obj:
    """One object under the changes; itself where they do not concern it."""
    kind = obj.get("kind")
    if kind == "Queue":
        return _queue(obj, changes)
    if kind == "PodGroup":
        return _group(obj, changes)
    if kind == "Job":
        return _job(obj, changes)
    if kind == "Pod" and changes.fifo:
        return _in_queue(obj)
    return obj


def _queue(obj: Obj, changes: Variations) -> Obj:
    spec = dict(obj.get("spec") or {})
    for pattern, field, value in changes.queues:
        if not fnmatchcase(obj["metadata"]["name"], pattern):
            continue
        if field == "guarantee":
            spec[field] = {"resource": {gpu_resources().main.name: str(value)}}
        elif field in _AMOUNTS:
            spec[field] = {**(spec.get(field) or {}), gpu_resources().main.name: str(value)}
        else:
            spec[field] = value
    return {**obj, "spec": spec}


def _group(obj: Obj, changes: Variations) -> Obj:
    spec = dict(obj.get("spec") or {})
    if changes.topology and spec.get("minMember", 1) > 1:
        spec["topology"] = {**(spec.get("topology") or {}), **changes.topology}
    if changes.fifo:
        spec["queue"] = FIFO
    if changes.told is False:
        spec.pop("expectedDuration", None)
    return {**obj, "spec": spec}


def _job(obj: Obj, changes: Variations) -> Obj:
    spec = obj.get("spec") or {}
    template = (spec.get("template") or {}).get("metadata") or {}
    notes = dict(obj["metadata"].get("annotations") or {})
    if changes.topology and spec.get("parallelism", 1) > 1:
        for wish, level in changes.topology.items():
            notes[f"gpusched.io/topology-{wish}"] = level
    runs = (template.get("annotations") or {}).get(RUN_FOR)
    if changes.told and runs:
        notes[_EXPECTED] = runs
    elif changes.told is False:
        notes.pop(_EXPECTED, None)
    made = {**obj, "metadata": {**obj["metadata"], "annotations": notes}}
    return _in_queue(made) if changes.fifo else made


def _in_queue(obj: Obj) -> Obj:
    metadata = obj["metadata"]
    labels = {**(metadata.get("labels") or {}), _QUEUE: FIFO}
    return {**obj, "metadata": {**metadata, "labels": labels}}

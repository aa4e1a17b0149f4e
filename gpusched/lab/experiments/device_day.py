"""A day on which gangs ask for whole GPUs, halves and sevenths: ours beside first fit.

Generated, with the shapes stated below; no comparable numbers are published. Every GPU can be whole
or partitioned, as its driver publishes it (NVIDIA's names, MIG of an H100). Three ways to give
devices play the same arrivals; nobody is evicted, and nobody knows how long a gang will run.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from gpusched.base.classes import frozen
from gpusched.devcluster.controllers.nodes.devices.device_entries import DeviceEntry
from gpusched.devcluster.controllers.nodes.devices.published_slices import classes_of, slices_of
from gpusched.engine.objects import Obj
from gpusched.lab.experiments.device_cluster import (
    DeviceCluster,
    PlacedPod,
    claim_template,
    device_node,
)
from gpusched.lab.experiments.first_fit import FirstFit

SLICES: Final = 8
"""Memory slices of a GPU."""
DAY_S: Final = 86_400.0
END_S: Final = 1.5 * DAY_S
"""Who has not started then has waited so long."""
_SPREAD: Final = 0.9
"""Standard deviation of the logarithm of run times."""
SIZES: Final[Mapping[str, int]] = {"whole": 8, "half": 4, "seventh": 1}
"""Memory slices of the kinds of devices."""


@frozen(kw_only=True)
class DayShape:
    """One kind of gang of the day.

    Attributes:
        share: of the gangs, relative.
        pods: names of claim templates, one for each pod.
        median_s: of its run times, before all are scaled to the load.
    """

    name: str
    share: float
    pods: tuple[str, ...]
    median_s: float


SHAPES: Final = (
    DayShape(name="training", share=3, pods=("whole",) * 3, median_s=7_200),
    DayShape(name="large training", share=1, pods=("whole",) * 6, median_s=7_200),
    DayShape(name="tuning", share=4, pods=("half",) * 2, median_s=5_400),
    DayShape(name="whole or half", share=3, pods=("whole-or-half",) * 4, median_s=3_600),
    DayShape(name="pipeline", share=3, pods=("whole", "half", *("seventh",) * 3), median_s=3_600),
    DayShape(name="serving", share=4, pods=("seventh",) * 4, median_s=7_200),
    DayShape(name="notebook", share=8, pods=("seventh",), median_s=5_400),
)  # fmt: skip


@frozen(kw_only=True)
class DeviceDay:
    """What is played.

    Attributes:
        gpus: of each node.
        load: part of all memory slices that the gangs would use over the day if nobody waited.
    """

    nodes: int = 5
    gpus: int = 4
    gangs: int = 200
    load: float = 1.0
    seed: int = 1


@frozen
class DayGang:
    """One gang: when it comes, and how long it runs."""

    name: str
    shape: DayShape
    at: float
    run_s: float


@frozen
class Moment:
    """What is in use from one moment on.

    Attributes:
        held: part of all memory slices that pods hold.
        useful: part that pods of gangs hold of which all members run.
        fragmentation: part of the free slices that is of no use to the devices that are asked for.
    """

    at: float
    held: float
    useful: float
    fragmentation: float


@frozen(kw_only=True)
class DayResult:
    """How a day went.

    Attributes:
        waits: of each gang by its name, seconds; up to ``END_S`` where it never started.
        never: gangs that did not start.
        moments: by time, the first at 0.
    """

    waits: Mapping[str, float]
    never: tuple[str, ...]
    moments: tuple[Moment, ...]

    def mean(self, part: str, until: float = DAY_S) -> float:
        """Of ``held``, ``useful`` or ``fragmentation``, over time up to a moment."""
        total = 0.0
        for now, then in zip(self.moments, (*self.moments[1:], None), strict=True):
            end = until if then is None else min(until, then.at)
            total += max(0.0, end - now.at) * float(getattr(now, part))
        return total / until


# -- what comes ---------------------------------------------------------------------------------
def day_objects(day: DeviceDay) -> Iterator[Obj]:
    """Nodes with their slices, classes, and the claims that pods make."""
    entries = (DeviceEntry("mig", day.gpus),)
    yield from classes_of(entries)
    for number in range(day.nodes):
        name = f"node-{number:02d}"
        yield device_node(name)
        yield from slices_of(name, entries)
    yield from claim_templates()


def claim_templates() -> Iterator[Obj]:
    """One device each: whole, half, a seventh, or the best of the first two."""
    whole = {"deviceClassName": "gpu.nvidia.com"}
    half, seventh = _partition("3g.40gb"), _partition("1g.10gb")
    for name, body in (("whole", whole), ("half", half), ("seventh", seventh)):
        yield claim_template(name, [{"name": "gpu", "exactly": body}])
    either = [{"name": "whole", **whole}, {"name": "half", **half}]
    yield claim_template("whole-or-half", [{"name": "gpu", "firstAvailable": either}])


def _partition(profile: str) -> Obj:
    text = f"device.attributes['gpu.nvidia.com'].profile == '{profile}'"
    return {"deviceClassName": "mig.nvidia.com", "selectors": [{"cel": {"expression": text}}]}


def day_gangs(day: DeviceDay) -> list[DayGang]:
    """Gangs by time: few at night, most in the afternoon."""
    rng = random.Random(day.seed)  # noqa: S311 - nothing secret is drawn
    shapes = rng.choices(SHAPES, [each.share for each in SHAPES], k=day.gangs)
    lengths = [each.median_s * math.exp(rng.gauss(0, _SPREAD)) for each in shapes]
    work = sum(_slices(s) * length for s, length in zip(shapes, lengths, strict=True))
    scale = day.load * day.nodes * day.gpus * SLICES * DAY_S / work
    hours = [1 - 0.7 * math.cos(2 * math.pi * (hour - 3) / 24) for hour in range(24)]
    moments = sorted(
        3_600.0 * (hour + rng.random()) for hour in rng.choices(range(24), hours, k=day.gangs)
    )
    return [
        DayGang(f"gang-{number:03d}", shape, float(int(at)), float(max(60, int(length * scale))))
        for number, (at, shape, length) in enumerate(zip(moments, shapes, lengths, strict=True))
    ]


def _slices(shape: DayShape) -> int:
    return sum(SIZES.get(each, SIZES["half"]) for each in shape.pods)


# -- ways to give devices -----------------------------------------------------------------------
Placed = dict[str, dict[int, PlacedPod]]
"""Pods that were given devices: by gang and number."""


class Scheduler(Protocol):
    """One way to give devices to gangs."""

    def submit(self, gang: DayGang) -> None:
        """A gang has come."""

    def end(self, gang: DayGang, pods: Mapping[int, PlacedPod]) -> None:
        """A gang has ended."""

    def step(self, now: float) -> Placed:
        """Give what can be given now."""


class BySessions:
    """The daemon's sessions decide for all gangs that wait."""

    def __init__(self, day: DeviceDay) -> None:
        self._cluster = DeviceCluster(day_objects(day))

    def submit(self, gang: DayGang) -> None:
        """A gang has come."""
        self._cluster.add_gang(gang.name, gang.shape.pods, now=gang.at)

    def end(self, gang: DayGang, pods: Mapping[int, PlacedPod]) -> None:
        """A gang has ended."""
        self._cluster.end_gang(gang.name, len(pods))

    def step(self, now: float) -> Placed:
        """Sessions until one decides nothing."""
        placed: Placed = {}
        while found := self._cluster.session(now):
            for gang, pods in found.items():
                placed.setdefault(gang, {}).update(
                    {int(name.rpartition("-")[2]): pod for name, pod in pods.items()}
                )
        return placed


class ByFirstFit:
    """First fit in the order in which gangs came; one that does not fit does not hold up others.

    Args:
        day: what is played.
        whole: whether a gang that does not fit whole gives everything back; else its pods keep what
            they have found.
    """

    def __init__(self, day: DeviceDay, *, whole: bool) -> None:
        cluster = DeviceCluster(day_objects(day))
        catalog = cluster.cache.devices.build_catalog()
        self._fit = FirstFit(catalog, {f"node-{number:02d}": {} for number in range(day.nodes)})
        self._whole = whole
        self._waiting: dict[str, tuple[DayGang, list[int]]] = {}
        """Gangs with the pods that have no devices yet, in the order in which they came."""

    def submit(self, gang: DayGang) -> None:
        """A gang has come."""
        self._waiting[gang.name] = (gang, list(range(len(gang.shape.pods))))

    def end(self, gang: DayGang, pods: Mapping[int, PlacedPod]) -> None:
        """A gang has ended."""
        del gang
        for each in pods.values():
            self._fit.give_back(each)

    def step(self, now: float) -> Placed:
        """Try each pod that waits once."""
        del now
        placed: Placed = {}
        for name, (gang, missing) in list(self._waiting.items()):
            templates = [gang.shape.pods[number] for number in missing]
            if self._whole:
                found = self._fit.place_all(templates)
                given = {} if found is None else dict(zip(missing, found, strict=True))
            else:
                tried = {number: self._fit.place(gang.shape.pods[number]) for number in missing}
                given = {number: pod for number, pod in tried.items() if pod is not None}
            missing[:] = [number for number in missing if number not in given]
            if given:
                placed[name] = given
            if not missing:
                del self._waiting[name]
        return placed


SCHEDULERS: Final = ("first fit, pod by pod", "first fit, whole gangs", "gpusched")


def make_scheduler(name: str, day: DeviceDay) -> Scheduler:
    """One of ``SCHEDULERS`` with an empty cluster."""
    if name == "gpusched":
        return BySessions(day)
    return ByFirstFit(day, whole=name == "first fit, whole gangs")


# -- play ---------------------------------------------------------------------------------------
def play_day(name: str, day: DeviceDay) -> DayResult:
    """The day under one of ``SCHEDULERS``."""
    return _Play(make_scheduler(name, day), day).run()


class _Play:
    """One run: arrivals and ends by time, and what is held in between."""

    def __init__(self, scheduler: Scheduler, day: DeviceDay) -> None:
        self._scheduler = scheduler
        self._gangs = {each.name: each for each in day_gangs(day)}
        self._places = _memory_slices(day)
        self._free = {
            (f"node-{node:02d}", f"gpu-{gpu}-counter-set"): frozenset(range(SLICES))
            for node in range(day.nodes)
            for gpu in range(day.gpus)
        }
        self._total = SLICES * len(self._free)
        self._asked = _asked_shares()
        self._pods: dict[str, dict[int, PlacedPod]] = {name: {} for name in self._gangs}
        self._started: dict[str, float] = {}
        self._held: dict[str, int] = dict.fromkeys(self._gangs, 0)
        self._moments = [Moment(0.0, 0.0, 0.0, 0.0)]

    def run(self) -> DayResult:
        """Play to the end."""
        agenda = [(each.at, name) for name, each in self._gangs.items()]
        heapq.heapify(agenda)
        while agenda and agenda[0][0] <= END_S:
            now = agenda[0][0]
            while agenda and agenda[0][0] == now:
                self._happen(heapq.heappop(agenda)[1])
            for name, pods in self._scheduler.step(now).items():
                self._give(name, pods)
                if len(self._pods[name]) == len(self._gangs[name].shape.pods):
                    self._started[name] = now
                    heapq.heappush(agenda, (now + self._gangs[name].run_s, name))
            self._moments.append(self._moment(now))
        waits = {
            name: self._started.get(name, END_S) - each.at for name, each in self._gangs.items()
        }
        never = tuple(name for name in self._gangs if name not in self._started)
        return DayResult(waits=waits, never=never, moments=tuple(self._moments))

    def _happen(self, name: str) -> None:
        gang, pods = self._gangs[name], self._pods[name]
        if name not in self._started:
            self._scheduler.submit(gang)
            return
        self._scheduler.end(gang, pods)
        for pod in pods.values():
            for gpu, slices in self._taken(pod):
                self._free[gpu] |= slices
        self._held[name] = 0

    def _give(self, name: str, pods: Mapping[int, PlacedPod]) -> None:
        self._pods[name].update(pods)
        for pod in pods.values():
            for gpu, slices in self._taken(pod):
                if not slices <= self._free[gpu]:
                    raise AssertionError(f"{name} was given {gpu} {sorted(slices)}, which is taken")
                self._free[gpu] -= slices
                self._held[name] += len(slices)

    def _taken(self, pod: PlacedPod) -> Iterator[tuple[tuple[str, str], frozenset[int]]]:
        for each in pod.devices:
            counter_set, slices = self._places[each.device]
            yield (each.pool, counter_set), slices

    def _moment(self, now: float) -> Moment:
        held = sum(self._held.values())
        useful = sum(self._held[name] for name in self._started)
        return Moment(
            now, held / self._total, useful / self._total, fragmentation(self._free, self._asked)
        )


def fragmentation(
    free: Mapping[tuple[str, str], frozenset[int]], asked: Mapping[str, float]
) -> float:
    """Part of the free memory slices in which the devices that are asked for find no room.

    Of each kind as many as fit at once count as its room; kinds are weighed by ``asked``.
    """
    total = sum(map(len, free.values()))
    if not total:
        return 0.0
    useless = 0.0
    for kind, share in asked.items():
        room = sum(SIZES[kind] * _fitting(kind, slices) for slices in free.values())
        useless += share * (total - room)
    return useless / total


def _fitting(kind: str, free: frozenset[int]) -> int:
    """Devices of a kind that fit the free slices of one GPU at once."""
    if kind == "whole":
        return int(len(free) == SLICES)
    if kind == "half":
        return sum(free >= half for half in (frozenset(range(4)), frozenset(range(4, 8))))
    return len(free - {SLICES - 1})


def _asked_shares() -> dict[str, float]:
    """Part of the pods of the day that ask for each kind; who takes either counts for the half."""
    count = dict.fromkeys(SIZES, 0.0)
    for shape in SHAPES:
        for pod in shape.pods:
            count[pod if pod in SIZES else "half"] += shape.share
    total = sum(count.values())
    return {kind: each / total for kind, each in count.items()}


def _memory_slices(day: DeviceDay) -> dict[str, tuple[str, frozenset[int]]]:
    """Counter set and memory slices of each device, by its name; nodes are alike."""
    found = {}
    for part in slices_of("node", (DeviceEntry("mig", day.gpus),)):
        for device in part["spec"].get("devices") or ():
            (used,) = device["consumesCounters"]
            numbers = frozenset(
                int(name.removeprefix("memory-slice-"))
                for name in used["counters"]
                if name.startswith("memory-slice-")
            )
            found[device["name"]] = (used["counterSet"], numbers)
    return found


def percentile(values: Sequence[float], part: float) -> float:
    """Nearest rank: the smallest value that so many of all are not above."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]

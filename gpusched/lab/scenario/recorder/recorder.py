"""Makes a record of changes: workloads that came, were bound, ran, were evicted and ended, and when.

Fed with every change of a ground. It keeps small lives and no objects, so that a run of a
hundred thousand changes costs little; ``record`` may be asked for at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from gpusched.engine.kept_spans import KeptSpanRecorder
from gpusched.engine.run_record import EvictionRecord, QueueMark, RunRecord
from gpusched.lab.scenario.recorder import object_fields
from gpusched.lab.scenario.recorder.object_fields import Obj
from gpusched.lab.scenario.recorder.open_lives import (
    OpenNode,
    OpenPod,
    OpenQueue,
    OpenWorkload,
    domains_per_level,
)
from gpusched.lab.scenario.recorder.pods import PodRecorder
from gpusched.lab.scenario.recorder.workloads import WorkloadRecorder
from gpusched.lab.scenario.target_cluster.interface import ObjectChange

_LEVELS: Final = (
    ("zone", ("topology.kubernetes.io/zone",)),
    ("block", ("topology.kubernetes.io/zone", "gpusched.io/block")),
    ("rack", ("topology.kubernetes.io/zone", "gpusched.io/block", "gpusched.io/rack")),
    ("host", ("kubernetes.io/hostname",)),
)
"""Where no Topology says otherwise."""


class RunRecorder:
    """Makes a run's record of the changes of its objects.

    Args:
        schedulers: names under which our daemons place pods.

    Attributes:
        moved: seconds at which anything last happened that can let a workload go on.
    """

    def __init__(self, schedulers: Sequence[str] = ("gpusched",)) -> None:
        self.moved = 0.0
        self.works = WorkloadRecorder()
        self.pods = PodRecorder(self.works, schedulers, node=self._labels, levels=self._domains)
        self._nodes: dict[str, OpenNode] = {}
        self._gone: list[OpenNode] = []
        self._queues: dict[str, OpenQueue] = {}
        self._levels: Sequence[tuple[str, tuple[str, ...]]] = _LEVELS
        self._kept = KeptSpanRecorder()
        self._by_kind: Mapping[str, Callable[[ObjectChange], bool]] = {
            "Pod": self.pods.see,
            "Node": self._node,
            "Queue": self._queue,
            "Topology": self._topology,
            "Reservation": self._reservation,
            **self.works.kinds,
        }

    def see(self, change: ObjectChange) -> None:
        """Take in one change."""
        observe_change = self._by_kind.get(change.kind)
        if observe_change is not None and observe_change(change):
            self.moved = change.at

    # -- what is still to come ---------------------------------------------------------------
    def running(self) -> Iterator[OpenPod]:
        """Pods that hold a node and end by themselves."""
        return self.pods.running()

    def waiting(self) -> Iterator[OpenWorkload]:
        """Workloads of ours that are not over and that something could start or go on."""
        return self.works.waiting()

    def record(
        self, *, name: str, ground: str, seed: int, seconds: float, epoch: float
    ) -> RunRecord:
        """What happened so far; acts, broken invariants, counters and digest are others' to add."""
        machines = [*self._gone, *self._nodes.values()]
        return RunRecord(
            name=name,
            ground=ground,
            seed=seed,
            seconds=seconds,
            epoch=epoch,
            nodes=tuple(
                node.life(seconds) for node in sorted(machines, key=lambda node: node.name)
            ),
            pods=tuple(
                body.life()
                for body in sorted(self.pods.all(), key=lambda b: (b.created, b.namespace, b.name))
                if body.ours
            ),
            jobs=tuple(
                work.life()
                for work in sorted(self.works.all(), key=lambda w: (w.created, w.key))
                if work.ours
            ),
            queues=tuple(self._queues[each].life() for each in sorted(self._queues)),
            evictions=self.evictions(),
            kept=self._kept.spans(seconds),
        )

    def evictions(self) -> tuple[EvictionRecord, ...]:
        """Pods that the scheduler told to go so far."""
        return tuple(sorted(self.pods.evictions, key=lambda each: (each.at, each.pod)))

    # -- nodes, queues, levels ---------------------------------------------------------------
    def _node(self, change: ObjectChange) -> bool:
        obj = change.obj
        name = obj["metadata"]["name"]
        labels = obj["metadata"].get("labels") or {}
        what = None if change.gone else _offer(obj)
        machine = self._nodes.get(name)
        if machine is None:
            if what is not None:
                self._nodes[name] = OpenNode(name, labels, change.at, what)
            return True
        machine.labels = labels
        moved = machine.offer(change.at, what)
        if change.gone:
            self._gone.append(self._nodes.pop(name))
        return moved

    def _queue(self, change: ObjectChange) -> bool:
        if change.gone:
            return True
        obj = change.obj
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        name = obj["metadata"]["name"]
        parent = spec.get("parent") or "root"
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = OpenQueue(name, "")
        queue.parent = "" if parent == "root" else parent
        before = queue.marks[-1] if queue.marks else None
        guarantee = (spec.get("guarantee") or {}).get("resource")
        mark = QueueMark(
            at=change.at,
            weight=spec.get("weight", 1),
            deserved=object_fields.gpu_limit(spec.get("deserved")),
            capability=object_fields.gpu_limit(spec.get("capability")),
            guarantee=object_fields.gpu_limit(guarantee),
            allocated=object_fields.gpus_of(status.get("allocated")),
            fair_share=object_fields.gpus_of(status.get("fairShare")),
            closed=spec.get("stopPolicy", "None") != "None",
        )
        queue.mark(mark)
        # What the daemon tells in a status is no news for what waits.
        if before is None:
            return True
        return attrs.evolve(before, at=mark.at, allocated=0, fair_share=0) != attrs.evolve(
            mark, allocated=0, fair_share=0
        )

    def _reservation(self, change: ObjectChange) -> bool:
        status = {} if change.gone else change.obj.get("status") or {}
        self._kept.note_status(
            change.obj["metadata"]["name"],
            status.get("phase", ""),
            status.get("nodes") or (),
            at=change.at,
        )
        return True

    def _topology(self, change: ObjectChange) -> bool:
        if change.gone:
            self._levels = _LEVELS
            return True
        wider: tuple[str, ...] = ()
        levels = []
        for level in (change.obj.get("spec") or {}).get("levels") or ():
            wider = (*wider, level["nodeLabel"])
            levels.append((level["name"], wider))
        self._levels = levels
        return True

    def _labels(self, node: str) -> Mapping[str, str]:
        found = self._nodes.get(node)
        return found.labels if found is not None else {}

    def _domains(self, nodes: Sequence[str]) -> tuple[tuple[str, int], ...]:
        labels = [{"kubernetes.io/hostname": name, **self._labels(name)} for name in nodes]
        return domains_per_level(labels, self._levels)


def _offer(node: Obj) -> tuple[int, int, int, bool]:
    status = node.get("status") or {}
    what = object_fields.base_amounts(status.get("allocatable") or status.get("capacity"))
    usable = object_fields.is_true(node, "Ready") and not (node.get("spec") or {}).get(
        "unschedulable"
    )
    return (
        object_fields.gpus_of_amounts(what),
        what.get("cpu", 0),
        what.get("memory", 0) // 2**20,
        usable,
    )

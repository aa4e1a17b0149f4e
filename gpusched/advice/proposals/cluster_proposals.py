"""What an admin could change around a gang that waits: limits of its queue, nodes, and ends of others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from gpusched.advice.proposals.proposal import ChangeProposal, Family, gang_title, joined_names
from gpusched.advice.trial import SLICES, ObjectEdit, TrialCluster, edit_away, edit_to
from gpusched.api.meta.identity import ObjectKey
from gpusched.api.meta.resources import Resources
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.queues.tree import QueueNode
from gpusched.cache.snapshot import Snapshot
from gpusched.engine.objects import Obj, copied_slices
from gpusched.topology.levels import HOST, TopologyLevel, topology_levels

_SHAPES_MAX: Final = 6
"""Shapes of nodes of which more are tried."""


@frozen
class NodeShape:
    """Nodes that are alike but for their names and places.

    Attributes:
        example: the first one by name.
        names: of all of them.
    """

    example: Obj
    names: frozenset[str]
    gpu_type: str

    @property
    def title(self) -> str:
        """For a sentence: which nodes are meant."""
        return f"like {self.example['metadata']['name']}" + (
            f" ({self.gpu_type})" if self.gpu_type else ""
        )


@frozen
class ClusterProposals:
    """Changes of what is around one gang.

    Attributes:
        gang: that waits.
        snapshot: that it is part of.
    """

    trial: TrialCluster
    gang: Gang
    snapshot: Snapshot

    # -- queues ------------------------------------------------------------------------------
    def queues_above(self) -> tuple[QueueNode, ...]:
        """Its queue and those above it that are objects of the API, the leaf first."""
        leaf = self.snapshot.queues.get(self.gang.queue)
        names = leaf.path if leaf is not None else ()
        found = (self.snapshot.queues.get(name) for name in names)
        return tuple(each for each in found if each is not None and self._queue(each) is not None)

    def raised_limits(self, fields: Mapping[str, Mapping[str, Resources]]) -> ChangeProposal:
        """Amounts of queues are raised.

        Args:
            fields: by queue, the amounts to be by field of its spec, ``capability`` or ``deserved``.
        """
        edits, says, commands, size = [], [], [], 0
        for name, amounts in sorted(fields.items()):
            node = self.snapshot.queues.get(name)
            obj = self._queue(node) if node is not None else None
            if node is None or obj is None:
                continue
            patch: dict[str, dict[str, str]] = {}
            for field, wanted in sorted(amounts.items()):
                now = getattr(node.queue, field)
                patch[field] = wanted.quantities()
                for resource, amount in wanted.items:
                    size += max(0, amount - now.get(resource))
                    had = Resources.of({resource: now.get(resource)}).text()
                    become = Resources.of({resource: amount}).text()
                    says.append(f"{field} of queue {name} {become} in place of {had}")
            spec = {**obj["spec"]}
            for field, quantities in patch.items():
                spec[field] = {**(spec.get(field) or {}), **quantities}
            edits.append(edit_to({**obj, "spec": spec}))
            body = json.dumps({"spec": patch}, separators=(",", ":"), sort_keys=True)
            commands.append(f"kubectl patch queue {name} --type merge -p '{body}'")
        return ChangeProposal(
            family=Family.QUOTA,
            size=size,
            message=f"with {' and '.join(says)}",
            edits=tuple(edits),
            command=" && ".join(commands),
        )

    def _queue(self, node: QueueNode) -> Obj | None:
        return self.trial.objects.get("queues", ObjectKey("", node.queue.name))

    # -- nodes -------------------------------------------------------------------------------
    def node_shapes(self) -> tuple[NodeShape, ...]:
        """Shapes of nodes that there are, those of most nodes first."""
        topology = {each.label for each in self._levels()} | {HOST}
        groups: dict[str, list[Obj]] = {}
        for node in self.snapshot.nodes.nodes:
            obj = self.trial.objects.get("nodes", ObjectKey("", node.name))
            if obj is None or node.not_ready or node.unschedulable:
                continue
            groups.setdefault(_shape_of(obj, topology), []).append(obj)
        label = self.trial.config.gpu_resources.main.product_labels
        shapes = [
            NodeShape(
                example=min(found, key=lambda obj: str(obj["metadata"]["name"])),
                names=frozenset(str(each["metadata"]["name"]) for each in found),
                gpu_type=_first_label(found[0], label),
            )
            for found in groups.values()
        ]
        shapes.sort(key=lambda each: (-len(each.names), each.example["metadata"]["name"]))
        return tuple(shapes[:_SHAPES_MAX])

    def more_nodes(self, shape: NodeShape, count: int) -> ChangeProposal:
        """So many more nodes of a shape, together in one new domain of every level."""
        levels = [each.label for each in self._levels()]
        edits = self._added_nodes(shape.example, count, levels)
        narrow = [each.name for each in self._levels() if each.label != HOST]
        where = f" in one new {narrow[-1]}" if narrow and count > 1 else ""
        return ChangeProposal(
            family=Family.NODES,
            size=count,
            message=f"with {count} more node{'s' if count > 1 else ''} {shape.title}{where}",
            edits=edits,
            command="add them to the cluster",
        )

    def roomiest_domain(self, shape: NodeShape) -> NodeShape | None:
        """The shape with an example in the domain of the required level that has the most idle nodes of it.

        None where the gang requires no level, or no domain of it has an idle node.
        """
        required = self.gang.topology.required
        level = next((each for each in self._levels() if each.name == required), None)
        if level is None:
            return None
        held = {
            member.node for each in self.snapshot.placed_gangs.values() for member in each.placed
        }
        idle: dict[int, list[str]] = {}
        for node, domain in zip(self.snapshot.nodes.nodes, level.domain.tolist(), strict=True):
            if domain >= 0 and node.name not in held and node.name in shape.names:
                idle.setdefault(domain, []).append(node.name)
        if not idle:
            return None
        names = max(idle.items(), key=lambda each: (len(each[1]), -each[0]))[1]
        example = self.trial.objects.get("nodes", ObjectKey("", min(names)))
        return attrs.evolve(shape, example=example) if example is not None else None

    def more_nodes_beside(self, shape: NodeShape, count: int) -> ChangeProposal:
        """So many more nodes of a shape, in the domains of its example."""
        return ChangeProposal(
            family=Family.NODES,
            size=count,
            message=f"with {count} more node{'s' if count > 1 else ''} {shape.title} in the same "
            f"{self.gang.topology.required}",
            edits=self._added_nodes(shape.example, count, ()),
            command="add them to the cluster",
        )

    def _added_nodes(
        self, example: Obj, count: int, levels: Sequence[str]
    ) -> tuple[ObjectEdit, ...]:
        """So many nodes with the devices of the one that they are like."""
        like = example["metadata"]["name"]
        nodes = [_added_node(example, number, levels) for number in range(count)]
        others = list(self.trial.objects.others())
        devices = (
            ObjectEdit(SLICES, ObjectKey("", made["metadata"]["name"]), made)
            for node in nodes
            for made in copied_slices(others, like, node.key.name)
        )
        return (*nodes, *devices)

    def _levels(self) -> Sequence[TopologyLevel]:
        return topology_levels(self.snapshot.nodes.nodes, self.snapshot.topologies)

    # -- others ------------------------------------------------------------------------------
    def running(self) -> list[Gang]:
        """Gangs that hold room, by when they are expected to end; those that do not say last."""
        found = [each for each in self.snapshot.placed_gangs.values() if each.key != self.gang.key]
        return sorted(found, key=lambda each: (each.expected_end or float("inf"), each.key))

    def waiting(self) -> list[Gang]:
        """Other gangs that wait."""
        return [
            each
            for each in self.snapshot.gangs
            if each.pod_sets and each.missing_members and each.key != self.gang.key
        ]

    def ended(self, gangs: Iterable[Gang]) -> ChangeProposal:
        """Running gangs have ended."""
        gangs = sorted(gangs, key=lambda each: each.key)
        edits = [
            edit_away("pods", member.pod.key)
            for each in gangs
            for member in (*each.placed, *each.leaving_placed)
        ]
        # Else they would make new pods.
        edits += [edit_away("jobs", key) for key in sorted(self._jobs_of(gangs))]
        ends = [each.expected_end for each in gangs]
        names = joined_names([gang_title(each.key) for each in gangs])
        return ChangeProposal(
            family=Family.END_OF_OTHERS,
            size=len(gangs),
            message=f"when {names} {'have' if len(gangs) > 1 else 'has'} ended",
            edits=tuple(edits),
            at=max(ends) if gangs and all(ends) else 0.0,
        )

    def _jobs_of(self, gangs: Iterable[Gang]) -> set[ObjectKey]:
        """Jobs that made the pods of running gangs."""
        return {
            ObjectKey(member.pod.namespace, member.pod.owner.name)
            for each in gangs
            for member in (*each.placed, *each.leaving_placed)
            if member.pod.owner is not None and member.pod.owner.kind == "Job"
        }


def _shape_of(obj: Obj, topology: set[str]) -> str:
    labels = {
        name: value
        for name, value in (obj["metadata"].get("labels") or {}).items()
        if name not in topology
    }
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    shape = (labels, status.get("allocatable"), spec.get("taints"))
    return json.dumps(shape, sort_keys=True)


def _added_node(example: Obj, number: int, levels: Sequence[str]) -> ObjectEdit:
    name = f"gpusched-added-{number:04}"
    metadata = example["metadata"]
    labels = dict(metadata.get("labels") or {})
    for label in levels:
        if label in labels:
            labels[label] = "gpusched-added"
    labels[HOST] = name
    kept = {"name": name, "labels": labels}
    if "annotations" in metadata:
        kept["annotations"] = metadata["annotations"]
    return edit_to({**example, "metadata": kept})


def _first_label(obj: Obj, labels: Iterable[str]) -> str:
    held = obj["metadata"].get("labels") or {}
    return next((str(held[label]) for label in labels if label in held), "")

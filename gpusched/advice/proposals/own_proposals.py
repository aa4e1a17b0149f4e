"""What the author of a gang could ask for instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpusched.advice.proposals.proposal import ChangeProposal, Family
from gpusched.advice.trial import TrialCluster
from gpusched.advice.workload import Workload
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import SYSTEM_PRIORITY, Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.topology.levels import topology_levels

_VALUES_MAX: Final = 8
"""Other values of a node label that are tried."""


@frozen
class OwnProposals:
    """Changes of one gang, each family with its smallest ones first.

    Attributes:
        gang: as the cluster has it, without a change.
        snapshot: that it is part of.
    """

    trial: TrialCluster
    gang: Gang
    workload: Workload
    snapshot: Snapshot

    def fewer_members(self, removed: int) -> ChangeProposal:
        """It starts with so many members less."""
        count = self.gang.min_member - removed
        return ChangeProposal(
            family=Family.MEMBERS,
            size=removed,
            message=f"with minMember {count} in place of {self.gang.min_member}",
            edits=self.workload.with_min_member(count),
            command=self.workload.command({"spec": {"minMember": count}})
            or f"submit it again with annotation gpusched.io/min-member: {count}",
        )

    @property
    def may_have_fewer_members(self) -> bool:
        """Whether its minimum is one number: of roles and sub-groups each has its own."""
        gang = self.gang
        return gang.min_member > 1 and not gang.min_roles and not gang.sub_groups

    def other_levels(self) -> Iterator[ChangeProposal]:
        """It shares a domain of a wider level, or of none, and does not wait for one that it prefers."""
        wish = self.gang.topology
        if wish.preferred and wish.max_wait_ns:
            yield ChangeProposal(
                family=Family.TOPOLOGY,
                size=0,
                message=f"without waiting for one {wish.preferred} (topology.maxWait)",
                edits=self.workload.without_max_wait(),
                command=self.workload.command({"spec": {"topology": {"maxWait": None}}})
                or "submit it again without annotation gpusched.io/topology-max-wait",
            )
        required = wish.required
        if not required:
            yield from self._free_sub_groups()
            return
        names = [
            each.name
            for each in topology_levels(self.snapshot.nodes.nodes, self.snapshot.topologies)
        ]
        wider = names[: names.index(required)] if required in names else []
        for steps, level in enumerate([*reversed(wider), ""], 1):
            message = f"in one {level} in place of one {required}" if level else (
                f"without one {required} for all its pods"
            )  # fmt: skip
            yield ChangeProposal(
                family=Family.TOPOLOGY,
                size=steps,
                message=message,
                edits=self.workload.with_topology(level),
                command=self.workload.command({"spec": {"topology": {"required": level or None}}})
                or f"submit it again with annotation gpusched.io/topology-required: {level or 'none'}",
            )

    def _free_sub_groups(self) -> Iterator[ChangeProposal]:
        """Its sub-groups need no domain of their own."""
        levels = sorted({each.topology.required for each in self.gang.sub_groups} - {""})
        if not levels or self.workload.group is None:
            return
        yield ChangeProposal(
            family=Family.TOPOLOGY,
            size=len(levels),
            message=f"without one {' or '.join(levels)} for each of its sub-groups",
            edits=self.workload.with_free_sub_groups(),
            command="take topology.required off its subGroups",
        )

    def tolerated_taints(self) -> Iterator[ChangeProposal]:
        """Its pods tolerate a taint that keeps them off nodes, such as those of a pool."""
        tolerations = {item for each in self.gang.pod_sets for item in each.pod_class.tolerations}
        taints = {
            (taint.key, taint.value, taint.effect)
            for node in self.snapshot.nodes.nodes
            for taint in node.taints
            if not taint.key.startswith("node.kubernetes.io/")
            and not any(item.tolerates(taint) for item in tolerations)
        }
        for size, (key, value, effect) in enumerate(sorted(taints)[:_VALUES_MAX], 1):
            said = f"{key}={value}:{effect}" if value else f"{key}:{effect}"
            yield ChangeProposal(
                family=Family.TOLERATION,
                size=size,
                message=f"if its pods tolerate the taint {said}",
                edits=self.workload.with_toleration(key, value, effect),
                command=f"submit its pods again with a toleration of {said}",
            )

    def other_node_labels(self) -> Iterator[ChangeProposal]:
        """Its pods select nodes by another value of a label, or by any."""
        nodes = self.snapshot.nodes.nodes
        for label, value in self.workload.node_labels.items():
            others = {node.labels[label] for node in nodes if label in node.labels} - {value}
            for size, other in enumerate([*sorted(others)[:_VALUES_MAX], None], 1):
                message = (
                    f"on nodes of {label}={other} in place of {value}"
                    if other is not None
                    else f"on nodes of any {label} in place of {value}"
                )
                wanted = (
                    f"with nodeSelector {label}: {other}"
                    if other is not None
                    else f"without {label} in nodeSelector"
                )
                yield ChangeProposal(
                    family=Family.NODE_LABEL,
                    size=size if other is not None else len(others) + 1,
                    message=message,
                    edits=self.workload.with_node_label(label, other),
                    command=f"submit its pods again {wanted}",
                )

    def other_queues(self) -> Iterator[ChangeProposal]:
        """It is submitted to another queue that takes its namespace."""
        space = self.snapshot.namespaces.get(self.gang.key.namespace)
        labels = space.labels if space is not None else {}
        size = 0
        for name, node in self.snapshot.queues.queues.items():
            if name == self.gang.queue or not node.leaf or node.error:
                continue
            if node.queue.stop_policy != "None" or not node.queue.namespaces.matches(labels):
                continue
            size += 1
            kind, space_name, own = self.gang.key
            yield ChangeProposal(
                family=Family.QUEUE,
                size=size,
                message=f"in queue {name} in place of {self.gang.queue}",
                edits=self.workload.with_queue(name),
                command=f"gpusched move {kind.lower()} {own} --queue {name} -n {space_name}",
            )

    def preemptible(self) -> Iterator[ChangeProposal]:
        """It may be evicted for others, so that it need not keep within what its queue is due."""
        if self.gang.terms.preemptible:
            return
        yield ChangeProposal(
            family=Family.OWN_TERMS,
            size=1,
            message="if it may be evicted (preemptible: true)",
            edits=self.workload.with_preemptible(),
            command=self.workload.command({"spec": {"preemptible": True}})
            or "submit it again with annotation gpusched.io/preemptible: true",
        )

    def higher_classes(self) -> list[ChangeProposal]:
        """It has a higher priority class, the lowest of these first."""
        found: list[ChangeProposal] = []
        items = self.trial.cache.priorities.items.values()
        for each in sorted(items, key=lambda item: (item.value, item.name)):
            if not self.gang.priority < each.value < SYSTEM_PRIORITY:
                continue
            found.append(
                ChangeProposal(
                    family=Family.PRIORITY,
                    size=len(found) + 1,
                    message=f"with priority class {each.name} ({each.value} in place of "
                    f"{self.gang.priority})",
                    edits=self.workload.with_priority_class(each.name, each.value),
                    command=self.workload.command({"spec": {"priorityClassName": each.name}})
                    or f"submit it again with priorityClassName {each.name}",
                )
            )
        return found

"""What of the view a user may see: decided by Kubernetes' own rights, kept with nothing else."""

from __future__ import annotations

from gpusched.base.classes import frozen
from gpusched.view.model import GangView, HolderView, NodeView, SlotView


@frozen(kw_only=True)
class ViewAccess:
    """Rights of one user.

    Attributes:
        namespaces: whose pods the user may list; None for all of them.
        nodes, queues: whether the user may list these.
    """

    namespaces: frozenset[str] | None
    nodes: bool
    queues: bool

    def sees_namespace(self, name: str) -> bool:
        """Whether gangs of a namespace are shown."""
        return self.namespaces is None or name in self.namespaces

    def sees_gang(self, gang: GangView) -> bool:
        """Whether a gang is shown."""
        return self.sees_namespace(gang.metadata.namespace)

    def node(self, node: NodeView) -> NodeView:
        """A node without names of gangs that are not shown."""
        if self.namespaces is None:
            return node
        slots = tuple(self._slot(slot) for slot in node.slots)
        gangs = tuple(name for name in node.gangs if self.sees_namespace(name.partition("/")[0]))
        return NodeView(
            metadata=node.metadata,
            state=node.state,
            gpu_type=node.gpu_type,
            gpus=node.gpus,
            free_gpus=node.free_gpus,
            free_slots=node.free_slots,
            slots=slots,
            domains=node.domains,
            free=node.free,
            pods=node.pods,
            gangs=gangs,
            created=node.created,
        )

    def _slot(self, slot: SlotView) -> SlotView:
        if all(self.sees_namespace(each.namespace) for each in slot.holders):
            return slot
        holders = tuple(
            each if self.sees_namespace(each.namespace) else HolderView(hidden=True, share="")
            for each in slot.holders
        )
        return SlotView(index=slot.index, island=slot.island, free=slot.free, holders=holders)


EVERYTHING = ViewAccess(namespaces=None, nodes=True, queues=True)
"""Rights of a cluster's administrator."""

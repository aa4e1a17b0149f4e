"""Compact places for gangs that request none, and nodes that stay spare in each domain."""

from __future__ import annotations

from typing import ClassVar, Literal

import attrs
from attrs import validators as v

from gpusched.plugin import DependsOn, Gang, Hooks, View


@attrs.frozen(kw_only=True)
class TopologyArgs:
    """``compact: gangs`` gives the most compact place to all with GPUs or claims, ``requested`` to those that ask.

    ``mixGpuTypes: whenNeeded`` keeps a gang that does not say ``gpuTypes`` to one type of GPUs where
    that is possible. ``fastGpus: mostGain`` lets gangs that tell their speeds leave a type to others
    that gain more by it; ``firstCome`` gives each its fastest.

    ``spareNodes`` empty GPU nodes in each domain of ``spareLevel`` (an NVLink domain, say) are left
    to gangs that run there already, so that a failed node can be replaced where the others are.
    """

    compact: Literal["gangs", "requested"] = attrs.field(
        default="gangs",
        validator=v.in_(("gangs", "requested")),
        metadata={"renamed": {"wishes": "requested"}},
    )
    mix_gpu_types: Literal["whenNeeded", "freely"] = attrs.field(
        default="whenNeeded", validator=v.in_(("whenNeeded", "freely"))
    )
    fast_gpus: Literal["mostGain", "firstCome"] = attrs.field(
        default="mostGain", validator=v.in_(("mostGain", "firstCome"))
    )
    spare_level: str = attrs.field(default="", validator=v.instance_of(str))
    spare_nodes: int = attrs.field(default=0, validator=[v.ge(0), v.le(1_000)])


@attrs.frozen
class TopologyPolicy:
    """Compact places and spare nodes. What a gang itself requests is met without this plugin."""

    name: ClassVar[str] = "topology"
    api: ClassVar[int] = 1
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW
    args: TopologyArgs = TopologyArgs()

    def open(self, hooks: Hooks, view: View) -> None:
        """Register compact places and spare nodes."""
        del view
        hooks.choose_gpu_types(
            one_where_possible=self.args.mix_gpu_types == "whenNeeded",
            for_all_gangs=self.args.fast_gpus == "mostGain",
        )
        if self.args.compact == "gangs":
            hooks.compact(_holds_devices)
        if self.args.spare_level and self.args.spare_nodes:
            hooks.spare_nodes(self.args.spare_level, self.args.spare_nodes)


def _holds_devices(gang: Gang) -> bool:
    """Whether the members request GPUs or claim devices, so that they are likely to exchange much."""
    return any(pod_set.pod_class.gpu or pod_set.pod_class.claims for pod_set in gang.pod_sets)

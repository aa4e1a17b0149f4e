"""What an answer of the API says about one pod or one PodGroup: just what a commit asks.

Read-backs are rare and small, so they are decoded here and not as entities; a field of a
wrong type makes the whole unreadable, which counts as no answer.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from gpusched.api.meta.identity import UID
from gpusched.api.pod.pod import Pod
from gpusched.base.classes import frozen
from gpusched.base.errors import UndecodableObject
from gpusched.session.state.plan import GangBind, PodBind


class BindingVerdict(IntEnum):
    """What facts about a pod mean for our binding of it."""

    OURS = 0
    """Bound to our node by this very plan, under our own leadership."""
    FREE = 1
    """Not bound, and may still be."""
    LOST = 2
    """Bound otherwise, made again, gated or deleting: this binding will not be."""
    BROKEN = 3
    """Our own plan, our own leadership, another node: we contradict ourselves."""


@frozen(slots=True)
class ObservedPod:
    """One pod as the API shows it; strings are empty when unset."""

    uid: UID
    node: str
    plan: str
    fence: str
    deleting: bool
    gated: bool

    def binding_verdict(self, bind: PodBind, *, plan: str, fence: str) -> BindingVerdict:
        """What this means for ``bind``.

        Plans are functions of the cluster, so a successor's may be equal to ours, its id too:
        only the fence tells which process wrote a binding.
        """
        if self.uid != bind.uid:
            return BindingVerdict.LOST
        if self.node:
            if (self.plan, self.fence) != (plan, fence):
                return BindingVerdict.LOST
            return BindingVerdict.OURS if self.node == bind.node else BindingVerdict.BROKEN
        return BindingVerdict.LOST if self.deleting or self.gated else BindingVerdict.FREE

    def text(self) -> str:
        """The observed pod in words, for the story of a commit."""
        return (
            f"uid {self.uid}, node {self.node or 'none'}, plan {self.plan or 'none'}, "
            f"fence {self.fence or 'none'}"
        )


@frozen(slots=True)
class ObservedPodGroup:
    """One PodGroup as the API shows it."""

    uid: UID
    generation: int
    deleting: bool

    def change_since(self, gang: GangBind) -> str:
        """What changed since ``gang`` was decided, as a clause; empty for nothing."""
        if self.uid != gang.uid:
            return "it was deleted and made again"
        if self.deleting:
            return "it is being deleted"
        if self.generation != gang.generation:
            return f"its generation is {self.generation}, decided was {gang.generation}"
        return ""


class _WireObservedMetadata(msgspec.Struct):
    uid: str = ""
    generation: int = 0
    annotations: dict[str, str] | None = None
    deletionTimestamp: str | None = None  # noqa: N815 - as the API spells it


class _WireObservedSpec(msgspec.Struct):
    nodeName: str | None = None  # noqa: N815 - as the API spells it
    schedulingGates: list[msgspec.Raw] | None = None  # noqa: N815 - as the API spells it


class _WireObservedPod(msgspec.Struct):
    metadata: _WireObservedMetadata
    spec: _WireObservedSpec = msgspec.field(default_factory=_WireObservedSpec)


class _WireObservedGroup(msgspec.Struct):
    metadata: _WireObservedMetadata


_pods = msgspec.json.Decoder(_WireObservedPod)
_groups = msgspec.json.Decoder(_WireObservedGroup)


def read_pod(body: bytes) -> ObservedPod:
    """Facts from the body of a GET.

    Raises:
        Undecodable: not a pod.
    """
    try:
        found = _pods.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UndecodableObject(f"the answer is no pod: {error}") from error
    annotations = found.metadata.annotations or {}
    return ObservedPod(
        uid=UID(found.metadata.uid),
        node=found.spec.nodeName or "",
        plan=annotations.get("gpusched.io/plan", ""),
        fence=annotations.get("gpusched.io/fence", ""),
        deleting=found.metadata.deletionTimestamp is not None,
        gated=bool(found.spec.schedulingGates),
    )


def read_pod_group(body: bytes) -> ObservedPodGroup:
    """Facts from the body of a GET.

    Raises:
        Undecodable: not a PodGroup.
    """
    try:
        found = _groups.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UndecodableObject(f"the answer is no PodGroup: {error}") from error
    meta = found.metadata
    return ObservedPodGroup(UID(meta.uid), meta.generation, meta.deletionTimestamp is not None)


def observe_pod(pod: Pod) -> ObservedPod:
    """Facts from an entity that a watch showed."""
    return ObservedPod(pod.uid, pod.node, pod.plan, pod.fence, pod.deleting, pod.gated)

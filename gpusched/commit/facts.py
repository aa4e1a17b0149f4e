"""What an answer of the API says about one pod or one PodGroup: just what a commit asks.

Read-backs are rare and small, so they are decoded here and not as entities; a field of a
wrong type makes the whole unreadable, which counts as no answer.
"""

from __future__ import annotations

from enum import IntEnum

import attrs
import msgspec

from gpusched.errors import Undecodable
from gpusched.objects.meta import UID
from gpusched.objects.pod import Pod
from gpusched.session.plan import GangBind, PodBind


class Verdict(IntEnum):
    """What facts about a pod mean for our binding of it."""

    OURS = 0
    """Bound to our node by this very plan, under our own leadership."""
    FREE = 1
    """Not bound, and may still be."""
    LOST = 2
    """Bound otherwise, made again, gated or deleting: this binding will not be."""
    BROKEN = 3
    """Our own plan, our own leadership, another node: we contradict ourselves."""


@attrs.frozen(slots=True)
class PodFacts:
    """One pod as the API shows it; strings are empty when unset."""

    uid: UID
    node: str
    plan: str
    fence: str
    deleting: bool
    gated: bool

    def verdict(self, bind: PodBind, *, plan: str, fence: str) -> Verdict:
        """What this means for ``bind``.

        Plans are functions of the cluster, so a successor's may be equal to ours, its id too:
        only the fence tells who wrote a binding.
        """
        if self.uid != bind.uid:
            return Verdict.LOST
        if self.node:
            if (self.plan, self.fence) != (plan, fence):
                return Verdict.LOST
            return Verdict.OURS if self.node == bind.node else Verdict.BROKEN
        return Verdict.LOST if self.deleting or self.gated else Verdict.FREE

    def text(self) -> str:
        """For the story."""
        return (
            f"uid {self.uid}, node {self.node or 'none'}, plan {self.plan or 'none'}, "
            f"fence {self.fence or 'none'}"
        )


@attrs.frozen(slots=True)
class GroupFacts:
    """One PodGroup as the API shows it."""

    uid: UID
    generation: int
    deleting: bool

    def change(self, gang: GangBind) -> str:
        """What changed since ``gang`` was decided, as a clause; empty for nothing."""
        if self.uid != gang.uid:
            return "it was deleted and made again"
        if self.deleting:
            return "it is being deleted"
        if self.generation != gang.generation:
            return f"its generation is {self.generation}, decided was {gang.generation}"
        return ""


class _Metadata(msgspec.Struct):
    uid: str = ""
    generation: int = 0
    annotations: dict[str, str] | None = None
    deletionTimestamp: str | None = None  # noqa: N815 - as the API spells it


class _Spec(msgspec.Struct):
    nodeName: str | None = None  # noqa: N815 - as the API spells it
    schedulingGates: list[msgspec.Raw] | None = None  # noqa: N815 - as the API spells it


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Group(msgspec.Struct):
    metadata: _Metadata


_pods = msgspec.json.Decoder(_Object)
_groups = msgspec.json.Decoder(_Group)


def pod_facts(body: bytes) -> PodFacts:
    """Facts from the body of a GET.

    Raises:
        Undecodable: not a pod.
    """
    try:
        found = _pods.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Undecodable(f"the answer is no pod: {error}") from error
    annotations = found.metadata.annotations or {}
    return PodFacts(
        uid=UID(found.metadata.uid),
        node=found.spec.nodeName or "",
        plan=annotations.get("gpusched.io/plan", ""),
        fence=annotations.get("gpusched.io/fence", ""),
        deleting=found.metadata.deletionTimestamp is not None,
        gated=bool(found.spec.schedulingGates),
    )


def group_facts(body: bytes) -> GroupFacts:
    """Facts from the body of a GET.

    Raises:
        Undecodable: not a PodGroup.
    """
    try:
        found = _groups.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Undecodable(f"the answer is no PodGroup: {error}") from error
    meta = found.metadata
    return GroupFacts(UID(meta.uid), meta.generation, meta.deletionTimestamp is not None)


def facts_of(pod: Pod) -> PodFacts:
    """Facts from an entity that a watch showed."""
    return PodFacts(pod.uid, pod.node, pod.plan, pod.fence, pod.deleting, pod.gated)

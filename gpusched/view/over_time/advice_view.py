"""What would let a gang start, and when, as ``/v1/gangs/.../advice`` and ``advise -o json`` write it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gpusched.view.model import ViewPart

SHARDS_LEFT_OUT: Final = (
    "the cluster is in shards, and this answer is as if one daemon decided about all nodes: a gang for which "
    "no shard alone has room may be told to start, and waits"
)


def shards_played(shards: Iterable[str]) -> str:
    """How the answer about a start was found where the configuration names shards."""
    return (
        f"a daemon for each shard ({', '.join(shards)}) is played; what would be better is searched as if one daemon "
        "decided about all nodes"
    )


class NamedGang(ViewPart, frozen=True, kw_only=True, omit_defaults=True):
    """A gang by its name, or one whose name the reader may not see.

    Attributes:
        hidden: it is in a namespace that the reader may not see; all else is empty then.
    """

    kind: str = ""
    namespace: str = ""
    name: str = ""
    queue: str = ""
    hidden: bool = False


class NodeShareView(ViewPart, frozen=True, kw_only=True):
    """What a gang gets of one node.

    Attributes:
        pods: how many of its pods.
        slots: numbers of its GPUs there, with commas; empty where they are not known before.
    """

    name: str
    pods: int
    slots: str = ""


class StartView(ViewPart, frozen=True, kw_only=True):
    """When a gang starts.

    Attributes:
        kind: ``now``, ``afterEvictions``, ``expected``, ``unknown`` or ``never``.
        at: when it is expected; empty where it starts now, or nothing tells when.
        known_by: how it is known when it starts, or that nothing tells when, one sentence; often empty.
        evicts: gangs that lose members for it.
        reason, message: why it does not start now; of ``never`` why it does not start at all.
    """

    kind: str
    at: str = ""
    known_by: str = ""
    nodes: tuple[NodeShareView, ...] = ()
    evicts: tuple[NamedGang, ...] = ()
    reason: str = ""
    message: str = ""


class ForbiddenByView(ViewPart, frozen=True, kw_only=True, omit_defaults=True):
    """What forbids evictions by which a gang would start.

    Attributes:
        rule: ``minRuntime``, ``maxWait``, ``disruptionBudget``, ``preemptible``, ``reclaimable``, ``ordering``,
            ``guarantee``, ``deserved`` or ``priority``, as in docs/advice.md.
        kind, namespace, name: of the object that says so.
        hidden: it is in a namespace that the reader may not see; its name is empty then.
        message: one sentence.
        until: when it ends by itself; empty for never.
        gangs: that would be evicted otherwise.
    """

    rule: str
    kind: str
    namespace: str = ""
    name: str = ""
    hidden: bool = False
    message: str
    until: str = ""
    gangs: tuple[NamedGang, ...] = ()


class BetterChangeView(ViewPart, frozen=True, kw_only=True):
    """A change that would let a gang start.

    Attributes:
        change: its family, as in docs/advice.md.
        command: that makes the change, or what to write instead.
        at: when it happens by itself; empty where somebody has to make it.
        forbidden_by: what forbids now the evictions by which the gang starts with the change.
        objects: resource, namespace, name of each changed object, and what it becomes.
    """

    change: str
    message: str
    command: str = ""
    at: str = ""
    start: StartView
    forbidden_by: tuple[ForbiddenByView, ...] = ()
    objects: tuple[Mapping[str, Any], ...] = ()


class NeverView(ViewPart, frozen=True, kw_only=True):
    """Why a gang never starts as it is.

    Attributes:
        sentence: the whole of it.
        demands: a smallest set of what it asks for that cannot hold together.
        message: as the daemon says it of the empty cluster.
    """

    sentence: str
    demands: tuple[str, ...]
    message: str


class AdviceView(ViewPart, frozen=True, kw_only=True):
    """What would let a gang start.

    Attributes:
        as_of: the moment of the cluster on which it was decided.
        unchanged: its start if nothing is changed.
        never: why it cannot start as it is; None where it may.
        suggestions: the cheapest change first.
        in_the_way: where there is none, what keeps changes from helping, one sentence each.
        decisions: sessions that were run for the answer.
        is_cut: whether changes were left untried, as so many sessions were enough.
        remarks: what was not looked at, one sentence each.
    """

    gang: NamedGang
    as_of: str
    unchanged: StartView
    never: NeverView | None
    suggestions: tuple[BetterChangeView, ...]
    in_the_way: tuple[str, ...] = ()
    decisions: int
    is_cut: bool = False
    remarks: tuple[str, ...] = ()

"""Advice as it is served: the types of its JSON."""

from __future__ import annotations

from typing import Any

import msgspec


class NamedGang(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A gang by name, or one whose name the reader may not see.

    Attributes:
        hidden: it is in a namespace that the reader may not see; the other fields are empty then.
    """

    kind: str = ""
    namespace: str = ""
    name: str = ""
    queue: str = ""
    hidden: bool = False


class NodePods(msgspec.Struct, kw_only=True):
    """How many pods get a node."""

    name: str
    pods: int


class StartView(msgspec.Struct, kw_only=True):
    """When something starts.

    Attributes:
        kind: ``now``, ``afterEvictions``, ``expected`` or ``unknown``.
        at: where it is expected; RFC 3339, else empty.
        nodes: that it gets, where that is known.
        evicts: gangs that lose members for it.
        reason, message: why it waits; empty where it starts now.
    """

    kind: str
    at: str = ""
    nodes: tuple[NodePods, ...] = ()
    evicts: tuple[NamedGang, ...] = ()
    reason: str = ""
    message: str = ""


class ChangedObject(msgspec.Struct, kw_only=True):
    """An object of the API as a change leaves it.

    Attributes:
        becomes: its manifest; None where the change removes it.
    """

    resource: str
    namespace: str
    name: str
    becomes: dict[str, Any] | None


class SuggestionView(msgspec.Struct, kw_only=True):
    """One change that would let the gang start.

    Attributes:
        change: its family, such as ``members`` or ``quota``.
        message: the rest of "It would start ...".
        command: that carries it out, or what to do; empty where nobody can order it.
        at: when the change happens by itself; RFC 3339, empty where somebody has to make it.
        start: that it gives.
        objects: that it changes, as far as the reader may see them.
    """

    change: str
    message: str
    command: str
    at: str
    start: StartView
    objects: tuple[ChangedObject, ...]


class NeverView(msgspec.Struct, kw_only=True):
    """Why a gang never starts.

    Attributes:
        demands: a smallest set that cannot hold together.
        message: as the daemon says it of the empty cluster.
    """

    sentence: str
    demands: tuple[str, ...]
    message: str


class AdviceView(msgspec.Struct, kw_only=True, rename="camel"):
    """What would let a gang start.

    Attributes:
        as_of: the moment of the cluster on which it was decided; RFC 3339.
        unchanged: its start if nothing is changed.
        never: why it cannot start as it is; None where it may.
        suggestions: the cheapest first.
        decisions: sessions that were run for the answer.
    """

    gang: NamedGang
    as_of: str
    unchanged: StartView
    never: NeverView | None
    suggestions: tuple[SuggestionView, ...]
    decisions: int

"""What is done to a simulated cluster from outside: objects written, nodes emptied, nodes lost, each at its moment."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeAlias

import attrs

from gpusched.api.meta.identity import ObjectKey
from gpusched.base.classes import frozen
from gpusched.engine.controllers import SimulatedControllers
from gpusched.engine.objects import Obj
from gpusched.engine.world import SimulatedWorld

DRAINED: Final = "Drained"
LOST: Final = "NodeLost"
"""Reasons of evictions that no decision of the scheduler made."""


@frozen(kw_only=True)
class EditObject:
    """An object is written again; one that is not there by then stays away.

    Attributes:
        at: seconds since the beginning.
        edit: the changed manifest, from the one of that moment.
    """

    at: float
    plural: str
    key: ObjectKey
    edit: Callable[[Obj], Obj]


@frozen(kw_only=True)
class CreateObjects:
    """Objects come into being."""

    at: float
    objects: tuple[Obj, ...]


@frozen(kw_only=True)
class EmptyNodes:
    """Pods of these nodes are evicted, but for those of DaemonSets and of other schedulers."""

    at: float
    nodes: tuple[str, ...]
    message: str


@frozen(kw_only=True)
class LoseNodes:
    """Nodes vanish at once, with everything on them."""

    at: float
    nodes: tuple[str, ...]
    message: str


@frozen(kw_only=True)
class MarkNodes:
    """The record says of these nodes that they can be used, or not, whatever their objects say."""

    at: float
    nodes: tuple[str, ...]
    is_usable: bool


TimedChange: TypeAlias = EditObject | CreateObjects | EmptyNodes | LoseNodes | MarkNodes


class ChangeExecutor:
    """Carries out changes on a simulated cluster.

    Args:
        world: what is changed.
        owners: end pods and make them anew.
    """

    def __init__(self, world: SimulatedWorld, owners: SimulatedControllers) -> None:
        self._world = world
        self._owners = owners
        self._kept: frozenset[str] = frozenset()
        """Nodes that the record calls unusable although their objects do not."""

    def schedule_changes(self, changes: Collection[TimedChange]) -> None:
        """Enter every change into the agenda of the world."""
        for change in changes:
            self._world.agenda.at(change.at, lambda change=change: self._carry_out(change))  # type: ignore[misc]

    def _carry_out(self, change: TimedChange) -> None:
        match change:
            case EditObject():
                self._edit(change)
            case CreateObjects(objects=objects):
                for obj in objects:
                    self._owners.create(obj)
                self._note_nodes(
                    [obj["metadata"]["name"] for obj in objects if obj["kind"] == "Node"]
                )
            case EmptyNodes():
                for pod in self._owners.pods.on_nodes(change.nodes):
                    if pod.owner[0] != "DaemonSet":
                        self._owners.pods.evict(pod, why=DRAINED, sentence=change.message)
            case LoseNodes():
                self._lose(change)
            case MarkNodes(nodes=nodes, is_usable=is_usable):
                self._kept = self._kept - {*nodes} if is_usable else self._kept | {*nodes}
                self._note_nodes(nodes)

    def _edit(self, change: EditObject) -> None:
        obj = self._world.objects.get(change.plural, change.key)
        if obj is None:
            return
        edited = change.edit(obj)
        if edited.get("spec") != obj.get("spec"):
            # As the API server does; else it looks like a status that the daemon wrote itself.
            metadata = edited["metadata"]
            generation = metadata.get("generation", 1) + 1
            edited = {**edited, "metadata": {**metadata, "generation": generation}}
        self._world.objects.write(edited)
        if change.plural == "nodes":
            self._note_nodes([change.key.name])

    def _lose(self, change: LoseNodes) -> None:
        world = self._world
        for pod in self._owners.pods.on_nodes(change.nodes):
            self._owners.pods.lose(pod, why=LOST, sentence=change.message)
        # Pods of other schedulers are no lives of the record; they are gone as well.
        gone = set(change.nodes)
        for obj in [*world.objects.all("pods")]:
            if obj["spec"].get("nodeName") in gone:
                metadata = obj["metadata"]
                world.objects.remove("pods", ObjectKey(metadata["namespace"], metadata["name"]))
        for name in change.nodes:
            world.objects.remove("nodes", ObjectKey("", name))
        self._note_nodes(change.nodes)

    def _note_nodes(self, names: Collection[str]) -> None:
        """The record tells what nodes offered when."""
        for name in names:
            node = self._world.cache.rows.find_any(name)
            if node is not None and name in self._kept:
                node = attrs.evolve(node, unschedulable=True)
            self._world.lives.node_changes.note(name, node, at=self._world.now)

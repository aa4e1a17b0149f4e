"""The changes of one question, in order: what each does to the cluster when, and which contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from gpusched import API_VERSION
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import ObjectKey, format_time
from gpusched.base.classes import frozen
from gpusched.base.errors import UsageError
from gpusched.config.yaml_tree import list_names
from gpusched.engine.objects import Obj, copied_slices
from gpusched.engine.timed_changes import (
    CreateObjects,
    EditObject,
    EmptyNodes,
    LoseNodes,
    MarkNodes,
    TimedChange,
)
from gpusched.lab.whatif.added_nodes import read_added_nodes
from gpusched.lab.whatif.field_changes import read_field_change
from gpusched.lab.whatif.moments import DAY_S, parse_moment, parse_span
from gpusched.lab.whatif.node_selection import NodeSelection

_NAMED_MAX: Final = 4
_FOREVER: Final = float("inf")
_WINDOW_MIN_S: Final = 60.0
_WINDOW_MAX_S: Final = 366 * DAY_S
_NODES_A_RESERVATION: Final = 1024
"""Bounds of the kind Reservation."""


@frozen(kw_only=True)
class ChangeRequest:
    """One change as it was typed.

    Attributes:
        option: ``--drain``, ``--lose``, ``--add-nodes``, ``--gpu-type`` or ``--set``.
        words: what stands behind it.
        since: when, as it was typed; empty for now.
        span: for how long, as it was typed; empty for good.
    """

    option: str
    words: str
    since: str = ""
    span: str = ""


@frozen(kw_only=True)
class ChangePlan:
    """What is done to the cluster.

    Attributes:
        changes: by time.
        messages: one sentence each, in the order in which they were asked for.
        latest_s: the last moment at which anything is done, seconds since the beginning.
    """

    changes: tuple[TimedChange, ...] = ()
    messages: tuple[str, ...] = ()
    latest_s: float = 0.0


def plan_changes(
    requests: Sequence[ChangeRequest], objects: Sequence[Obj], *, now: float
) -> ChangePlan:
    """Changes that can be played.

    Args:
        requests: in the order in which they were typed.
        objects: of the cluster.
        now: its moment, seconds since the Unix epoch.

    Raises:
        UsageError: one cannot be understood, means nothing in this cluster, or contradicts another.
    """
    planner = _ChangePlanner(NodeSelection(objects), objects, now)
    for request in requests:
        planner.add(request)
    planner.refuse_contradictions()
    ordered = sorted(planner.changes, key=lambda change: change.at)
    return ChangePlan(
        changes=tuple(ordered),
        messages=tuple(planner.messages),
        latest_s=max((change.at for change in ordered), default=0.0),
    )


class _ChangePlanner:
    def __init__(self, cluster: NodeSelection, objects: Sequence[Obj], now: float) -> None:
        self._cluster = cluster
        self._objects = objects
        self._now = now
        self.changes: list[TimedChange] = []
        self.messages: list[str] = []
        self._windows: dict[str, list[tuple[float, float]]] = {}
        """When nodes are drained, by name."""
        self._reservations = 0
        self._lost: dict[str, float] = {}
        self._types: dict[str, str] = {}
        self._fields: dict[tuple[str, ObjectKey, tuple[str, ...]], str] = {}

    def add(self, request: ChangeRequest) -> None:
        """Plan one change."""
        if request.span and request.option != "--drain":
            raise UsageError(f"--for says how long a --drain lasts; {request.option} is for good")
        at = (
            parse_moment(request.since, _since_option(request), now=self._now)
            if request.since
            else self._now
        )
        {
            "--drain": self._drain, "--lose": self._lose, "--add-nodes": self._add_nodes,
            "--gpu-type": self._change_type, "--set": self._set_field,
        }[request.option](request, at - self._now)  # fmt: skip

    def refuse_contradictions(self) -> None:
        """Raises where a node is drained or changed after it is lost."""
        for name, at in sorted(self._lost.items()):
            for since, _ in self._windows.get(name, ()):
                if since >= at:
                    raise UsageError(
                        f"node {name} cannot be drained from {self._time(since)} on: it is lost "
                        f"at {self._time(at)}; leave one of them out"
                    )

    # -- nodes -------------------------------------------------------------------------------
    def _drain(self, request: ChangeRequest, at: float) -> None:
        names = self._cluster.select(request.words, "--drain")
        length = parse_span(request.span, "--for") if request.span else _FOREVER
        if length < _WINDOW_MIN_S or _WINDOW_MAX_S < length < _FOREVER:
            raise UsageError(
                f"--drain {request.words} --for {request.span}: a window lasts from one minute to 366 days"
            )
        until = at + length
        for name in names:
            for since, ends in self._windows.setdefault(name, []):
                if since < until and at < ends:
                    raise UsageError(
                        f"node {name} is drained twice at {self._time(max(since, at))}: "
                        "let the windows of two --drain not overlap"
                    )
            self._windows[name].append((at, until))
        until_text = "" if until == _FOREVER else f" until {self._time(until)}"
        message = f"{_nodes_text(names)} drained from {self._time(at)}{until_text}"
        self.messages.append(message)
        if not at and until == _FOREVER:
            for name in names:
                self._edit_node(name, at, partial(_with_cordon, cordoned=True))
            self.changes.append(EmptyNodes(at=at, nodes=names, message=message))
            return
        self.changes += self._announced_window(names, at, until)

    def _announced_window(
        self, names: Sequence[str], at: float, until: float
    ) -> Iterator[TimedChange]:
        """A maintenance window is a Reservation, made now, so that nothing starts that would run into it."""
        ends = min(until, at + _WINDOW_MAX_S)
        reservations = []
        for first in range(0, len(names), _NODES_A_RESERVATION):
            self._reservations += 1
            reservations.append(
                {
                    "apiVersion": API_VERSION, "kind": "Reservation",
                    "metadata": {"name": f"what-if-{self._reservations}"},
                    "spec": {
                        "purpose": "Maintenance",
                        "from": self._time(at), "to": self._time(ends),
                        "nodeNames": [*names[first : first + _NODES_A_RESERVATION]],
                    },
                }
            )  # fmt: skip
        yield CreateObjects(at=0.0, objects=tuple(reservations))
        yield MarkNodes(at=at, nodes=tuple(names), is_usable=False)
        if until < _FOREVER:
            yield MarkNodes(at=until, nodes=tuple(names), is_usable=True)

    def _lose(self, request: ChangeRequest, at: float) -> None:
        names = self._cluster.select(request.words, "--lose")
        for name in names:
            if name in self._lost:
                raise UsageError(f"node {name} is lost twice; leave one of them out")
            self._lost[name] = at
        message = f"{_nodes_text(names)} lost at {self._time(at)}"
        self.messages.append(message)
        self.changes.append(LoseNodes(at=at, nodes=names, message=message))

    def _add_nodes(self, request: ChangeRequest, at: float) -> None:
        added = read_added_nodes(request.words, self._cluster)
        self.messages.append(f"{added.message}{self._from_text(at)}")
        earlier = {
            obj["metadata"]["name"]
            for each in self.changes if isinstance(each, CreateObjects) for obj in each.objects
        }  # fmt: skip
        nodes = [_renamed(each, earlier) for each in added.nodes]
        slices = [
            made
            for each in nodes
            for made in copied_slices(self._objects, added.like, each["metadata"]["name"])
        ]
        self.changes.append(CreateObjects(at=at, objects=(*nodes, *slices)))

    def _change_type(self, request: ChangeRequest, at: float) -> None:
        selector, is_set, product = request.words.rpartition("=")
        if not is_set or not product or not selector:
            raise UsageError(
                f"--gpu-type takes NODES=PRODUCT such as rack=r7=NVIDIA-H200, not {request.words[:80]!r}"
            )
        names = self._cluster.select(selector, "--gpu-type")
        for name in names:
            if name in self._types:
                raise UsageError(
                    f"node {name} gets GPUs of type {self._types[name]} and {product}: leave one out"
                )
            label = _product_label(self._cluster.nodes[name])
            if not label:
                raise UsageError(f"--gpu-type {request.words}: node {name} has no GPUs")
            self._types[name] = product
            self._edit_node(name, at, partial(_with_label, label=label, value=product))
        self.messages.append(f"{_nodes_text(names)} of GPU type {product}{self._from_text(at)}")

    def _edit_node(self, name: str, at: float, edit: partial[Obj]) -> None:
        self.changes.append(EditObject(at=at, plural="nodes", key=ObjectKey("", name), edit=edit))

    # -- fields ------------------------------------------------------------------------------
    def _set_field(self, request: ChangeRequest, at: float) -> None:
        change = read_field_change(request.words, self._objects)
        for (plural, key, path), text in self._fields.items():
            shared = min(len(path), len(change.path))
            if (plural, key) == (change.plural, change.key) and path[:shared] == change.path[
                :shared
            ]:
                raise UsageError(
                    f"--set {request.words} contradicts --set {text}: both say what "
                    f"{'.'.join(path[:shared])} is; leave one out"
                )
        self._fields[change.plural, change.key, change.path] = request.words
        self.messages.append(f"{change.message}{self._from_text(at)}")
        self.changes.append(
            EditObject(at=at, plural=change.plural, key=change.key, edit=change.edit)
        )

    # -- words -------------------------------------------------------------------------------
    def _time(self, seconds: float) -> str:
        return format_time(self._now + seconds)

    def _from_text(self, at: float) -> str:
        return f" from {self._time(at)}" if at else ""


def _since_option(request: ChangeRequest) -> str:
    return "--from" if request.option == "--drain" else "--at"


def _nodes_text(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"{list_names(names[:_NAMED_MAX])}{more} {'is' if len(names) == 1 else 'are'}"


def _product_label(node: Obj) -> str:
    """The label that tells the product of its GPUs; empty for a node without GPUs."""
    labels = node["metadata"].get("labels") or {}
    offers = (node.get("status") or {}).get("allocatable") or {}
    known = [
        label for name, label in gpu_resources().product_labels if str(offers.get(name, "0")) != "0"
    ]
    return next((label for label in known if label in labels), known[0] if known else "")


def _with_cordon(obj: Obj, *, cordoned: bool) -> Obj:
    return {**obj, "spec": {**(obj.get("spec") or {}), "unschedulable": cordoned}}


def _with_label(obj: Obj, *, label: str, value: str) -> Obj:
    metadata = obj["metadata"]
    return {
        **obj,
        "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), label: value}},
    }


def _renamed(obj: Obj, taken: set[str]) -> Obj:
    """A node of a second ``--add-nodes`` like the same one gets a name of its own."""
    metadata, number = obj["metadata"], 1
    name = metadata["name"]
    while name in taken:
        number += 1
        name = f"{metadata['name']}-{number}"
    taken.add(name)
    labels = {**metadata["labels"], "kubernetes.io/hostname": name}
    return {**obj, "metadata": {**metadata, "name": name, "labels": labels}}

"""``--add-nodes 4:like=gpu-0:rack=r9``: more nodes like one that there is."""

from __future__ import annotations

import re
from typing import Final

from gpusched.base.classes import frozen
from gpusched.base.errors import UsageError
from gpusched.config.yaml_tree import did_you_mean, quoted
from gpusched.engine.objects import OWN_METADATA, Obj
from gpusched.lab.whatif.node_selection import NodeSelection
from gpusched.topology.levels import HOST

NODES_MAX: Final = 10_000
"""More than a cluster takes."""
_WHOLE: Final = re.compile(r"[0-9]{1,30}")
_TIMES: Final = re.compile(r"([0-9]{1,30})[*x](.+)")
_FORM: Final = "--add-nodes takes COUNT:like=NODE, and LABEL=VALUE where they stand, such as 4:like=gpu-0:rack=r9"


@frozen(kw_only=True)
class AddedNodes:
    """New nodes and what is said of them.

    Attributes:
        like: name of the node that they are like.
    """

    nodes: tuple[Obj, ...]
    like: str
    message: str


def read_added_nodes(text: str, cluster: NodeSelection) -> AddedNodes:
    """What ``--add-nodes`` says.

    Args:
        text: its words, with colons or blanks between, in any order: a count, ``like=NODE`` (or ``like NODE``),
            and labels or levels with their values.
        cluster: that gets them.

    Raises:
        UsageError: it cannot be understood, or there is no such node.
    """
    count, like, labels = _parts(text)
    if not 1 <= count <= NODES_MAX:
        raise UsageError(
            f"--add-nodes {text}: from 1 to {NODES_MAX:,} nodes can be added, not {count}"
        )
    template = cluster.nodes.get(like)
    if template is None:
        near = did_you_mean(like, list(cluster.nodes)).rstrip("?")
        raise UsageError(f"--add-nodes {text}: there is no node {quoted(like)}{near}")
    named = {cluster.label_of(key): value for key, value in labels.items()}
    taken = set(cluster.nodes)
    made: list[Obj] = []
    number = 0
    while len(made) < count:
        number += 1
        name = f"{like}-added-{number}"
        if name not in taken:
            made.append(_copy(template, name, named))
    where = "".join(f", {key}={value}" for key, value in sorted(labels.items()))
    plural = "node is" if count == 1 else "nodes are"
    return AddedNodes(
        nodes=tuple(made), like=like, message=f"{count} {plural} added like {like}{where}"
    )


def _parts(text: str) -> tuple[int, str, dict[str, str]]:
    words = [word for word in re.split(r"[:\s]+", text.strip()) if word]
    count: int | None = None
    like, labels = "", {}
    while words:
        word = words.pop(0)
        times = _TIMES.fullmatch(word)
        if word == "like" and words:
            like = words.pop(0)
        elif _WHOLE.fullmatch(word) and count is None:
            count = int(word)
        elif times is not None and count is None and "=" not in word:
            count, like = int(times[1]), times[2]
        elif word.startswith("like=") and not like:
            like = word.removeprefix("like=")
        elif "=" in word and not word.startswith("="):
            key, _, value = word.partition("=")
            labels[key] = value
        else:
            raise UsageError(f"{_FORM}, not {text[:80]!r}")
    if count is None or not like:
        raise UsageError(f"{_FORM}, not {text[:80]!r}")
    return count, like, labels


def _copy(template: Obj, name: str, labels: dict[str, str]) -> Obj:
    metadata = {
        key: value for key, value in template["metadata"].items() if key not in OWN_METADATA
    }
    spec = {
        key: value for key, value in (template.get("spec") or {}).items()
        if key not in ("unschedulable", "providerID")
    }  # fmt: skip
    if spec.get("taints"):
        spec["taints"] = [
            each for each in spec["taints"] if not each["key"].startswith("node.kubernetes.io/")
        ]
    mine = {**(metadata.get("labels") or {}), HOST: name, **labels}
    return {**template, "metadata": {**metadata, "name": name, "labels": mine}, "spec": spec}

"""Which nodes are meant: by name, by label, or by a domain of a topology level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from gpusched.base.errors import UsageError
from gpusched.config.yaml_tree import did_you_mean, list_names, quoted
from gpusched.engine.objects import Obj
from gpusched.topology.levels import DEFAULT_NAME, WELL_KNOWN

_SHOWN_MAX: Final = 8


class NodeSelection:
    """Nodes of a cluster, and the words for them.

    Args:
        objects: of the cluster.
    """

    def __init__(self, objects: Sequence[Obj]) -> None:
        self.nodes = {obj["metadata"]["name"]: obj for obj in objects if obj.get("kind") == "Node"}
        labels = [obj["metadata"].get("labels") or {} for obj in self.nodes.values()]
        self._known = sorted({key for each in labels for key in each})
        self.levels = _level_labels(objects, self._known)
        """Name of a level and the label that marks it."""

    def select(self, text: str, option: str) -> tuple[str, ...]:
        """Names of the nodes that are meant, sorted.

        Args:
            text: names (which may hold ``*``), ``LABEL=VALUE`` or ``LEVEL=DOMAIN``, with commas between:
                those that any of them means.
            option: for sentences.

        Raises:
            UsageError: a part means no node.
        """
        found: set[str] = set()
        for word in text.split(","):
            part = word.strip().removeprefix("node/")
            mine = self._find_part(part, option) if part else set()
            if not mine:
                raise UsageError(f"{option} {text}: {self._nothing(part)}")
            found |= mine
        return tuple(sorted(found))

    def label_of(self, word: str) -> str:
        """The label that a level's name or a label means."""
        return self.levels.get(word, word)

    def _find_part(self, part: str, option: str) -> set[str]:
        key, is_label, value = part.partition("=")
        if not is_label:
            return {name for name in self.nodes if fnmatchcase(name, part)}
        if not value:
            raise UsageError(f"{option} takes LABEL=VALUE, not {part!r}")
        label = self.label_of(key)
        return {
            name for name, obj in self.nodes.items()
            if fnmatchcase((obj["metadata"].get("labels") or {}).get(label, ""), value)
        }  # fmt: skip

    def _nothing(self, part: str) -> str:
        key, is_label, value = part.partition("=")
        if not is_label:
            return (
                f"there is no node {quoted(part)}{did_you_mean(part, list(self.nodes)).rstrip('?')}"
            )
        label = self.label_of(key)
        if label not in self._known:
            names = [*self.levels, *self._known]
            levels = f"levels are {list_names(self.levels)}"
            return (
                f"no node has a label {quoted(key)}; {levels}{did_you_mean(key, names).rstrip('?')}"
            )
        labels = [obj["metadata"].get("labels") or {} for obj in self.nodes.values()]
        values = sorted({each[label] for each in labels if label in each})
        more = f" and {len(values) - _SHOWN_MAX} more" if len(values) > _SHOWN_MAX else ""
        return f"no node has {label}={value}; values are {', '.join(values[:_SHOWN_MAX])}{more}"


def _level_labels(objects: Sequence[Obj], known: Sequence[str]) -> Mapping[str, str]:
    """Labels of the levels that the cluster has: of its Topology, or those that need none."""
    topologies = [obj for obj in objects if obj.get("kind") == "Topology"]
    if topologies:
        names = [obj["metadata"]["name"] for obj in topologies]
        counts = DEFAULT_NAME if DEFAULT_NAME in names else min(names)
        active = topologies[names.index(counts)]
        levels = (active.get("spec") or {}).get("levels") or ()
        return {each["name"]: each["nodeLabel"] for each in levels}
    return {
        name: label
        for name, labels in WELL_KNOWN
        if (label := next((each for each in labels if each in known), ""))
    }

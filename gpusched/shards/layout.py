"""To which shard a node belongs, and in which one a gang begins: the same in every daemon."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

import attrs
import msgspec

from gpusched.api.affinity.selector import NodeTerm, Requirement
from gpusched.api.meta.identity import GangKey
from gpusched.api.pod.pod import PodClass
from gpusched.base.classes import frozen
from gpusched.config.model import Config, ShardConfig

_HASH_BYTES: Final = 8
_KNOWN_MAX: Final = 4096
"""Combinations of label values of which the shards are remembered."""


def gang_hash(key: GangKey) -> str:
    """Sixteen hexadecimal digits that stand for a gang on the board."""
    text = f"{key.kind}\0{key.namespace}\0{key.name}"
    return hashlib.sha256(text.encode()).hexdigest()[: 2 * _HASH_BYTES]


@frozen
class ShardLayout:
    """The shards of a configuration.

    Attributes:
        shards: in the order of the configuration; names are unique.
        digest: tells layouts apart; empty amounts in other units are another layout, too.
    """

    shards: tuple[ShardConfig, ...]
    digest: str
    _known: dict[tuple[str | None, ...], tuple[str, ...]] = attrs.field(
        factory=dict, eq=False, repr=False
    )
    """Shards by the values of the labels that selectors name."""

    @classmethod
    def from_config(cls, config: Config) -> ShardLayout:
        """The layout of a configuration that has shards."""
        content = (
            [
                (each.name, attrs.astuple(each.selector), *([True] if each.lends_nodes else []))
                for each in config.shards
            ],
            [each.name for each in config.gpu_resources.listed],
        )
        digest = hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:16]
        return cls(config.shards, digest)

    @property
    def names(self) -> tuple[str, ...]:
        """Names in the order of the configuration."""
        return tuple(each.name for each in self.shards)

    def matching(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """Names of the shards whose selector a node of these labels satisfies: one, where all is well."""
        values = tuple(map(labels.get, self._keys))
        found = self._known.get(values)
        if found is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            found = tuple(each.name for each in self.shards if each.selector.matches(labels))
            self._known[values] = found
        return found

    @cached_property
    def _keys(self) -> tuple[str, ...]:
        rules = (each.selector.requirements for each in self.shards)
        return tuple(sorted({rule.key for each in rules for rule in each}))

    def first_owner(self, digits: str) -> str:
        """The shard in which the gang of this hash begins."""
        return self.shards[int(digits, 16) % len(self.shards)].name

    def turn(self, shard: str, began: str) -> int:
        """How many shards are asked before this one for room for a gang that begins in ``began``."""
        return (self.names.index(shard) - self.names.index(began)) % len(self.names)

    def lends(self, shard: str) -> bool:
        """Whether idle nodes of a shard are lent."""
        return any(each.lends_nodes for each in self.shards if each.name == shard)

    @property
    def lends_any(self) -> bool:
        """Whether some shard lends idle nodes."""
        return any(each.lends_nodes for each in self.shards)

    def excludes(self, shard: str, pod_classes: Iterable[PodClass]) -> bool:
        """Whether pods of a class can never be on any node of a shard, by its node selector and theirs."""
        rules = next(each.selector.requirements for each in self.shards if each.name == shard)
        return any(_class_excluded(each, rules) for each in pod_classes)

    def shard_of_labels(self, labels: Mapping[str, str]) -> str:
        """The first shard in which a node with these labels, and any others, could be; the first of all where none is."""
        possible = (
            each.name
            for each in self.shards
            if all(
                rule.matches(labels) for rule in each.selector.requirements if rule.key in labels
            )
        )
        return next(possible, self.names[0])

    def preference(self, shard: str, pod_classes: Iterable[PodClass]) -> int:
        """How much pods of some classes prefer a shard: the weights of their preferred node affinity for it.

        Only terms count that every node of the shard satisfies by its selector alone.
        """
        rules = next(each.selector.requirements for each in self.shards if each.name == shard)
        return sum(
            weight
            for each in pod_classes
            for weight, term in each.preferred
            if _holds_in_shard(term, rules)
        )


def _holds_in_shard(term: NodeTerm, rules: tuple[Requirement, ...]) -> bool:
    return bool(term.labels) and all(
        part.operator == "In"
        and any(
            rule.operator == "In" and rule.key == part.key and {*rule.values} <= {*part.values}
            for rule in rules
        )
        for part in (*term.labels, *term.fields)
    )


def _class_excluded(pod_class: PodClass, rules: tuple[Requirement, ...]) -> bool:
    labels = dict(pod_class.node_selector)
    if any(rule.key in labels and not rule.matches(labels) for rule in rules):
        return True
    terms = pod_class.affinity
    return terms is not None and all(_term_excluded(term, rules) for term in terms)


def _term_excluded(term: NodeTerm, rules: tuple[Requirement, ...]) -> bool:
    """Whether a term names values of a label of which the shard has none."""
    return any(
        part.operator == "In"
        and part.key == rule.key
        and not any(rule.matches({part.key: value}) for value in part.values)
        for part in term.labels
        for rule in rules
    )


def stray_node_message(name: str, matching: tuple[str, ...]) -> str:
    """Why nobody places pods on a node that belongs to no shard, or to several."""
    if not matching:
        return (
            f"node {name} belongs to no shard, so that nothing is placed on it: give it labels that "
            "one nodeSelector under shards selects"
        )
    return (
        f"node {name} belongs to shards {' and '.join(matching)}, so that nothing is placed on it: "
        "change its labels or their nodeSelectors until one selects it"
    )

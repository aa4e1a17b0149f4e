"""Sides of the tree of queues from which a queue may take: the same all session."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import attrs
from gpusched_plugins.queues.fairshare.shares import Shares

from gpusched.plugin import Resources, View

Names = tuple[str, ...]
_Found = tuple[tuple["Side", ...], tuple[tuple[str, Resources], ...]]
_Limits = tuple[tuple[str, Resources], ...]


@attrs.frozen(slots=True)
class Side:
    """Leaf queues that meet a claimant's queue at the same level, and what is theirs.

    Attributes:
        mine: levels of the claimant's queue below that one; none where nothing may be taken.
        leaves: the queues.
        deserved: of levels above the leaves, those that deserve some resource that decides, and how much.
        entitled: the same levels, and what each may hold without being over.
    """

    mine: tuple[str, ...]
    leaves: frozenset[str]
    deserved: tuple[tuple[str, Resources], ...]
    entitled: tuple[tuple[str, Resources], ...]


@attrs.frozen(slots=True)
class _Chain:
    """Levels of a queue from the leaf up, and the guarantees of those that have some."""

    levels: Names
    keeps: Mapping[str, Resources]


class Sides:
    """See the module.

    Args:
        view, shares: of the session.
    """

    def __init__(self, view: View, shares: Shares) -> None:
        self._view = view
        self._shares = shares
        self._known: dict[tuple[Names, Names, Names, Names], _Found] = {}
        self._paths: dict[str, Names] = {}
        self._chains: dict[Names, _Chain | None] = {}
        self._limits: dict[tuple[Names, Names, Names], tuple[_Limits, _Limits]] = {}
        """What levels deserve and are due; the same objects for all claimants that meet the same ones."""

    def of_path(self, path: Names, queues: Names, names: Names, others: Names) -> _Found:
        """Sides for a claimant, and what queues on them keep.

        Args:
            path: of the claimant's queue, from the leaf up.
            queues: of all possible victims.
            names: resources that decide.
            others: resources that are asked for beside them.
        """
        about = (path, queues, names, others)
        known = self._known.get(about)
        if known is None:
            known = self._known[about] = self._find(*about)
        return known

    def _find(self, path: Names, queues: Names, names: Names, others: Names) -> _Found:
        sides: dict[Names, dict[str, Names]] = {}
        keeps: dict[str, Resources] = {}
        for queue in sorted(queues):
            mine, theirs = levels_below_common_ancestor(path, self._path_of(queue))
            chain = self._chain_of(theirs)
            if not mine or chain is None:
                sides.setdefault((), {})[queue] = ()
                continue
            sides.setdefault(mine, {})[queue] = chain.levels
            keeps |= chain.keeps
        found = [
            self._side_of(mine, leaves, names, others) for mine, leaves in sorted(sides.items())
        ]
        return tuple(found), tuple(sorted(keeps.items()))

    def _path_of(self, queue: str) -> Names:
        known = self._paths.get(queue)
        if known is None:
            node = self._view.queue(queue)
            rooted = node is not None and node.rooted
            known = self._paths[queue] = node.path if node is not None and rooted else ()
        return known

    def _chain_of(self, theirs: Names) -> _Chain | None:
        """Levels from a leaf up; None where some are not reclaimable."""
        if theirs not in self._chains:
            nodes = [each for name in theirs if (each := self._view.queue(name)) is not None]
            kept = {each.queue.name: each.guarantee for each in nodes if each.guarantee.items}
            chain = _Chain(tuple(each.queue.name for each in nodes), kept)
            gives = all(each.queue.reclaimable for each in nodes)
            self._chains[theirs] = chain if gives else None
        return self._chains[theirs]

    def _side_of(
        self,
        mine: Names,
        leaves: Mapping[str, Names],
        names: Names,
        others: Names,
    ) -> Side:
        levels = tuple(sorted({name for chain in leaves.values() for name in chain}))
        about = (levels if mine else (), names, others)
        known = self._limits.get(about)
        if known is None:
            known = self._limits[about] = self._limits_of(*about)
        return Side(mine, frozenset(leaves), *known)

    def _limits_of(self, levels: Names, names: Names, others: Names) -> tuple[_Limits, _Limits]:
        shares, deserved, entitled = self._shares, [], []
        for level in levels:
            stated = {
                name: amount
                for name in (*names, *others)
                if (amount := shares.deserved(level, name)) is not None
            }
            if any(name in stated for name in names):
                deserved.append((level, Resources.of(stated)))
            due = {name: shares.entitled(level, name) for name in (*names, *others)}
            entitled.append((level, Resources.of(due)))
        return tuple(deserved), tuple(entitled)


@lru_cache(maxsize=2**13)
def levels_below_common_ancestor(
    mine: tuple[str, ...], theirs: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The levels of two paths below the lowest that both share; empty for one of the same line."""
    shared = 0
    while shared < min(len(mine), len(theirs)) and mine[-1 - shared] == theirs[-1 - shared]:
        shared += 1
    return mine[: len(mine) - shared], theirs[: len(theirs) - shared]

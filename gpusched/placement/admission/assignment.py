"""From counts of each role in each pool to counts of each candidate on each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpusched.arrays.columns import Ints
from gpusched.placement.admission.model import AdmissionBatch
from gpusched.placement.admission.pools import ColocatedMembers, PooledBatch


def assign_members(
    window: AdmissionBatch,
    pools: PooledBatch,
    counts: Ints,
    homes: Mapping[int, int],
    admitted: Sequence[int],
) -> list[Ints] | None:
    """Places for those admitted, members by role and node; None when a pool was promised too much.

    Args:
        window: of the pools.
        pools: of it.
        counts: by kind and pool, of all that are admitted.
        homes: by lump, its domain.
        admitted: numbers of contenders.
    """
    by_node = _packed_counts(window, pools, counts)
    if by_node is None:
        return None
    places: dict[int, Ints] = {
        number: np.zeros((len(window.contenders[number].problem.roles), len(pools.pool)), np.int64)
        for number in admitted
    }
    # The narrowest first: what a wider domain takes could be taken elsewhere in it.
    lumps = [number for number, lump in enumerate(pools.lumps) if lump.contender in places]
    for number in sorted(lumps, key=lambda number: (-pools.lumps[number].level, number)):
        lump = pools.lumps[number]
        inside: Ints | None = None
        if lump.level >= 0:
            domain = window.contenders[lump.contender].problem.levels[lump.level].domain
            inside = np.flatnonzero(domain == homes[number])
        if not _assign_lump(lump, by_node, pools.pool, inside, places[lump.contender]):
            return None
    return [places[number] for number in admitted]


def _assign_lump(
    lump: ColocatedMembers, by_node: Ints, pool: Ints, inside: Ints | None, places: Ints
) -> bool:
    """Give the lump its members' nodes out of what is left; from the fullest pools first."""
    for role, kind, count in lump.roles:
        left = count
        row = by_node[kind]
        nodes = np.flatnonzero(row) if inside is None else inside[row[inside] > 0]
        if not nodes.size:
            return False
        held = np.bincount(pool[nodes], weights=row[nodes])[pool[nodes]]
        for node in nodes[np.lexsort((nodes, pool[nodes], -held))].tolist():
            given = min(left, int(row[node]))
            places[role, node] += given
            row[node] -= given
            left -= given
            if not left:
                break
        if left:
            return False
    return True


def _packed_counts(window: AdmissionBatch, pools: PooledBatch, counts: Ints) -> Ints | None:
    """By kind and node: in each pool the largest first, each where the least stays free."""
    sizes = np.array([kind.request for kind in pools.kinds], dtype=np.int64)
    whole = np.maximum(1, window.free.max(axis=0, initial=1))
    share = [max((int(a) * 1_000_000 // int(b) for a, b in zip(ask, whole, strict=True)), default=0)
             for ask in sizes]  # fmt: skip
    order = sorted(range(len(share)), key=lambda kind: (-share[kind], kind))
    found: Ints = np.zeros((len(pools.kinds), len(pools.pool)), dtype=np.int64)
    left = window.free.copy()
    ranked = np.argsort(pools.pool, kind="stable")
    bounds = np.searchsorted(pools.pool[ranked], np.arange(counts.shape[1] + 1))
    for pool in np.flatnonzero(counts.any(axis=0)).tolist():
        nodes = ranked[bounds[pool] : bounds[pool + 1]]
        for kind in order:
            if not _fill_nodes(left, sizes[kind], pools.kinds[kind].caps, nodes,
                         count=int(counts[kind, pool]), into=found[kind]):  # fmt: skip
                return None
    return found


def _fill_nodes(left: Ints, ask: Ints, caps: Ints, nodes: Ints, *, count: int, into: Ints) -> bool:
    """Put so many equal pods on these nodes, the fullest that take one first."""
    columns = np.flatnonzero(ask)
    if count and not columns.size:
        open_to = nodes[caps[nodes] > 0]
        if not open_to.size or int(caps[open_to[0]]) < count:
            return False
        into[open_to[0]] += count
        return True
    while count:
        free = left[nodes][:, columns]
        fits = np.minimum((free // ask[columns]).min(axis=1), caps[nodes] - into[nodes])
        able = np.flatnonzero(fits > 0)
        if not able.size:
            return False
        spare = free[able, 0] - ask[columns[0]]
        node = nodes[able[int(spare.argmin())]]
        given = min(count, int(fits[able[int(spare.argmin())]]))
        left[node] -= given * ask
        into[node] += given
        count -= given
    return True

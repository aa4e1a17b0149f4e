"""Pods of several kinds that compete for the devices of a node, as tables of a problem of placement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpusched.cache.gangs.gang import Gang
from gpusched.placement.model.problem import Role
from gpusched.placement.model.role_mixes import RoleMixes
from gpusched.session.state.session import Session


def role_mixes(session: Session, gang: Gang, roles: Sequence[Role]) -> RoleMixes | None:
    """Which members of several kinds find devices on each node together; None where one kind has claims.

    Nodes on which too many counts would have to be gone through have no table: what is placed there is
    checked when it is placed.
    """
    places: dict[str, list[int]] = {}
    for number, pod_set in enumerate(gang.pod_sets):
        pod_class = pod_set.pod_class
        if pod_class.claims and session.devices.claims.class_claims(pod_class).without_devices:
            places.setdefault(pod_class.digest, []).append(number)
    if len(places) < 2:
        return None
    numbers = list(places.values())
    classes = [gang.pod_sets[each[0]].pod_class for each in numbers]
    fits = np.array(
        [
            np.minimum(
                np.max([roles[number].fits for number in each], axis=0),
                sum(roles[number].most for number in each),
            )
            for each in numbers
        ]
    )
    state = np.full(fits.shape[1], -1, dtype=np.int64)
    tables: dict[tuple[tuple[int, ...], ...], int] = {}
    for row in np.flatnonzero((fits > 0).sum(axis=0) > 1).tolist():
        found = session.devices.counts.count_together(classes, row, fits[:, row].tolist())
        if found is not None:
            state[row] = tables.setdefault(found, len(tables))
    if not tables:
        return None
    return RoleMixes(
        roles=tuple(tuple(each) for each in numbers), state=state, tables=tuple(tables)
    )

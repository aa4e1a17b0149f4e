"""Claims without devices that pods of a gang share: on which nodes their devices are, tried one after another.

Devices of a node force all users of a claim to that node; devices that several nodes reach leave them
these. A choice of nodes for every such claim is tried with the gang as a whole, so that a gang
starts wherever one of them works. Claims are gone through in the order of their names; what users
certainly do not fit is left out first, with those of earlier claims placed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from gpusched.api.meta.identity import UID
from gpusched.arrays.columns import Bools, Ints
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang, PodSet
from gpusched.session.allocate.node_sets import ALL_NODES, Unschedulable
from gpusched.session.allocate.refusals.device_claims import lacking_devices_text
from gpusched.session.framework.reasons import (
    Reason,
    nodes_text,
    pods_text,
    shorten,
    truncate_message,
)
from gpusched.session.state.nodes.devices.pod_claims import SharedClaim
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Statement

_TRIES_MAX: Final = 32
"""Choices of nodes for which a gang is placed as a whole."""
_LOOKS_MAX: Final = 2_000
"""Nodes on which users of a claim are tried alone."""

Place = Callable[[], Unschedulable | None]


@frozen(eq=False)
class _SharedByPods:
    """A shared claim and the pod sets of a gang that use it."""

    claim: SharedClaim
    pod_sets: tuple[PodSet, ...]

    @property
    def users(self) -> int:
        """Pods that use the claim."""
        return sum(len(each.pods) for each in self.pod_sets)


def place_with_shared_claims(
    session: Session, gang: Gang, statement: Statement, place: Place
) -> Unschedulable | None:
    """Place a gang, with nodes chosen for the claims that its pods share; as ``place`` does where there are none.

    Args:
        session: whose devices are given.
        gang: whose claims are all there.
        statement: takes the places.
        place: places the gang within what was chosen.
    """
    shared = _shared_by_pods(session, gang)
    if not shared:
        return place()
    return _Choices(session, gang, statement, shared).place_with_choices(place)


def _shared_by_pods(session: Session, gang: Gang) -> list[_SharedByPods]:
    """Shared claims of a gang that have no devices yet, in this session either."""
    found: dict[UID, tuple[SharedClaim, list[PodSet]]] = {}
    for pod_set in gang.pod_sets:
        if pod_set.pod_class.claims:
            for claim in session.devices.claims.class_claims(pod_set.pod_class).shared:
                if session.devices.search.given_claim(claim.uid) is None:
                    found.setdefault(claim.uid, (claim, []))[1].append(pod_set)
    every = [_SharedByPods(claim, tuple(pod_sets)) for claim, pod_sets in found.values()]
    every.sort(key=lambda each: each.claim.key)
    # A claim of one pod has its devices where that pod is; nothing is to be chosen for it.
    return every if any(each.users > 1 for each in every) else []


class _Choices:
    """The choices of nodes for a gang's shared claims.

    Args:
        session, gang, statement: as of ``place_with_shared_claims``.
        shared: claims that are chosen for.
    """

    def __init__(
        self,
        session: Session,
        gang: Gang,
        statement: Statement,
        shared: Sequence[_SharedByPods],
    ) -> None:
        self._session = session
        self._statement = statement
        self._start = statement.checkpoint()
        self._shared = shared
        self._all_start = gang.members_at_start >= gang.pending
        self._tries = 0
        self._looks = 0
        self._first: Unschedulable | None = None
        self._lacking: Unschedulable | None = None

    def place_with_choices(self, place: Place) -> Unschedulable | None:
        """The first choice with which the gang gets its places; else why there is none."""
        if self._try_choices(0, {}, place):
            if self._tries > 1 or self._looks > 1:
                # Best for the nodes of its shared devices; others were not compared.
                self._statement.proof, self._statement.terms = "", ()
            return None
        if self._first is None:
            assert self._lacking is not None
            return self._lacking
        names = ", ".join(shorten(each.claim.key.name) for each in self._shared)
        bounded = self._tries >= _TRIES_MAX or self._looks >= _LOOKS_MAX
        end = "; more choices were not tried" if bounded else ""
        many = f"{self._tries} choices" if self._tries > 1 else "the one choice"
        return Unschedulable(
            self._first.reason,
            truncate_message(
                f"{self._first.message}; so it is with {many} of nodes for the devices of shared "
                f"ResourceClaim{'s' if len(self._shared) > 1 else ''} {names}{end}"
            ),
        )

    def _try_choices(self, number: int, chosen: Mapping[UID, Bools], place: Place) -> bool:
        """Choose for the claims from this number on, and place."""
        if number == len(self._shared):
            return self._place_within_choice(place)
        shared = self._shared[number]
        some = False
        for rows in self._node_sets(shared):
            if self._tries >= _TRIES_MAX or self._looks >= _LOOKS_MAX:
                return False
            self._looks += 1
            mark = self._statement.checkpoint()
            with self._session.devices.search.choose_for_nodes({shared.claim.uid: rows}):
                now = {**chosen, shared.claim.uid: rows}
                if int(rows.sum()) != 1 or self._place_users(shared, int(rows.argmax()), now):
                    some = True
                    if self._try_choices(number + 1, now, place):
                        return True
                self._statement.rollback(mark)
        if not some and self._lacking is None:
            self._lacking = _explain_lacking(self._session, shared)
        return False

    def _place_within_choice(self, place: Place) -> bool:
        """Place the gang within what is chosen, without what was placed to find that."""
        tried = self._statement.assignments
        self._statement.rollback(self._start)
        self._tries += 1
        refusal = place()
        if refusal is None:
            return True
        self._first = self._first or refusal
        self._statement.rollback(self._start)
        for each in tried:
            self._statement.assign(each.pod, each.row, each.request)
        return False

    def _node_sets(self, shared: _SharedByPods) -> Iterator[Bools]:
        """Sets of nodes that reach devices for a claim: several with devices in common, then single ones."""
        devices = self._session.devices
        for rows in devices.reaches.common_sets():
            if devices.search.allocate_wide(shared.claim, rows) is not None:
                yield rows
        room = _users_by_row(self._session, shared, all_start=self._all_start)
        for row in sorted(np.flatnonzero(room).tolist(), key=lambda row: (-int(room[row]), row)):
            alone = np.zeros(len(room), dtype=np.bool_)
            alone[row] = True
            yield alone

        if not self._all_start:
            yield np.zeros(len(room), dtype=np.bool_)  # the others may do without its users

    def _place_users(self, shared: _SharedByPods, row: int, chosen: Mapping[UID, Bools]) -> bool:
        """Whether users of a claim fit a node beside what was placed; their places stay.

        Users of a claim for which nothing is chosen yet are left for later.
        """
        for pod_set in shared.pod_sets:
            claims = self._session.devices.claims.class_claims(pod_set.pod_class).shared
            if not all(
                each.uid in chosen or self._session.devices.search.given_claim(each.uid) is not None
                for each in claims
            ):
                continue
            for pod in pod_set.pods if self._all_start else pod_set.pods[:1]:
                info = self._session.class_info(pod_set.pod_class)
                placed = info.class_fit.fits[row] >= 1 and self._statement.try_assign(
                    pod, row, info.request
                )
                if not placed and self._all_start:
                    return False
        return True


def _users_by_row(session: Session, shared: _SharedByPods, *, all_start: bool) -> Ints:
    """How many users of a claim each node takes at most, 0 where they do not suffice, shape (nodes,)."""
    room = np.zeros(len(session.node_usage.nodes), dtype=np.int64)
    suffices = np.ones(len(room), dtype=np.bool_)
    alike: dict[object, list[PodSet]] = {}
    for pod_set in shared.pod_sets:  # the pod that is charged for the claim is of another class
        key = (pod_set.pod_class.requests, pod_set.pod_class.claims)
        alike.setdefault(key, []).append(pod_set)
    for pod_sets in alike.values():
        fits = np.minimum.reduce(
            [session.class_info(each.pod_class).class_fit.fits for each in pod_sets]
        )
        count = sum(len(each.pods) for each in pod_sets)
        room += np.minimum(fits, count)
        suffices &= fits >= count
    return np.where(suffices, room, 0) if all_start else room


def _explain_lacking(session: Session, shared: _SharedByPods) -> Unschedulable:
    """That no node has both the devices of a shared claim and room for its users."""
    room = _users_by_row(session, shared, all_start=False)
    most = int(room.max(initial=0))
    name = shorten(shared.claim.key.name)
    users = shared.users
    subject = f"{pods_text(users)} share{'s' if users == 1 else ''} ResourceClaim {name}"
    largest = max(shared.pod_sets, key=lambda each: len(each.pods))
    nodes = nodes_text(int(session.class_info(largest.pod_class).class_fit.allowed.sum()))
    if most:
        text = (
            f"{subject}, whose devices are used from one node: the best of {nodes} takes {most} of "
            f"them now"
        )
    else:
        text = f"{subject}, and none of {nodes} has its devices and room for one of them now"
    lacking = lacking_devices_text(session, largest.pod_class, 1, ALL_NODES)
    return Unschedulable(
        Reason.INSUFFICIENT_RESOURCES, truncate_message(f"{text}{lacking and ': '}{lacking}")
    )

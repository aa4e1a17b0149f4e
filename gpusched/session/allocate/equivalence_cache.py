"""Gangs that differ in nothing a placement reads: what one was refused, the next need not ask.

Thousands of equal jobs wait in a busy queue. The first of them that finds no room answers for all
that follow, as long as nothing has moved in the session since.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from gpusched.cache.gangs.expected_pods import is_expected
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.node_sets import Unschedulable
from gpusched.session.allocate.pod_by_pod import has_inter_pod_rules
from gpusched.session.framework.reasons import Reason
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.state.equivalence import EquivalenceClass
from gpusched.session.state.session import Session

CacheState = tuple[int, int, int, bool]
ClassOnOpenNodes = tuple[EquivalenceClass, Hashable]
"""Equal gangs to which Reservations close the same nodes."""


class EquivalenceCache:
    """What was refused in this session, by what gangs have in common.

    Args:
        session: whose moves make refusals stale.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[ClassOnOpenNodes, tuple[CacheState, Unschedulable]] = {}
        self._no_room: dict[ClassOnOpenNodes, tuple[CacheState, Unschedulable]] = {}
        """By kind without regard to lengths: no place was found, whatever is reserved."""
        self._last: tuple[EquivalenceClass, CacheState, Unschedulable] | None = None
        """The last answer, where it is that of all gangs of the kind without a nomination."""

    def refusal_of(self, gang: Gang) -> Unschedulable | None:
        """Why a gang like this one was refused since the last move; None when none was."""
        if not self._known:
            return None
        session, last, state = self._session, self._last, self._cache_state()
        if (
            last is not None
            and last[1] == state
            and last[0] is session.cache.equivalence.class_of(gang)
            and not session.nominations.has_nomination(gang)
        ):
            return last[2]
        kind = equivalence_class_of(session, gang)
        if kind is None:
            return None
        closed = session.windows.class_key(gang)
        known = self._known.get((kind, closed))
        if known is None or known[0] != state:
            known = self._no_room.get((kind.timeless, closed))
            if known is None or known[0] != state or not self._quota_allows(gang):
                return None
            self._known[kind, closed] = known
        if not session.snapshot.reservations and not any(each.claims for each in kind.classes):
            self._last = (kind, *known)
        return known[1]

    def refusal_of_all_like(self, gang: Gang) -> Unschedulable | None:
        """What all gangs of its kind without a nomination were refused since the last move; None where each has its own answer."""
        known, last = self.refusal_of(gang), self._last
        if known is None or last is None or last[1] != self._cache_state():
            return None
        return known if last[0] is self._session.cache.equivalence.class_of(gang) else None

    def not_refused(self, gangs: Iterable[Gang]) -> Iterator[Gang]:
        """Those of some gangs like which none was refused since the last move; nothing moves meanwhile."""
        class_of, some_held = self._session.cache.equivalence.class_of, self._session.nominations
        refused: EquivalenceClass | None = None
        for gang in gangs:
            kind = class_of(gang)
            if refused is not None and kind is refused:
                continue
            if self.refusal_of(gang) is None:
                yield gang
            elif not some_held and self._last is not None and self._last[0] is kind:
                refused = kind

    def remember_refusal(self, gang: Gang, refusal: Unschedulable, *, ways: int) -> None:
        """The gang found no room. What only another gang's reservation or a fault kept it from is not remembered.

        Args:
            gang: that was refused.
            refusal: what it is told.
            ways: in how many the gang could have started.
        """
        kind = equivalence_class_of(self._session, gang)
        passing = refusal.reason in (Reason.RESERVED, Reason.BACK_OFF) and not refusal.by_windows
        if kind is None or passing:
            return
        closed = self._session.windows.class_key(gang)
        known = self._known[kind, closed] = (self._cache_state(), refusal)
        # Room that is becoming free, or is made by moving others, may depend on reservations.
        moves = self._session.node_usage.now_and_later_differ or bool(self._session.placements)
        if ways > 1 or moves or refusal.reason != Reason.INSUFFICIENT_RESOURCES:
            return
        if self._quota_allows(gang):
            self._no_room[kind.timeless, closed] = known

    def _quota_allows(self, gang: Gang) -> bool:
        return not first_refusal(self._session.hooks.quota_checks, gang).refuses

    def _cache_state(self) -> CacheState:
        session = self._session
        return (
            session.queue_accounts.version,
            len(session.node_usage.touched_rows),
            session.device_moves,
            session.node_usage.later,
        )


def quota_class_of(session: Session, gang: Gang) -> EquivalenceClass | None:
    """All that decides what quota a gang needs in this session; None for one that is like no other.

    Those with promises have rooms of their own, and rules between pods read their labels.
    """
    kind = session.cache.equivalence.class_of(gang)
    if kind is None or session.nominations.has_nomination(gang):
        return None
    if session.class_infos.concern_equivalence_class(kind) and has_inter_pod_rules(
        session, [(pod_set, len(pod_set.pods)) for pod_set in gang.pod_sets]
    ):
        return None
    return kind


def equivalence_class_of(session: Session, gang: Gang) -> EquivalenceClass | None:
    """All that decides where a gang may go in this session; None for one that is like no other.

    Claims for devices that are not made yet, or that hold devices from an earlier attempt, make it so, too.
    """
    kind = quota_class_of(session, gang)
    if kind is None or (
        any(each.claims for each in kind.classes) and not _claims_are_ready(session, gang)
    ):
        return None
    return kind


def _claims_are_ready(session: Session, gang: Gang) -> bool:
    """Whether each pod that exists has all its claims, none of them has devices, and none is in vain."""
    devices = session.devices
    return all(
        not devices.claims.class_claims(pod_set.pod_class).fault
        and (is_expected(pod) or devices.pod_claims.are_ready(pod))
        for pod_set in gang.pod_sets
        if pod_set.pod_class.claims
        for pod in pod_set.pods
    )

"""One value of an attribute, or one type, for the devices of all members of a gang.

Each value is a restriction of the devices that may be given, under which the same search as ever looks
for the best place. All values are tried that have devices enough, and the best place of all is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from gpusched.api.devices.dynamic.claims import AllocationMode
from gpusched.api.pod.pod import Pod, PodClass
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.devices.requests import DeviceHold, choose_holds
from gpusched.placement.model.problem import SearchOutcome, Term
from gpusched.session.allocate.node_sets import Unschedulable
from gpusched.session.framework.reasons import Reason, pods_text, shorten, truncate_message
from gpusched.session.state.session import Session
from gpusched.session.state.statement import Statement

HOLDS_MAX: Final = 64
"""Values (and types) that are searched for one gang before it gets any; each may cost a search."""


@frozen(slots=True, eq=False)
class HoldOptions:
    """What the devices of a gang may be held to.

    Attributes:
        holds: those that are tried, those with most free devices first.
        refusal: why there are none; None where there are any.
        all: whether no other could have devices enough.
    """

    holds: tuple[DeviceHold, ...]
    refusal: Unschedulable | None = None
    all: bool = True


def matches_devices(gang: Gang) -> bool:
    """Whether the devices of a gang's members are to have something in common."""
    request = gang.terms.devices
    return bool(request.match_attribute or request.same_type) and any(
        pod_set.pod_class.claims for pod_set in gang.pod_sets
    )


def hold_options(session: Session, gang: Gang, *, later: bool = False) -> HoldOptions:
    """What the devices of a gang may be held to, those of members that have devices included.

    Args:
        session: whose devices count.
        gang: that asks for something in common.
        later: whether devices that others hold count as well, as they may leave.
    """
    request, devices = gang.terms.devices, session.devices
    classes = [pod_set.pod_class for pod_set in gang.pod_sets if pod_set.pod_class.claims]
    selected = devices.report.selected_devices(classes, request.requests)
    kept = [
        each
        for pod in _claiming_members(session, gang)
        for each in devices.report.devices_of(pod, request.requests)
    ]
    found = choose_holds(request, selected, kept)
    what = _named(gang)
    if not found:
        if kept:
            message = (
                f"devices that members have are not of {what}: it can be kept by none that join"
            )
        else:
            message = f"none of {len(selected)} devices that its claims select has {what}"
        return HoldOptions((), Unschedulable(Reason.NO_FEASIBLE_NODE, truncate_message(message)))
    shared = any(device.device.shareable for device, _ in selected)
    needed = 0 if later or shared else _devices_needed(session, gang, classes)
    holds = [hold for hold, free in found if free >= needed]
    if not holds:
        best, most = found[0]
        message = (
            f"needs {needed} free devices of {what} for {pods_text(gang.members_at_start)}; best "
            f"{shorten(best.text)} has {most}"
        )
        return HoldOptions(
            (), Unschedulable(Reason.INSUFFICIENT_RESOURCES, truncate_message(message))
        )
    return HoldOptions(tuple(holds[:HOLDS_MAX]), all=len(holds) <= HOLDS_MAX)


def _named(gang: Gang) -> str:
    request = gang.terms.devices
    parts = [f"one {request.match_attribute}"] if request.match_attribute else []
    return " and ".join([*parts, *(["one type"] if request.same_type else [])])


def _claiming_members(session: Session, gang: Gang) -> Iterator[Pod]:
    """Members that have places, and those that wait, whose named claims may have devices."""
    for member in gang.placed:
        yield member.pod
    for place in session.placements.assigned(gang):
        yield place.pod
    for pod_set in gang.pod_sets:
        if any(each.claim for each in pod_set.pod_class.claims):
            yield from pod_set.pods


def _devices_needed(session: Session, gang: Gang, classes: Sequence[PodClass]) -> int:
    """Devices of the requests concerned that so many members as start together need at least."""
    least = {each.digest: _devices_of_pod(session, gang, each) for each in classes}
    counts = sorted(
        least.get(pod_set.pod_class.digest, 0) for pod_set in gang.pod_sets for _ in pod_set.pods
    )
    return sum(counts[: gang.members_at_start])


def _devices_of_pod(session: Session, gang: Gang, pod_class: PodClass) -> int:
    named = gang.terms.devices.requests
    total = 0
    for claim in session.devices.claims.class_claims(pod_class).own:
        for alternatives in claim.requests:
            if named and alternatives[0].parent not in named:
                continue
            total += min(
                0
                if each.request.admin
                else (each.request.count if each.request.mode is AllocationMode.EXACT else 1)
                for each in alternatives
            )
    return total


@contextmanager
def held_as_members(session: Session, gang: Gang) -> Iterator[None]:
    """Inside, devices are given that have in common with those of members what the gang asks for."""
    if not matches_devices(gang):
        yield
        return
    options = hold_options(session, gang, later=True)
    none = DeviceHold(gang.terms.devices.requests, nothing=True)
    with session.devices.claims.held_to(options.holds[0] if options.holds else none):
        yield


@frozen(slots=True, eq=False)
class _Trial:
    """Places that were found under a hold, with the proof and the terms of their objective."""

    hold: DeviceHold
    members: int
    proof: str
    terms: tuple[Term, ...]

    @property
    def order(self) -> tuple[int, list[int]]:
        """Less is better: most members, then the objective."""
        return -self.members, [term.value for term in self.terms]


def place_on_best_value(
    session: Session, gang: Gang, statement: Statement, place: Callable[[], Unschedulable | None]
) -> Unschedulable | None:
    """Place a gang where its devices have in common what it asks for, at the best place of all.

    Args:
        session: whose nodes are looked at.
        gang: that asks for something in common, see ``matches_devices``.
        statement: takes the places.
        place: called with devices held to one value after another.
    """
    if any(
        pod_set.pod_class.claims and session.devices.claims.class_claims(pod_set.pod_class).fault
        for pod_set in gang.pod_sets
    ):
        return place()
    options = hold_options(session, gang)
    if options.refusal is not None:
        return options.refusal
    return _ValueSearch(session, gang, statement, place).best_of(options)


class _ValueSearch:
    """The search of one gang's places, one value after another."""

    def __init__(
        self,
        session: Session,
        gang: Gang,
        statement: Statement,
        place: Callable[[], Unschedulable | None],
    ) -> None:
        self._session = session
        self._gang = gang
        self._statement = statement
        self._place = place
        self._start = statement.checkpoint()
        self._proven = True
        """Whether every value that was given up is proven to have no place."""
        self._furthest: tuple[int, DeviceHold, Unschedulable] | None = None

    def best_of(self, options: HoldOptions) -> Unschedulable | None:
        """Take the best place of all values; or why none has one."""
        self._proven = options.all
        found = [each for hold in options.holds if (each := self._try_hold(hold)) is not None]
        if not found:
            return self._build_refusal(options)
        best = min(found, key=lambda each: each.order)
        if best is not found[-1] or best.hold != options.holds[-1]:
            self._try_hold(best.hold)
        self._statement.proof = self._proof_of(best, found)
        return None

    def _try_hold(self, hold: DeviceHold) -> _Trial | None:
        """Place the gang under a hold, in place of where it was; None and no place where it cannot be."""
        session, statement = self._session, self._statement
        statement.rollback(self._start)
        statement.proof, statement.terms = "", ()
        searches = len(session.searches)
        with session.devices.claims.held_to(hold):
            refusal = self._place()
            if refusal is None:
                members = len(statement.assignments)
                return _Trial(hold, members, statement.proof, statement.terms)
            statement.rollback(self._start)
            reach = self._count_fitting()
        if self._furthest is None or reach > self._furthest[0]:
            self._furthest = (reach, hold, refusal)
        if any(each.outcome is SearchOutcome.UNKNOWN for each in session.searches[searches:]):
            self._proven = False
        return None

    def _count_fitting(self) -> int:
        """Members that fit now, each class for itself."""
        return sum(
            self._session.class_info(pod_set.pod_class).class_fit.count_fitting(
                None, most=len(pod_set.pods)
            )
            for pod_set in self._gang.pod_sets
        )

    def _proof_of(self, best: _Trial, found: Sequence[_Trial]) -> str:
        """What is proven of the best of all values: no more than of each."""
        if not best.proof or not self._proven:
            return ""
        bounds = min([term.bound for term in each.terms] for each in found)
        for term, bound in zip(best.terms, bounds, strict=False):
            if bound < term.value and term.bound == term.value and len(found) > 1:
                return f"{term.name.removeprefix('domains:')} {term.value}, at least {bound}"
            if bound != term.value:
                break
        return best.proof

    def _build_refusal(self, options: HoldOptions) -> Unschedulable:
        assert self._furthest is not None, "at least one value was tried"
        reach, hold, refusal = self._furthest
        tried = len(options.holds)
        of_all = f"{tried} tried" if options.all else f"the first {tried} tried"
        return Unschedulable(
            refusal.reason,
            truncate_message(
                f"spec.devices asks for {_named(self._gang)}; of {of_all} {shorten(hold.text)} comes "
                f"furthest, with room for {min(reach, self._gang.members_at_start)} of "
                f"{pods_text(self._gang.members_at_start)}: {refusal.message}"
            ),
        )

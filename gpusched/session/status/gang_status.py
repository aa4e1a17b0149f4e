"""Where every gang and queue stands after the actions: honest, and with a current reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Any, Final

import attrs

from gpusched.api.meta.identity import UID, GangKey, ObjectKey
from gpusched.base import limits
from gpusched.cache.gangs.expected_pods import is_expected
from gpusched.cache.gangs.gang import Gang
from gpusched.session.allocate.gang_placement import OPTIMAL
from gpusched.session.allocate.gang_repair import STARTED, is_broken
from gpusched.session.allocate.start_members import role_shortage_message
from gpusched.session.framework.reasons import (
    Reason,
    gates_text,
    not_enough_members_message,
    pods_text,
    shorten,
    truncate_message,
)
from gpusched.session.state.nodes.gpu_types import list_gpu_types
from gpusched.session.state.plan import GangStatus, PendingReason
from gpusched.session.state.session import Session
from gpusched.session.status.gpu_holders import (
    POSITION_WITH_HOLDERS_MAX,
    GpuHolders,
    with_holders,
)
from gpusched.session.status.tree_status import statuses_of_tree

ADMITTED_REASON = "Admitted"
"""The reason of the condition of the same name when it is true."""
_DOMAINS_NAMED_MAX: Final = 4
_MEMBERS_TOLD_MAX: Final = 3
"""Members that carry since when their gang lacks others: one may be lost with its node, too."""
_UNKNOWN_QUEUE_LABEL: Final = "other"
"""Stands in metrics for queues that do not exist: their names are whatever a tenant writes."""


def gang_statuses(session: Session) -> tuple[GangStatus, ...]:
    """The status of every gang that is not on its way to its nodes.

    A gang whose bindings were decided now, or are not answered yet, is left as it was: it is
    scheduled when its members are bound, not when that was decided.
    """
    cache = session.cache.statuses
    holders, outcomes, placements = GpuHolders(session), session.outcomes, session.placements
    reasons = session.cache.kept.get_or_make(_KeptReasons, _KeptReasons).begin_session()
    alike = _PodsAlike(session)
    nominated = session.nominations.nominated_keys()
    found = []
    for gang in session.gangs:
        session.on_gang(gang.key)
        if gang.placed:
            if placements.assigned(gang) or not all(member.confirmed for member in gang.placed):
                continue
        elif placements.assigned(gang) or (not gang.pod_sets and gang.done):
            continue
        refusal = outcomes.refusal(gang)
        if refusal is None and session.gang_selection.is_deferred(gang):
            continue
        position = outcomes.position(gang)
        about = (
            outcomes.admission(gang),
            reasons.same_object(refusal),
            position,
            outcomes.estimated_start(gang),
            holders.holders_text(gang) if 0 < position <= POSITION_WITH_HOLDERS_MAX else "",
        )
        # A gang without a nomination has the same status as long as this is the same.
        known = cache.get(gang)
        if known is None or known[0] != about or (nominated and gang.key in nominated):
            status = alike.status(gang, about)
            known = (about, status or _gang_status(session, gang, holders=about[-1]))
            if not known[1].is_scheduled and gang.key not in nominated:
                cache.set(gang, known)
        found.append(known[1])
        if gang.tree:
            found += statuses_of_tree(gang, known[1])
    found += islice(_statuses_of_unvisited_gangs(session), limits.DEFERRED_REPORTED_MAX)
    return tuple(found)


_OWN: Final = frozenset(
    {"gang", "uid", "generation", "waiting_pods", "nominated", "queue_position", "estimated_start"}
)
"""Fields of a status in which gangs of one pod differ that are alike else."""


class _PodsAlike:
    """Statuses of gangs of one pod, of which thousands are told the same.

    Args:
        session: that is over.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[Hashable, tuple[object, dict[str, Any]]] = {}

    def status(self, gang: Gang, about: tuple[Any, ...]) -> GangStatus | None:
        """As ``_gang_status``, which is asked once for all that are alike; None for gangs that are told more.

        Args:
            gang: that is on its way to no node.
            about: admission, refusal, position, estimated start and holders.
        """
        if gang.pod_group is not None:
            return None
        if gang.placed:
            kind = None if any(about[1:]) else self._kind_of_running(gang)
        else:
            kind = self._kind_of_waiting(gang, about)
        if kind is None:
            return None
        warnings = gang.warning, gang.key_warning, gang.eviction_warning
        key = (kind, gang.running, gang.succeeded, gang.failed, *warnings)
        known = self._known.get(key)
        if known is None:
            first = _gang_status(self._session, gang, holders=about[-1])
            fields = (each.name for each in attrs.fields(GangStatus) if each.name not in _OWN)
            alike = {name: getattr(first, name) for name in fields}
            self._known[key] = (about, alike)  # what ids of it tell apart stays as long
            return first
        pods = [pod for pod_set in gang.pod_sets for pod in pod_set.pods]
        held = self._session.nominations.nominated_places(gang)
        nodes = self._session.snapshot.nodes.nodes
        return GangStatus(
            gang=gang.key, uid=gang.uid, generation=gang.generation,
            waiting_pods=tuple([(pod.key, pod.uid) for pod in pods]) if pods else (),
            nominated=tuple([(each.pod.uid, nodes[each.row].name) for each in held]) if held else (),
            queue_position=about[2], estimated_start=about[3] or 0.0, **known[1],
        )  # fmt: skip

    def _kind_of_running(self, gang: Gang) -> Hashable:
        pod = gang.placed[0].pod
        if pod.broken_since or self._session.nominations.has_nomination(gang):
            return None
        kind = gang.running_kind
        return None if kind is None else (kind, pod.proof)

    def _kind_of_waiting(self, gang: Gang, about: tuple[Any, ...]) -> Hashable:
        admission, refusal, _, estimate, holders = about
        alone = gang.pending == 1 == gang.min_member and gang.job is None and not gang.gated
        if not alone or gang.leaving or gang.succeeded_counted or gang.job_failure:
            return None
        if (
            refusal is None
            or admission is not None
            or not (estimate or refusal.reason != Reason.BUDGET_EXHAUSTED)
        ):
            return None
        return (gang.queue, id(refusal), holders)


class _KeptReasons:
    """Reasons as the last session told them: equal ones are the same object, so that comparing statuses costs little."""

    def __init__(self) -> None:
        self._before: dict[PendingReason, PendingReason] = {}
        self._now: dict[PendingReason, PendingReason] = {}
        self._last: tuple[PendingReason | None, PendingReason | None] = (None, None)

    def begin_session(self) -> _KeptReasons:
        """Forget what was told before the last session."""
        self._before, self._now, self._last = self._now, {}, (None, None)
        return self

    def same_object(self, reason: PendingReason | None) -> PendingReason | None:
        """The reason as it was told first; most gangs that follow each other are told the same."""
        if reason is not None and reason is not self._last[0]:
            known = self._now.setdefault(reason, self._before.get(reason, reason))
            self._last = (reason, known)
        return None if reason is None else self._last[1]


def _statuses_of_unvisited_gangs(session: Session) -> Iterator[GangStatus]:
    """Gangs that wait to be looked at and have had no status for too long.

    All others stay with their last status.
    """
    for gang, before in session.gang_selection.left_out(lambda line: line.without_reason):
        told_from = gang.created + limits.DEFERRED_REPORTED_S
        session.snapshot.changes_at(told_from)
        if session.snapshot.unobserved_now < told_from:
            continue
        reason = PendingReason(
            reason=Reason.WAITING_FOR_TURN, message=_waiting_for_turn_message(gang, before)
        )
        status = _gang_status(session, gang)
        yield attrs.evolve(
            status,
            scheduled=reason,
            admitted=reason,
            is_admitted=False,
            phase="Pending",
            provisional=True,
        )


def _waiting_for_turn_message(gang: Gang, before: int) -> str:
    who = f"namespace {gang.key.namespace} in queue {gang.queue}"
    place = f"{before} gangs of {who} are before it"
    if before < 2:
        place = f"1 gang of {who} is before it" if before else f"it is the next of {who}"
    return truncate_message(
        f"waits to be looked at: {place}, which has more waiting than its share of a session"
    )


def _gang_status(session: Session, gang: Gang, *, holders: str = "") -> GangStatus:
    whole = bool(gang.placed or gang.succeeded_counted) and not gang.missing_members
    admission = session.outcomes.admission(gang)
    reason = session.outcomes.refusal(gang)
    held = session.nominations.nominated_places(gang)
    nodes = session.snapshot.nodes.nodes
    if whole:
        scheduled = PendingReason(reason=Reason.SCHEDULED, message=_running_message(gang))
        admission = None
    else:
        admission = admission and _with_warning(gang, admission, also=_is_native(gang))
        why = with_job_news(gang, reason or _reason_before_attempt(session, gang))
        scheduled = _with_warning(gang, with_holders(why, holders))
    is_admitted = admission is None
    runs_again = _runs_again_reason(gang) if whole else None
    waiting: list[tuple[ObjectKey, UID]] = []
    if not whole or reason is not None:
        waiting = [
            (pod.key, pod.uid)
            for pod_set in gang.pod_sets
            for pod in pod_set.pods
            if not is_expected(pod)
        ]
    told_members, lost_members = _told_members(gang, whole=whole)
    return GangStatus(
        gang=gang.key,
        uid=gang.uid,
        generation=gang.generation,
        queue=gang.queue,
        phase=_gang_phase(gang, whole=whole, admitted=is_admitted),
        admitted=admission
        or PendingReason(reason=ADMITTED_REASON, message=_admitted_message(session, gang)),
        is_admitted=is_admitted,
        scheduled=scheduled,
        is_scheduled=whole,
        waiting_pods=tuple(waiting),
        pending_reason=reason if whole else None,
        counts=(len(gang.placed), gang.running, gang.succeeded, gang.failed),
        nominated=tuple(
            sorted(
                (each.pod.uid, nodes[each.row].name) for each in held if not is_expected(each.pod)
            )
        ),
        preempted=runs_again,
        is_preempted=runs_again is None,
        queue_position=session.outcomes.position(gang),
        estimated_start=session.outcomes.estimated_start(gang)
        or _budget_opens_at(session, gang, reason or admission),
        placement=_placement_domains(session, gang) if whole and gang.pod_group else (),
        told_members=told_members,
        lost_members=lost_members,
        eviction_warning=gang.eviction_warning,
        key_warning=gang.key_warning,
    )


def _budget_opens_at(session: Session, gang: Gang, why: PendingReason | None) -> float:
    """When the budgets have something again for which a gang waits: it starts then at the earliest; else 0.0."""
    node = session.queue_of(gang)
    if node is None or why is None or why.reason != Reason.BUDGET_EXHAUSTED:
        return 0.0
    uses = session.view.budgets
    opens = [
        uses[name].next_period
        for name in node.path
        if name in uses and uses[name].is_exhausted_for(gang.creator.user)
    ]
    return float(max(opens, default=0))


def _told_members(gang: Gang, *, whole: bool) -> tuple[tuple[tuple[ObjectKey, UID], ...], str]:
    """Members that are told of lost ones, or that there are none any more, and what is lost.

    PodGroups of ours and of Kubernetes itself have the time in their own status.
    """
    if gang.pod_group is not None and gang.pod_group.has_our_conditions:
        return (), ""
    placed = [member.pod for member in gang.placed]
    if whole:
        return tuple((pod.key, pod.uid) for pod in placed if pod.broken_since), ""
    if not is_broken(gang):
        return (), ""
    carriers = [pod for pod in placed if pod.broken_since] or placed[:_MEMBERS_TOLD_MAX]
    return (
        tuple((pod.key, pod.uid) for pod in carriers),
        f"its gang has {gang.ready_members} of {pods_text(gang.min_member)} that it needs",
    )


def _runs_again_reason(gang: Gang) -> PendingReason | None:
    """That a gang that was made to leave is complete again; None when there is no such news."""
    shown = gang.pod_group.our_condition("Preempted") if gang.pod_group else None
    if shown is None or shown.status != "True" or gang.pending or gang.gated or gang.leaving:
        return None
    return PendingReason(reason=Reason.SCHEDULED, message=f"runs again: {_running_message(gang)}")


def _placement_domains(session: Session, gang: Gang) -> tuple[tuple[str, str], ...]:
    """The domains of each level that hold the placed members, widest level first.

    A level on which some of them are in no domain is left out; of many domains the number is given.
    Where GPUs are of several types, theirs come first.
    """
    row_of = session.snapshot.nodes.row
    rows = [row_of[member.node] for member in gang.placed if member.node in row_of]
    if len(rows) < len(gang.placed) or not rows:
        return ()
    found = []
    types = session.gpu_types
    if types.has_several_types and (used := types.types_on(rows)):
        found.append(("gpuType", list_gpu_types([types.type_text(number) for number in used])))
    for level in session.levels:
        domains = sorted({int(level.domain[row]) for row in rows})
        asked = gang.topology.required, gang.topology.preferred
        if domains[0] >= 0 and (not level.on_request or level.name in asked):
            named = ", ".join(level.names[domain] for domain in domains[:_DOMAINS_NAMED_MAX])
            more = len(domains) - _DOMAINS_NAMED_MAX
            found.append((level.name, f"{named} and {more} more" if more > 0 else named))
    return tuple(found)


def _has_admitted(gang: Gang) -> bool:
    """Whether the gang has a condition Admitted for such hints: our own PodGroup has, and native ones."""
    return gang.pod_group is not None and gang.pod_group.has_our_conditions


def _is_native(gang: Gang) -> bool:
    return gang.pod_group is not None and gang.pod_group.native is not None


def _with_warning(gang: Gang, reason: PendingReason, *, also: bool = False) -> PendingReason:
    """Reason with a hint for the author where it has no condition: a suspended Job has events only.

    A native group (``also``) is told at once what of it is not honoured, admitted or not. Whoever
    waits without such a condition is told of keys that mean nothing.
    """
    told = [gang.warning] if gang.suspended or also else []
    if not _has_admitted(gang) or gang.suspended:
        told.append(gang.key_warning)
    more = "; ".join(filter(None, told))
    if not more:
        return reason
    return attrs.evolve(reason, message=truncate_message(f"{reason.message}; {more}"))


def _admitted_message(session: Session, gang: Gang) -> str:
    warning = gang.eviction_warning.message if gang.eviction_warning is not None else ""
    admitted = f"admitted to queue {gang.queue}"
    if session.snapshot.queues.get(gang.queue) is None:
        admitted = (
            f"it runs, but its queue {shorten(gang.queue)} does not exist any more, so that no "
            "queue is charged for it: create the queue again, or name another one"
        )
    parts = (admitted, gang.warning, gang.key_warning, warning)
    return truncate_message("; ".join(filter(None, parts)))


def _running_message(gang: Gang) -> str:
    text = f"{pods_text(gang.ready_members)} placed, {gang.min_member} needed{_proof_text_of_members(gang)}"
    text = (
        f"{text}; {gang.pending} more {'waits' if gang.pending == 1 else 'wait'}"
        if gang.pending
        else text
    )
    return (
        truncate_message(f"{text}; {gang.warning}")
        if gang.warning and not _has_admitted(gang)
        else text
    )


def _proof_text_of_members(gang: Gang) -> str:
    """What was proven of its places, and of how many members where that is not all of them."""
    first: dict[str, float] = {}
    counts: Counter[str] = Counter()
    for member in gang.placed:
        proof = member.pod.proof
        counts[proof] += 1
        first[proof] = min(member.pod.scheduled, first.get(proof, member.pod.scheduled))
    told = sorted(
        (proof for proof in counts if proof),
        key=lambda each: (first[each], " beside " in each, each),
    )
    if not told:
        return ""
    if len(counts) == 1:
        proof = told[0].removesuffix(f" for {pods_text(len(gang.placed))}")
        if proof == OPTIMAL:
            return ", no more compact place existed"
        if not proof.startswith(OPTIMAL):
            return f", not proven best: {proof}"
    scopes = [
        each.removeprefix(f"{OPTIMAL} for ") if each != OPTIMAL else pods_text(counts[each])
        for each in told
        if each.startswith(OPTIMAL)
    ]
    rest = [each for each in told if not each.startswith(OPTIMAL)]
    text = f", no more compact place existed for {' and '.join(scopes)}" if scopes else ""
    return f"{text}, not proven best: {'; '.join(rest)}" if rest else text


def _reason_before_attempt(session: Session, gang: Gang) -> PendingReason:
    return reason_by_members(gang) or _reason_by_order(session, gang)


def with_job_news(gang: Gang, reason: PendingReason) -> PendingReason:
    """The reason with why its Jobs make no more pods, where pods are what it lacks."""
    if not gang.job_failure or reason.reason != Reason.NOT_ENOUGH_MEMBERS:
        return reason
    message = truncate_message(f"{reason.message}; {gang.job_failure}")
    return attrs.evolve(reason, message=message)


def _reason_by_order(session: Session, gang: Gang) -> PendingReason:
    """Why a gang that could start was not looked at."""
    node = session.snapshot.queues.get(gang.queue)
    path = node.path if node is not None else ()
    about: tuple[GangKey | str, ...] = (gang.key, *path)
    for each in about:
        fault = session.hooks.unordered.get(each, "")
        if fault:
            message = (
                f"{fault}; so it has no turn now, and is asked about again in the next session"
            )
            return PendingReason(reason=Reason.BACK_OFF, message=truncate_message(message))
    return PendingReason(reason=Reason.BACK_OFF, message="waits for its turn in a later cycle")


def reason_by_members(gang: Gang) -> PendingReason | None:
    """What a gang lacks; None when nothing."""
    have = gang.ready_members + gang.pending
    if gang.gated and have < gang.min_member and have + gang.gated >= gang.min_member:
        verb = "is" if gang.gated == 1 else "are"
        held = f"{verb} held by {gates_text(gang.gates)}"
        message = f"{pods_text(gang.gated)} of {gang.min_member} needed {held}"
        return PendingReason(reason=Reason.GATED, message=truncate_message(message))
    if have < gang.min_member:
        message = not_enough_members_message(
            gang.min_member,
            have=have,
            gated=gang.gated,
            leaving=gang.leaving,
            gates=gang.gates,
        )
        return PendingReason(reason=Reason.NOT_ENOUGH_MEMBERS, message=message)
    if not gang.missing_roles:
        return None
    waiting = Counter(pod.role for pod_set in gang.pod_sets for pod in pod_set.pods)
    for role, missing in gang.missing_roles:
        if missing > waiting[role]:
            message = role_shortage_message(gang, role, missing - waiting[role])
            return PendingReason(reason=Reason.NOT_ENOUGH_MEMBERS, message=message)
    return None


def _gang_phase(gang: Gang, *, whole: bool, admitted: bool) -> str:
    group = gang.pod_group
    before = group.phase if group else ""
    if not gang.active and (before == "Completed" or (gang.succeeded >= gang.min_member)):
        return "Completed"
    if whole:
        return "Running"
    if before in STARTED and (gang.placed or gang.leaving):
        return "Unknown"
    return "Inqueue" if admitted else "Pending"


def count_waiting_gangs(session: Session) -> dict[tuple[str, str], int]:
    """Numbers of waiting gangs by queue and reason, for the metric."""
    found: Counter[tuple[str, str]] = Counter()
    if session.gang_selection.leaves_out:
        in_turn: Counter[str] = Counter()
        for line in session.lines.lines.values():
            in_turn[line.key.queue] += line.missing
        in_turn.subtract(gang.queue for gang in session.gangs if gang.missing_members)
        found.update(
            {(queue, str(Reason.WAITING_FOR_TURN)): n for queue, n in in_turn.items() if n}
        )
    outcomes, placements = session.outcomes, session.placements
    found.update(
        (gang.queue, (outcomes.refusal(gang) or _reason_before_attempt(session, gang)).reason)
        for gang in session.gangs
        if gang.missing_members and not gang.done and not placements.assigned(gang)
    )
    counts: dict[tuple[str, str], int] = {}
    for (queue, reason), number in found.items():
        known = session.snapshot.queues.get(queue) is not None
        key = (queue if known else _UNKNOWN_QUEUE_LABEL, reason)
        counts[key] = counts.get(key, 0) + number
    for queue, number in session.snapshot.idle_gangs.items():
        known = session.snapshot.queues.get(queue) is not None
        key = (queue if known else _UNKNOWN_QUEUE_LABEL, Reason.NOT_ENOUGH_MEMBERS)
        counts[key] = counts.get(key, 0) + number
    return counts

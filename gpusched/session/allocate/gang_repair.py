"""Gangs that have lost members get them back before others start, as started Jobs get their places; room waits for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import attrs
import msgspec

from gpusched.api.gang.plan_suffix import is_growth, members_left_waiting
from gpusched.api.pod.pod import Pod, PodPhase
from gpusched.cache.gangs.expected_pods import expected_pod_uid, is_expected, is_started_job
from gpusched.cache.gangs.gang import Gang, Placed, make_pod_sets
from gpusched.session.allocate.gang_placement import place_ignoring_reservations
from gpusched.session.framework.verdict import first_refusal
from gpusched.session.state.session import Session

STARTED: Final = ("Running", "Unknown")
"""Phases of a PodGroup that once had its minimum."""


def is_broken(gang: Gang) -> bool:
    """Whether the gang ran as a whole, still has members, and is below its minimum now.

    A gang that we bound only in part is not broken: it is completed or taken back by the commit.
    Neither is a Job that is suspended or over: its members leave, and none are made again.
    """
    if not gang.placed or not gang.missing_members or gang.succeeded_counted:
        return False
    if gang.job is not None and (gang.job.suspended or gang.job.finished):
        return False
    return was_whole(gang)


def broken_gangs(session: Session) -> list[Gang]:
    """Gangs of the session that are broken, sorted by key."""
    return [
        gang for gang in session.lines.gathered(lambda line: line.incomplete) if is_broken(gang)
    ]


def was_whole(gang: Gang) -> bool:
    """Whether the gang once had its minimum, of a gang that is below it now.

    A PodGroup says so in its status. Otherwise the members tell: each says with its binding how
    many members its plan left waiting, so that the plan was carried out as a whole unless more wait
    since before then; pods made later replace members that the gang has lost. Where none wait, a
    PodGroup of ours is believed that never said it; of others nothing shows that they never ran, and
    running work is not evicted on a guess.
    """
    group = gang.pod_group
    if group is not None and group.phase in STARTED:
        return True
    plans = _last_bound_by_plan(gang)
    if group is not None and set(plans) == {""}:
        return True  # members that another scheduler bound ran before our time
    waiting = [
        pod.created for pod_set in gang.pod_sets for pod in pod_set.pods if not is_expected(pod)
    ]
    if not waiting and group is not None and not group.source:
        return False
    return any(_was_carried_out(plan, last, waiting) for plan, last in plans.items())


def _last_bound_by_plan(gang: Gang) -> dict[str, float]:
    """When the last member of each plan was bound, seconds since the epoch.

    Members whose binding no watch has shown yet are left out: when that was is not known.
    """
    found: dict[str, float] = {}
    for member in gang.placed:
        if member.pod.node:
            plan = member.pod.plan
            found[plan] = max(found.get(plan, 0.0), member.pod.scheduled)
    return found


def _was_carried_out(plan: str, last: float, waiting: Iterable[float]) -> bool:
    if not last:
        return False
    return is_growth(plan) or sum(made <= last for made in waiting) <= members_left_waiting(plan)


def broken_since(gang: Gang) -> float:
    """When the gang fell below its minimum, seconds since the epoch; 0.0 when it is not known yet.

    With a PodGroup of ours it is the time at which its condition Scheduled became false; otherwise
    members that are left have the time in a condition of theirs. Until the status says that it ran,
    or that condition is written, the oldest of the pods that replace lost members tells it.
    """
    if not is_broken(gang):
        return 0.0
    last = max(member.pod.scheduled for member in gang.placed)
    waiting = [pod for pod_set in gang.pod_sets for pod in pod_set.pods if not is_expected(pod)]
    replaced = min((pod.created for pod in waiting if pod.created > last), default=0.0)
    group = gang.pod_group
    if group is not None and group.has_our_conditions:
        if group.phase not in STARTED and replaced:
            return replaced
        told = group.our_condition("Scheduled")
        return told.transition if told is not None and told.status == "False" else 0.0
    written = [each.pod.broken_since for each in gang.placed if each.pod.broken_since]
    return min(written) if written else replaced


def with_stand_ins(gang: Gang) -> Gang:
    """The gang with stand-ins for the members that it lacks and that do not exist yet.

    Each looks like a member that runs, of the role or the sub-group that is short.
    """
    missing = gang.missing_members - gang.pending
    if missing <= 0 or not gang.placed:
        return gang
    waiting = [pod for pod_set in gang.pod_sets for pod in pod_set.pods]
    models = [*_models_of_sub_groups(gang, waiting), *_models_of_roles(gang, waiting)][:missing]
    models += [_member_to_copy(gang.placed).pod] * (missing - len(models))
    stand_ins = [_make_stand_in(model, gang, number) for number, model in enumerate(models)]
    return attrs.evolve(
        gang, pod_sets=make_pod_sets([*waiting, *stand_ins]), expected_count=len(stand_ins)
    )


def _models_of_roles(gang: Gang, waiting: Sequence[Pod]) -> list[Pod]:
    """A member to copy for each one that a role lacks beside those that wait."""
    have = Counter(pod.role for pod in waiting)
    found: list[Pod] = []
    for role, short in gang.missing_roles:
        of_role = [member for member in gang.placed if member.pod.role == role]
        model = _member_to_copy(of_role or gang.placed).pod
        found += [model] * max(0, short - have[role])
    return found


def _models_of_sub_groups(gang: Gang, waiting: Sequence[Pod]) -> list[Pod]:
    """The same of sub-groups: of those that lack the fewest, as many as must be complete."""
    have = Counter(pod.sub_group for pod in waiting)
    found: list[Pod] = []
    for part in gang.nearest_sub_groups():
        own = [member for member in gang.placed if member.pod.sub_group == part.name]
        model = _member_to_copy(own or gang.placed).pod
        short = gang.missing_in_sub_group(part) - have[part.name]
        found += [msgspec.structs.replace(model, sub_group=part.name)] * max(0, short)
    return found


def _member_to_copy(members: Sequence[Placed]) -> Placed:
    """A member of the class that most of them have."""
    counts = Counter(member.pod.pod_class.digest for member in members)
    return max(
        members,
        key=lambda each: (counts[each.pod.pod_class.digest], each.pod.pod_class.digest),
    )


def _make_stand_in(model: Pod, gang: Gang, number: int) -> Pod:
    return msgspec.structs.replace(
        model,
        name=f"{gang.key.name}-missing-{number}",
        uid=expected_pod_uid(gang.uid, number),
        node="",
        slots=0,
        plan="",
        phase=PodPhase.PENDING,
        scheduled=0.0,
        rank=-1,
    )


def split_repairs(session: Session, ready: Sequence[Gang]) -> tuple[list[Gang], list[Gang]]:
    """Split into gangs that are served before all others, and those that are ready otherwise.

    A broken gang holds GPUs that do no work, so it goes before what waits in other queues too;
    but not before a gang of higher priority in its own. Broken gangs whose members nobody has
    made again yet are among the first as well: room is held for them. So do Jobs that a session has
    started, since their queue's turn came then.
    """
    broken = [gang for gang in broken_gangs(session) if session.outcomes.is_admitted(gang)]
    started = [gang for gang in ready if is_started_job(gang)]
    if not (broken or started):
        return [], list(ready)
    highest: dict[str, int] = {}
    for gang in ready:
        highest[gang.queue] = max(highest.get(gang.queue, gang.priority), gang.priority)
    waiting = {gang.key for gang in ready}
    first = [
        gang
        for gang in (*broken, *started)
        if (gang.pending < gang.missing_members or gang.key in waiting)
        and gang.priority >= highest.get(gang.queue, gang.priority)
    ]
    keys = {gang.key for gang in first}
    return first, [gang for gang in ready if gang.key not in keys]


def nominate_for_repair(session: Session, gang: Gang) -> None:
    """Keep room free for members that a gang has lost and that do not exist again yet.

    Room of a member that is still ending counts: its successor is likely to come to it.
    """
    since = broken_since(gang)
    whole = with_stand_ins(gang)
    if since and session.snapshot.is_after(since + session.snapshot.limits.repair_timeout_s):
        return
    if whole.pending < gang.missing_members or session.nominations.has_nomination(gang):
        return
    with session.pipelining():
        statement = session.statement()
        if (
            first_refusal(session.hooks.quota_checks, whole).refuses
            or place_ignoring_reservations(session, whole, statement) is not None
        ):
            statement.discard()
        else:
            session.nominations.nominate_for_session(gang, statement)

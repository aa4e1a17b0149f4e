"""Members of a PodGroup of Kubernetes itself, as the group's own fields change what they may do."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from gpusched.api.gang.native_terms import NativeTerms
from gpusched.api.pod.pod import Pod


def with_preemption_policy(native: NativeTerms, pods: list[Pod]) -> list[Pod]:
    """The members, all of which make room by evictions or none.

    The group's policy decides; where it has none, as in 1.36, one member with ``Never`` forbids it
    for all.
    """
    allowed = native.preemption_policy != "Never"
    if not native.preemption_policy:
        allowed = all(pod.may_preempt for pod in pods if not pod.finished)
    return [
        pod if pod.may_preempt == allowed else structs.replace(pod, may_preempt=allowed)
        for pod in pods
    ]


def schedulers_error(pods: Sequence[Pod], others: Sequence[Pod]) -> str:
    """That members name other schedulers, as a sentence; empty where they name us alone.

    Args:
        pods: members that are ours.
        others: members that name another scheduler.
    """
    ours = [pod for pod in pods if not pod.finished]
    theirs = [pod for pod in others if not pod.finished]
    if not theirs:
        return ""
    count, one = len(theirs), min(theirs, key=lambda pod: pod.name)
    if not ours:
        return (
            f"its pods name {one.scheduler}, which decides about them; gpusched does nothing for it"
        )
    return (
        f"its pods name several schedulers ({count} of {count + len(ours)} are not gpusched's, such "
        f"as {one.name} of {one.scheduler}): nothing is decided until all name one"
    )

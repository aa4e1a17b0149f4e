"""How long gangs run: what reservations, backfill and start estimates rest on."""

from __future__ import annotations

from typing import ClassVar

import attrs
from attrs import validators as v

from gpusched.plugin import DependsOn, Gang, Hooks, View, turn_limit_s

_NS = 10**9
_RUNS_MIN = 5
"""Fewer runs say too little."""
_DEPENDS_ON = DependsOn.GANG | DependsOn.QUEUE_SPECS | DependsOn.GPU_SPEED | DependsOn.FINISHED_RUNS


@attrs.frozen(kw_only=True)
class WalltimeArgs:
    """Arguments of ``walltime``.

    Attributes:
        reservations: blocked gangs of one node pool for which room is reserved; 0 for none.
        learn: whether a Job of which nothing is said takes as long as nine of ten like it did.
    """

    learn: bool = True
    reservations: int = attrs.field(default=8, validator=[v.ge(0), v.le(64)])


@attrs.frozen
class Walltime:
    """The shortest of what is said about a gang's length; nothing said is never an end.

    ``expectedDuration`` is what its author believes, at the speed on the GPUs that it has;
    ``activeDeadlineSeconds`` of its Job or its
    pods and ``maxRuntime`` of its queue, or of the nearest above that has one, end it whatever
    was believed. A Job that starts as a gang and of which nothing is said is judged by those of
    its queue with as many pods at a time that completed and were not deleted yet, when there are
    at least five.
    """

    name: ClassVar[str] = "walltime"
    api: ClassVar[int] = 1
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW
    args: WalltimeArgs

    def open(self, hooks: Hooks, view: View) -> None:
        """Register walltimes and how many gangs of a node pool get reservations."""
        hooks.reservations_per_pool = self.args.reservations
        of_queue: dict[str, int] = {}

        def length(gang: Gang) -> int:
            limit = of_queue.get(gang.queue)
            if limit is None:
                limit = of_queue[gang.queue] = _max_runtime_s(gang.queue, view)
            # What the author believes is the time at speed 1.
            expected = gang.terms.expected_duration_ns * 1_000 // view.gpu_speed(gang)
            turn = turn_limit_s(gang.earlier_turns_s, limit, longest=hooks.longest_turn)
            said = (-(-expected // _NS), _deadline_s(gang), turn)
            shortest = min((seconds for seconds in said if seconds), default=0)
            return shortest or (_learned_s(gang, view) if self.args.learn else 0)

        hooks.walltime(length, depends_on=_DEPENDS_ON, alike=True)


def _max_runtime_s(queue: str, view: View) -> int:
    leaf = view.queue(queue)
    for name in leaf.path if leaf else ():
        node = view.queue(name)
        if node is not None and node.queue.max_runtime_ns:
            return -(-node.queue.max_runtime_ns // _NS)
    return 0


def _learned_s(gang: Gang, view: View) -> int:
    if gang.job is None:
        return 0
    runs = view.finished_runs(gang.queue, gang.job.parallelism)
    # The smallest length that nine of ten did not pass.
    return runs[-(-len(runs) * 9 // 10) - 1] if len(runs) >= _RUNS_MIN else 0


def _deadline_s(gang: Gang) -> int:
    """Its Job's; else that of its pods, when all of them have one."""
    if gang.job is not None and gang.job.deadline_s:
        return gang.job.deadline_s
    longest = 0
    for pod in (
        *(member.pod for member in gang.placed),
        *(pod for pod_set in gang.pod_sets for pod in pod_set.pods),
    ):
        if not pod.deadline_s:
            return 0
        longest = max(longest, pod.deadline_s)
    return longest

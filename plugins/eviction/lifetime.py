"""How long gangs may run: broken ones until their grace is over, others as their queue allows."""

from __future__ import annotations

from typing import ClassVar

import attrs
from attrs import validators as v

from gpusched.plugin import (
    ALLOW,
    DependsOn,
    Gang,
    Hooks,
    QueueNode,
    Reason,
    Verdict,
    View,
    broken_since,
    deny,
    turn_limit_s,
)

SECOND = 10**9
YEAR_S = 8760 * 3600


@attrs.frozen(kw_only=True)
class LifetimeArgs:
    """Arguments of ``lifetime``.

    Attributes:
        stale_after_s: seconds that a gang below its minimum may wait to be made whole again; None
            for ever.
        longest_turn: a gang that ``maxRuntime`` stopped runs in its next turn as long as in all
            before, and ``maxRuntime`` more, at most so many times ``maxRuntime``: a job that saves
            nothing ends, too. With 1 all turns are equal.
    """

    stale_after_s: float | None = attrs.field(default=60.0)
    longest_turn: int = attrs.field(default=4, validator=[v.ge(1), v.le(1000)])

    @stale_after_s.validator
    def _bounded(self, _attribute: object, value: float | None) -> None:
        if value is not None and not 0 <= value <= YEAR_S:
            raise ValueError("'stale_after_s' must be between 0s and 8760h, or null for never")


@attrs.frozen
class Lifetime:
    """Stops gangs that stay broken, and gangs that run longer than their queue's maxRuntime.

    A gang that has lost members holds GPUs and does no work with them; its members that are
    left keep them from others, and from itself elsewhere.
    """

    name: ClassVar[str] = "lifetime"
    api: ClassVar[int] = 1
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW
    args: LifetimeArgs = LifetimeArgs()

    def open(self, hooks: Hooks, view: View) -> None:
        """Register the checks that stop broken gangs and those past maxRuntime."""
        hooks.longest_turn = self.args.longest_turn

        def check(gang: Gang) -> Verdict:
            verdict = self._stale(gang, view)
            return verdict if verdict.refuses else self._past_max_runtime(gang, view)

        hooks.stop_check(check, queues=lambda node: _max_runtime_on_path(node, view)[1] > 0)

    def _stale(self, gang: Gang, view: View) -> Verdict:
        since, grace = broken_since(gang), self.args.stale_after_s
        if not since or grace is None or not view.is_past(since + grace):
            return ALLOW
        return deny(
            Reason.STALE_GANG,
            "had {have} of {need} pods it needs for {ran} s, longer than {grace} s: it is stopped "
            "so that it can start again as a whole",
            have=gang.ready_members,
            need=gang.min_member,
            ran=int(view.now - since),
            grace=int(grace),
        )

    def _past_max_runtime(self, gang: Gang, view: View) -> Verdict:
        node = view.queue(gang.queue)
        if node is None or not gang.started_at:
            return ALLOW
        queue, nanoseconds = _max_runtime_on_path(node, view)
        limit = turn_limit_s(
            gang.earlier_turns_s, -(-nanoseconds // SECOND), longest=self.args.longest_turn
        )
        if not limit or not view.is_past(gang.started_at + limit):
            return ALLOW
        over = deny(
            Reason.PREEMPTED,
            "ran for {ran} s; queue {queue} lets {jobs} run for {limit} s",
            ran=int(view.now - gang.started_at),
            queue=queue,
            jobs="it" if gang.earlier_turns_s and self.args.longest_turn > 1 else "jobs",
            limit=limit,
        )
        return attrs.evolve(over, ends_turn=True)


def _max_runtime_on_path(node: QueueNode, view: View) -> tuple[str, int]:
    """The nearest maxRuntime on the queue's path, in nanoseconds, and the queue that sets it; 0 for none."""
    for name in node.path:
        above = view.queue(name)
        if above is not None and above.queue.max_runtime_ns:
            return name, above.queue.max_runtime_ns
    return "", 0

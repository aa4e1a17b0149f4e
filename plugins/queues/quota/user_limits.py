"""Limits of users and groups inside a queue: what each holds, runs and has waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import attrs

from gpusched.plugin import (
    ALLOW,
    NOTHING,
    RUNNING_GANGS,
    Gang,
    QueueNode,
    Reason,
    Resources,
    UserLimit,
    Verdict,
    View,
    account_of,
    deny,
    format_quantity,
    shorten,
    wait,
)

HOLDERS_TOLD_MAX: Final = 2
"""Gangs that hold most, as one sentence names them."""
Held = Callable[[str], Resources]


@attrs.frozen
class _CountedLimit:
    """A limit that holds for a gang.

    Attributes:
        who: whom it limits, for sentences.
        queue: that limits it.
        account: in which the queue counts.
        node: of the queue.
        here: what the account may have in this part of the cluster; None for all that the limit gives it.
    """

    who: str
    queue: str
    account: str
    limit: UserLimit
    node: QueueNode
    here: Resources | None = None

    def elsewhere(self, name: str, most: int) -> tuple[int, int]:
        """What other shards use of a limit, and the rest of it that is not to be used here."""
        here = most if self.here is None else self.here.get(name)
        return self.node.of_others(self.account, name, most, here)


def check_user_limits(gang: Gang, view: View, held: Held) -> Verdict:
    """Whether the gang's minimum stays within ``spec.userLimits`` of every queue on its path.

    Only gangs of the user or group that has as much as it may wait for it; nothing is evicted for it,
    and no room is kept.

    Args:
        gang: that is to start, or to grow.
        view: of the session.
        held: amounts of an account.
    """
    for each in _limits_of(gang, view) if gang.accounts else ():
        verdict = _check_limit(gang, each, view, held)
        if verdict.refuses:
            return verdict
    return ALLOW


def _limits_of(gang: Gang, view: View) -> Iterator[_CountedLimit]:
    node = view.queue(gang.queue)
    for name in node.path if node is not None else ():
        above = view.queue(name)
        if above is None or not above.queue.user_limits:
            continue
        for kind, named, limit in above.queue.user_limits.of_creator(gang.creator):
            who = f"{kind} {shorten(named)}" if named else "users who are not known together"
            account = account_of(name, kind, named)
            here = None if above.users_here is None else above.users_here.get(account, NOTHING)
            yield _CountedLimit(who, name, account, limit, above, here)


def _check_limit(gang: Gang, counted: _CountedLimit, view: View, held: Held) -> Verdict:
    limit, words = counted.limit, {"who": counted.who, "queue": counted.queue}
    verb = "hold" if counted.who.startswith("users") else "holds"
    asked = view.minimum(gang) if limit.resources.items else None
    for resource, most in limit.resources.items:
        need = asked.get(resource) if asked is not None else 0
        theirs, left = counted.elsewhere(resource, most)
        has = held(counted.account).get(resource) + theirs if need else 0
        if not need or has + left + need <= most:
            continue
        amounts = {
            "need": format_quantity(need, resource=resource),
            "most": format_quantity(most, resource=resource),
            "has": format_quantity(has, resource=resource),
            "resource": resource,
            "verb": verb,
            "others": others_text(left if has + need <= most else 0, resource),
        }
        if need > most:
            return deny(
                Reason.USER_LIMIT,
                "needs {need} {resource}; {who} never {verb} more than {most} in queue {queue}",
                **words,
                **amounts,
            )
        return wait(
            Reason.USER_LIMIT,
            "needs {need} {resource}; {who} {verb} {has} of at most {most} in queue {queue}{holders}{others}",
            holders=_holders_text(gang, resource, view.running_of_user(counted.account)),
            **words,
            **amounts,
        )
    return _check_counts(gang, counted, view)


def _check_counts(gang: Gang, counted: _CountedLimit, view: View) -> Verdict:
    limit = counted.limit
    if gang.placed:
        return ALLOW  # it runs: members above its minimum are no other gang
    words = {"who": counted.who, "queue": counted.queue}
    several = "have" if counted.who.startswith("users") else "has"
    if limit.max_running is not None:
        running = [each for each in view.running_of_user(counted.account) if each.key != gang.key]
        theirs, left = counted.elsewhere(RUNNING_GANGS, limit.max_running)
        if len(running) + theirs + left >= limit.max_running:
            return wait(
                Reason.USER_LIMIT,
                "{who} {verb} {count} of at most {most} gangs running in queue {queue}{others}",
                count=len(running) + theirs,
                most=limit.max_running,
                others=others_text(
                    left if len(running) + theirs < limit.max_running else 0, RUNNING_GANGS
                ),
                verb=several,
                **words,
            )
    if limit.max_pending is not None:
        before = view.waiting_before(counted.account, gang)
        if before >= limit.max_pending:
            return wait(
                Reason.USER_LIMIT,
                "{who} {verb} {count} gangs waiting in queue {queue} that came before it, and at most "
                "{most} stand in line",
                count=before,
                most=limit.max_pending,
                verb=several,
                **words,
            )
    return ALLOW


def others_text(amount: int, resource: str) -> str:
    """What is left of a limit that would be enough, and is not to be used here, for sentences; empty for nothing."""
    told = str(amount) if resource == RUNNING_GANGS else format_quantity(amount, resource=resource)
    more = "more is" if told == "1" else "more are"
    return f"; {told} {more} not granted to this shard yet" if amount else ""


def _holders_text(gang: Gang, resource: str, running: Sequence[Gang]) -> str:
    """Those of the same namespace that hold most, as their ends free it; empty for none."""
    own = [
        (-each.allocated.get(resource), each.key)
        for each in running
        if each.key.namespace == gang.key.namespace and each.allocated.get(resource)
    ]
    told = [
        f"{shorten(str(key))} {format_quantity(-amount, resource=resource)}"
        for amount, key in sorted(own)[:HOLDERS_TOLD_MAX]
    ]
    return f": {', '.join(told)}" if told else ""

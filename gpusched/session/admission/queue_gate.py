"""The gate of a queue: it exists, is a leaf, is open, and selects the namespace of the gang."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Final

import attrs

from gpusched.base.classes import define
from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.reasons import Reason
from gpusched.session.framework.verdict import ALLOW, Verdict, deny
from gpusched.session.state.session import Session

_NAMED_MAX: Final = 5
_COMPARED_MAX: Final = 200
"""Names of queues that a misspelt one is compared with."""


@define
class _QueueVerdicts:
    """Answers of queues in one session, by queue, namespace and whether a gang is repaired."""

    known: dict[tuple[str, str, bool], Verdict] = attrs.Factory(dict)


def queue_admission(session: Session, gang: Gang) -> Verdict:
    """Verdict on a gang by its own spec and its queue, whatever policies say."""
    return queue_gate(session)(gang)


def queue_gate(session: Session) -> Callable[[Gang], Verdict]:
    """What gives the verdict of ``queue_admission``, for those who ask about all gangs of the session."""
    known = session.cycle_state.get_or_make(_QueueVerdicts, _QueueVerdicts).known
    last = ("", "", ALLOW)  # no gang is in a namespace without a name

    def verdict_on(gang: Gang) -> Verdict:
        nonlocal last
        if gang.error[0]:
            return deny(gang.error[0], "{why}", why=gang.error[1])
        queue, namespace = gang.queue, gang.key.namespace
        if not gang.placed and queue == last[0] and namespace == last[1]:
            return last[2]  # gangs of one line come one after the other
        repairs = bool(gang.placed and gang.missing_members)
        key = (queue, namespace, repairs)
        verdict = known.get(key)
        if verdict is None:
            verdict = known[key] = _queue_verdict(session, gang, repairs=repairs)
        if not repairs:
            last = (queue, namespace, verdict)
        return verdict

    return verdict_on


def _queue_verdict(session: Session, gang: Gang, *, repairs: bool) -> Verdict:
    """Verdict of the gang's queue, the same for all gangs of its namespace."""
    node = session.queue_of(gang)
    if node is None:
        known = _open_to(session, gang)
        near = get_close_matches(gang.queue[:64], known[:_COMPARED_MAX], n=1)
        return deny(
            Reason.QUEUE_NOT_FOUND,
            "queue {name!r} does not exist; create it or name one of: {known}{meant}",
            name=gang.queue[:64],
            known=_some(known),
            meant=f"; did you mean {near[0]}?" if near else "",
        )
    if node.error:
        return deny(Reason.QUEUE_STOPPED, "{why}", why=node.error)
    if not node.leaf:
        return deny(
            Reason.QUEUE_NOT_LEAF,
            "queue {name!r} has child queues; jobs go to leaves only: {known}",
            name=gang.queue,
            known=_some(_open_to(session, gang, below=gang.queue)),
        )
    for name in node.path:
        above = session.snapshot.queues.queues[name].queue
        if above.stop_policy != "None" and not (repairs and above.stop_policy == "Hold"):
            return deny(
                Reason.QUEUE_STOPPED,
                "queue {name!r} has stopPolicy {policy}: nothing new starts in it",
                name=name,
                policy=above.stop_policy,
            )
    namespace = session.snapshot.namespaces.get(gang.key.namespace)
    labels = namespace.labels if namespace else {}
    if not node.queue.namespaces.matches(labels):
        return deny(
            Reason.NAMESPACE_NOT_ALLOWED,
            "namespace {ns!r} is not selected by the namespaceSelector of queue {name!r}",
            ns=gang.key.namespace,
            name=gang.queue,
        )
    return ALLOW


def _open_to(session: Session, gang: Gang, *, below: str = "") -> list[str]:
    """Queues that take jobs of the gang's namespace, sorted: all, or those below one."""
    namespace = session.snapshot.namespaces.get(gang.key.namespace)
    labels = namespace.labels if namespace else {}
    return sorted(
        name
        for name, node in session.snapshot.queues.queues.items()
        if node.leaf
        and not node.error
        and node.queue.namespaces.matches(labels)
        and (not below or below in node.path)
    )


def _some(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - _NAMED_MAX
    told = ", ".join(names[:_NAMED_MAX])
    return (f"{told} and {more} more" if more > 0 else told) or "none is open to its namespace"

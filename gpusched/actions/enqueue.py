"""Admission: which gangs may ask for places. ``Pending`` becomes ``Inqueue``."""

from __future__ import annotations

from typing import ClassVar

import attrs

from gpusched.cache.gangs import Gang
from gpusched.session.hooks import first_refusal
from gpusched.session.reasons import Reason
from gpusched.session.session import Session
from gpusched.session.verdict import ALLOW, Verdict, deny


@attrs.frozen
class Enqueue:
    """Admits a gang when its queue exists, is open to it, and every check agrees."""

    name: ClassVar[str] = "enqueue"

    def run(self, session: Session) -> None:
        """See the class. A gang that has places already stays admitted."""
        session.enqueue_ran = True
        for gang in session.gangs:
            verdict = admission(session, gang)
            if not verdict.refuses and not gang.placed:
                verdict = first_refusal(session.hooks.enqueue_checks, gang)
            session.admit(gang, verdict)


def admission(session: Session, gang: Gang) -> Verdict:
    """What the mechanism itself asks of a gang's queue, whatever policies say."""
    if gang.trouble[0]:
        return deny(gang.trouble[0], "{why}", why=gang.trouble[1])
    if gang.sub_groups:
        return deny(
            Reason.INVALID_SPEC,
            "spec.subGroups is not placed by this version of gpusched; remove it to start the "
            "group as one gang",
        )
    node = session.queue_of(gang)
    if node is None:
        known = list(session.snapshot.queues.queues)[:5]
        return deny(
            Reason.QUEUE_NOT_FOUND,
            "queue {name!r} does not exist; create it or name one of: {known}",
            name=gang.queue[:64],
            known=", ".join(known),
        )
    if node.trouble:
        return deny(Reason.QUEUE_STOPPED, "{why}", why=node.trouble)
    if not node.leaf:
        return deny(
            Reason.QUEUE_NOT_LEAF,
            "queue {name!r} has child queues; jobs go to leaves only",
            name=gang.queue,
        )
    repairs = bool(gang.placed and gang.need)
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

"""Gangs whose devices are being made ready by their drivers: what their conditions say meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpusched.api.meta.identity import GangKey
from gpusched.base.classes import frozen
from gpusched.session.framework.reasons import Reason, truncate_message
from gpusched.session.state.plan import GangBind, GangStatus, PendingReason
from gpusched.session.status.gang_status import ADMITTED_REASON


@frozen(slots=True)
class AwaitedDevices:
    """Devices that a gang was given and that are not ready.

    Attributes:
        gang: as it is bound once they are.
        message: which conditions of which device are waited for, and until when.
    """

    gang: GangBind
    message: str


def told_with_awaited_devices(
    statuses: Sequence[GangStatus], awaited: Mapping[GangKey, AwaitedDevices]
) -> tuple[GangStatus, ...]:
    """Statuses with those of gangs that wait for devices to be ready, which no session looks at.

    Gangs that run and grow keep what they are told.

    Args:
        statuses: of a session.
        awaited: what is waited for now.
    """
    waiting = {key: each for key, each in awaited.items() if not each.gang.grows}
    others = [status for status in statuses if status.gang not in waiting]
    return (*others, *(_status(each) for _, each in sorted(waiting.items())))


def _status(awaited: AwaitedDevices) -> GangStatus:
    gang = awaited.gang
    return GangStatus(
        gang=gang.gang,
        uid=gang.uid,
        generation=gang.generation,
        queue=gang.queue,
        phase="Inqueue",
        admitted=PendingReason(reason=ADMITTED_REASON, message=f"admitted to queue {gang.queue}"),
        is_admitted=True,
        scheduled=PendingReason(
            reason=Reason.INSUFFICIENT_RESOURCES, message=truncate_message(awaited.message)
        ),
        is_scheduled=False,
        waiting_pods=tuple((bind.key, bind.uid) for bind in gang.binds),
        counts=(gang.placed, 0, 0, 0),
    )

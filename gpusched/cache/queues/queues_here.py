"""What one daemon has of queues beside the daemons of other shards; all of it where none of them divide the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.queue.queue import Queue
from gpusched.base.classes import frozen


@frozen(slots=True, kw_only=True)
class QueuesHere:
    """See the module; a queue that is not named is not divided.

    Attributes:
        shares: queues with what they deserve and are guaranteed here, by name.
        capped_elsewhere: parts of capabilities that are not to be used here, by name of the queue.
        users: what users and groups may have here, by queue that limits them and by account; accounts that are not
            named have nothing here.
        lasting: what gangs that are not preemptible may have here of what queues deserve, by name of the queue; where a
            queue is not named, what it deserves here.
        used_elsewhere: what shards of other daemons say that they use, by name of the queue and by account in it, see
            ``QueueNode``.
        held_elsewhere: amounts that queues hold with all below them on nodes of other daemons, by name.
        total_elsewhere: allocatable of the nodes of other daemons.
        free_elsewhere: the part of it that no pod has; nothing while no queue has a guarantee.
        tells_cluster: whether what is said once of a queue is written here.
    """

    shares: Mapping[str, Queue] = attrs.Factory(dict)
    capped_elsewhere: Mapping[str, Resources] = attrs.Factory(dict)
    users: Mapping[str, Mapping[str, Resources]] = attrs.Factory(dict)
    lasting: Mapping[str, Resources] = attrs.Factory(dict)
    used_elsewhere: Mapping[str, Mapping[str, Resources]] = attrs.Factory(dict)
    held_elsewhere: Mapping[str, Resources] = attrs.Factory(dict)
    total_elsewhere: Resources = NOTHING
    free_elsewhere: Resources = NOTHING
    tells_cluster: bool = True

    def deserved_in_all(self, queue: Queue) -> Resources:
        """What a queue deserves in all shards together; nothing where it is not divided."""
        return queue.deserved if queue.name in self.shares else NOTHING


def lasting_account(queue: str) -> str:
    """The account of what gangs that are not preemptible have of what a queue deserves."""
    return f"{queue}/lasting"


ALL_HERE: Final = QueuesHere()

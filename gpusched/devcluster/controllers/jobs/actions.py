"""What may have to be done about a Job, and what its controller remembers between two turns."""

from __future__ import annotations

from typing import Final

from gpusched.base.classes import frozen
from gpusched.devcluster.controllers.jobs.pods import Obj

BACKOFF_FIRST_S: Final = 10.0
BACKOFF_MAX_S: Final = 600.0


@frozen
class PodBackoff:
    """Failures in a row and when the last one was (epoch seconds)."""

    failures: int = 0
    last: float = 0.0

    def remaining(self, now: float, first_s: float) -> float:
        """Seconds until new pods may be made, not above 0 when at once."""
        if not self.failures:
            return 0.0
        wait: float = min(first_s * 2.0 ** min(self.failures - 1, 30), BACKOFF_MAX_S)
        return wait - (now - self.last)


@frozen
class CreatePod:
    """Create one pod of the Job."""

    pod: Obj


@frozen
class DeletePod:
    """Delete a pod; ``uncounted`` takes its finalizer off first, so that it is no failure."""

    pod: Obj
    uncounted: bool


@frozen
class RemoveTrackingFinalizer:
    """Take the finalizer off a pod, which is counted by the status of the same turn."""

    pod: Obj


@frozen
class WriteStatus:
    """Replace the Job's status; pods that could not be made come off ``active`` first."""

    status: Obj


@frozen
class RecordEvent:
    """Record an event about the Job."""

    type: str
    reason: str
    message: str


@frozen
class DeleteJob:
    """The Job outlived its ttlSecondsAfterFinished."""


Action = CreatePod | DeletePod | RemoveTrackingFinalizer | WriteStatus | RecordEvent | DeleteJob

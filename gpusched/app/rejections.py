"""Objects of the cluster that cannot be believed: counted, logged when they change, told on themselves."""

from __future__ import annotations

import attrs

from gpusched.api.meta.codec import DEFECT
from gpusched.api.meta.identity import ObjectKey, Rejected
from gpusched.base import limits
from gpusched.base.classes import define
from gpusched.cache.cache import Cache
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.write.status.status_writer import StatusWriter

_log = Logger(__name__)


@define(eq=False)
class Rejections:
    """What was logged last of each such object."""

    _telemetry: Telemetry
    _logged: dict[tuple[str, ObjectKey], str] = attrs.field(factory=dict, init=False)

    def report(self, cache: Cache, status: StatusWriter, kind: str, rejected: Rejected) -> None:
        """An object of a kind was read and rejected."""
        self._telemetry.rejected(kind, rejected.field)
        if rejected.field == DEFECT:
            self._telemetry.contained(rejected.kind, "reading")
        who = (kind, rejected.key)
        if self._logged.get(who) != rejected.message:  # each change shows it again, ours too
            _log.warning("an object cannot be believed", kind=kind, why=rejected.message)
            self._logged.pop(who, None)
            self._logged[who] = rejected.message
            if len(self._logged) > limits.REPORTED_OBJECTS_MAX:
                del self._logged[next(iter(self._logged))]
        ours = rejected.ours or rejected.scheduler in cache.schedulers
        status.report_rejected(attrs.evolve(rejected, ours=ours))

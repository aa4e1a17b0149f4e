"""Pods: gates, the few fields an update may change, how long a deletion waits, and the status
fields that a client leaves out but the server always shows.
"""

from __future__ import annotations

from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import FieldError
from gpusched.devcluster.registry.pods.defaults import (
    add_default_tolerations,
    default_pod,
    match_own_labels,
    qos_class,
)
from gpusched.devcluster.registry.pods.updates import status_errors, update_errors
from gpusched.devcluster.registry.pods.validation import SpecCheck
from gpusched.devcluster.registry.strategy import ServerContext, Strategy

Obj = dict[str, Any]

_STATUSES: Final = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_TIMES: Final = {"running": ("startedAt",), "terminated": ("startedAt", "finishedAt")}


def default_status(status: Obj) -> None:
    """Complete a shallow copy of a status; what it shares with others is left alone."""
    if conditions := status.get("conditions"):
        status["conditions"] = [
            {"lastProbeTime": None, "lastTransitionTime": None, **c} for c in conditions
        ]
    for key in _STATUSES:
        if statuses := status.get(key):
            status[key] = [_container_status(s) for s in statuses]
    _default_addresses(status)


def _default_addresses(status: Obj) -> None:
    """One address and the list of addresses say the same; the single one counts."""
    one, many = status.get("podIP"), status.get("podIPs")
    if one and (not many or many[0].get("ip") != one):
        status["podIPs"] = [{"ip": one}]
    elif many and not one:
        status["podIP"] = many[0].get("ip")


def _container_status(status: Obj) -> Obj:
    plain: Obj = {
        "name": "",
        "state": {},
        "lastState": {},
        "ready": False,
        "restartCount": 0,
        "image": "",
        "imageID": "",
        **status,
    }
    for key in ("state", "lastState"):
        plain[key] = _state(plain[key] or {})
    return plain


def _state(state: Obj) -> Obj:
    full: Obj = {}
    for key, details in state.items():
        times = dict.fromkeys(_TIMES.get(key, ()))
        code = {"exitCode": 0} if key == "terminated" else {}
        full[key] = {**code, **times, **(details or {})}
    return full


# strategies share one interface, and few kinds need all of it


class PodStrategy(Strategy):
    """Everything special about pods but binding and eviction, which are connections."""

    generation = True
    returns_object = True
    has_status = True
    knows_all = True
    checks_metadata_again = True

    def __init__(self) -> None:
        self._check = SpecCheck()

    def prepare_create(self, obj: Obj, core: ServerContext) -> None:
        """Start pending, with the condition that shows closed gates."""
        spec = obj.get("spec") or {}
        match_own_labels(spec, obj["metadata"].get("labels") or {})
        status: Obj = {"phase": "Pending"}
        if spec.get("schedulingGates"):
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": core.time_text(),
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }
            ]
        obj["status"] = status

    def default(self, obj: Obj) -> None:
        """Fill in defaults and the quality-of-service class."""
        default_pod(obj)
        obj["status"].setdefault("qosClass", qos_class(obj["spec"]))

    def validate(self, obj: Obj) -> list[FieldError]:
        """Check a new pod."""
        return self._check.errors(obj)

    def prepare_update(self, new: Obj, old: Obj) -> None:
        """Keep status; fields that admission filled stay filled when a client omits them."""
        super().prepare_update(new, old)
        if new.get("spec") is old.get("spec"):
            return
        spec = new.setdefault("spec", {})
        if not spec.get("schedulingGates"):
            spec.pop("schedulingGates", None)
        for key in ("priority", "preemptionPolicy"):
            if spec.get(key) is None and key in old["spec"]:
                spec[key] = old["spec"][key]
        add_default_tolerations(spec)

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Allow the few changes that a running pod bears."""
        return [] if old["spec"] == new["spec"] else update_errors(new["spec"], old["spec"])

    def prepare_status(self, new: Obj, old: Obj) -> None:
        """Keep the spec and the owners; print times that clients leave out as null."""
        super().prepare_status(new, old)
        owners = old["metadata"].get("ownerReferences")
        if owners:
            new["metadata"]["ownerReferences"] = owners
        else:
            new["metadata"].pop("ownerReferences", None)
        status = dict(new.get("status") or {})
        status.setdefault("phase", "Pending")
        status.setdefault("qosClass", old["status"].get("qosClass", "BestEffort"))
        default_status(status)
        new["status"] = {k: v for k, v in status.items() if v not in (None, "", [])}

    def validate_status(self, new: Obj, old: Obj) -> list[FieldError]:
        """Check a change of the status."""
        return status_errors(new, old)

    def grace_s(self, obj: Obj, asked: int | None) -> int:
        """Return the seconds a deletion waits: none for a pod that runs nowhere."""
        phase = (obj.get("status") or {}).get("phase")
        if not obj["spec"].get("nodeName") or phase in {"Succeeded", "Failed"}:
            return 0
        grace = obj["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
        return int(grace) if grace >= 0 else 1

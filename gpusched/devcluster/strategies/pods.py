# strategies share one interface, and few kinds need all of it
"""Pods: gates, the few fields an update may change, and how long a deletion waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpusched.devcluster.field_errors import FieldError, forbidden, invalid
from gpusched.devcluster.strategies import Strategy
from gpusched.devcluster.strategies.pod_defaults import default_pod, qos_class
from gpusched.devcluster.strategies.pod_validation import pod_errors, spec_errors

if TYPE_CHECKING:
    from gpusched.devcluster.core import Core

Obj = dict[str, Any]

_UPDATE_TEXT: Final = (
    "pod updates may not change fields other than "
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"
)
_MUTABLE: Final = frozenset({"activeDeadlineSeconds", "tolerations", "schedulingGates"})
_GATED_MUTABLE: Final = frozenset({"nodeSelector", "affinity"})


class PodStrategy(Strategy):
    """Everything special about pods but binding and eviction, which are connections."""

    generation = True
    returns_object = True
    has_status = True
    knows_all = True

    def prepare_create(self, obj: Obj, core: Core) -> None:
        """Start pending, with the condition that shows closed gates."""
        spec = obj.get("spec") or {}
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
        return pod_errors(obj)

    def prepare_update(self, new: Obj, old: Obj) -> None:
        """Keep status; fields that admission filled stay filled when a client omits them."""
        super().prepare_update(new, old)
        if new.get("spec") is not old.get("spec"):
            spec = new.setdefault("spec", {})
            if not spec.get("schedulingGates"):
                spec.pop("schedulingGates", None)

    def validate_update(self, new: Obj, old: Obj) -> list[FieldError]:
        """Allow the few changes that a running pod bears."""
        was, now = old["spec"], new["spec"]
        if was == now:
            return []
        if errors := spec_errors(now, "spec"):
            return errors
        errors = _gate_changes(now, was)
        errors += _deadline_changes(now, was)
        if not _only_added(now.get("tolerations"), was.get("tolerations")):
            errors.append(
                forbidden(
                    "spec.tolerations",
                    "existing toleration can not be modified except its tolerationSeconds",
                )
            )
        allowed = _MUTABLE | (_GATED_MUTABLE if was.get("schedulingGates") else frozenset())
        changed = sorted(
            key
            for key in {*was, *now}
            if key not in allowed and not _same(key, now.get(key), was.get(key))
        )
        if changed:
            shown = "".join(
                f"- {key}: {was.get(key)!r}\n+ {key}: {now.get(key)!r}\n" for key in changed
            )
            errors.append(forbidden("spec", _UPDATE_TEXT + shown))
        return errors

    def prepare_status(self, new: Obj, old: Obj) -> None:
        """Keep the spec and the owners; print times that clients leave out as null."""
        super().prepare_status(new, old)
        owners = old["metadata"].get("ownerReferences")
        if owners:
            new["metadata"]["ownerReferences"] = owners
        else:
            new["metadata"].pop("ownerReferences", None)
        status = dict(new.get("status") or {})
        if conditions := status.get("conditions"):
            status["conditions"] = [
                {"lastProbeTime": None, "lastTransitionTime": None, **c} for c in conditions
            ]
        status.setdefault("phase", "Pending")
        status.setdefault("qosClass", old["status"].get("qosClass", "BestEffort"))
        new["status"] = {k: v for k, v in status.items() if v not in (None, "", [])}

    def grace_s(self, obj: Obj, asked: int | None) -> int:
        """Return the seconds a deletion waits: none for a pod that runs nowhere."""
        phase = (obj.get("status") or {}).get("phase")
        if not obj["spec"].get("nodeName") or phase in {"Succeeded", "Failed"}:
            return 0
        if asked is not None:
            return max(asked, 0)
        return int(obj["spec"].get("terminationGracePeriodSeconds", 30))


def _same(key: str, now: Any, was: Any) -> bool:
    if key in {"containers", "initContainers"}:
        return _without_images(now) == _without_images(was)
    if key == "terminationGracePeriodSeconds" and isinstance(was, int) and was < 0:
        return bool(now in (1, was))
    return bool(now == was)


def _without_images(containers: Any) -> list[Obj]:
    return [{k: v for k, v in c.items() if k != "image"} for c in containers or ()]


def _gate_changes(now: Obj, was: Obj) -> list[FieldError]:
    before = {gate["name"] for gate in was.get("schedulingGates") or ()}
    added = [g["name"] for g in now.get("schedulingGates") or () if g["name"] not in before]
    if not added:
        return []
    return [
        forbidden(
            "spec.schedulingGates",
            "only deletion is allowed, but found new scheduling gate " + f"'{added[0]}'",
        )
    ]


def _deadline_changes(now: Obj, was: Obj) -> list[FieldError]:
    old, new = was.get("activeDeadlineSeconds"), now.get("activeDeadlineSeconds")
    if old is None or old == new:
        return []
    if new is None:
        return [
            invalid(
                "spec.activeDeadlineSeconds",
                None,
                "must not update from a positive integer to nil value",
            )
        ]
    if new > old:
        return [
            invalid(
                "spec.activeDeadlineSeconds", new, "must be less than or equal to previous value"
            )
        ]
    return []


def _only_added(now: Any, was: Any) -> bool:
    def bare(toleration: Obj) -> Obj:
        return {k: v for k, v in toleration.items() if k != "tolerationSeconds"}

    have = [bare(t) for t in now or ()]
    return all(bare(t) in have for t in was or ())

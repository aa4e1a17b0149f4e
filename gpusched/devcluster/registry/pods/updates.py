"""What writes may change in a pod that exists: a few fields of its spec, and its status."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import FieldError, forbidden, invalid, required
from gpusched.devcluster.apimachinery.metadata import key_errors, name_errors
from gpusched.devcluster.registry.pods.scheduling import toleration_errors
from gpusched.devcluster.registry.pods.validation import INT32_MAX, image_errors, spec_errors

Obj = dict[str, Any]

_UPDATE_TEXT: Final = (
    "pod updates may not change fields other than "
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"
)
_TOLERATION_TEXT: Final = "existing toleration can not be modified except its tolerationSeconds"
_MUTABLE: Final = frozenset({"activeDeadlineSeconds", "tolerations", "schedulingGates"})
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_SYSTEM_CONDITIONS: Final = frozenset({"PodScheduled", "Ready", "Initialized"})


def update_errors(now: Obj, was: Obj) -> list[FieldError]:
    """Errors of a changed spec, in the order in which a real server finds them."""
    errors = [*spec_errors(now, "spec"), *image_errors(now)]
    for part in ("containers", "initContainers"):
        containers = now.get(part) or ()
        if len(containers) != len(was.get(part) or ()):
            why = "pod updates may not add or remove containers"
            return [*errors, forbidden(f"spec.{part}", why)]
        errors += [
            required(f"spec.{part}[{i}].image")
            for i, container in enumerate(containers)
            if not container.get("image")
        ]
    deadline, ends = _deadline_errors(now, was)
    errors += deadline
    if ends:
        return errors
    errors += _toleration_changes(now, was)
    errors += _gate_changes(now, was)
    if was.get("schedulingGates"):
        errors += _redirection_errors(now, was)
    return errors + _other_changes(now, was)


def _deadline_errors(now: Obj, was: Obj) -> tuple[list[FieldError], bool]:
    """Return the errors, and whether nothing else is looked at."""
    at = "spec.activeDeadlineSeconds"
    old, new = was.get("activeDeadlineSeconds"), now.get("activeDeadlineSeconds")
    if new is None:
        why = "must not update from a positive integer to nil value"
        return ([] if old is None else [invalid(at, None, why)]), False
    if not 0 <= new <= INT32_MAX:
        return [invalid(at, new, f"must be between 0 and {INT32_MAX}, inclusive")], True
    if old is not None and new > old:
        return [invalid(at, new, "must be less than or equal to previous value")], True
    return [], False


def _toleration_changes(now: Obj, was: Obj) -> list[FieldError]:
    def bare(toleration: Obj) -> Obj:
        return {k: v for k, v in toleration.items() if k != "tolerationSeconds"}

    new = now.get("tolerations") or ()
    have = [bare(t) for t in new]
    if any(bare(t) not in have for t in was.get("tolerations") or ()):
        return [forbidden("spec.tolerations", _TOLERATION_TEXT)]
    return list(toleration_errors(new, "spec.tolerations"))


def _gate_changes(now: Obj, was: Obj) -> Iterator[FieldError]:
    before = {gate.get("name") for gate in was.get("schedulingGates") or ()}
    for i, gate in enumerate(now.get("schedulingGates") or ()):
        if gate.get("name") not in before:
            why = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield forbidden(f"spec.schedulingGates[{i}].name", why)


def _redirection_errors(now: Obj, was: Obj) -> Iterator[FieldError]:
    """Gated pods may be narrowed down to fewer nodes, but not sent elsewhere."""
    new = now.get("nodeSelector") or {}
    if any(new.get(k) != v for k, v in (was.get("nodeSelector") or {}).items()):
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield invalid("spec.nodeSelector", new or None, why)
    old_terms, new_terms = _terms(was), _terms(now)
    at = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    if not old_terms:
        return
    if len(old_terms) != len(new_terms):
        why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        yield invalid(at, [_printed_term(t) for t in new_terms] or None, why)
        return
    for i, (new_term, old_term) in enumerate(zip(new_terms, old_terms, strict=True)):
        if not _narrower(new_term, old_term):
            why = "only additions are allowed (no mutations or deletions)"
            yield invalid(f"{at}[{i}]", _printed_term(new_term), why)


def _terms(spec: Obj) -> Sequence[Obj]:
    node = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms: Sequence[Obj] = (node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()
    return terms


def _narrower(new: Obj, old: Obj) -> bool:
    parts = ("matchExpressions", "matchFields")
    if not any(old.get(part) for part in parts):
        return not any(new.get(part) for part in parts)
    for part in parts:
        kept = old.get(part) or []
        if (new.get(part) or [])[: len(kept)] != kept:
            return False
    return True


def _printed_term(term: Obj) -> Obj:
    """The term with the field names of the server's own structures."""

    def wanted(key: str) -> Any:
        return [
            {"Key": r.get("key", ""), "Operator": r.get("operator", ""), "Values": r.get("values")}
            for r in term.get(key) or ()
        ] or None

    return {"MatchExpressions": wanted("matchExpressions"), "MatchFields": wanted("matchFields")}


def _other_changes(now: Obj, was: Obj) -> list[FieldError]:
    gated = bool(was.get("schedulingGates"))
    changed = sorted(
        key
        for key in {*was, *now}
        if key not in _MUTABLE and not _same(key, now.get(key), was.get(key), gated=gated)
    )
    if not changed:
        return []
    shown = "".join(f"- {key}: {was.get(key)!r}\n+ {key}: {now.get(key)!r}\n" for key in changed)
    return [forbidden("spec", _UPDATE_TEXT + shown)]


def _same(key: str, now: Any, was: Any, *, gated: bool) -> bool:
    if key in {"containers", "initContainers"}:
        return _without_images(now) == _without_images(was)
    if key == "terminationGracePeriodSeconds" and isinstance(was, int) and was < 0:
        return bool(now in (1, was))
    if gated and key == "nodeSelector":
        return True
    if gated and key == "affinity":
        return _between_pods(now) == _between_pods(was)
    return bool(now == was)


def _between_pods(affinity: Obj | None) -> Obj:
    return {k: v for k, v in (affinity or {}).items() if k != "nodeAffinity"}


def _without_images(containers: Any) -> list[Obj]:
    return [{k: v for k, v in c.items() if k != "image"} for c in containers or ()]


def status_errors(new: Obj, old: Obj) -> list[FieldError]:
    """Errors of a pod's changed status."""
    now, was, spec = new.get("status") or {}, old.get("status") or {}, old["spec"]
    errors: list[FieldError] = []
    for i, condition in enumerate(now.get("conditions") or ()):
        kind = condition.get("type") or ""
        if kind not in _SYSTEM_CONDITIONS:
            errors += key_errors(kind, f"metadata.conditions[{i}].Type")
    nominated = now.get("nominatedNodeName")
    if nominated and nominated != was.get("nominatedNodeName"):
        errors += name_errors(nominated, field="status.nominatedNodeName")
    if now.get("qosClass") != was.get("qosClass"):
        errors.append(invalid("status.qosClass", now.get("qosClass"), "field is immutable"))
    policy = spec.get("restartPolicy", "Always")
    sidecars = {
        c.get("name")
        for c in spec.get("initContainers") or ()
        if c.get("restartPolicy") == "Always"
    }
    for part, free in (("containerStatuses", set()), ("initContainerStatuses", sidecars)):
        errors += _revived(
            now.get(part) or (), was.get(part) or (), part=part, policy=(policy, free)
        )
    hosts = now.get("hostIPs") or ()
    if hosts and hosts[0].get("ip") != now.get("hostIP"):
        errors.append(
            invalid("status.hostIPs[0].ip", hosts[0].get("ip"), "must be equal to `hostIP`")
        )
    return errors


def _revived(
    now: Sequence[Obj], was: Sequence[Obj], *, part: str, policy: tuple[str, set[Any]]
) -> Iterator[FieldError]:
    """Containers that ended for good and would run again."""
    restart, free = policy
    if restart == "Always":
        return
    for i, old in enumerate(was):
        ended = (old.get("state") or {}).get("terminated")
        if ended is None or old.get("name") in free:
            continue
        if ended.get("exitCode") and restart == "OnFailure":
            continue
        for new in now:
            if new.get("name") == old.get("name") and not (new.get("state") or {}).get(
                "terminated"
            ):
                why = "may not be transitioned to non-terminated state"
                yield forbidden(f"status.{part}[{i}].state", why)

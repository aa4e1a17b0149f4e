"""PodGroups of Kubernetes itself, in the words of every version, as ours.

What a later version may add is never passed over: an unknown policy holds the group, other unknown
fields are named in its warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any, Final

import attrs
import msgspec

from gpusched.api.devices.dynamic.claims import PodClaim
from gpusched.api.foreign import kinds
from gpusched.api.foreign import native_wire as wire
from gpusched.api.foreign.group_fields import make_foreign_group
from gpusched.api.gang.decode import PENDING, parse_sub_groups
from gpusched.api.gang.native_terms import COMPLETED, TOLD_AS, NativeTerms
from gpusched.api.gang.pod_group import GangTerms, PodGroup, SubGroup, TopologyRequest
from gpusched.api.gang.wire import Members, WireSubGroup
from gpusched.api.meta.fields import (
    decode_part,
    parse_duration_ns,
    parse_number,
    parse_resources,
    printable_text,
    quoted,
)
from gpusched.api.meta.identity import InvalidObject
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.api.meta.status import Condition
from gpusched.api.meta.wire import Quantities
from gpusched.base.limits import GANG_PODS_MAX

SCHEDULED: Final = "PodGroupScheduled"
"""The condition of v1alpha2."""
INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"
"""The condition since v1alpha3."""
TREE_INITIALLY_SCHEDULED: Final = "CompositePodGroupInitiallyScheduled"
"""The condition of a CompositePodGroup."""
INVALID: Final = "InvalidSpec"
AS_ONE: Final = "Group"
_MODES: Final = {"Pod": "Pod", "single": "Pod", "PodGroup": AS_ONE, "all": AS_ONE}
"""``disruptionMode`` by the word of v1alpha2 or the member that is set since v1alpha3."""
_POLICIES: Final = ("Never", "PreemptLowerPriority")
_UNKNOWN_MAX: Final = 4
_SPEC: Final = msgspec.json.Decoder(wire.NativeGroupSpec)
_TASKS: Final = msgspec.json.Decoder(dict[str, Members])
_AMOUNTS: Final = msgspec.json.Decoder(Quantities)
_MADE: Final = msgspec.json.Decoder(wire.WireGroupClaimStatuses)
_PARTS: Final = msgspec.json.Decoder(list[WireSubGroup])
_NO_NOTES: Final = wire.NativeAnnotations()


def decode_native_group(parsed: wire.NativeGroup) -> PodGroup:
    """A PodGroup of Kubernetes itself.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    spec, warnings = read_native_spec(parsed.spec)
    policy = spec.scheduling_policy or wire.SchedulingPolicy()
    minimum = max(1, (policy.gang and policy.gang.min_count) or 0)
    notes = parsed.metadata.annotations or _NO_NOTES
    if notes.min_member is not None:
        warnings.append(
            "annotation gpusched.io/min-member does not count: spec.schedulingPolicy does"
        )
    return native_fields(
        parsed, spec, warnings, min_member=minimum, **_fields_of_annotations(notes, minimum)
    )


def _fields_of_annotations(notes: wire.NativeAnnotations, minimum: int) -> dict[str, Any]:
    """Fields of our own PodGroup that annotations of a native one set; most groups have none."""
    if notes is _NO_NOTES:
        return {}
    parts = _sub_groups(notes)
    needed = top = sum(1 for part in parts if not part.parent)
    if notes.min_sub_groups is not None:
        needed = parse_number(
            notes.min_sub_groups, field=_annotation_field("min-sub-groups"), low=1, high=top
        )
    return {
        "min_task_member": _min_task_member(notes, minimum),
        "min_resources": _min_resources(notes),
        "sub_groups": parts,
        "min_sub_groups": needed,
    }


def decode_composite_group(parsed: wire.NativeGroup) -> PodGroup:
    """A CompositePodGroup: a group whose members are other groups.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    spec, warnings = read_native_spec(parsed.spec)
    policy = spec.scheduling_policy or wire.SchedulingPolicy()
    count = max(1, policy.gang.min_group_count or 0) if policy.gang is not None else 0
    group = native_fields(parsed, spec, warnings)
    assert group.native is not None
    return attrs.evolve(group, native=attrs.evolve(group.native, composite=True, min_groups=count))


def native_fields(
    parsed: wire.NativeGroup, spec: wire.NativeGroupSpec, warnings: list[str], **more: Any
) -> PodGroup:
    """What PodGroups and CompositePodGroups have in common.

    Args:
        parsed: the object.
        spec: its spec.
        warnings: what of it is not honoured, so far.
        more: fields of one of the two kinds.

    Raises:
        InvalidObject: an annotation that cannot be read.
    """
    notes = parsed.metadata.annotations or _NO_NOTES
    keys = [each.key for each in _topology(spec)]
    claims = _group_claims(spec)
    why = _why_held(parsed.spec, spec, keys)
    mode = _disruption_mode(spec.disruption_mode, warnings)
    policy = spec.preemption_policy or ""
    if policy and policy not in _POLICIES:
        warnings.append(f"spec.preemptionPolicy {quoted(policy)} is not known and counts as Never")
        policy = "Never"
    workload, template = _template_link(spec)
    group = make_foreign_group(
        parsed.metadata, parsed.status, kinds.NATIVE,
        notes=notes,
        priority_class=spec.priority_class_name or "",
        warning="; ".join(warnings),
        **more,
    )  # fmt: skip
    started = any(map(_is_start, group.conditions))
    wish, terms = group.topology, group.terms
    if keys:
        wish = TopologyRequest(required=keys[0], preferred=wish.preferred)
    if mode != terms.disruption:
        terms = attrs.evolve(terms, disruption=mode)
    if notes is not _NO_NOTES:
        max_wait = parse_duration_ns(
            notes.topology_max_wait, field=_annotation_field("topology-max-wait")
        )
        wish, terms = attrs.evolve(wish, max_wait_ns=max_wait), _with_annotated_times(terms, notes)
    return attrs.evolve(
        group,
        topology=wish,
        terms=terms,
        phase=_phase(group, started=started),
        native=NativeTerms(
            basic=spec.scheduling_policy is None or spec.scheduling_policy.gang is None,
            priority=spec.priority,
            preemption_policy=policy,
            workload=workload,
            template=template,
            owners=tuple((each.kind, each.name) for each in parsed.metadata.owner_references or ()),
            parent=spec.parent_composite_pod_group_name or "",
            claims=tuple(each.name for each in claims),
            group_claims=claims,
            made_claims=_made_claims(parsed.status) if claims else (),
            started=started,
            error=(INVALID, why) if why else ("", ""),
        ),
    )


def _group_claims(spec: wire.NativeGroupSpec) -> tuple[PodClaim, ...]:
    found = [
        PodClaim(
            name=each.name,
            claim=each.resource_claim_name or "",
            template=each.resource_claim_template_name or "",
        )
        for each in spec.resource_claims or ()
    ]
    return tuple(sorted(found, key=attrgetter("name")))


def _made_claims(raw: msgspec.Raw) -> tuple[tuple[str, str], ...]:
    """Names of claims that were made for the group, by what it calls them."""
    status = decode_part(_MADE, bytes(raw), field="status") or wire.WireGroupClaimStatuses()
    found = status.resource_claim_statuses or ()
    return tuple(sorted((each.name, each.resource_claim_name or "") for each in found))


def _with_annotated_times(terms: GangTerms, notes: wire.NativeAnnotations) -> GangTerms:
    """The terms with the times that annotations of native groups alone say."""
    timeout = parse_duration_ns(notes.schedule_timeout, field=_annotation_field("schedule-timeout"))
    interval = parse_duration_ns(
        notes.checkpoint_interval, field=_annotation_field("checkpoint-interval")
    )
    return attrs.evolve(terms, schedule_timeout_ns=timeout, checkpoint_ns=interval)


def _phase(group: PodGroup, *, started: bool) -> str:
    """The phase that our own PodGroup would have, by the conditions of a native one."""
    shown = group.condition(TOLD_AS["Scheduled"])
    if shown is not None and (shown.status, shown.reason) == ("True", COMPLETED):
        return COMPLETED
    if started:
        return "Running"
    admitted = group.condition(TOLD_AS["Admitted"])
    return "Inqueue" if admitted is not None and admitted.status == "True" else PENDING


def _is_start(condition: Condition) -> bool:
    names = (SCHEDULED, INITIALLY_SCHEDULED, TREE_INITIALLY_SCHEDULED)
    return condition.type in names and condition.status == "True"


def read_native_spec(raw: msgspec.Raw) -> tuple[wire.NativeGroupSpec, list[str]]:
    """The spec, and what of it this version does not know.

    Raises:
        InvalidObject: not of its shape.
    """
    spec = decode_part(_SPEC, bytes(raw), field="spec") or wire.NativeGroupSpec()
    told = msgspec.json.decode(raw) if raw else None
    unknown = sorted(set(_unknown_fields(told, wire.KNOWN_FIELDS, "spec")))
    if not unknown:
        return spec, []
    named = _joined_names(unknown[:_UNKNOWN_MAX])
    more = f" and {len(unknown) - _UNKNOWN_MAX} more" if len(unknown) > _UNKNOWN_MAX else ""
    return spec, [f"this version of gpusched does not know and does not honour {named}{more}"]


def _unknown_fields(told: Any, known: dict[str, Any], path: str) -> Iterator[str]:
    """Paths of fields that are set and that no version known here has."""
    if isinstance(told, list):
        for each in told:
            yield from _unknown_fields(each, known, f"{path}[]")
    elif isinstance(told, dict):
        for name, value in told.items():
            below = known.get(name)
            if name not in known:
                if value is not None:
                    yield f"{path}.{name}"
            elif below:
                yield from _unknown_fields(value, below, f"{path}.{name}")


def _why_held(raw: msgspec.Raw, spec: wire.NativeGroupSpec, keys: list[str]) -> str:
    """Why no pod of the group may start, as a sentence; empty when they may."""
    policy = spec.scheduling_policy
    if policy is None:
        return (
            "spec.schedulingPolicy is missing: every PodGroup of Kubernetes has it, and what this "
            "object asks for is not known"
        )
    if policy.gang is None and policy.basic is None:
        told = msgspec.json.decode(raw).get("schedulingPolicy") or {}
        named = sorted(name for name, value in told.items() if value is not None)
        if named:
            return (
                f"spec.schedulingPolicy {quoted(named[0])} is not known to this version of gpusched, "
                "which knows basic and gang; no pod of the group starts"
            )
    if len(keys) > 1:
        return (
            f"spec.schedulingConstraints.topology has several keys ({_joined_names(keys)}): this version "
            "of gpusched keeps a group in one domain of one key; leave one"
        )
    return ""


def _joined_names(names: Iterable[str]) -> str:
    return ", ".join(printable_text(name) for name in names)


def _disruption_mode(told: str | dict[str, Any] | None, warnings: list[str]) -> str:
    """``Group`` or ``Pod``; an unknown mode goes as one, which breaks nothing."""
    if not told:
        return "Pod"
    named = told if isinstance(told, str) else next(iter(sorted(told)))
    if named in _MODES:
        return _MODES[named]
    warnings.append(
        f"spec.disruptionMode {quoted(named)} is not known to this version of gpusched: the group "
        "is evicted as one"
    )
    return AS_ONE


def _topology(spec: wire.NativeGroupSpec) -> list[wire.NativeTopologyConstraint]:
    constraints = spec.scheduling_constraints
    return [each for each in (constraints and constraints.topology) or () if each.key]


def _template_link(spec: wire.NativeGroupSpec) -> tuple[str, str]:
    """Names of the Workload and of its template, in the words of either version."""
    if spec.workload_ref is not None:
        return spec.workload_ref.workload_name, spec.workload_ref.template_name
    link = spec.pod_group_template_ref and spec.pod_group_template_ref.workload
    return (link.workload_name, link.pod_group_template_name) if link else ("", "")


def _annotation_field(name: str) -> str:
    return f"metadata.annotations[gpusched.io/{name}]"


def _min_task_member(notes: wire.NativeAnnotations, minimum: int) -> tuple[tuple[str, int], ...]:
    field = _annotation_field("min-task-member")
    tasks = decode_part(_TASKS, (notes.min_task_member or "").encode(), field=field) or {}
    by_role = sum(tasks.values())
    if by_role > min(minimum, GANG_PODS_MAX):
        raise InvalidObject(field, f"adds up to {by_role}, more than minCount {minimum}")
    return tuple(sorted(tasks.items()))


def _min_resources(notes: wire.NativeAnnotations) -> Resources:
    field = _annotation_field("min-resources")
    amounts = decode_part(_AMOUNTS, (notes.min_resources or "").encode(), field=field)
    return parse_resources(amounts, field=field) if amounts else NOTHING


def _sub_groups(notes: wire.NativeAnnotations) -> tuple[SubGroup, ...]:
    field = _annotation_field("sub-groups")
    return parse_sub_groups(
        decode_part(_PARTS, (notes.sub_groups or "").encode(), field=field), field=field
    )

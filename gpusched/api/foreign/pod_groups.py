"""PodGroups of Kubernetes itself, coscheduling, Volcano and KAI, as ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from gpusched.api.foreign import kinds, native_wire
from gpusched.api.foreign import wire as wire_foreign
from gpusched.api.foreign.group_fields import make_foreign_group
from gpusched.api.foreign.native_groups import decode_composite_group, decode_native_group
from gpusched.api.gang.decode import PENDING
from gpusched.api.gang.pod_group import (
    EXTRAS,
    NO_TOPOLOGY_REQUEST,
    GangTerms,
    PodGroup,
    SubGroup,
    TopologyRequest,
)
from gpusched.api.gang.sub_group_tree import (
    least_members,
    sub_group_tree_error,
    with_default_minima,
)
from gpusched.api.meta.codec import KindCodec
from gpusched.api.meta.fields import parse_resources, quoted
from gpusched.api.meta.identity import InvalidObject, Rejected

TIER: Final = "tier:"
"""Prefix of a level by its number, counted from the hosts outwards, as Volcano counts."""
HOLDERS: Final = "of sub-groups with children the minima of all children count"
PROTECTED: Final = (
    "with preemptibility semi-preemptible the minimum is protected, and nothing above it"
)
_SECOND_NS: Final = 10**9


def decode_volcano_group(parsed: wire_foreign.VolcanoGroup) -> PodGroup:
    """A Volcano PodGroup.

    Without ``minMember`` its pods are independent: one is enough to start. Minima of roles do
    not count where ``minMember`` is less than their sum; so it is in Volcano.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    spec = parsed.spec or wire_foreign.VolcanoGroupSpec()
    tasks = tuple(sorted((spec.min_task_member or {}).items()))
    by_role = sum(count for _, count in tasks)
    warnings = []
    if tasks and (spec.min_member or 0) < by_role:
        warnings.append(
            f"minTaskMember adds up to {by_role} and is ignored, as minMember is "
            f"{spec.min_member or 0}"
        )
        tasks = ()
    if spec.sub_group_policy:
        warnings.append("subGroupPolicy is not honoured")
    group = make_foreign_group(
        parsed.metadata,
        parsed.status,
        kinds.VOLCANO,
        notes=parsed.metadata.annotations,
        queue=spec.queue,
        min_member=max(1, spec.min_member or 0),
        min_task_member=tasks,
        min_resources=parse_resources(spec.min_resources, field="spec.minResources"),
        priority_class=spec.priority_class_name or "",
        warning="; ".join(warnings),
    )
    if spec.network_topology is None:
        return group
    return attrs.evolve(group, topology=_topology_request(spec.network_topology))


def _topology_request(wish: wire_foreign.NetworkTopology) -> TopologyRequest:
    """``hard`` is required, ``soft`` preferred; soft without a tier is the narrowest level."""
    field = "spec.networkTopology"
    if wish.mode not in (None, "", "hard", "soft"):
        raise InvalidObject(f"{field}.mode", f"{quoted(wish.mode or '')} is neither hard nor soft")
    if wish.highest_tier_name and wish.highest_tier_allowed is not None:
        raise InvalidObject(field, "has both highestTierAllowed and highestTierName")
    level = wish.highest_tier_name or ""
    if wish.highest_tier_allowed is not None:
        level = f"{TIER}{wish.highest_tier_allowed}"
    if wish.mode == "soft":
        return TopologyRequest(preferred=level or f"{TIER}1")
    return TopologyRequest(required=level) if level else NO_TOPOLOGY_REQUEST


def decode_coscheduling_group(parsed: wire_foreign.CoschedulingGroup) -> PodGroup:
    """A coscheduling PodGroup.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    spec = parsed.spec or wire_foreign.CoschedulingGroupSpec()
    group = make_foreign_group(
        parsed.metadata,
        parsed.status,
        kinds.COSCHEDULING,
        notes=parsed.metadata.annotations,
        min_member=max(1, spec.min_member or 0),
        min_resources=parse_resources(spec.min_resources, field="spec.minResources"),
    )
    timeout_ns = (spec.schedule_timeout_seconds or 0) * _SECOND_NS
    return attrs.evolve(group, terms=attrs.evolve(group.terms, schedule_timeout_ns=timeout_ns))


def decode_kai_group(parsed: wire_foreign.KaiGroup) -> PodGroup:
    """A KAI PodGroup; the start of its members is known from them alone.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    spec = parsed.spec or wire_foreign.KaiGroupSpec()
    parts = _kai_sub_groups(spec.sub_groups or ())
    top = sum(1 for part in parts if not part.parent)
    nested = [part.name for part in parts if part.min_sub_groups]
    own = [each.name for each in spec.sub_groups or () if each.name in nested and each.min_member]
    needed = spec.min_sub_group or top
    if needed > top:
        raise InvalidObject("spec.minSubGroup", f"asks for {needed} of {top} subGroups")
    warnings = [f"minMember of {', '.join(own)} is not honoured: {HOLDERS}"] if own else []
    if spec.min_non_preemptible is not None:
        warnings.append(f"minNonPreemptible is not honoured: {PROTECTED}")
    group = make_foreign_group(
        parsed.metadata,
        parsed.status,
        kinds.KAI,
        notes=parsed.metadata.annotations,
        queue=spec.queue,
        min_member=max(1, spec.min_member or 0, least_members(parts, needed)),
        priority_class=spec.priority_class_name or "",
        phase=PENDING,
        sub_groups=parts,
        min_sub_groups=needed,
        warning="; ".join(warnings),
    )
    if spec.preemptibility:
        group = attrs.evolve(group, terms=_kai_terms(group.terms, spec.preemptibility))
    wish = _kai_topology_request(spec.topology_constraint)
    return group if wish == NO_TOPOLOGY_REQUEST else attrs.evolve(group, topology=wish)


def _kai_terms(terms: GangTerms, preemptibility: str) -> GangTerms:
    """The terms of a group that says whether it, or what of it is above its minimum, may be evicted."""
    if preemptibility == "semi-preemptible":
        return attrs.evolve(terms, disruption=EXTRAS)
    if preemptibility not in {"preemptible", "non-preemptible"}:
        raise InvalidObject(
            "spec.preemptibility",
            f"{quoted(preemptibility)} is none of preemptible, semi-preemptible, non-preemptible",
        )
    return attrs.evolve(terms, preemptible=preemptibility == "preemptible")


def _kai_sub_groups(parts: Sequence[wire_foreign.KaiSubGroup]) -> tuple[SubGroup, ...]:
    """Sub-groups that pods belong to, and those above them: minima of pods are of the former."""
    names = [part.name for part in parts]
    if len(set(names)) != len(names) or "" in names:
        raise InvalidObject("spec.subGroups[].name", "is empty or there twice")
    groups = tuple(
        SubGroup(
            part.name,
            part.min_member or 0,
            _kai_topology_request(part.topology_constraint),
            part.parent or "",
            part.min_sub_group or 0,
        )
        for part in parts
    )
    wrong = sub_group_tree_error(groups)
    if wrong:
        raise InvalidObject("spec.subGroups[].parent", wrong)
    return with_default_minima(groups)


def _kai_topology_request(wish: wire_foreign.KaiTopology | None) -> TopologyRequest:
    if wish is None:
        return NO_TOPOLOGY_REQUEST
    return TopologyRequest(wish.required_topology_level or "", wish.preferred_topology_level or "")


def _foreign(api_version: str) -> Any:
    def adorn(rejected: Rejected, _parts: dict[str, bytes]) -> Rejected:
        return attrs.evolve(rejected, api_version=api_version)

    return adorn


def _codec(source: str, wire_type: type[Any], entity: Any) -> KindCodec[Any, PodGroup]:
    kind = kinds.POD_GROUPS[source]
    adorn = _foreign(f"{kind.group}/{kind.versions[0]}")
    return KindCodec("PodGroup", wire_type=wire_type, entity=entity, ours=True, adorn=adorn)


CODECS: Final = {
    kinds.NATIVE: _codec(kinds.NATIVE, native_wire.NativeGroup, decode_native_group),
    kinds.COSCHEDULING: _codec(
        kinds.COSCHEDULING, wire_foreign.CoschedulingGroup, decode_coscheduling_group
    ),
    kinds.VOLCANO: _codec(kinds.VOLCANO, wire_foreign.VolcanoGroup, decode_volcano_group),
    kinds.KAI: _codec(kinds.KAI, wire_foreign.KaiGroup, decode_kai_group),
}
_COMPOSITE: Final = kinds.COMPOSITES[kinds.NATIVE]
COMPOSITES: Final = KindCodec(
    _COMPOSITE.kind,
    wire_type=native_wire.NativeGroup,
    entity=decode_composite_group,
    ours=True,
    adorn=_foreign(f"{_COMPOSITE.group}/{_COMPOSITE.versions[-1]}"),
)

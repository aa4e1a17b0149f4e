"""Entries of a timeline, out of their fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gpusched.base.limits import GANG_PODS_MAX
from gpusched.config.yaml_tree import YamlNode, list_names
from gpusched.devcluster.control.fault_rules import FaultRuleError, parse_rule
from gpusched.lab.scenario.expansion import templates
from gpusched.lab.scenario.expansion.moments import STAGE
from gpusched.lab.scenario.expansion.templates import is_template
from gpusched.lab.scenario.expansion.workload_manifests import (
    DEPLOYMENT,
    GROUP,
    JOB,
    POD,
    manifest_duration,
)
from gpusched.lab.scenario.file import objects
from gpusched.lab.scenario.file.context import ReadContext, json_value
from gpusched.lab.scenario.file.fields import ACT_NAMES
from gpusched.lab.scenario.file.mappings import MappingValues
from gpusched.lab.scenario.file.workload_fields import NOTES
from gpusched.lab.scenario.model.scenario import (
    Act,
    ApplyAct,
    ArrivalProcess,
    CordonAct,
    DeleteAct,
    DrainAct,
    EntryTimes,
    EvictAct,
    FailNodeAct,
    FaultAct,
    PatchAct,
    RestartAct,
    ScaleAct,
    SubmitAct,
    Target,
    TimelineEntry,
)
from gpusched.lab.scenario.model.workload import (
    GpuRequest,
    PodRole,
    SubGroupSpec,
    WorkloadSpec,
    WorkloadTopology,
)

_ONLY: Final = {
    "deadline": (JOB,),
    "backoffLimit": (JOB,),
    "suspend": (JOB,),
    "roles": (GROUP,),
    "minSubGroups": (GROUP,),
    "subGroups": (GROUP,),
    "minMember": (JOB, GROUP),
    "pods": (JOB, GROUP, DEPLOYMENT),
    "runFor": (JOB, GROUP, POD),
}
"""Fields that only some kinds can say."""


def read_workload(found: MappingValues, reading: ReadContext, *, repeated: bool) -> WorkloadSpec:
    """The workload.

    Args:
        found: its fields.
        reading: takes what is wrong.
        repeated: it comes more than once, so that its name needs a number.
    """
    name = found.get("name", "workload")
    if repeated and not is_template(name):
        name += "-{{ Index }}"
    work = WorkloadSpec(
        name=name,
        kind=found.get("kind", JOB),
        namespace=found.get("namespace", "default"),
        pods=found.get("pods", 1),
        min_member=found.get("minMember"),
        min_sub_groups=found.get("minSubGroups"),
        gpus=found.get("gpus", 0),
        cpu=found.get("cpu", "1"),
        memory=found.get("memory", "1Gi"),
        share=GpuRequest(
            fraction=found.get("fraction", ""),
            memory=found.get("gpuMemory", ""),
            mig=found.get("mig", ""),
            slices=found.get("slices", 1),
            resources=found.get("resources", {}),
        ),
        queue=found.get("queue", ""),
        priority=found.get("priority", ""),
        preemptible=found.get("preemptible"),
        min_runtime_s=found.get("minRuntime"),
        run_for_s=found.get("runFor"),
        expected=found.get("expectedDuration"),
        topology=_wish(found.get("topology")),
        deadline_s=found.get("deadline"),
        backoff_limit=found.get("backoffLimit"),
        suspend=found.get("suspend"),
        klass=found.get("class", ""),
        notes=_notes(found),
        labels=found.get("labels", {}),
        annotations=found.get("annotations", {}),
        node_selector=found.get("nodeSelector", {}),
        tolerations=tuple(json_value(each) for each in found.get("tolerations", ())),
        roles=tuple(map(_role, found.get("roles", ()))),
        sub_groups=tuple(map(_sub_group, found.get("subGroups", ()))),
    )
    _check(work, found, reading)
    if work.roles and len(work.roles) == len(found.get("roles")):
        _check_roles(work, found, reading)
    return work


def _sub_group(found: MappingValues) -> SubGroupSpec:
    return SubGroupSpec(
        name=found.get("name", "sub-group"),
        parent=found.get("parent", ""),
        min_sub_groups=found.get("minSubGroups"),
        topology=_wish(found.get("topology")),
    )


def _role(found: MappingValues) -> PodRole:
    return PodRole(
        name=found.get("name", "role"),
        pods=found.get("pods", 1),
        gpus=found.get("gpus", 0),
        cpu=found.get("cpu", "1"),
        memory=found.get("memory", "1Gi"),
        min_member=found.get("minMember"),
        sub_group=found.get("subGroup", ""),
        topology=_wish(found.get("topology")),
    )


def _wish(found: MappingValues | None) -> WorkloadTopology:
    if found is None:
        return WorkloadTopology()
    return WorkloadTopology(
        required=found.get("required", ""),
        preferred=found.get("preferred", ""),
        max_wait_s=found.get("maxWait"),
    )


def _notes(found: MappingValues) -> dict[str, str]:
    notes = {}
    for field, (key, _, _) in NOTES.items():
        value: Any = found.get(field)
        if value is None:
            continue
        whole = isinstance(value, int | str)
        notes[key] = str(value) if whole else _number(field, value)
    return notes


def _number(field: str, value: float) -> str:
    return f"{value:g}" if field == "failChance" else manifest_duration(value)


def _check(work: WorkloadSpec, found: MappingValues, reading: ReadContext) -> None:
    problems = reading.problems
    for field, kinds in _ONLY.items():
        if field in found and work.kind not in kinds:
            problems.add(
                found.line_of(field), f"{field} is of kind {' or '.join(kinds)}, not {work.kind}"
            )
    if work.topology.max_wait_s is not None and work.kind != GROUP:
        problems.add(
            found.line_of("topology"), "topology.maxWait needs a PodGroup: write kind: PodGroup"
        )
    if work.expected is True and work.run_for_s is None:
        problems.add(
            found.line_of("expectedDuration"), "expectedDuration: true needs runFor, which it tells"
        )
    pods, least = work.pods, work.min_member
    if isinstance(pods, int) and isinstance(least, int) and least > pods:
        problems.add(found.line_of("minMember"), f"minMember is {least}, of {pods} pods")
    if work.suspend is False or work.suspend is None or work.queue:
        return
    problems.add(
        found.line_of("suspend"), "suspend: true needs a queue: nobody else would start the Job"
    )


def _check_roles(work: WorkloadSpec, found: MappingValues, reading: ReadContext) -> None:
    """What the roles of a PodGroup mean together."""
    problems = reading.problems
    seen: set[str] = set()
    groups: dict[str, WorkloadTopology] = {}
    for role, each in zip(work.roles, found.get("roles", ()), strict=True):
        if role.name in seen:
            problems.add(each.line_of("name"), f"role {role.name} is there twice")
        seen.add(role.name)
        if role.min_member is not None and role.min_member > role.pods:
            problems.add(
                each.line_of("minMember"), f"minMember is {role.min_member}, of {role.pods} pods"
            )
        if role.topology and not role.sub_group:
            problems.add(each.line_of("topology"), "topology of a role needs its subGroup")
        if role.topology and groups.setdefault(role.sub_group, role.topology) != role.topology:
            problems.add(each.line_of("topology"), f"sub-group {role.sub_group} has two topologies")
    total = sum(role.pods for role in work.roles)
    if total > GANG_PODS_MAX:
        problems.add(
            found.line_of("roles"), f"the roles have {total} pods, at most {GANG_PODS_MAX}"
        )
    if work.min_sub_groups is not None:
        nested = {each.name for each in work.sub_groups if each.parent}
        named = {role.sub_group for role in work.roles if role.sub_group} - nested
        named |= {each.name for each in work.sub_groups if not each.parent}
        if work.min_sub_groups > len(named):
            problems.add(
                found.line_of("minSubGroups"),
                f"minSubGroups is {work.min_sub_groups}, of {len(named)} sub-groups",
            )


def read_entry(found: MappingValues, reading: ReadContext) -> TimelineEntry | None:
    """One entry; None (and told) when it does nothing that can be understood."""
    when = _when(found, reading)
    name = next((name for name in ACT_NAMES if name in found.values), None)
    if name is None:
        return None
    _check_templates(found.entries[name].node, reading)
    value = found.values[name]
    act = _ACTS[name](value, reading, found, when)
    if act is None:
        return None
    return TimelineEntry(
        when,
        act,
        reading.place(found.line),
        say=found.get("say", ""),
        unchecked=found.get("unchecked", False),
    )


def _check_templates(node: YamlNode, reading: ReadContext) -> None:
    """Each text of an act, so that what does not parse is told at its own line."""
    if isinstance(node.value, dict):
        kind = node.value.get("kind")
        if kind is not None and kind.node.value == STAGE:
            return
        for each in node.value.values():
            _check_templates(each.node, reading)
    elif isinstance(node.value, tuple):
        for item in node.value:
            _check_templates(item, reading)
    elif isinstance(node.value, str) and (fault := templates.template_error(node.value)):
        reading.problems.add(node.line, fault)


def _when(found: MappingValues, reading: ReadContext) -> EntryTimes:
    problems = reading.problems
    every = found.get("every", 0.0)
    repeats = "every" in found
    if repeats and "count" not in found and "until" not in found:
        problems.add(
            found.line_of("every"), "every needs count or until: this timeline would never end"
        )
    for key in ("until", "arrivals", "day"):
        if key in found and not repeats:
            problems.add(found.line_of(key), f"{key} needs every")
    day = found.get("day", ())
    if day and not sum(day):
        problems.add(found.line_of("day"), "day has no hour in which anything happens")
        day = ()
    at, until = found.get("at", 0.0), found.get("until")
    if until is not None and until < at:
        problems.add(found.line_of("until"), "until is before at: this would never happen")
    return EntryTimes(
        at_s=at,
        every_s=every,
        count=found.get("count", None if repeats and until is not None else 1),
        until_s=until,
        process=ArrivalProcess(found.get("arrivals", "fixed")),
        seed=found.get("seed", 0),
        day=day,
    )


def read_target(found: MappingValues, *, kind: str = "") -> Target:
    """A target out of its fields."""
    return Target(
        kind=found.get("kind", kind),
        name=found.get("name", ""),
        namespace=found.get("namespace", "default"),
        api_version=found.get("apiVersion", ""),
        labels=found.get("labels", {}),
    )


def _nodes(value: str | MappingValues) -> Target:
    if isinstance(value, str):
        return Target(kind="Node", name=value, namespace="")
    return Target(
        kind="Node", name=value.get("name", ""), namespace="", labels=value.get("labels", {})
    )


# -- acts --------------------------------------------------------------------------------------
def _submit(
    value: MappingValues, reading: ReadContext, _: MappingValues, when: EntryTimes
) -> SubmitAct:
    repeated = when.every_s > 0 or when.count != 1
    return SubmitAct(read_workload(value, reading, repeated=repeated))


def _apply(value: YamlNode | tuple[YamlNode, ...], reading: ReadContext, *_: Any) -> ApplyAct:
    items = value if isinstance(value, tuple) else (value,)
    return ApplyAct(tuple(objects.read_object_list(items, reading)))


def _delete(value: MappingValues, *_: Any) -> DeleteAct:
    grace = value.get("grace")
    return DeleteAct(read_target(value), None if grace is None else round(grace))


def _patch(value: MappingValues, *_: Any) -> PatchAct | None:
    if "merge" not in value.values:
        return None
    return PatchAct(read_target(value), json_value(value.get("merge")), value.get("status", False))


def _scale(value: MappingValues, *_: Any) -> ScaleAct:
    return ScaleAct(read_target(value), value.get("replicas", 0))


def _fail(value: MappingValues, reading: ReadContext, *_: Any) -> FailNodeAct:
    how, gpus = value.get("how", "notReady"), value.get("gpus", 0)
    if (how == "gpus") != ("gpus" in value):
        line = value.line_of("gpus" if "gpus" in value else "how")
        reading.problems.add(line, "gpus: NUMBER and how: gpus need each other")
    nodes = Target(
        kind="Node", name=value.get("node", ""), namespace="", labels=value.get("labels", {})
    )
    if not nodes.name and not nodes.labels:
        reading.problems.add(value.line, f"a failure needs one of {list_names(('node', 'labels'))}")
    return FailNodeAct(nodes, how, value.get("for"), gpus)


def _fault(value: MappingValues, reading: ReadContext, *_: Any) -> FaultAct:
    rule = {key: json_value(each.node) for key, each in value.entries.items() if key != "for"}
    try:
        parse_rule(rule, default_name="rule")
    except FaultRuleError as error:
        reading.problems.add(_line_in(value, error.path), f"fault: {error}")
    return FaultAct(rule, value.get("for"))


def _line_in(value: MappingValues, path: tuple[str | int, ...]) -> int:
    """The line of the innermost part of a path that is written."""
    line, entries = value.line, value.entries
    for step in path:
        found = entries.get(step) if isinstance(step, str) else None
        if found is None:
            break
        line = found.line
        if not isinstance(found.node.value, dict):
            break
        entries = found.node.value
    return line


def _restart(value: MappingValues, reading: ReadContext, *_: Any) -> RestartAct:
    what = value.get("what", "scheduler")
    if "afterWrites" in value and what != "leader":
        reading.problems.add(value.line_of("afterWrites"), f"afterWrites is of leader, not {what}")
    return RestartAct(what, value.get("down", 0.0), value.get("afterWrites", 0))


_ACTS: Final[dict[str, Callable[..., Act | SubmitAct | None]]] = {
    "submit": _submit,
    "apply": _apply,
    "delete": _delete,
    "patch": _patch,
    "scale": _scale,
    "cordon": lambda value, *_: CordonAct(_nodes(value)),
    "uncordon": lambda value, *_: CordonAct(_nodes(value), on=False),
    "drain": lambda value, *_: DrainAct(_nodes(value)),
    "fail": _fail,
    "evict": lambda value, *_: EvictAct(read_target(value, kind="Pod")),
    "fault": _fault,
    "restart": _restart,
}

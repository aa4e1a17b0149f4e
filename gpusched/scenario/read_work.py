"""A workload in short, out of its fields; what its fields mean together is checked here."""

from __future__ import annotations

from typing import Any, Final

from gpusched.limits import GANG_PODS_MAX
from gpusched.scenario.fields_work import NOTES
from gpusched.scenario.mappings import Found
from gpusched.scenario.reading import Reading, plain
from gpusched.scenario.templates import is_template
from gpusched.scenario.work import Role, Share, Wish, Workload
from gpusched.scenario.workloads import DEPLOYMENT, GROUP, JOB, POD, text_of

_ONLY: Final = {
    "deadline": (JOB,),
    "backoffLimit": (JOB,),
    "suspend": (JOB,),
    "roles": (GROUP,),
    "minSubGroups": (GROUP,),
    "minMember": (JOB, GROUP),
    "pods": (JOB, GROUP, DEPLOYMENT),
    "runFor": (JOB, GROUP, POD),
}
"""Fields that only some kinds can say."""


def workload(found: Found, reading: Reading, *, repeated: bool) -> Workload:
    """The workload.

    Args:
        found: its fields.
        reading: takes what is wrong.
        repeated: it comes more than once, so that its name needs a number.
    """
    name = found.get("name", "workload")
    if repeated and not is_template(name):
        name += "-{{ Index }}"
    work = Workload(
        name=name,
        kind=found.get("kind", JOB),
        namespace=found.get("namespace", "default"),
        pods=found.get("pods", 1),
        min_member=found.get("minMember"),
        min_sub_groups=found.get("minSubGroups"),
        gpus=found.get("gpus", 0),
        cpu=found.get("cpu", "1"),
        memory=found.get("memory", "1Gi"),
        share=Share(
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
        tolerations=tuple(plain(each) for each in found.get("tolerations", ())),
        roles=tuple(map(_role, found.get("roles", ()))),
    )
    _check(work, found, reading)
    if work.roles and len(work.roles) == len(found.get("roles")):
        _check_roles(work, found, reading)
    return work


def _role(found: Found) -> Role:
    return Role(
        name=found.get("name", "role"),
        pods=found.get("pods", 1),
        gpus=found.get("gpus", 0),
        cpu=found.get("cpu", "1"),
        memory=found.get("memory", "1Gi"),
        min_member=found.get("minMember"),
        sub_group=found.get("subGroup", ""),
        topology=_wish(found.get("topology")),
    )


def _wish(found: Found | None) -> Wish:
    if found is None:
        return Wish()
    return Wish(
        required=found.get("required", ""),
        preferred=found.get("preferred", ""),
        max_wait_s=found.get("maxWait"),
    )


def _notes(found: Found) -> dict[str, str]:
    notes = {}
    for field, (key, _, _) in NOTES.items():
        value: Any = found.get(field)
        if value is None:
            continue
        whole = isinstance(value, int | str)
        notes[key] = str(value) if whole else _number(field, value)
    return notes


def _number(field: str, value: float) -> str:
    return f"{value:g}" if field == "failChance" else text_of(value)


def _check(work: Workload, found: Found, reading: Reading) -> None:
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


def _check_roles(work: Workload, found: Found, reading: Reading) -> None:
    """What the roles of a PodGroup mean together."""
    problems = reading.problems
    seen: set[str] = set()
    groups: dict[str, Wish] = {}
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
        named = {role.sub_group for role in work.roles if role.sub_group}
        if work.min_sub_groups > len(named):
            problems.add(
                found.line_of("minSubGroups"),
                f"minSubGroups is {work.min_sub_groups}, of {len(named)} sub-groups",
            )

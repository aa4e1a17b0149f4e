"""Namespaces, PriorityClasses, PodDisruptionBudgets and Jobs: from the wire to the entity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec

from gpusched.limits import FOREIGN_TEXT_MAX, GANG_PODS_MAX
from gpusched.objects import hints, split, wire, wire_groups
from gpusched.objects.codec import KindCodec
from gpusched.objects.decode_pod import DEFAULT_SCHEDULER, class_of
from gpusched.objects.fields import (
    check_identity,
    decode_part,
    interned,
    labels_of,
    number,
    uid_of,
    version_of,
)
from gpusched.objects.membership import family_of
from gpusched.objects.meta import Disbelief, Owner, Rejected, parse_time
from gpusched.objects.move import parse_move
from gpusched.objects.others import (
    ClassTerm,
    DisruptionBudget,
    Job,
    JobTemplate,
    Namespace,
    PriorityClass,
    ResourceQuota,
)
from gpusched.objects.pod import NO_HINTS
from gpusched.objects.quantity import QuantityError, parse_quantity
from gpusched.objects.rules import parse_selector
from gpusched.objects.share import share_of
from gpusched.objects.units import power_of

_CLASS_SCOPE: Final = "PriorityClass"
_ENDS: Final = frozenset({"Complete", "Failed"})
_POD_SPEC: Final = msgspec.json.Decoder(wire.PodSpec)


def namespace_of(parsed: wire_groups.Namespace) -> Namespace:
    """A parsed namespace as an entity.

    Raises:
        Disbelief: it cannot be believed.
    """
    metadata = parsed.metadata
    check_identity(metadata, namespaced=False)
    labels = labels_of(metadata)
    return Namespace(
        name=metadata.name,
        uid=uid_of(metadata),
        resource_version=version_of(metadata),
        labels=labels,
        queue=hints.queue_of(labels, metadata.annotations),
    )


def priority_class_of(parsed: wire_groups.PriorityClass) -> PriorityClass:
    """A parsed PriorityClass as an entity.

    Raises:
        Disbelief: it cannot be believed.
    """
    metadata = parsed.metadata
    check_identity(metadata, namespaced=False)
    return PriorityClass(
        name=metadata.name,
        uid=uid_of(metadata),
        resource_version=version_of(metadata),
        value=parsed.value,
        preemption_policy=parsed.preemption_policy or "PreemptLowerPriority",
        preemptible=hints.hints_of(metadata.annotations).preemptible,
    )


def quota_of(parsed: wire_groups.ResourceQuota) -> ResourceQuota:
    """A parsed ResourceQuota as an entity.

    Raises:
        Disbelief: it cannot be believed.
    """
    metadata = parsed.metadata
    check_identity(metadata, namespaced=True)
    spec = parsed.spec or wire_groups.ResourceQuotaSpec()
    selector = spec.scope_selector or wire_groups.ScopeSelector()
    terms = [ClassTerm("Exists") for scope in spec.scopes or () if scope == _CLASS_SCOPE]
    terms += [
        ClassTerm(term.operator, tuple(term.values or ()))
        for term in selector.match_expressions or ()
        if term.scope_name == _CLASS_SCOPE
    ]
    return ResourceQuota(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=uid_of(metadata),
        resource_version=version_of(metadata),
        classes=tuple(terms),
        left=_left(parsed.status) if terms else (),
    )


def _left(status: wire_groups.ResourceQuotaStatus | None) -> tuple[tuple[str, int], ...]:
    status = status or wire_groups.ResourceQuotaStatus()
    used = status.used or {}
    found = {}
    for name, text in (status.hard or {}).items():
        field = f"status.hard[{name[:FOREIGN_TEXT_MAX]}]"
        power = power_of(name.removeprefix("requests.").removeprefix("limits."))
        try:
            hard = parse_quantity(str(text), power=power)
            found[name] = max(0, hard - parse_quantity(str(used.get(name, "0")), power=power))
        except QuantityError as why:
            raise Disbelief(field, str(why)) from None
    return tuple(sorted(found.items()))


def budget_of(parsed: wire_groups.DisruptionBudget) -> DisruptionBudget:
    """A parsed PodDisruptionBudget as an entity; without a selector it guards no pod.

    Raises:
        Disbelief: it cannot be believed.
    """
    metadata = parsed.metadata
    check_identity(metadata, namespaced=True)
    selector = parsed.spec.selector if parsed.spec else None
    return DisruptionBudget(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=uid_of(metadata),
        resource_version=version_of(metadata),
        selector=None
        if selector is None
        else parse_selector(
            selector.match_labels, selector.match_expressions, field="spec.selector"
        ),
        disruptions_allowed=max(0, (parsed.status and parsed.status.disruptions_allowed) or 0),
    )


def job_of(parsed: wire_groups.Job) -> Job:
    """A parsed Job as an entity; what it does not say itself its pod template may say.

    Raises:
        Disbelief: it cannot be believed.
    """
    metadata, spec = parsed.metadata, parsed.spec or wire_groups.JobSpec()
    check_identity(metadata, namespaced=True)
    labels = labels_of(metadata)
    template = (spec.template.metadata if spec.template else None) or wire.PodMetadata()
    template_labels = interned(template.labels or {})
    own_hints = hints.hints_of(metadata.annotations)
    template_hints = hints.hints_of(template.annotations)
    started = _started_by_us(parsed)
    native = started["template"].native if started.get("template") else ""
    group = hints.group_of(template_labels, template.annotations, native)
    return Job(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=uid_of(metadata),
        resource_version=version_of(metadata),
        created=parse_time(metadata.creation_timestamp or ""),
        parallelism=1 if spec.parallelism is None else spec.parallelism,
        completions=spec.completions,
        indexed=spec.completion_mode == "Indexed",
        suspended=bool(spec.suspend),
        succeeded=(parsed.status and parsed.status.succeeded) or 0,
        queue=hints.queue_of(labels, metadata.annotations)
        or hints.queue_of(template_labels, template.annotations),
        group=group,
        family=None
        if group
        else family_of(
            template_labels,
            template.annotations,
            Owner("Job", metadata.name, uid_of(metadata)),
            template_hints.min_member,
        ),
        hints=template_hints if own_hints == NO_HINTS else own_hints,
        finished=any(
            each.type in _ENDS and each.status == "True"
            for each in (parsed.status and parsed.status.conditions) or ()
        ),
        deadline_s=_deadline_s(spec, labels, metadata.annotations),
        ran_s=_ran_s(parsed.status),
        controlled=_controlled(parsed),
        move=parse_move(metadata.annotations.moved) if metadata.annotations else None,
        **started,
    )


def _ran_s(status: wire_groups.JobStatus | None) -> int:
    """How long it took; at least a second, so that even the shortest counts as known."""
    if status is None or not status.start_time or not status.completion_time:
        return 0
    return max(1, int(parse_time(status.completion_time) - parse_time(status.start_time)))


def _deadline_s(
    spec: wire_groups.JobSpec,
    labels: Mapping[str, str],
    notes: wire_groups.JobAnnotations | None,
) -> int:
    """The sooner of its own deadline and the one that Kueue would enforce, 0 for none."""
    said = labels.get(hints.MAX_EXEC_LABEL) or (notes and notes.max_exec) or ""
    limits = [spec.active_deadline_seconds or 0, hints.seconds_of(said)]
    return min((limit for limit in limits if limit), default=0)


def _controlled(parsed: wire_groups.Job) -> bool:
    """Whether its controller suspends and starts it: a JobSet's Job is none of ours."""
    owners = [each.kind for each in parsed.metadata.owner_references or () if each.controller]
    return bool(owners) and owners[0] != "CronJob"


def _started_by_us(parsed: wire_groups.Job) -> dict[str, Any]:
    """What only a Job has that we are to start, or that we started."""
    spec, notes = parsed.spec, parsed.metadata.annotations
    notes = notes or wire_groups.JobAnnotations()
    admitted = notes.admitted or ""
    if spec is None or spec.template is None or not (spec.suspend or admitted):
        return {}
    if _controlled(parsed):
        return {}
    return {
        "template": _template(spec.template),
        "admitted": parse_time(admitted),
        "seal": (notes.seal or "")[:FOREIGN_TEXT_MAX],
        "full_parallelism": _count("gpusched.io/parallelism", notes.parallelism),
        "min_parallelism": _count("kueue.x-k8s.io/job-min-parallelism", notes.min_parallelism),
    }


def _count(name: str, text: str | None) -> int:
    if text is None:
        return 0
    return number(text, field=f"metadata.annotations[{name}]", low=1, high=GANG_PODS_MAX)


def _template(template: wire_groups.PodTemplate) -> JobTemplate | None:
    spec = decode_part(_POD_SPEC, bytes(template.spec), field="spec.template.spec")
    if spec is None:
        return None
    metadata = template.metadata or wire.PodMetadata()
    labels = interned(metadata.labels or {})
    return JobTemplate(
        pod_class=class_of(spec, share_of(labels, metadata.annotations)),
        scheduler=spec.scheduler_name or DEFAULT_SCHEDULER,
        labels=labels,
        priority_class=spec.priority_class_name or "",
        may_preempt=spec.preemption_policy != "Never",
        role=hints.role_of(labels, metadata.annotations),
        native=(spec.scheduling_group and spec.scheduling_group.pod_group_name) or "",
    )


def _adorned_job(rejected: Rejected, parts: dict[str, bytes]) -> Rejected:
    """A rejected Job with the scheduler of its pods, by which we know whose it is."""
    spec = split.members(parts.get("spec", b"{}"))
    pods = split.members(split.members(spec.get("template", b"{}")).get("spec", b"{}"))
    return attrs.evolve(
        rejected, scheduler=split.text(pods.get("schedulerName")) or DEFAULT_SCHEDULER
    )


NAMESPACES: Final = KindCodec("Namespace", wire_type=wire_groups.Namespace, entity=namespace_of)
PRIORITY_CLASSES: Final = KindCodec(
    "PriorityClass", wire_type=wire_groups.PriorityClass, entity=priority_class_of
)
DISRUPTION_BUDGETS: Final = KindCodec(
    "PodDisruptionBudget", wire_type=wire_groups.DisruptionBudget, entity=budget_of
)
RESOURCE_QUOTAS: Final = KindCodec(
    "ResourceQuota", wire_type=wire_groups.ResourceQuota, entity=quota_of
)
JOBS: Final = KindCodec("Job", wire_type=wire_groups.Job, entity=job_of, adorn=_adorned_job)

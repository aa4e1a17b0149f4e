"""Jobs: from the wire to the entity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec

from gpusched.api.devices.gpu_share import read_gpu_share
from gpusched.api.gang.eviction_record import parse_evictions
from gpusched.api.gang.move_record import parse_move
from gpusched.api.gang.turn_record import parse_turn
from gpusched.api.jobs import wire as job_wire
from gpusched.api.jobs.job import DEFAULT_BACKOFF_LIMIT, Job, JobTemplate
from gpusched.api.meta import raw_json
from gpusched.api.meta.codec import KindCodec
from gpusched.api.meta.fields import (
    check_identity,
    decode_part,
    interned,
    parse_number,
    printable_text,
    read_hold,
    read_labels,
    read_resource_version,
    read_uid,
)
from gpusched.api.meta.identity import (
    NO_CREATOR,
    Creator,
    Owner,
    Rejected,
    parse_time,
    read_creator,
)
from gpusched.api.pod import gang_annotations
from gpusched.api.pod import wire as pod_wire
from gpusched.api.pod.decode import DEFAULT_SCHEDULER, intern_pod_class
from gpusched.api.pod.extended_requests import has_extended, read_extended_requests
from gpusched.api.pod.gang_membership import read_gang_membership
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS
from gpusched.base.limits import FOREIGN_TEXT_MAX, GANG_PODS_MAX
from gpusched.base.shared_texts import shared_text

_ENDS: Final = frozenset({"Complete", "Failed"})
_INDEX_DIGITS: Final = 10
_POD_NAMES: Final = msgspec.json.Decoder(job_wire.PodNames)
_NO_NAMES: Final = job_wire.PodNames()
_POD_SPEC: Final = msgspec.json.Decoder(pod_wire.PodSpec)


def decode_job(parsed: job_wire.WireJob) -> Job:
    """A parsed Job as an entity; what it does not say itself its pod template may say.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata, spec = parsed.metadata, parsed.spec or job_wire.JobSpec()
    check_identity(metadata, namespaced=True)
    labels = read_labels(metadata)
    template = (spec.template.metadata if spec.template else None) or pod_wire.PodMetadata()
    template_labels = interned(template.labels or {})
    own_hints = gang_annotations.read_gang_annotations(metadata.annotations)
    template_hints = gang_annotations.read_gang_annotations(template.annotations)
    started = _started_by_us(parsed)
    names = _names_of_pods(spec.template)
    native = started["template"].native if started.get("template") else ""
    group = gang_annotations.read_group_name(template_labels, template.annotations, native)
    return Job(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        created=parse_time(metadata.creation_timestamp or ""),
        parallelism=1 if spec.parallelism is None else spec.parallelism,
        completions=spec.completions,
        indexed=spec.completion_mode == "Indexed",
        suspended=bool(spec.suspend),
        succeeded=(parsed.status and parsed.status.succeeded) or 0,
        queue=gang_annotations.read_queue_name(labels, metadata.annotations)
        or gang_annotations.read_queue_name(template_labels, template.annotations),
        group=group,
        family=None
        if group
        else read_gang_membership(
            template_labels,
            template.annotations,
            Owner("Job", metadata.name, read_uid(metadata)),
            template_hints.min_member,
        ),
        hints=template_hints if own_hints == NO_GANG_ANNOTATIONS else own_hints,
        **_end(parsed.status),
        role=shared_text(gang_annotations.read_role(template_labels, template.annotations)),
        sub_group=shared_text(gang_annotations.read_sub_group(template_labels)),
        failed=_failed(parsed.status),
        failed_indexes=_count_indexes((parsed.status and parsed.status.failed_indexes) or ""),
        backoff_limit=_backoff_limit(spec),
        limit_per_index=spec.backoff_limit_per_index is not None,
        ignores_evictions=_ignores_evictions(spec.pod_failure_policy),
        deadline_s=_deadline_s(spec, labels, metadata.annotations),
        ran_s=_ran_s(parsed.status),
        controlled=_controlled(parsed),
        hold=read_hold(metadata.annotations.hold if metadata.annotations else None),
        scheduler=shared_text(names.scheduler_name),
        priority_class=shared_text(names.priority_class_name),
        **_records(metadata.annotations),
        creator=_creator(metadata.annotations),
        **started,
    )


def _records(annotations: job_wire.JobAnnotations | None) -> dict[str, Any]:
    """What was recorded of its gang on the Job, not yet believed."""
    if annotations is None:
        return {}
    return {
        "move": parse_move(annotations.moved),
        "turn": parse_turn(annotations.turn),
        "evictions": parse_evictions(annotations.evictions),
    }


def _creator(notes: job_wire.JobAnnotations | None) -> Creator:
    return read_creator(notes.user, notes.groups) if notes is not None else NO_CREATOR


def _names_of_pods(template: job_wire.PodTemplate | None) -> job_wire.PodNames:
    """What its pods name; nothing where that cannot be read, which is for the API server to refuse."""
    try:
        return _POD_NAMES.decode(bytes(template.spec)) if template is not None else _NO_NAMES
    except msgspec.MsgspecError:
        return _NO_NAMES


def _end(status: job_wire.JobStatus | None) -> dict[str, Any]:
    """Whether it is over, and since when."""
    conditions = (status and status.conditions) or ()
    ends = [each for each in conditions if each.type in _ENDS and each.status == "True"]
    times = (parse_time(each.last_transition_time or "") for each in ends)
    return {"finished": bool(ends), "ended": max(times, default=0.0)}


def _failed(status: job_wire.JobStatus | None) -> str:
    """Reason and message of its condition Failed; empty while that does not hold."""
    for each in (status and status.conditions) or ():
        if each.type == "Failed" and each.status == "True":
            told = printable_text(": ".join(filter(None, (each.reason, each.message))))
            return told[:FOREIGN_TEXT_MAX] or "Failed"
    return ""


def _count_indexes(text: str) -> int:
    """How many indexes a list such as ``1,3-5`` names; 0 for what is no such list."""
    count = 0
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        if not (first.isdecimal() and first.isascii() and len(first) < _INDEX_DIGITS):
            return 0
        if last and not (last.isdecimal() and last.isascii() and len(last) < _INDEX_DIGITS):
            return 0
        count += max(0, int(last or first) - int(first) + 1)
    return count


def _backoff_limit(spec: job_wire.JobSpec) -> int:
    if spec.backoff_limit_per_index is not None:
        return spec.backoff_limit_per_index
    return DEFAULT_BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit


def _ignores_evictions(policy: job_wire.PodFailurePolicy | None) -> bool:
    """Whether the first rule that may fit an evicted pod ignores it.

    An evicted container may end with any exit code, so a rule about those counts as one that fits.
    """
    for rule in (policy and policy.rules) or ():
        fits = any(
            each.type == "DisruptionTarget" and (each.status or "True") == "True"
            for each in rule.on_pod_conditions or ()
        )
        if fits or rule.on_exit_codes is not None:
            return fits and rule.action == "Ignore"
    return False


def _ran_s(status: job_wire.JobStatus | None) -> int:
    """How long it took; at least a second, so that even the shortest counts as known."""
    if status is None or not status.start_time or not status.completion_time:
        return 0
    return max(1, int(parse_time(status.completion_time) - parse_time(status.start_time)))


def _deadline_s(
    spec: job_wire.JobSpec,
    labels: Mapping[str, str],
    notes: job_wire.JobAnnotations | None,
) -> int:
    """The sooner of its own deadline and the one that Kueue would enforce, 0 for none."""
    said = labels.get(gang_annotations.MAX_EXEC_LABEL) or (notes and notes.max_exec) or ""
    limits = [spec.active_deadline_seconds or 0, gang_annotations.parse_seconds(said)]
    return min((limit for limit in limits if limit), default=0)


def _controlled(parsed: job_wire.WireJob) -> bool:
    """Whether its controller suspends and starts it: a JobSet's Job is none of ours."""
    owners = [each.kind for each in parsed.metadata.owner_references or () if each.controller]
    return bool(owners) and owners[0] != "CronJob"


def _started_by_us(parsed: job_wire.WireJob) -> dict[str, Any]:
    """What only a Job has that we are to start, or that we started."""
    spec, notes = parsed.spec, parsed.metadata.annotations
    notes = notes or job_wire.JobAnnotations()
    admitted = notes.admitted or ""
    if spec is None or spec.template is None or not (spec.suspend or admitted):
        return {}
    if _controlled(parsed):
        return {}
    return {
        "template": _template(spec.template, parsed.metadata.namespace),
        "admitted": parse_time(admitted),
        "seal": (notes.seal or "")[:FOREIGN_TEXT_MAX],
        "full_parallelism": _count("gpusched.io/parallelism", notes.parallelism),
        "min_parallelism": _count("kueue.x-k8s.io/job-min-parallelism", notes.min_parallelism),
    }


def _count(name: str, text: str | None) -> int:
    if text is None:
        return 0
    return parse_number(text, field=f"metadata.annotations[{name}]", low=1, high=GANG_PODS_MAX)


def _template(template: job_wire.PodTemplate, namespace: str) -> JobTemplate | None:
    spec = decode_part(_POD_SPEC, bytes(template.spec), field="spec.template.spec")
    if spec is None:
        return None
    metadata = template.metadata or pod_wire.PodMetadata()
    labels = interned(metadata.labels or {})
    pod_class = intern_pod_class(
        spec, read_gpu_share(labels, metadata.annotations), namespace=namespace
    )
    return JobTemplate(
        pod_class=pod_class,
        scheduler=spec.scheduler_name or DEFAULT_SCHEDULER,
        labels=labels,
        priority_class=spec.priority_class_name or "",
        may_preempt=spec.preemption_policy != "Never",
        role=gang_annotations.read_role(labels, metadata.annotations),
        native=(spec.scheduling_group and spec.scheduling_group.pod_group_name) or "",
        extended=read_extended_requests(spec) if has_extended(pod_class.requests) else (),
    )


def _add_rejected_job_details(rejected: Rejected, parts: dict[str, bytes]) -> Rejected:
    """A rejected Job with the scheduler of its pods, by which we know whether it is ours."""
    spec = raw_json.raw_members(parts.get("spec", b"{}"))
    pods = raw_json.raw_members(
        raw_json.raw_members(spec.get("template", b"{}")).get("spec", b"{}")
    )
    return attrs.evolve(
        rejected, scheduler=raw_json.raw_text(pods.get("schedulerName")) or DEFAULT_SCHEDULER
    )


JOBS: Final = KindCodec(
    "Job",
    wire_type=job_wire.WireJob,
    entity=decode_job,
    adorn=_add_rejected_job_details,
    note_keys=lambda job, said: attrs.evolve(job, strange_keys=said),
)

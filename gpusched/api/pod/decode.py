"""Pods: from the wire to the entity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import attrs
import msgspec

from gpusched.api.devices.gpu_share import KEYS, GpuShare, read_gpu_share
from gpusched.api.devices.slots import SLOTS, gpu_request, parse_slots
from gpusched.api.gang.charge_record import ChargeRecord, parse_charge
from gpusched.api.meta import raw_json, wire
from gpusched.api.meta.codec import KindCodec
from gpusched.api.meta.fields import (
    check_identity,
    decode_part,
    parse_number,
    printable_text,
    quoted,
    read_hold,
    read_labels,
    read_resource_version,
    read_uid,
)
from gpusched.api.meta.identity import (
    NO_CREATOR,
    UID,
    InvalidObject,
    Owner,
    Rejected,
    RejectedPodUsage,
    parse_time,
    read_creator,
)
from gpusched.api.meta.resources import Resources
from gpusched.api.pod import wire as pod_wire
from gpusched.api.pod.gang_annotations import (
    MAX_EXEC_LABEL,
    parse_seconds,
    read_gang_annotations,
    read_group_name,
    read_queue_name,
    read_role,
    read_sub_group,
)
from gpusched.api.pod.gang_membership import (
    controller_rank,
    has_controller_labels,
    native_membership,
    rank_block,
    read_gang_membership,
)
from gpusched.api.pod.pod import (
    ENDED,
    FAILED,
    GANG_WHOLE,
    PENDING,
    GangMembership,
    KubeletRefusal,
    Pod,
    PodClass,
    PodPhase,
)
from gpusched.api.pod.pod_class import PodClasses, read_pod_requests
from gpusched.api.pod.requests import readable_requests
from gpusched.base.limits import FOREIGN_TEXT_MAX, TEXT_MAX
from gpusched.base.shared_texts import shared_text

DEFAULT_SCHEDULER: Final = "default-scheduler"
_JOB_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_POD_INDEX: Final = "apps.kubernetes.io/pod-index"
_RANK_MAX: Final = 2**31 - 1
_PHASES: Final = {"": PENDING, **{phase.value: phase for phase in PodPhase}}
_REFUSALS: Final = frozenset({"UnexpectedAdmissionError", "TopologyAffinityError"})
_LACKS: Final = "OutOf"
"""Begins what the kubelet says of each resource: ``OutOfcpu``, ``OutOfnvidia.com/gpu``."""
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_ENDS: Final = frozenset({("DisruptionTarget", "True"), ("Ready", "False")})
"""Conditions, and what they are at a pod's end, whose transition tells of it where no container does."""

_classes = PodClasses()
_slots = lru_cache(maxsize=4096)(parse_slots)
_SPEC: Final = msgspec.json.Decoder(pod_wire.PodSpec)
_NOTES: Final = msgspec.json.Decoder(pod_wire.PodAnnotations)


def intern_pod_class(
    spec: pod_wire.PodSpec, share: GpuShare | None = None, *, namespace: str = ""
) -> PodClass:
    """The class of a pod with this spec and share in a namespace, one object with all equal ones.

    Raises:
        InvalidObject: a part of the spec that cannot be believed.
    """
    return _classes.class_of(spec, share=share, namespace=namespace)


def intern_decoded_class(made: PodClass) -> PodClass:
    """The one object of this process for a class that another process decoded."""
    return _classes.intern(made)


def decode_pod(parsed: pod_wire.WirePod) -> Pod:
    """A parsed pod as an entity.

    Raises:
        InvalidObject: a field of it is missing, malformed or out of bounds.
    """
    metadata, spec, status = parsed.metadata, parsed.spec, parsed.status
    check_identity(metadata, namespaced=True)
    labels = read_labels(metadata)
    notes = metadata.annotations
    phase = _PHASES.get(status.phase)
    if phase is None:
        raise InvalidObject("status.phase", f"{quoted(status.phase)} is no phase of a pod")
    pod_class, extended = _classes.content_of(
        spec,
        status if spec.node_name else None,
        read_gpu_share(labels, notes),
        namespace=metadata.namespace,
    )
    bound = _NOT_BOUND
    if spec.node_name and notes is not None:
        bound = _binding_notes(notes, pod_class, of_claims=bool(pod_class.claims or extended))
    scheduled, since, reason, message = _scheduling(status.conditions)
    created = parse_time(metadata.creation_timestamp or "")
    if spec.node_name and not scheduled:
        # Nobody said when it was bound: it runs since it was started, or at least since it exists.
        scheduled = parse_time(status.start_time or "") or created
    intern = shared_text
    owner = _owner(metadata.owner_references) if metadata.owner_references else None
    native = (spec.scheduling_group and spec.scheduling_group.pod_group_name) or ""
    group = intern(read_group_name(labels, notes, native))
    wishes = read_gang_annotations(notes)
    of_controller = has_controller_labels(labels)
    claims, own_claims = _claims(metadata.name, spec.volumes) if spec.volumes else ((), ())
    return Pod(
        namespace=intern(metadata.namespace),
        name=metadata.name,
        uid=read_uid(metadata),
        resource_version=read_resource_version(metadata),
        created=created,
        labels=labels,
        owner=owner,
        scheduler=intern(spec.scheduler_name) if spec.scheduler_name else DEFAULT_SCHEDULER,
        pod_class=pod_class,
        priority=spec.priority or 0,
        priority_class=intern(spec.priority_class_name) if spec.priority_class_name else "",
        group=group,
        queue=intern(read_queue_name(labels, notes)),
        role=intern(read_role(labels, notes)),
        sub_group=read_sub_group(labels),
        hints=wishes,
        rank=_rank(labels, notes, of_controller=of_controller),
        node=intern(spec.node_name),
        phase=phase,
        deleting=metadata.deletion_timestamp is not None,
        gated=bool(spec.scheduling_gates),
        gates=tuple(intern(each.name) for each in spec.scheduling_gates or ()),
        scheduled=scheduled,
        slots=bound.slots,
        plan=bound.plan,
        fence=bound.fence,
        proof=bound.proof,
        seal=bound.seal,
        charge=bound.charge,
        slots_error=bound.doubt,
        unschedulable_reason=reason,
        unschedulable=message,
        unschedulable_since=since,
        nominated=intern(status.nominated_node_name or ""),
        may_preempt=spec.preemption_policy != "Never",
        family=None if group else _family(spec, labels, notes, owner, wishes.min_member),
        block=rank_block(labels) if of_controller else 0,
        claims=claims,
        own_claims=own_claims,
        deadline_s=_deadline_s(spec.active_deadline_seconds or 0, labels),
        refusal=_kubelet_refusal(status, scheduled) if phase is FAILED else None,
        broken_since=_broken_since(status.conditions) if spec.node_name else 0.0,
        generated_claims=_generated_claims(status) if pod_class.claims else (),
        extended=extended,
        hold=read_hold(notes.hold if notes is not None else None),
        creator=read_creator(notes.user, notes.groups) if notes is not None else NO_CREATOR,
        extended_told=bytes(status.extended_resource_claim_status).decode() if extended else "",
        ended=_ended_at(status) if phase in ENDED else 0.0,
    )


def _generated_claims(status: pod_wire.PodStatus) -> tuple[tuple[str, str], ...]:
    """Names of claims that were made for the pod, by what the pod calls them."""
    found = status.resource_claim_statuses or ()
    return tuple(sorted((each.name, each.resource_claim_name or "") for each in found))


def _family(
    spec: pod_wire.PodSpec,
    labels: Mapping[str, str],
    notes: pod_wire.PodAnnotations | None,
    owner: Owner | None,
    min_member: int,
) -> GangMembership | None:
    """The gang that a pod names, which names no PodGroup."""
    if spec.workload_ref is not None and spec.workload_ref.name:
        return native_membership(spec.workload_ref)
    return read_gang_membership(labels, notes, owner, min_member)


def _claims(
    pod: str, volumes: Iterable[pod_wire.PodVolume]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of all claims that volumes are, and of those that are made for this pod."""
    named: list[str] = []
    own: list[str] = []
    for each in volumes:
        claim = each.persistent_volume_claim
        if claim is not None:
            named.append(claim.claim_name)
        elif each.ephemeral is not None:
            own.append(f"{pod}-{each.name}")
    if not own and len(named) < 2:
        return tuple(named), ()
    return tuple(sorted({*named, *own})), tuple(sorted(set(own)))


def _deadline_s(own: int, labels: Mapping[str, str]) -> int:
    said = labels.get(MAX_EXEC_LABEL)
    by_label = parse_seconds(said) if said else 0
    return min(own, by_label) if own and by_label else own or by_label


class _BindingNotes(NamedTuple):
    """What annotations tell of a binding; ``doubt`` is why the slots do not count."""

    slots: int = 0
    plan: str = ""
    fence: str = ""
    proof: str = ""
    seal: str = ""
    doubt: str = ""
    charge: ChargeRecord | None = None


_NOT_BOUND: Final = _BindingNotes()


def _binding_notes(
    notes: pod_wire.PodAnnotations, pod_class: PodClass, *, of_claims: bool
) -> _BindingNotes:
    """Of a bound pod, whose devices may be of claims; a plan without a fence is not of our making.

    Slots count, however they were written, as long as they are as many as the pod asks for: to leave
    free what a pod says it sits on costs less than to give it twice. Whose they are when another
    pod has them too is decided by the seal, see ``cache.ledger``.
    """
    wanted = 1 if pod_class.share is not None else pod_class.gpus
    # Slots of devices from claims are told for people: the claims say who has the devices.
    from_claims = of_claims and not wanted
    slots, doubt = (0, "") if from_claims else _believed_slots(notes.slots or "", wanted)
    if not notes.fence:
        return _BindingNotes(slots, doubt=doubt)
    intern = shared_text
    return _BindingNotes(
        slots,
        intern(notes.plan or ""),
        intern(notes.fence),
        intern((notes.proof or "")[:FOREIGN_TEXT_MAX]),
        (notes.seal or "")[:FOREIGN_TEXT_MAX],
        doubt,
        parse_charge(notes.charged),
    )


def _believed_slots(text: str, wanted: int) -> tuple[int, str]:
    """Slots that are as many as asked for; else none, and why."""
    try:
        slots = _slots(text)
    except InvalidObject as why:
        return 0, f"its annotation {SLOTS} cannot be read ({why.why})"
    claims = slots.bit_count()
    if claims in (0, wanted):
        return slots, ""
    return 0, (
        f"its annotation {SLOTS} claims {claims} GPU{'s' * (claims != 1)} and it asks for "
        f"{wanted or 'none'}"
    )


def _kubelet_refusal(status: pod_wire.PodStatus, scheduled: float) -> KubeletRefusal | None:
    """Whether the kubelet refused a failed pod: it says so, and no container ever was there."""
    reason = status.reason or ""
    if reason not in _REFUSALS and not reason.startswith(_LACKS):
        return None
    if status.container_statuses or status.init_container_statuses:
        return None
    return KubeletRefusal(printable_text(reason), parse_time(status.start_time or "") or scheduled)


def _ended_at(status: pod_wire.PodStatus) -> float:
    """When a pod that is over came to its end: its last container, else what conditions tell; 0.0 for nothing.

    A pod that its node never reported about again has no end of its containers.
    """
    ends = [
        each.state.terminated.finished_at
        for each in (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
        if each.state is not None and each.state.terminated is not None
    ]
    if not any(ends):
        ends = [
            each.last_transition_time
            for each in status.conditions or ()
            if (each.type, each.status) in _ENDS
        ]
    return max([0.0, *(parse_time(text) for text in ends if text)])


def _scheduling(conditions: Iterable[wire.WireCondition] | None) -> tuple[float, float, str, str]:
    """When the pod was scheduled; or since when it is not, with reason and message."""
    for each in conditions or ():
        if each.type != "PodScheduled":
            continue
        if each.status == "True":
            return parse_time(each.last_transition_time or ""), 0.0, "", ""
        message = (each.message or "")[:TEXT_MAX]
        since = parse_time(each.last_transition_time or "")
        return 0.0, since, shared_text(each.reason or ""), shared_text(message)
    return 0.0, 0.0, "", ""


def _broken_since(conditions: Iterable[wire.WireCondition] | None) -> float:
    """Since when its gang is below its minimum, as we wrote it; 0.0 while it is not."""
    for each in conditions or ():
        if each.type == GANG_WHOLE and each.status == "False":
            return parse_time(each.last_transition_time or "")
    return 0.0


def _owner(references: Iterable[wire.OwnerReference]) -> Owner | None:
    for each in references:
        if each.controller:
            return _shared_owner(each.kind, each.name, each.uid)
    return None


@lru_cache(maxsize=1024)
def _shared_owner(kind: str, name: str, uid: str) -> Owner:
    """Pods of one controller share the object."""
    return Owner(kind, name, UID(uid))


def _rank(
    labels: Mapping[str, str], notes: pod_wire.PodAnnotations | None, *, of_controller: bool
) -> int:
    text = labels.get(_JOB_INDEX)
    if text is not None:
        return _index(text, f"metadata.labels[{_JOB_INDEX}]")
    if notes is not None and notes.job_index is not None:
        return _index(notes.job_index, f"metadata.annotations[{_JOB_INDEX}]")
    if of_controller:
        rank = controller_rank(labels)
        if rank >= 0:
            return rank
    text = labels.get(_POD_INDEX)
    return -1 if text is None else _index(text, f"metadata.labels[{_POD_INDEX}]")


def _index(text: str, field: str) -> int:
    # Almost every index is a short plain number; the full check is for the rest.
    if len(text) < 5 and text.isdecimal() and text.isascii():
        return int(text)
    return parse_number(text, field=field, low=0, high=_RANK_MAX)


def _add_rejected_pod_details(rejected: Rejected, parts: dict[str, bytes]) -> Rejected:
    """A rejected pod with its scheduler's name, and with what it still takes from a node."""
    spec = raw_json.raw_members(parts.get("spec", b"{}"))
    status = raw_json.raw_members(parts.get("status", b"{}"))
    node = raw_json.raw_text(spec.get("nodeName"))
    charge = None
    if node and raw_json.raw_text(status.get("phase")) not in _FINISHED:
        charge = _read_usage(node, parts.get("spec", b"{}"), parts.get("metadata", b"{}"))
    scheduler = raw_json.raw_text(spec.get("schedulerName")) or DEFAULT_SCHEDULER
    pending = not node and _waits_for_node(parts, spec, status)
    return attrs.evolve(
        rejected,
        scheduler=scheduler,
        charge=charge,
        pending=pending,
        status=parts.get("status", b"{}") if pending else b"{}",
    )


def _waits_for_node(
    parts: dict[str, bytes], spec: dict[str, bytes], status: dict[str, bytes]
) -> bool:
    """Whether a pod without a node is there to get one: not gated, deleted or finished."""
    metadata = raw_json.raw_members(parts.get("metadata", b"{}"))
    if (
        raw_json.raw_text(metadata.get("deletionTimestamp"))
        or raw_json.raw_text(status.get("phase")) in _FINISHED
    ):
        return False
    return not raw_json.raw_elements(spec.get("schedulingGates", b"[]"))


def _read_usage(node: str, spec: bytes, metadata: bytes) -> RejectedPodUsage:
    requests: Resources | None
    try:
        requests = read_pod_requests(_SPEC.decode(spec))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        requests = readable_requests(spec)
    if requests is None:
        return RejectedPodUsage(node, None)
    shared = _shares(metadata)
    try:
        wanted = gpu_request(requests)[1]
        notes = decode_part(
            _NOTES, raw_json.raw_members(metadata).get("annotations", b""), field="annotations"
        )
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return RejectedPodUsage(node, requests, shared=shared)
    notes = notes or pod_wire.PodAnnotations()
    slots, _ = _believed_slots(notes.slots or "", wanted or shared)
    plan, fence, seal = notes.plan or "", notes.fence or "", (notes.seal or "")[:FOREIGN_TEXT_MAX]
    return RejectedPodUsage(node, requests, slots, shared, plan, fence, seal)


def _shares(metadata: bytes) -> bool:
    parts = raw_json.raw_members(metadata)
    said = {
        **raw_json.raw_members(parts.get("labels", b"{}")),
        **raw_json.raw_members(parts.get("annotations", b"{}")),
    }
    return any(key in said for key in KEYS)


PODS: Final = KindCodec(
    "Pod",
    wire_type=pod_wire.WirePod,
    entity=decode_pod,
    adorn=_add_rejected_pod_details,
    note_keys=lambda pod, said: msgspec.structs.replace(pod, strange_keys=said),
)

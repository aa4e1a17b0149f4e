"""When something would start if it were submitted now: decided with everything that is there, and undone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

import attrs

from gpusched.advice.advisor import advise_gang
from gpusched.advice.contradiction import find_contradiction
from gpusched.advice.kept_nodes import FoundStart, kept_node_remarks
from gpusched.advice.proposals.proposal import Family, Suggestion
from gpusched.advice.start_answer import StartAnswer, StartKind, start_answer
from gpusched.advice.submission.admission import admit_workloads
from gpusched.advice.submission.expansion import RefusedDocument, expand_documents, kinds_with_pods
from gpusched.advice.submission.forward import (
    TOGETHER_S,
    PlayedLine,
    PlayedStart,
    play_forward,
)
from gpusched.advice.submission.manifests import SubmittedObject
from gpusched.advice.submission.namespace_limits import LIMIT_RANGE
from gpusched.advice.submission.workload_pods import ExpandedWorkload
from gpusched.advice.trial import TrialCluster, edit_to
from gpusched.api.devices.slots import format_slots
from gpusched.api.meta.identity import GangKey, ObjectKey, Rejected, format_time
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.cache.snapshot import Snapshot
from gpusched.engine.objects import key_of, plural_of
from gpusched.engine.resource_claims import claims_from_templates
from gpusched.session.decide import Decision
from gpusched.session.framework.reasons import Reason
from gpusched.session.state.plan import PodBind
from gpusched.topology.levels import HOST, topology_levels

_ADVISED_MAX: Final = 3
"""Gangs of one submission for which changes are searched: each takes some dozens of decisions."""
_OWN: Final = frozenset(
    {
        Family.TOPOLOGY,
        Family.NODE_LABEL,
        Family.QUEUE,
        Family.MEMBERS,
        Family.OWN_TERMS,
        Family.PRIORITY,
    }
)
"""Changes of what is submitted itself."""
_NEVER: Final = frozenset(
    {Reason.INVALID_SPEC, Reason.QUEUE_NOT_FOUND, Reason.QUEUE_NOT_LEAF, Reason.NAMESPACE_NOT_ALLOWED}
)  # fmt: skip
"""Reasons that stay until what is submitted, or its queue, is another."""
_NATIVE: Final = "scheduling.k8s.io/"
_HOMELESS: Final = "no shard has room for it even when it is empty, gangs do not span shards, and none lends idle nodes"
_BY_RESERVATION: Final = (
    "the session would reserve room for it then, by the ends that running gangs announce"
)


@frozen
class NodeShare:
    """What a gang gets of one node.

    Attributes:
        pods: how many of its pods.
        slots: numbers of its GPUs there, with commas; empty where they are not known before.
    """

    name: str
    pods: int
    slots: str = ""


@frozen(kw_only=True)
class SubmittedGang:
    """When one gang starts.

    Attributes:
        kind, namespace, name: of the gang; of the workload where its pods are gangs of their own.
        pods: that there are of it at first.
        min_member: pods that start together or not at all; 1 where each starts by itself.
        start: its start; where pods start by themselves, of the one that starts last.
        starting: pods that start now.
        shares: nodes that it gets.
        domains: by level of the topology, narrowest last, the domains of these nodes.
        known_by: how it is known when it starts, or that nothing tells when, one sentence; empty where it starts now.
        never: why it does not start ever, one sentence; empty where it may.
        suggestions: changes that would be better, the cheapest first.
    """

    kind: str
    namespace: str
    name: str
    queue: str
    pods: int
    min_member: int
    start: StartAnswer
    starting: int = 0
    shares: tuple[NodeShare, ...] = ()
    domains: tuple[tuple[str, tuple[str, ...]], ...] = ()
    known_by: str = ""
    never: str = ""
    suggestions: tuple[Suggestion, ...] = ()

    @property
    def title(self) -> str:
        """Kind, namespace and name, as of the document that makes it."""
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def starts_sometime(self) -> bool:
        """Whether nothing is known that keeps it from starting for ever."""
        return not self.never


@frozen(kw_only=True)
class SubmissionAnswer:
    """The answer about all documents of one submission.

    Attributes:
        as_of: the moment of the cluster, seconds since the Unix epoch.
        gangs: in the order of the documents.
        refused: documents of which nothing would come to be.
        remarks: what was not looked at, and who does not stay where it starts, one sentence each.
        decisions: sessions that were run for the answer.
    """

    as_of: float
    gangs: tuple[SubmittedGang, ...]
    refused: tuple[RefusedDocument, ...]
    remarks: tuple[str, ...]
    decisions: int

    @property
    def starts_sometime(self) -> bool:
        """Whether all of it starts at some time, as far as is known."""
        return not self.refused and all(each.starts_sometime for each in self.gangs)


def answer_submission(
    trial: TrialCluster,
    documents: Sequence[SubmittedObject],
    *,
    namespace: str,
    better: bool = True,
) -> SubmissionAnswer:
    """When documents would start if they were submitted now, all together.

    Args:
        trial: the cluster, which is left as it was.
        documents: that would be submitted.
        namespace: for those that name none.
        better: whether changes are searched for what does not start now.
    """
    before = trial.decisions
    expanded = expand_documents(documents, namespace=namespace)
    ranges = [
        {**each.obj, "metadata": {"namespace": namespace, **each.obj["metadata"]}}
        for each in documents
        if each.obj["kind"] == LIMIT_RANGE
    ]
    workloads, refused = admit_workloads(trial, expanded.workloads, ranges)
    seen = len(trial.objects.rejected)
    with submitted(trial, workloads):
        rejected = trial.objects.rejected[seen:]
        del trial.objects.rejected[seen:]
        asked = _SubmissionTrial(trial, workloads)
        gangs = asked.gangs(better=better)
        kept = kept_node_remarks(trial, asked.starts)
    found = list(_rejected_documents(rejected, workloads))
    titles = {each.title for each in (*refused, *found)}
    gangs = tuple(each for each in gangs if each.title not in titles)
    return SubmissionAnswer(
        as_of=trial.now,
        gangs=gangs,
        refused=(*expanded.refused, *refused, *found),
        remarks=(*(remark for each in workloads for remark in _remarks(each, gangs)), *kept),
        decisions=trial.decisions - before,
    )


def _remarks(workload: ExpandedWorkload, gangs: Sequence[SubmittedGang]) -> Iterator[str]:
    yield from workload.remarks
    groups = [each for each in workload.objects if each["apiVersion"].startswith(_NATIVE)]
    if any((each.get("spec") or {}).get("resourceClaims") for each in groups):
        yield (
            f"{workload.title}: Kubernetes makes the resource claims of a PodGroup from templates once it exists; "
            "here they are missing, so that it seems to wait for them"
        )
    group = str(workload.objects[0]["apiVersion"]).rpartition("/")[0] if workload.objects else ""
    makes_pods = (group, workload.kind) in kinds_with_pods()
    told = workload.pods or workload.remarks or any(each.title == workload.title for each in gangs)
    if makes_pods and not told:
        yield f"{workload.title} has no pods now: it is suspended, or asks for none"


def _rejected_documents(
    rejected: Sequence[Rejected], workloads: Sequence[ExpandedWorkload]
) -> Iterator[RefusedDocument]:
    """Documents of which something cannot be believed, each with the first reason."""
    owner: dict[tuple[str, ObjectKey], ExpandedWorkload] = {}
    for workload in workloads:
        for obj in workload.objects:
            owner[obj["kind"], key_of(obj)] = workload
    seen: set[str] = set()
    for item in rejected:
        made = owner.get((item.kind, item.key))
        title, place = (made.title, made.place) if made else (f"{item.kind} {item.key}", "")
        if title not in seen:
            seen.add(title)
            yield RefusedDocument(title, place, f"{item.field}: {item.why}")


@contextmanager
def submitted(trial: TrialCluster, workloads: Sequence[ExpandedWorkload]) -> Iterator[None]:
    """The cluster with workloads, for as long as the context lasts; they are younger than all that is there."""
    stamp = format_time(trial.now + 1)
    objects = [
        {**obj, "metadata": {**obj["metadata"], "creationTimestamp": stamp}}
        for each in workloads
        for obj in each.objects
    ]
    read = trial.cache.families.read
    with ExitStack() as undo:
        undo.callback(trial.cache.foreign.set_read, read)
        for obj in objects:
            if not plural_of(obj):
                made = trial.objects.create(obj, now=0.0)
                undo.callback(trial.objects.remove_other, obj["kind"], key_of(made))
        told = []
        for obj in objects:
            pod, claims = claims_from_templates(trial.objects, obj)
            for claim in claims:
                made = trial.objects.create(claim, now=0.0)
                undo.callback(trial.objects.remove_other, claim["kind"], key_of(made))
            told.append(pod)
        undo.enter_context(trial.changed([edit_to(obj) for obj in told if plural_of(obj)]))
        yield


class _SubmissionTrial:
    """The cluster with what was submitted, decided.

    Args:
        trial: the cluster, with the workloads in it.
        workloads: that were submitted.
    """

    def __init__(self, trial: TrialCluster, workloads: Sequence[ExpandedWorkload]) -> None:
        self._trial = trial
        self._workloads = workloads
        self._snapshot = trial.take_snapshot()
        self._in_shards = bool(trial.config.shards)
        self._advised = 0
        self.starts: list[FoundStart] = []
        """Starts that were found, with the gangs' nodes."""

    def gangs(self, *, better: bool) -> tuple[SubmittedGang, ...]:
        """An answer for each gang, for a workload whose pods are gangs of their own one for all of them."""
        whole, lone = self._own_gangs()
        if not any(whole) and not lone:
            return ()
        decision = self._trial.decide()
        first = [self._whole_gang(each, decision) for gangs in whole for each in gangs]
        by_workload = {
            number: self._lone_pods(self._workloads[number], gangs, decision)
            for number, gangs in lone.items()
        }
        keys = {each.key: each for gangs in whole for each in gangs}
        if any(not self._is_settled(each) for each in (*first, *by_workload.values())):
            played = play_forward(
                self._trial,
                self._workloads,
                whole=tuple(keys.values()),
                lone={number: len(gangs) for number, gangs in lone.items()},
            )
            first = [
                self._with_played_start(
                    each, played.gangs[key], played, is_homeless=key in played.homeless
                )
                for each, key in zip(first, keys, strict=True)
            ]
            by_workload = {
                number: self._with_played_start(each, played.workloads[number], played)
                for number, each in by_workload.items()
            }
        self.starts = [
            self._found_start(each, gang)
            for each, gang in (
                *zip(first, keys.values(), strict=True),
                *((each, lone[number][-1]) for number, each in by_workload.items()),
            )
            if each.shares
        ]
        first = [
            self._with_advice(each, keys[key], better=better)
            for each, key in zip(first, keys, strict=True)
        ]
        by_workload = {
            number: self._with_advice(each, lone[number][-1], better=False)
            for number, each in by_workload.items()
        }
        found = iter(first)
        ordered: list[SubmittedGang] = []
        for number, gangs in enumerate(whole):
            if number in by_workload:
                ordered.append(by_workload[number])
            ordered += [next(found) for _ in gangs]
        return tuple(ordered)

    def _found_start(self, found: SubmittedGang, gang: Gang) -> FoundStart:
        nodes = tuple(each.name for each in found.shares)
        return FoundStart(found.title, gang, nodes, found.start.at or self._trial.now)

    def _own_gangs(self) -> tuple[list[list[Gang]], dict[int, list[Gang]]]:
        """By workload, gangs that start as a whole; and those of single pods where it makes several."""
        whole: list[list[Gang]] = []
        lone: dict[int, list[Gang]] = {}
        mine = _gangs_by_workload(self._snapshot, self._workloads)
        for number, (workload, gangs) in enumerate(zip(self._workloads, mine, strict=True)):
            single = (
                [each for each in gangs if each.key.kind == "Pod"] if workload.kind != "Pod" else []
            )
            if single:
                lone[number] = single
            whole.append([each for each in gangs if each not in single])
        return whole, lone

    def _whole_gang(self, gang: Gang, decision: Decision) -> SubmittedGang:
        start = start_answer(decision, gang.key)
        shares = _node_shares(decision, set(_pod_keys(gang))) or _promised_shares(start)
        return SubmittedGang(
            known_by=_BY_RESERVATION if start.kind is StartKind.EXPECTED else "",
            kind=gang.key.kind,
            namespace=gang.key.namespace,
            name=gang.key.name,
            queue=gang.queue,
            pods=sum(len(each.pods) for each in gang.pod_sets) + gang.gated,
            min_member=gang.min_member,
            start=start,
            starting=sum(each.pods for each in shares) if start.kind is StartKind.NOW else 0,
            shares=shares,
            domains=self._domains(shares),
            never=start.message if start.reason in _NEVER and not start.starts else "",
        )

    def _lone_pods(
        self, workload: ExpandedWorkload, gangs: Sequence[Gang], decision: Decision
    ) -> SubmittedGang:
        starts = {each.key: start_answer(decision, each.key) for each in gangs}
        latest = max(starts.values(), key=_lateness)
        shares = _node_shares(decision, {key for each in gangs for key in _pod_keys(each)})
        evicted = sorted({key for each in starts.values() for key in each.evicted})
        return SubmittedGang(
            known_by=_BY_RESERVATION if latest.kind is StartKind.EXPECTED else "",
            kind=workload.kind,
            namespace=workload.namespace,
            name=workload.name,
            queue=gangs[0].queue,
            pods=len(gangs),
            min_member=1,
            start=attrs.evolve(latest, evicted=tuple(evicted)),
            starting=sum(each.kind is StartKind.NOW for each in starts.values()),
            shares=shares,
            domains=self._domains(shares),
            never=latest.message if latest.reason in _NEVER and not latest.starts else "",
        )

    def _is_settled(self, gang: SubmittedGang) -> bool:
        """Whether one decision says all about its start: it has places, or they are made free, or it never starts.

        In shards none but the last is of one decision: a gang begins in one of them and may be passed on.
        """
        starts = gang.start.starts and bool(gang.shares) and not self._in_shards
        return bool(gang.never) or starts

    def _with_played_start(
        self,
        gang: SubmittedGang,
        played: PlayedStart,
        line: PlayedLine,
        *,
        is_homeless: bool = False,
    ) -> SubmittedGang:
        """The gang with the time and the nodes that it got when the line was played forward."""
        if self._is_settled(gang):
            return gang
        if self._in_shards:
            reason, message = played.waits
            waits = StartAnswer(kind=StartKind.UNKNOWN, reason=reason, message=message)
            gang = attrs.evolve(gang, start=waits, starting=0, shares=(), domains=())
        if is_homeless and played.at is None:
            return attrs.evolve(gang, known_by="", never=_HOMELESS)
        if played.at is None:
            if gang.start.at > line.until and line.cut:
                return gang  # what is reserved for it lies behind what was played
            unknown = attrs.evolve(gang.start, kind=StartKind.UNKNOWN, at=0.0)
            return attrs.evolve(gang, start=unknown, known_by=_not_started_text(line))
        shares = _shares_of_binds(played.first_binds())
        gang = attrs.evolve(gang, shares=shares, domains=self._domains(shares))
        evicted = tuple(sorted(played.evicted))
        if played.at < TOGETHER_S:
            start = StartAnswer(kind=StartKind.NOW, evicted=evicted)
            starting = sum(each.pods for each in shares)
            return attrs.evolve(gang, start=start, starting=starting, known_by="")
        start = attrs.evolve(
            gang.start, kind=StartKind.EXPECTED, at=self._trial.now + played.at, evicted=evicted
        )
        return attrs.evolve(gang, start=start, known_by=_played_text(line))

    def _with_advice(
        self, submitted_gang: SubmittedGang, gang: Gang, *, better: bool
    ) -> SubmittedGang:
        """The gang with what would be better, and why it never starts where that is so."""
        kind = submitted_gang.start.kind
        settled = kind is StartKind.NOW or (not better and kind is not StartKind.UNKNOWN)
        if submitted_gang.never or settled or self._advised >= _ADVISED_MAX:
            return submitted_gang
        self._advised += 1
        if not better:
            why = find_contradiction(self._trial, gang)
            return attrs.evolve(submitted_gang, never=why.sentence if why is not None else "")
        advice = advise_gang(self._trial, gang)
        never = advice.contradiction.sentence if advice.contradiction is not None else ""
        changes = tuple(map(_before_submission, advice.suggestions))
        return attrs.evolve(submitted_gang, never=never, suggestions=changes)

    def _domains(self, shares: Sequence[NodeShare]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        nodes = self._snapshot.nodes
        rows = [nodes.row[each.name] for each in shares if each.name in nodes.row]
        found = []
        for level in topology_levels(nodes.nodes, self._snapshot.topologies):
            domains = sorted({int(level.domain[row]) for row in rows})
            if level.label != HOST and domains and domains[0] >= 0:
                found.append((level.name, tuple(level.names[each] for each in domains)))
        return tuple(found)


def _gangs_by_workload(
    snapshot: Snapshot, workloads: Sequence[ExpandedWorkload]
) -> list[list[Gang]]:
    """The gangs that each workload's pods are members of; each gang is that of its last workload."""
    workload_of: dict[ObjectKey, int] = {}
    own: dict[GangKey, int] = {}
    for number, each in enumerate(workloads):
        workload_of |= dict.fromkeys(each.pods, number)
        own[GangKey(each.kind, each.namespace, each.name)] = number
    found: list[list[Gang]] = [[] for _ in workloads]
    for gang in snapshot.gangs:
        numbers = [own[gang.key]] if gang.key in own else []
        numbers += [workload_of[key] for key in _pod_keys(gang) if key in workload_of]
        if numbers:
            found[numbers[0]].append(gang)
    return found


_ORDER: Final = (
    StartKind.NOW,
    StartKind.AFTER_EVICTIONS,
    StartKind.EXPECTED,
    StartKind.UNKNOWN,
)


def _lateness(start: StartAnswer) -> tuple[int, float]:
    return _ORDER.index(start.kind), start.at


def _pod_keys(gang: Gang) -> Iterator[ObjectKey]:
    for pod_set in gang.pod_sets:
        for pod in pod_set.pods:
            yield pod.key


def _node_shares(decision: Decision, wanted: set[ObjectKey]) -> tuple[NodeShare, ...]:
    """What pods get of each node by a decision."""
    binds = (each for made in decision.plan.binds for each in made.binds)
    return _shares_of_binds(each for each in binds if each.key in wanted)


def _shares_of_binds(binds: Iterable[PodBind]) -> tuple[NodeShare, ...]:
    pods: dict[str, int] = {}
    slots: dict[str, int] = {}
    for bind in binds:
        pods[bind.node] = pods.get(bind.node, 0) + 1
        slots[bind.node] = slots.get(bind.node, 0) | bind.slots | bind.device_slots
    return tuple(NodeShare(name, pods[name], format_slots(slots[name])) for name in sorted(pods))


def _played_text(line: PlayedLine) -> str:
    return f"the line was played forward, {_how_played(line)}"


def _not_started_text(line: PlayedLine) -> str:
    until = format_time(line.until)
    return f"it had not started by {until} when the line was played forward, {_how_played(line)}"


def _how_played(line: PlayedLine) -> str:
    text = f"{line.sessions} sessions, with the ends that running gangs announce"
    if line.learned:
        what = "pod that announces none is" if line.learned == 1 else "pods that announce none are"
        text += f"; {line.learned} running {what} taken to run as long as others like them"
    if line.late:
        what = (
            "pod that is over its time is"
            if line.late == 1
            else "pods that are over their time are"
        )
        text += f"; {line.late} {what} taken to end within a minute"
    return text


def _before_submission(suggestion: Suggestion) -> Suggestion:
    """A change of what is submitted needs no command: it is written into the file."""
    proposal = suggestion.proposal
    if proposal.family not in _OWN:
        return suggestion
    return attrs.evolve(suggestion, proposal=attrs.evolve(proposal, command=""))


def _promised_shares(start: StartAnswer) -> tuple[NodeShare, ...]:
    return tuple(NodeShare(name, pods) for name, pods in start.nodes)

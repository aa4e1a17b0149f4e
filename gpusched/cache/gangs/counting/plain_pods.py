"""Pods of which no other object tells anything: gangs of one, of which thousands are counted at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpusched.api.gang.pod_group import GangTerms, TopologyRequest
from gpusched.api.gang.running_kind import RunningKind, shared_kind
from gpusched.api.meta.identity import NO_CREATOR, GangKey
from gpusched.api.meta.resources import NOTHING
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS, RUNNING, GangAnnotations, Pod
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang, Placed, PodSet
from gpusched.cache.ledger import CONFIRMED, Ledger

_About = tuple[str, str, int, str, GangAnnotations | None]
"""Namespace, queue, priority, priority class and annotations of a pod, None for no annotations."""


@frozen(slots=True)
class PlainTerms:
    """What pods that are alike in ``_About`` have in common as gangs, as ``Gang`` has it.

    Attributes:
        served: whether the queue serves the namespace, so that it is charged whoever bound them.
    """

    queue: str
    terms: GangTerms
    topology: TopologyRequest
    error: tuple[str, str]
    served: bool
    accounts: tuple[str, ...]


class PlainPods:
    """Builds gangs of plain pods: as ``build_gang`` with what the builder adds to it, in one go.

    Args:
        ledger: places of pods.
        terms_of: what the objects around a pod say of it; asked once for all that are alike in ``_About``,
            until ``forget`` is called.
    """

    def __init__(self, ledger: Ledger, terms_of: Callable[[Pod], PlainTerms]) -> None:
        self._ledger = ledger
        self._terms_of = terms_of
        self._known: dict[_About, PlainTerms] = {}
        self._kinds: dict[tuple[int, str, int, str], RunningKind] = {}
        """Kinds of those that run, by the ``id`` of what is known of them, namespace, priority and class."""

    def forget(self) -> None:
        """Objects around pods may have changed."""
        self._known.clear()
        self._kinds.clear()

    def build(self, key: GangKey, pod: Pod) -> Gang | None:
        """The gang of a pod that runs or waits, of which nobody else tells anything; None for any other."""
        if pod.owner is not None or pod.hold or pod.charge is not None:
            return None
        if pod.creator is not NO_CREATOR:
            return None
        if pod.deleting or pod.gated or pod.strange_keys or pod.finished:
            return None
        said = None if pod.hints is NO_GANG_ANNOTATIONS else pod.hints
        about = (pod.namespace, pod.queue, pod.priority, pod.priority_class, said)
        known = self._known.get(about)
        if known is None:
            known = self._known[about] = self._terms_of(pod)
        held = self._ledger.get(pod.uid)
        if held is not None and not known.served:
            return None
        placed: tuple[Placed, ...] = ()
        waiting: tuple[PodSet, ...] = ()
        if held is None:
            waiting = (PodSet(pod.role, pod.pod_class, (pod,), pod.sub_group),)
        else:
            confirmed = bool(pod.node) or held.hold is CONFIRMED
            placed = (Placed(pod, held.node, confirmed, self._ledger.slots_of(held)),)
        requests = pod.pod_class.charged
        gang = Gang(
            key=key, uid=pod.uid, generation=0, created=pod.created,
            queue=known.queue, priority=pod.priority, terms=known.terms, accounts=known.accounts,
            min_member=1, min_roles=(), ready_roles=(), topology=known.topology,
            sub_groups=(), min_sub_groups=0, ready_sub_groups=(),
            pod_sets=waiting, placed=placed, gated=0, leaving=0,
            running=int(held is not None and pod.phase is RUNNING),
            succeeded=0, failed=0, succeeded_counted=0,
            allocated=NOTHING if held is None else requests, leaving_allocated=NOTHING,
            pending_requests=requests if held is None else NOTHING,
            pod_group=None, error=known.error, warning="",
        )  # fmt: skip
        waits = int(held is None)
        _set_pending(gang, waits)
        _set_missing_members(gang, waits)
        _set_members_at_start(gang, waits)
        _set_suspended(gang, False)
        _set_has_nominated_pods(gang, held is None and bool(pod.nominated))
        if placed and placed[0].confirmed and pod.scheduled and not pod.pod_class.claims:
            _set_running_kind(gang, self._kind_of(pod, known))
        return gang

    def _kind_of(self, pod: Pod, known: PlainTerms) -> RunningKind:
        key = (id(known), pod.namespace, pod.priority, pod.pod_class.digest)
        kind = self._kinds.get(key)
        if kind is None:
            about = (known.queue, pod.namespace, pod.priority, known.terms)
            kind = self._kinds[key] = shared_kind((*about, pod.priority, pod.pod_class.digest))
        return kind


def _setter(attribute: str) -> Callable[..., None]:
    """Sets an attribute of a gang that it would work out when asked first, which costs several times as much."""
    setter: Callable[..., None] = vars(Gang)[attribute].__set__
    return setter


_set_pending: Final = _setter("pending")
_set_missing_members: Final = _setter("missing_members")
_set_members_at_start: Final = _setter("members_at_start")
_set_suspended: Final = _setter("suspended")
_set_has_nominated_pods: Final = _setter("has_nominated_pods")
_set_running_kind: Final = _setter("running_kind")

"""States, events and effects of a commit; ``machine`` says how they follow each other.

A gang has one byte a pod for its stage, one for its tries and one for whether a call is under
way: a step of a gang of 10,000 copies some kilobytes instead of 10,000 objects.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

import attrs

from gpusched.commit.observed_pod import ObservedPod, ObservedPodGroup
from gpusched.session.state.plan import GangBind


class PodStage(IntEnum):
    """Where one pod of the gang stands."""

    PLANNED = 0
    ASSUMED = 1
    """Its room is taken in the ledger; nothing is sent, or what was sent was not done."""
    SENT = 2
    UNKNOWN = 3
    """Sent with an effect that is not known: it is read back."""
    CONFIRMED = 4
    FORGOTTEN = 5
    """This binding will not be; the room is free again."""
    GONE = 6
    """The pod no longer exists."""
    EVICTED = 7


class CommitPhase(StrEnum):
    """Where the gang stands."""

    VERIFIED = "verified"
    BINDING = "binding"
    REPAIR = "repair"
    BOUND = "bound"
    UNDOING = "undoing"
    RELEASED = "released"


OPEN = (PodStage.PLANNED, PodStage.ASSUMED, PodStage.SENT, PodStage.UNKNOWN)
FINAL = (CommitPhase.BOUND, CommitPhase.RELEASED)


@attrs.frozen(slots=True, kw_only=True)
class CommitState:
    """One gang on its way from a decision to its pods' nodes.

    Attributes:
        plan, fence: what its bindings are signed with.
        stages, tries, calls: one byte a pod, in the order of ``gang.binds``; a call is a
            binding or a read-back that has not been answered yet.
        counts: pods by stage.
        stopping: whether nothing new is sent; what is under way is still followed.
        late: whether the recovery deadline has passed.
        superseded: whether the leadership that decided it is over: nothing is undone then, as
            another leader may have completed the gang.
        lapsed: whether it was stopped as our leadership ended or may end: nothing was refused.
        reads: failed reads of the PodGroup.
        why: the first thing that went wrong, for people.
        story: what was noteworthy, oldest first.
    """

    gang: GangBind
    plan: str
    fence: str
    phase: CommitPhase
    stages: bytes
    tries: bytes
    calls: bytes
    counts: tuple[int, ...]
    stopping: bool = False
    late: bool = False
    superseded: bool = False
    lapsed: bool = False
    reads: int = 0
    why: str = ""
    story: tuple[str, ...] = ()

    @classmethod
    def for_bind(cls, gang: GangBind, fence: str) -> CommitState:
        """A verified gang of which nothing is assumed yet."""
        n = len(gang.binds)
        zeros = bytes(n)
        return cls(
            gang=gang, plan=gang.plan_id, fence=fence, phase=CommitPhase.VERIFIED,
            stages=zeros, tries=zeros, calls=zeros, counts=(n, *(0 for _ in range(len(PodStage) - 1))),
        )  # fmt: skip

    def stage_of_pod(self, index: int) -> PodStage:
        """Stage of the pod with this index."""
        return PodStage(self.stages[index])

    def pods_at(self, stage: PodStage) -> tuple[int, ...]:
        """Indices of the pods at a stage."""
        return tuple(i for i, own in enumerate(self.stages) if own == stage)

    @property
    def confirmed(self) -> int:
        """Members that this plan bound."""
        return self.counts[PodStage.CONFIRMED]


# -- events: what happened --------------------------------------------------------------------


@attrs.frozen(slots=True)
class CommitAccepted:
    """The cache has assumed all pods of the gang."""


@attrs.frozen(slots=True)
class GroupRead:
    """The PodGroup was read; None: it does not exist."""

    facts: ObservedPodGroup | None


@attrs.frozen(slots=True)
class GroupUnreadable:
    """The PodGroup could not be read."""

    why: str


@attrs.frozen(slots=True)
class LeadershipLost:
    """This process may not begin a write now."""


@attrs.frozen(slots=True)
class TermSuperseded:
    """The leadership under which the gang was decided is over; another may have begun."""


@attrs.frozen(slots=True)
class DeadlinePassed:
    """The time for making the gang whole has passed."""


@attrs.frozen(slots=True)
class GangCompleted:
    """A later plan brought the gang to its minimum."""


@attrs.frozen(slots=True)
class BindSent:
    """A binding is handed to the connection now."""

    index: int


@attrs.frozen(slots=True)
class BindVoided:
    """A binding that was to be sent has no place any more: its node is not the one decided on."""

    index: int
    why: str


@attrs.frozen(slots=True)
class BindCreated:
    """The API server answered a binding with status 201."""

    index: int


@attrs.frozen(slots=True)
class BindUnknown:
    """409, 5xx, timeout or reset: proves nothing."""

    index: int
    why: str


@attrs.frozen(slots=True)
class BindNotDone:
    """Certainly without effect, and may be tried again: no connection, or 429."""

    index: int
    why: str


@attrs.frozen(slots=True)
class BindRefused:
    """Certainly without effect, and the same again would change nothing: 404, other 4xx.

    ``denied`` marks 401 and 403, which stop the whole gang.
    """

    index: int
    why: str
    denied: bool = False


@attrs.frozen(slots=True)
class ReadBackSent:
    """The read-back of a pod has begun."""

    index: int


@attrs.frozen(slots=True)
class PodRead:
    """A read-back was answered; None: there is no such pod."""

    index: int
    facts: ObservedPod | None


@attrs.frozen(slots=True)
class PodUnreadable:
    """A read-back was not answered."""

    index: int
    why: str


@attrs.frozen(slots=True)
class PodSeen:
    """The watch showed the pod."""

    index: int
    facts: ObservedPod


@attrs.frozen(slots=True)
class PodGone:
    """The watch said that the pod is deleted."""

    index: int


@attrs.frozen(slots=True)
class PodEvicted:
    """The pod is evicted, or was no longer there to evict."""

    index: int


GangEvent = (
    CommitAccepted
    | GroupRead
    | GroupUnreadable
    | LeadershipLost
    | TermSuperseded
    | DeadlinePassed
    | GangCompleted
)
PodEvent = (
    BindSent | BindVoided | BindCreated | BindUnknown | BindNotDone | BindRefused | ReadBackSent | PodRead | PodUnreadable | PodSeen | PodGone
    | PodEvicted
)  # fmt: skip
Event = GangEvent | PodEvent

# -- effects: what is to be done --------------------------------------------------------------


@attrs.frozen(slots=True)
class DoReadGroup:
    """One consistent GET of the PodGroup, after so many seconds."""

    delay_s: float = 0.0


@attrs.frozen(slots=True)
class DoBind:
    """Send these bindings, together, after so many seconds."""

    indices: tuple[int, ...]
    delay_s: float = 0.0


@attrs.frozen(slots=True)
class DoReadBack:
    """One consistent GET of the pod, after so many seconds."""

    index: int
    delay_s: float = 0.0


@attrs.frozen(slots=True)
class DoConfirm:
    """The pod is bound: say so to the cache."""

    index: int


@attrs.frozen(slots=True)
class DoForget:
    """The assumption of these pods is void: say so to the cache."""

    indices: tuple[int, ...]


@attrs.frozen(slots=True)
class DoDoubtLease:
    """A write was refused as if we did not lead."""

    why: str


@attrs.frozen(slots=True)
class DoEvict:
    """Evict these pods and say ``Evicted`` for each."""

    indices: tuple[int, ...]


@attrs.frozen(slots=True)
class DoSettle:
    """The gang came to rest in this phase: bound, repair (a later plan may help) or released."""

    phase: CommitPhase
    why: str


Effect = (
    DoReadGroup | DoBind | DoReadBack | DoConfirm | DoForget | DoDoubtLease | DoEvict | DoSettle
)

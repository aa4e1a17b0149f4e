"""States, events and effects of a commit; ``machine`` says how they follow each other.

A gang has one byte a pod for its stage, one for its tries and one for whether a call is under
way: a step of a gang of 10,000 copies some kilobytes instead of 10,000 objects. All are structs,
of which each binding makes a dozen.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum

from msgspec import Struct

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


class CommitState(Struct, frozen=True, kw_only=True):
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


class CommitAccepted(Struct, frozen=True):
    """The cache has assumed all pods of the gang."""


class GroupRead(Struct, frozen=True):
    """The PodGroup was read; None: it does not exist."""

    facts: ObservedPodGroup | None


class GroupUnreadable(Struct, frozen=True):
    """The PodGroup could not be read."""

    why: str


class LeadershipLost(Struct, frozen=True):
    """This process may not begin a write now."""


class TermSuperseded(Struct, frozen=True):
    """The leadership under which the gang was decided is over; another may have begun."""


class DeadlinePassed(Struct, frozen=True):
    """The time for making the gang whole has passed."""


class GangCompleted(Struct, frozen=True):
    """A later plan brought the gang to its minimum."""


class BindSent(Struct, frozen=True):
    """A binding is handed to the connection now."""

    index: int


class BindVoided(Struct, frozen=True):
    """A binding that was to be sent has no place any more: its node is not the one decided on."""

    index: int
    why: str


class BindCreated(Struct, frozen=True):
    """The API server answered a binding with status 201."""

    index: int


class BindUnknown(Struct, frozen=True):
    """409, 5xx, timeout or reset: proves nothing."""

    index: int
    why: str


class BindNotDone(Struct, frozen=True):
    """Certainly without effect, and may be tried again: no connection, or 429."""

    index: int
    why: str


class BindRefused(Struct, frozen=True):
    """Certainly without effect, and the same again would change nothing: 404, other 4xx.

    ``denied`` marks 401 and 403, which stop the whole gang.
    """

    index: int
    why: str
    denied: bool = False


class ReadBackSent(Struct, frozen=True):
    """The read-back of a pod has begun."""

    index: int


class PodRead(Struct, frozen=True):
    """A read-back was answered; None: there is no such pod."""

    index: int
    facts: ObservedPod | None


class PodUnreadable(Struct, frozen=True):
    """A read-back was not answered."""

    index: int
    why: str


class PodSeen(Struct, frozen=True):
    """The watch showed the pod."""

    index: int
    facts: ObservedPod


class PodGone(Struct, frozen=True):
    """The watch said that the pod is deleted."""

    index: int


class PodEvicted(Struct, frozen=True):
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


class DoReadGroup(Struct, frozen=True):
    """One consistent GET of the PodGroup, after so many seconds."""

    delay_s: float = 0.0


class DoBind(Struct, frozen=True):
    """Send these bindings, together, after so many seconds."""

    indices: tuple[int, ...]
    delay_s: float = 0.0


class DoReadBack(Struct, frozen=True):
    """One consistent GET of the pod, after so many seconds."""

    index: int
    delay_s: float = 0.0


class DoConfirm(Struct, frozen=True):
    """The pod is bound: say so to the cache."""

    index: int


class DoForget(Struct, frozen=True):
    """The assumption of these pods is void: say so to the cache."""

    indices: tuple[int, ...]


class DoDoubtLease(Struct, frozen=True):
    """A write was refused as if we did not lead."""

    why: str


class DoEvict(Struct, frozen=True):
    """Evict these pods and say ``Evicted`` for each."""

    indices: tuple[int, ...]


class DoSettle(Struct, frozen=True):
    """The gang came to rest in this phase: bound, repair (a later plan may help) or released."""

    phase: CommitPhase
    why: str


Effect = (
    DoReadGroup | DoBind | DoReadBack | DoConfirm | DoForget | DoDoubtLease | DoEvict | DoSettle
)

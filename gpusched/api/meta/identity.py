"""Identity, provenance and disbelief: what every entity has in common."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple, NewType

from gpusched.api.meta.resources import Resources
from gpusched.base.classes import frozen

UID = NewType("UID", str)
ResourceVersion = NewType("ResourceVersion", str)
"""Opaque: compared for equality; ordered only to find out that a server went back in time."""


NAME_LENGTH_MAX: Final = 256
"""Characters of the name of a user or group; longer ones count as none."""
GROUPS_MAX: Final = 256
"""Groups of one user that count."""


class ObjectKey(NamedTuple):
    """Namespace (empty for cluster-scoped kinds) and name. Sorts by both."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class GangKey(NamedTuple):
    """Identity of a gang: ``PodGroup``, ``Job``, ``Pod`` or another owner's kind. Sorts by all."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@frozen(slots=True)
class Owner:
    """The controller of an object."""

    kind: str
    name: str
    uid: UID


@frozen(slots=True)
class Creator:
    """The user who made an object, empty where that is not known, and the groups of this user, sorted.

    A tenant can write any annotation: it counts for as much as the policy ``gpusched-users`` holds it to
    be the creator's own, see docs/budgets.md.
    """

    user: str = ""
    groups: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether the user is known."""
        return bool(self.user)


NO_CREATOR: Final = Creator()


def read_creator(user: str | None, groups: str | None) -> Creator:
    """The creator that two annotations name; of no known user where the name cannot be one.

    Args:
        user: a user name.
        groups: names of groups, separated by commas.
    """
    return _read_creator(user, groups or "") if user else NO_CREATOR


@lru_cache(maxsize=4096)
def _read_creator(user: str, groups: str) -> Creator:
    if not _is_name(user):
        return NO_CREATOR
    named = sorted({each for each in groups.split(",") if _is_name(each)})
    return Creator(user, tuple(named[:GROUPS_MAX]))


def _is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_LENGTH_MAX and text.isprintable() and text == text.strip()


@frozen(slots=True)
class RejectedPodUsage:
    """What an object that we refuse to believe still takes from a node.

    Attributes:
        requests: None when even that cannot be read: the node then counts as full.
        slots: those that were written with its binding, as a bitmask; 0 when they are unknown.
        shared: whether it asks for a share of a GPU, whose size cannot be read.
        plan, fence, seal: as written with its binding.
    """

    node: str
    requests: Resources | None
    slots: int = 0
    shared: bool = False
    plan: str = ""
    fence: str = ""
    seal: str = ""


@frozen(slots=True, kw_only=True)
class Rejected:
    """An object that cannot be believed: counted, named in an event, never scheduled."""

    kind: str
    key: ObjectKey
    uid: UID
    resource_version: ResourceVersion
    field: str
    why: str
    generation: int = 0
    charge: RejectedPodUsage | None = None
    ours: bool = True
    """Whether the object asks us for anything; only then is its author told. False for pods and
    Jobs, which name their scheduler in ``scheduler``."""
    scheduler: str = ""
    """For pods and Jobs: the ``schedulerName``."""
    api_version: str = ""
    """Group and version, where the kind alone does not tell."""
    status: bytes = b"{}"
    """Of pods that wait and of kinds whose authors are told: what the object's status says, as
    it came."""
    pending: bool = False
    """For pods: whether it waits for a node, so that it is to be told why it gets none."""
    created: float = 0.0
    """Seconds since the epoch; 0.0 where that cannot be read."""

    @property
    def message(self) -> str:
        """For the event and the log."""
        return f"{self.kind} {self.key}: {self.field}: {self.why}"


class InvalidObject(ValueError):
    """Raised inside decoding only, and turned into ``Rejected`` at its border."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field
        self.why = why


@lru_cache(maxsize=2048)
def parse_time(text: str) -> float:
    """An RFC 3339 time as seconds since the Unix epoch; 0.0 for an empty text.

    Raises:
        InvalidObject: the text is no time.
    """
    if not text:
        return 0.0
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidObject("time", f"{text[:40]!r} is not an RFC 3339 time") from None
    return moment.timestamp() if moment.tzinfo else moment.replace(tzinfo=UTC).timestamp()


TIME_MAX: Final = 253_402_300_799
"""The end of the year 9999, seconds since the epoch: later times cannot be written."""


def format_time(seconds: float) -> str:
    """Whole seconds, as the API writes ``metav1.Time``."""
    return _format_second(int(seconds))


@lru_cache(maxsize=64)
def _format_second(second: int) -> str:
    """Cached, as what is written together bears the same time."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(seconds: float) -> str:
    """Microseconds, as the API writes ``metav1.MicroTime``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def is_older_version(version: str, than: str) -> bool:
    """Whether a resourceVersion is surely older; versions are opaque, so only to distrust."""
    if not (version.isascii() and version.isdigit() and than.isascii() and than.isdigit()):
        return False
    return int(version) < int(than)

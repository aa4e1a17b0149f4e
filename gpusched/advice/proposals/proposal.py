"""What is proposed, and what was found out about it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from gpusched.advice.start_answer import StartAnswer
from gpusched.advice.trial import ObjectEdit
from gpusched.api.meta.identity import GangKey, ObjectKey
from gpusched.base.classes import frozen

_NAMED_MAX: Final = 4


class Family(IntEnum):
    """What is changed, from what costs its author nothing to what costs others most."""

    TOPOLOGY = 0
    NODE_LABEL = 1
    TOLERATION = 2
    QUEUE = 3
    MEMBERS = 4
    OWN_TERMS = 5
    """It may be evicted itself."""
    END_OF_OTHERS = 6
    PRIORITY = 7
    QUOTA = 8
    NODES = 9
    PERMISSION = 10
    """What forbids to evict others is not so."""


OWN_FAMILIES = frozenset(
    {
        Family.TOPOLOGY,
        Family.NODE_LABEL,
        Family.TOLERATION,
        Family.QUEUE,
        Family.MEMBERS,
        Family.OWN_TERMS,
        Family.PRIORITY,
    }
)
"""What the gang alone asks for otherwise: other gangs get no more room by it."""
FAMILY_NAMES = {
    Family.TOPOLOGY: "topology",
    Family.NODE_LABEL: "nodeLabel",
    Family.TOLERATION: "toleration",
    Family.QUEUE: "queue",
    Family.MEMBERS: "members",
    Family.OWN_TERMS: "ownTerms",
    Family.END_OF_OTHERS: "endOfOthers",
    Family.PRIORITY: "priority",
    Family.QUOTA: "quota",
    Family.NODES: "nodes",
    Family.PERMISSION: "permission",
}


@frozen(kw_only=True)
class ForbiddenBy:
    """What forbids evictions by which a gang would start.

    Attributes:
        rule: what kind of rule it is, as in docs/advice.md.
        kind, key: of the object that says so.
        message: one sentence.
        until: when it ends by itself, seconds since the Unix epoch; 0.0 for never.
        gangs: that would be evicted otherwise, sorted.
    """

    rule: str
    kind: str
    key: ObjectKey
    message: str
    until: float
    gangs: tuple[GangKey, ...]


@frozen(kw_only=True)
class ChangeProposal:
    """A change that may let a gang start.

    Attributes:
        size: how much is changed, in the unit of its family: fewer is better.
        message: what is changed, as the rest of "It starts ...".
        edits: that carry it out on the API's objects.
        command: that does so, or what to write instead; empty where nobody can order it.
        at: when the change happens by itself, seconds since the Unix epoch; 0.0 for when somebody
            makes it, or where it is not known.
        forbidden_by: what it takes out of the way of evictions.
    """

    family: Family
    size: float
    message: str
    edits: tuple[ObjectEdit, ...]
    command: str = ""
    at: float = 0.0
    forbidden_by: tuple[ForbiddenBy, ...] = ()


@frozen(kw_only=True)
class Suggestion:
    """A proposal that was decided, with the start that it gives."""

    proposal: ChangeProposal
    start: StartAnswer

    @property
    def rank(self) -> tuple[object, ...]:
        """Sorts suggestions, the cheapest first."""
        return (self.proposal.family, self.proposal.size, self.proposal.message)


def joined(first: ChangeProposal, second: ChangeProposal) -> ChangeProposal:
    """Both changes as one.

    Args:
        first: of the cluster.
        second: of the cluster with the first one.
    """
    edits = {(edit.plural, edit.key): edit for edit in (*first.edits, *second.edits)}
    both = [each.command for each in (first, second) if each.command]
    commands = all(each.startswith(("kubectl ", "gpusched ")) for each in both)
    return ChangeProposal(
        family=max(first.family, second.family),
        size=first.size + second.size,
        message=f"{first.message} and {second.message}",
        edits=tuple(edits.values()),
        command=(" && " if commands else "; ").join(both),
        forbidden_by=(*first.forbidden_by, *second.forbidden_by),
    )


def gang_title(key: GangKey) -> str:
    """A gang in a sentence."""
    return f"{key.namespace}/{key.name}"


def joined_names(names: Sequence[str]) -> str:
    """Names in a sentence, as many as anybody reads."""
    if len(names) > _NAMED_MAX:
        names = [*names[:_NAMED_MAX], f"{len(names) - _NAMED_MAX} more"]
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)

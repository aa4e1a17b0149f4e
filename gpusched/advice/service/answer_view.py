"""Advice in the one form that the API serves, and that commands and the page print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gpusched.advice.advisor import Advice
from gpusched.advice.proposals.proposal import FAMILY_NAMES, ChangeProposal, ForbiddenBy, Suggestion
from gpusched.advice.start_answer import StartAnswer
from gpusched.api.meta.identity import GangKey, format_time
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.view.over_time.advice_view import (
    AdviceView,
    BetterChangeView,
    ForbiddenByView,
    NamedGang,
    NeverView,
    NodeShareView,
    StartView,
)


def _unchanged_text(text: str) -> str:
    return text


@frozen(kw_only=True)
class Reader:
    """Who reads an answer.

    Attributes:
        namespace: the only one whose objects and names may be told; empty for all.
        hide: takes names of other namespaces out of a sentence.
    """

    namespace: str = ""
    hide: Callable[[str], str] = _unchanged_text

    def sees(self, namespace: str) -> bool:
        """Whether objects of a namespace are told."""
        return self.namespace in ("", namespace)

    def told_command(self, proposal: ChangeProposal) -> str:
        """The command of a change; none where it names an object whose name is hidden."""
        spaces = {edit.key.namespace for edit in proposal.edits} - {""}
        if self.hide is not _unchanged_text and not all(map(self.sees, spaces)):
            return ""
        return proposal.command


EVERYTHING: Reader = Reader()
"""Who may list the pods of all namespaces."""


def advice_view(advice: Advice, gang: Gang, reader: Reader = EVERYTHING) -> AdviceView:
    """The answer about a gang, as the cluster has it, for a reader."""
    never = advice.contradiction
    return AdviceView(
        gang=named_gang(gang.key, queue=gang.queue),
        as_of=format_time(advice.as_of),
        unchanged=start_view(advice.unchanged, reader=reader),
        never=None
        if never is None
        else NeverView(
            sentence=never.sentence,
            demands=tuple(never.demands),
            message=reader.hide(never.message),
        ),
        suggestions=tuple(suggestion_view(each, reader) for each in advice.suggestions),
        in_the_way=tuple(map(reader.hide, advice.in_the_way)),
        decisions=advice.decisions,
        is_cut=advice.is_cut,
    )


def start_view(
    start: StartAnswer,
    *,
    shares: Sequence[NodeShareView] | None = None,
    known_by: str = "",
    reader: Reader = EVERYTHING,
) -> StartView:
    """When something starts.

    Args:
        start: as it was decided.
        shares: nodes that it gets, where more is known of them than names and numbers of pods.
        known_by: how it is known when it starts.
        reader: of the answer.
    """
    if shares is None:
        shares = [NodeShareView(name=name, pods=pods) for name, pods in start.nodes]
    return StartView(
        kind=str(start.kind),
        at=format_time(start.at) if start.at else "",
        known_by=known_by,
        nodes=tuple(shares),
        evicts=_named_gangs(start.evicted, reader),
        reason=start.reason,
        message=reader.hide(start.message),
    )


def suggestion_view(suggestion: Suggestion, reader: Reader = EVERYTHING) -> BetterChangeView:
    """A change, with the start that it gives."""
    proposal = suggestion.proposal
    return BetterChangeView(
        change=FAMILY_NAMES[proposal.family],
        message=reader.hide(proposal.message),
        command=reader.told_command(proposal),
        at=format_time(proposal.at) if proposal.at else "",
        start=start_view(suggestion.start, reader=reader),
        forbidden_by=tuple(_forbidden_view(each, reader) for each in proposal.forbidden_by),
        objects=tuple(
            {
                "resource": edit.plural, "namespace": edit.key.namespace, "name": edit.key.name,
                "becomes": edit.becomes,
            }
            for edit in proposal.edits
            if reader.sees(edit.key.namespace)
        ),
    )  # fmt: skip


def _forbidden_view(by: ForbiddenBy, reader: Reader) -> ForbiddenByView:
    seen = not by.key.namespace or reader.sees(by.key.namespace)
    return ForbiddenByView(
        rule=str(by.rule),
        kind=by.kind,
        namespace=by.key.namespace if seen else "",
        name=by.key.name if seen else "",
        hidden=not seen,
        message=reader.hide(by.message),
        until=format_time(by.until) if by.until else "",
        gangs=_named_gangs(by.gangs, reader),
    )


def _named_gangs(gangs: Iterable[GangKey], reader: Reader) -> tuple[NamedGang, ...]:
    return tuple(
        named_gang(each) if reader.sees(each.namespace) else NamedGang(hidden=True)
        for each in gangs
    )


def named_gang(key: GangKey, *, queue: str = "") -> NamedGang:
    """A gang by its key."""
    return NamedGang(kind=key.kind, namespace=key.namespace, name=key.name, queue=queue)

"""The answer about a submission, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpusched.advice.service.answer_view import suggestion_view
from gpusched.advice.start_answer import StartKind
from gpusched.advice.submission.answer import NodeShare, SubmissionAnswer, SubmittedGang
from gpusched.api.meta.identity import format_time
from gpusched.cli.command import age
from gpusched.cli.inspect.ask.advice_text import suggestion_lines

_NODES_NAMED_MAX: Final = 8
_DOMAINS_NAMED_MAX: Final = 4


def submission_lines(answer: SubmissionAnswer) -> Iterator[str]:
    """The answer, each gang with its own lines."""
    yield f"as of {format_time(answer.as_of)}, if it were submitted now"
    for gang in answer.gangs:
        yield ""
        yield from _gang_lines(gang, answer.as_of)
    for each in answer.refused:
        yield ""
        yield f"{each.title} ({each.place})" if each.place else each.title
        yield f"  starts   never: {each.message}"
    if not answer.gangs and not answer.refused:
        yield ""
        yield "nothing of it has pods"
    if answer.remarks:
        yield ""
        yield from answer.remarks


def _gang_lines(gang: SubmittedGang, now: float) -> Iterator[str]:
    space = f"{gang.namespace}/" if gang.namespace else ""
    yield f"{gang.kind} {space}{gang.name} in queue {gang.queue}, {_pods_text(gang)}"
    yield f"  starts   {start_text(gang, now)}"
    start = gang.start
    if gang.shares:
        yield f"  nodes    {_shares_text(gang.shares)}"
        for level, domains in gang.domains:
            yield f"  {level:<8} {_domains_text(domains)}"
    if start.evicted:
        yield f"  evicts   {', '.join(f'{each.namespace}/{each.name}' for each in start.evicted)}"
    if start.message and not gang.never and start.kind is not StartKind.NOW:
        yield f"  waits    {start.reason}: {start.message}"
    if gang.known_by and not gang.never:
        yield f"  known    {gang.known_by}"
    if gang.suggestions:
        yield "  better"
        yield from (
            f"  {line}"
            for line in suggestion_lines(tuple(map(suggestion_view, gang.suggestions)), now=now)
        )


def start_text(gang: SubmittedGang, now: float) -> str:
    """When it starts, in a few words."""
    start = gang.start
    if gang.never:
        return gang.never if gang.never.startswith("never") else f"never: {gang.never}"
    if start.kind is StartKind.NOW:
        return "now"
    some = f"{gang.starting} of {gang.pods} pods now, the last " if gang.starting else ""
    if start.kind is StartKind.AFTER_EVICTIONS:
        return f"{some}as soon as the evicted pods have ended"
    if start.kind is StartKind.EXPECTED:
        return f"{some}expected {format_time(start.at)}, in {age(start.at - now)}"
    return f"{some}at a time that nothing tells"


def _pods_text(gang: SubmittedGang) -> str:
    pods = "1 pod" if gang.pods == 1 else f"{gang.pods} pods"
    if gang.min_member > 1 and gang.min_member != gang.pods:
        return f"{pods}, {gang.min_member} of them at once"
    return f"{pods} at once" if gang.min_member > 1 else pods


def _shares_text(shares: Sequence[NodeShare]) -> str:
    texts = []
    for each in shares[:_NODES_NAMED_MAX]:
        pods = "" if each.pods == 1 else f"{each.pods} pods, "
        inside = f"{pods}GPUs {each.slots}" if each.slots else pods.removesuffix(", ")
        texts.append(f"{each.name} ({inside})" if inside else each.name)
    more = len(shares) - _NODES_NAMED_MAX
    return ", ".join(texts) + (f" and {more} more" if more > 0 else "")


def _domains_text(domains: Sequence[str]) -> str:
    more = len(domains) - _DOMAINS_NAMED_MAX
    return ", ".join(domains[:_DOMAINS_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")

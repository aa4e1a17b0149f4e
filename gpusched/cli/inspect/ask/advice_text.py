"""Advice about one gang, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from gpusched.advice.advisor import Advice
from gpusched.advice.proposal import FAMILY_NAMES, Family, Suggestion
from gpusched.advice.start_answer import StartAnswer, StartKind
from gpusched.api.meta.identity import format_time
from gpusched.cache.gangs.gang import Gang
from gpusched.cli.command import age

_NODES_NAMED_MAX: Final = 4


def advice_lines(advice: Advice, gang: Gang, *, now: float) -> Iterator[str]:
    """The answer for people.

    Args:
        advice: about the gang.
        gang: as the cluster has it.
        now: seconds since the Unix epoch, for how long it is until a time.
    """
    unchanged = advice.unchanged
    yield f"{gang.key.kind} {gang.key.namespace}/{gang.key.name} in queue {gang.queue}"
    if unchanged.starts:
        yield f"  starts {_start_text(unchanged, now)}: nothing needs to be changed"
        return
    if unchanged.message:
        yield f"  waits    {unchanged.reason}: {unchanged.message}"
    if advice.contradiction is not None:
        yield f"  starts   {advice.contradiction.sentence}"
        if advice.contradiction.message:
            yield f"           ({advice.contradiction.message})"
    else:
        yield f"  starts   {_start_text(unchanged, now)}, if nothing is changed"
    yield ""
    if not advice.suggestions:
        yield "no single change that was tried would let it start"
        return
    yield "It would start"
    yield from suggestion_lines(advice.suggestions, now=now)


def suggestion_lines(suggestions: Sequence[Suggestion], *, now: float) -> Iterator[str]:
    """Changes by number, each with the command that makes it."""
    for number, each in enumerate(suggestions, 1):
        yield f"{number:>2}. {each.proposal.message}: {_suggested_start_text(each, now)}"
        if each.proposal.command:
            yield f"    {each.proposal.command}"


def advice_json(advice: Advice, gang: Gang) -> dict[str, Any]:
    """The answer for programs."""
    never = advice.contradiction
    return {
        "gang": {
            "kind": gang.key.kind, "namespace": gang.key.namespace, "name": gang.key.name,
            "queue": gang.queue,
        },
        "asOf": format_time(advice.as_of),
        "unchanged": _start_json(advice.unchanged),
        "never": None if never is None else {
            "demands": list(never.demands), "message": never.message,
        },
        "suggestions": [
            {
                "change": FAMILY_NAMES[each.proposal.family],
                "message": each.proposal.message,
                "command": each.proposal.command,
                "at": format_time(each.proposal.at) if each.proposal.at else "",
                "start": _start_json(each.start),
                "objects": [
                    {"resource": edit.plural, "namespace": edit.key.namespace, "name": edit.key.name,
                     "becomes": edit.becomes}
                    for edit in each.proposal.edits
                ],
            }
            for each in advice.suggestions
        ],
        "decisions": advice.decisions,
    }  # fmt: skip


def _suggested_start_text(suggestion: Suggestion, now: float) -> str:
    at = suggestion.proposal.at
    ends = suggestion.proposal.family is Family.END_OF_OTHERS
    if ends and suggestion.start.kind is StartKind.NOW:
        where = _nodes_text(suggestion.start)
        if at:
            return f"expected {format_time(at)}, in {age(at - now)}{where}"
        return f"nothing tells when that is{where}"
    return _start_text(suggestion.start, now)


def _start_text(start: StartAnswer, now: float) -> str:
    where = _nodes_text(start)
    if start.kind is StartKind.NOW:
        return f"now{where}"
    if start.kind is StartKind.AFTER_EVICTIONS:
        names = ", ".join(f"{each.namespace}/{each.name}" for each in start.evicted)
        return f"as soon as evicted pods of {names} have ended{where}"
    if start.kind is StartKind.EXPECTED:
        return f"expected {format_time(start.at)}, in {age(start.at - now)}"
    return "at a time that nothing tells"


def _nodes_text(start: StartAnswer) -> str:
    if not start.nodes:
        return ""
    names = [name for name, _ in start.nodes]
    more = f" and {len(names) - _NODES_NAMED_MAX} more" if len(names) > _NODES_NAMED_MAX else ""
    return f", on {', '.join(names[:_NODES_NAMED_MAX])}{more}"


def _start_json(start: StartAnswer) -> dict[str, Any]:
    return {
        "kind": str(start.kind),
        "at": format_time(start.at) if start.at else "",
        "nodes": [{"name": name, "pods": pods} for name, pods in start.nodes],
        "evicts": [
            {"kind": each.kind, "namespace": each.namespace, "name": each.name}
            for each in start.evicted
        ],
        "reason": start.reason,
        "message": start.message,
    }

"""What would help a gang, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpusched.api.meta.identity import parse_time
from gpusched.cli.command import age
from gpusched.view.over_time.advice_view import (
    AdviceView,
    BetterChangeView,
    NamedGang,
    StartView,
)

_NODES_NAMED_MAX: Final = 4
_END_OF_OTHERS: Final = "endOfOthers"
_NOW, _AFTER_EVICTIONS, _EXPECTED = "now", "afterEvictions", "expected"
"""How well a start is known, as ``StartKind`` has it: importing that takes a second."""


def advice_lines(advice: AdviceView) -> Iterator[str]:
    """The answer for people."""
    gang, unchanged, now = advice.gang, advice.unchanged, parse_time(advice.as_of)
    yield f"{gang.kind} {gang.namespace}/{gang.name} in queue {gang.queue}"
    if _starts(unchanged):
        yield f"  starts {_start_text(unchanged, now)}: nothing needs to be changed"
        yield from advice.remarks
        return
    if unchanged.message:
        yield f"  waits    {unchanged.reason}: {unchanged.message}"
    if advice.never is not None:
        yield f"  starts   {advice.never.sentence}"
        if advice.never.message:
            yield f"           ({advice.never.message})"
    else:
        yield f"  starts   {_start_text(unchanged, now)}, if nothing is changed"
    yield from what_would_help(advice)


def what_would_help(advice: AdviceView | None) -> Iterator[str]:
    """The changes alone, after an empty line; nothing without an answer, or of a gang that starts."""
    if advice is None or _starts(advice.unchanged):
        return
    yield ""
    if advice.suggestions:
        yield "It would start"
        yield from suggestion_lines(advice.suggestions, now=parse_time(advice.as_of))
    else:
        yield "no change that was tried would let it start"
        yield from (f"  {each}" for each in advice.in_the_way)
    if advice.is_cut:
        yield f"after {advice.decisions} decisions the search was ended: other changes may help as well"
    yield from advice.remarks


def suggestion_lines(suggestions: Sequence[BetterChangeView], *, now: float) -> Iterator[str]:
    """Changes by number, each with what forbids it now and the command that makes it."""
    for number, each in enumerate(suggestions, 1):
        yield f"{number:>2}. {each.message}: {_suggested_start_text(each, now)}"
        for by in each.forbidden_by:
            yield f"    forbidden now: {by.message}"
        if each.command:
            yield f"    {each.command}"


def _starts(start: StartView) -> bool:
    return start.kind in (_NOW, _AFTER_EVICTIONS)


def _suggested_start_text(suggestion: BetterChangeView, now: float) -> str:
    start, at = suggestion.start, suggestion.at
    if suggestion.change == _END_OF_OTHERS and start.kind == _NOW:
        where = _nodes_text(start)
        if at:
            return f"expected {at}, in {age(parse_time(at) - now)}{where}"
        return f"nothing tells when that is{where}"
    return _start_text(start, now)


def _start_text(start: StartView, now: float) -> str:
    where = _nodes_text(start)
    if start.kind == _NOW:
        return f"now{where}"
    if start.kind == _AFTER_EVICTIONS:
        evicted = (
            f"evicted pods of {evicted_text(start.evicts)}" if start.evicts else "leaving pods"
        )
        return f"as soon as {evicted} have ended{where}"
    if start.kind == _EXPECTED:
        return f"expected {start.at}, in {age(parse_time(start.at) - now)}"
    return "at a time that nothing tells"


def evicted_text(evicted: Sequence[NamedGang]) -> str:
    """Gangs that lose members; those of other namespaces by their number where names are hidden."""
    named = [f"{each.namespace}/{each.name}" for each in evicted if not each.hidden]
    hidden = len(evicted) - len(named)
    if hidden:
        named.append(f"{hidden} workload{'s' * (hidden > 1)} of other namespaces")
    return ", ".join(named)


def _nodes_text(start: StartView) -> str:
    names = [each.name for each in start.nodes]
    if not names:
        return ""
    more = f" and {len(names) - _NODES_NAMED_MAX} more" if len(names) > _NODES_NAMED_MAX else ""
    return f", on {', '.join(names[:_NODES_NAMED_MAX])}{more}"

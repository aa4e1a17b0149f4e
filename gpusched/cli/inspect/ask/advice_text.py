"""What would help a gang, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpusched.api.meta.identity import parse_time
from gpusched.cli.command import age

_NODES_NAMED_MAX: Final = 4
_END_OF_OTHERS: Final = "endOfOthers"
_NOW, _AFTER_EVICTIONS, _EXPECTED = "now", "afterEvictions", "expected"
"""How well a start is known, as ``StartKind`` has it: importing that takes a second."""
Answer = Mapping[str, Any]
"""Advice, or a part of it, as ``advice_json`` has it."""


def advice_lines(advice: Answer) -> Iterator[str]:
    """The answer for people."""
    gang, unchanged, now = advice["gang"], advice["unchanged"], parse_time(advice["asOf"])
    yield f"{gang['kind']} {gang['namespace']}/{gang['name']} in queue {gang['queue']}"
    if _starts(unchanged):
        yield f"  starts {_start_text(unchanged, now)}: nothing needs to be changed"
        return
    if unchanged["message"]:
        yield f"  waits    {unchanged['reason']}: {unchanged['message']}"
    never = advice["never"]
    if never is not None:
        yield f"  starts   {never['sentence']}"
        if never["message"]:
            yield f"           ({never['message']})"
    else:
        yield f"  starts   {_start_text(unchanged, now)}, if nothing is changed"
    yield from suggestion_lines(advice)


def suggestion_lines(advice: Answer) -> Iterator[str]:
    """The changes alone, after an empty line; nothing of an empty answer, or of a gang that starts."""
    if not advice or _starts(advice["unchanged"]):
        return
    yield ""
    suggestions: Sequence[Answer] = advice["suggestions"]
    if not suggestions:
        yield "no single change that was tried would let it start"
        return
    now = parse_time(advice["asOf"])
    yield "It would start"
    for number, each in enumerate(suggestions, 1):
        yield f"{number:>2}. {each['message']}: {_suggested_start_text(each, now)}"
        if each["command"]:
            yield f"    {each['command']}"


def _starts(start: Answer) -> bool:
    return start["kind"] in (_NOW, _AFTER_EVICTIONS)


def _suggested_start_text(suggestion: Answer, now: float) -> str:
    start = suggestion["start"]
    if suggestion["change"] == _END_OF_OTHERS and start["kind"] == _NOW:
        where = _nodes_text(start)
        if suggestion["at"]:
            at = suggestion["at"]
            return f"expected {at}, in {age(parse_time(at) - now)}{where}"
        return f"nothing tells when that is{where}"
    return _start_text(start, now)


def _start_text(start: Answer, now: float) -> str:
    where = _nodes_text(start)
    if start["kind"] == _NOW:
        return f"now{where}"
    if start["kind"] == _AFTER_EVICTIONS:
        return f"as soon as evicted pods of {_evicted_text(start['evicts'])} have ended{where}"
    if start["kind"] == _EXPECTED:
        at = start["at"]
        return f"expected {at}, in {age(parse_time(at) - now)}"
    return "at a time that nothing tells"


def _evicted_text(evicted: Sequence[Answer]) -> str:
    named = [f"{each['namespace']}/{each['name']}" for each in evicted if "name" in each]
    hidden = len(evicted) - len(named)
    if hidden:
        named.append(f"{hidden} workload{'s' * (hidden > 1)} of other namespaces")
    return ", ".join(named)


def _nodes_text(start: Answer) -> str:
    names = [each["name"] for each in start["nodes"]]
    if not names:
        return ""
    more = f" and {len(names) - _NODES_NAMED_MAX} more" if len(names) > _NODES_NAMED_MAX else ""
    return f", on {', '.join(names[:_NODES_NAMED_MAX])}{more}"

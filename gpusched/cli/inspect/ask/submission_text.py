"""The answer about a submission, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpusched.api.meta.identity import parse_time
from gpusched.cli.command import age, table
from gpusched.cli.inspect.ask.advice_text import evicted_text, suggestion_lines
from gpusched.view.over_time.advice_view import NodeShareView
from gpusched.view.over_time.submission_view import (
    NEVER,
    SubmissionVariantsView,
    SubmissionVariantView,
    SubmissionView,
    SubmittedGangView,
)

_NODES_NAMED_MAX: Final = 8
_DOMAINS_NAMED_MAX: Final = 4
_NOW, _AFTER_EVICTIONS, _EXPECTED = "now", "afterEvictions", "expected"
"""How well a start is known, as ``StartKind`` has it: importing that takes a second."""


def submission_lines(answer: SubmissionView) -> Iterator[str]:
    """The answer, each gang with its own lines."""
    yield f"as of {answer.as_of}, if it were submitted now"
    for gang in answer.gangs:
        yield ""
        yield from _gang_lines(gang, parse_time(answer.as_of))
    for each in answer.refused:
        yield ""
        yield f"{each.document} ({each.place})" if each.place else each.document
        yield f"  starts   never: {each.message}"
    if not answer.gangs and not answer.refused:
        yield ""
        yield "nothing of it has pods"
    if answer.remarks:
        yield ""
        yield from answer.remarks


def variant_lines(answer: SubmissionVariantsView) -> Iterator[str]:
    """Variants side by side, the best first; under them why those that never start do not."""
    yield f"as of {answer.as_of}, if each alone were submitted now"
    yield ""
    names = list(answer.variants[0].options)
    levels = list(dict.fromkeys(
        level for each in answer.variants for gang in each.answer.gangs for level in gang.domains
    ))  # fmt: skip
    header = ["", *(name.upper() for name in names), "STARTS", "NODES"]
    rows = [[*header, *(level.upper() for level in levels), "EVICTS"]]
    for each in answer.variants:
        options = [each.options[name] for name in names]
        rows.append(["*" if each.best else "", *options, *_variant_cells(each, levels)])
    yield from table(rows).split("\n")
    reasons = dict.fromkeys(why for each in answer.variants for why in _never_texts(each.answer))
    if reasons:
        yield ""
        yield from reasons
    remarks = dict.fromkeys(remark for each in answer.variants for remark in each.answer.remarks)
    if remarks:
        yield ""
        yield from remarks


def _variant_cells(variant: SubmissionVariantView, levels: Sequence[str]) -> Iterator[str]:
    answer = variant.answer
    now = parse_time(answer.as_of)
    if answer.refused:
        yield NEVER
    else:
        yield "; ".join(_short_start(each, now) for each in answer.gangs) or "-"
    shares = [share for gang in answer.gangs for share in gang.start.nodes]
    yield str(len({each.name for each in shares})) if shares else "-"
    for level in levels:
        names = sorted({name for each in answer.gangs for name in each.domains.get(level, ())})
        yield _domains_text(names) or "-"
    yield evicted_text([each for gang in answer.gangs for each in gang.start.evicts]) or "-"


def _short_start(gang: SubmittedGangView, now: float) -> str:
    start = gang.start
    if start.kind == _EXPECTED:
        return f"in {age(parse_time(start.at) - now)}"
    return {_NOW: "now", _AFTER_EVICTIONS: "after evictions", NEVER: NEVER}.get(
        start.kind, "unknown"
    )


def _never_texts(answer: SubmissionView) -> Iterator[str]:
    for each in answer.refused:
        yield f"{each.document}: {each.message}"
    for gang in answer.gangs:
        if gang.start.kind == NEVER:
            yield f"{_title(gang)}: {gang.start.message}"


def _title(gang: SubmittedGangView) -> str:
    space = f"{gang.namespace}/" if gang.namespace else ""
    return f"{gang.kind} {space}{gang.name}"


def _gang_lines(gang: SubmittedGangView, now: float) -> Iterator[str]:
    yield f"{_title(gang)} in queue {gang.queue}, {_pods_text(gang)}"
    yield f"  starts   {_start_text(gang, now)}"
    start = gang.start
    if start.nodes:
        yield f"  nodes    {_shares_text(start.nodes)}"
        for level, domains in gang.domains.items():
            yield f"  {level:<8} {_domains_text(domains)}"
    if start.evicts:
        yield f"  evicts   {evicted_text(start.evicts)}"
    if start.message and start.kind not in (_NOW, NEVER):
        yield f"  waits    {start.reason}: {start.message}"
    if start.known_by and start.kind != NEVER:
        yield f"  known    {start.known_by}"
    if gang.better:
        yield "  better"
        yield from (f"  {line}" for line in suggestion_lines(gang.better, now=now))


def _start_text(gang: SubmittedGangView, now: float) -> str:
    """When it starts, in a few words."""
    start = gang.start
    if start.kind == NEVER:
        return start.message if start.message.startswith(NEVER) else f"never: {start.message}"
    if start.kind == _NOW:
        return "now"
    some = f"{gang.starting} of {gang.pods} pods now, the last " if gang.starting else ""
    if start.kind == _AFTER_EVICTIONS:
        which = "the evicted" if start.evicts else "leaving"
        return f"{some}as soon as {which} pods have ended"
    if start.kind == _EXPECTED:
        return f"{some}expected {start.at}, in {age(parse_time(start.at) - now)}"
    return f"{some}at a time that nothing tells"


def _pods_text(gang: SubmittedGangView) -> str:
    pods = "1 pod" if gang.pods == 1 else f"{gang.pods} pods"
    if gang.min_member > 1 and gang.min_member != gang.pods:
        return f"{pods}, {gang.min_member} of them at once"
    return f"{pods} at once" if gang.min_member > 1 else pods


def _shares_text(shares: Sequence[NodeShareView]) -> str:
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

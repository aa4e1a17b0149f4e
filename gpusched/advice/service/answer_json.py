"""Advice as JSON: the one form that the API serves, and that commands and the page print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpusched.advice.advisor import Advice
from gpusched.advice.proposal import FAMILY_NAMES, Suggestion
from gpusched.advice.start_answer import StartAnswer
from gpusched.advice.trial import ObjectEdit
from gpusched.api.meta.identity import GangKey, format_time
from gpusched.cache.gangs.gang import Gang

HideText = Callable[[str], str]
"""Takes names that a reader must not see out of a sentence."""


def advice_json(
    advice: Advice, gang: Gang, *, reader: str = "", hide: HideText | None = None
) -> dict[str, Any]:
    """The answer for programs.

    Args:
        advice: about the gang.
        gang: as the cluster has it.
        reader: the only namespace whose objects and names are told; empty for all.
        hide: takes names of other namespaces out of a sentence; None leaves them.
    """
    hide = hide or _unchanged_text
    never = advice.contradiction
    return {
        "gang": {**gang_json(gang.key), "queue": gang.queue},
        "asOf": format_time(advice.as_of),
        "unchanged": start_json(advice.unchanged, reader=reader, hide=hide),
        "never": None if never is None else {
            "sentence": never.sentence, "demands": list(never.demands), "message": hide(never.message),
        },
        "suggestions": [_suggestion_json(each, reader, hide) for each in advice.suggestions],
        "decisions": advice.decisions,
    }  # fmt: skip


def start_json(
    start: StartAnswer, *, reader: str = "", hide: HideText | None = None
) -> dict[str, Any]:
    """When something starts, where, and who is evicted for it."""
    hide = hide or _unchanged_text
    return {
        "kind": str(start.kind),
        "at": format_time(start.at) if start.at else "",
        "nodes": [{"name": name, "pods": pods} for name, pods in start.nodes],
        "evicts": [
            gang_json(each) if reader in ("", each.namespace) else {"hidden": True}
            for each in start.evicted
        ],
        "reason": start.reason,
        "message": hide(start.message),
    }


def gang_json(key: GangKey) -> dict[str, Any]:
    """The name of a gang."""
    return {"kind": key.kind, "namespace": key.namespace, "name": key.name}


def _suggestion_json(each: Suggestion, reader: str, hide: HideText) -> dict[str, Any]:
    proposal = each.proposal
    return {
        "change": FAMILY_NAMES[proposal.family],
        "message": hide(proposal.message),
        "command": hide(proposal.command),
        "at": format_time(proposal.at) if proposal.at else "",
        "start": start_json(each.start, reader=reader, hide=hide),
        "objects": [
            {"resource": edit.plural, "namespace": edit.key.namespace, "name": edit.key.name,
             "becomes": edit.becomes}
            for edit in proposal.edits
            if _is_told(edit, reader)
        ],
    }  # fmt: skip


def _is_told(edit: ObjectEdit, reader: str) -> bool:
    """Whether an object is one that the reader of a namespace may see whole: its own."""
    return not reader or edit.key.namespace == reader


def _unchanged_text(text: str) -> str:
    return text

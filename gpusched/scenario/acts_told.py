"""What the report says of an act where the file says nothing."""

from __future__ import annotations

from typing import Final, cast

from gpusched.scenario.model import (
    Act,
    Apply,
    Cordon,
    Delete,
    Drain,
    Evict,
    FailNode,
    Fault,
    Patch,
    Restart,
    Scale,
    Target,
)
from gpusched.scenario.work import Workload
from gpusched.scenario.workloads import text_of

_NAMES_MAX: Final = 3
_FAILURES: Final = {
    "notReady": "is NotReady",
    "lost": "is lost",
    "deleted": "is deleted",
    "gpus": "loses GPUs",
}


def submitted(work: Workload) -> str:
    """A workload comes."""
    parts = [_pods(sum(role.pods for role in work.roles) or cast("int", work.pods))]
    if work.gpus:
        parts.append(f"{work.gpus} GPUs each" if work.pods != 1 else f"{work.gpus} GPUs")
    if work.queue:
        parts.append(f"queue {work.queue}")
    if work.run_for_s is not None:
        parts.append(f"runs {text_of(cast('float', work.run_for_s))}")
    return f"submit {work.kind} {work.name}: {', '.join(parts)}"


def _pods(number: int) -> str:
    return f"{number} pod" if number == 1 else f"{number} pods"


def done(act: Act) -> str:  # noqa: PLR0911  # one line for each act
    """Something is done."""
    match act:
        case Apply():
            return f"apply {_manifests(act)}"
        case Delete():
            return f"delete {about(act.target)}"
        case Patch():
            return f"patch {'the status of ' if act.status else ''}{about(act.target)}"
        case Scale():
            return f"scale {about(act.target)} to {act.replicas}"
        case Cordon():
            return f"{'cordon' if act.on else 'uncordon'} {about(act.target)}"
        case Drain():
            return f"drain {about(act.target)}"
        case FailNode():
            lost = f"loses {act.gpus} GPUs" if act.how == "gpus" else _FAILURES[act.how]
            return f"{about(act.target)} {lost}{_for(act.for_s)}"
        case Evict():
            return f"evict {about(act.target)}"
        case Fault():
            what = (act.rule.get("fault") or {}).get("type")
            return f"fault {act.rule.get('name') or what}{_for(act.for_s)}"
        case Restart():
            after = f" after {act.after_writes} more bindings" if act.after_writes else ""
            verb = "kill" if act.what == "leader" else "restart"
            down = f", away for {text_of(act.down_s)}" if act.down_s else ""
            return f"{verb} the {act.what}{after}{down}"


def _manifests(act: Apply) -> str:
    names = [
        f"{each.obj.get('kind')} {(each.obj.get('metadata') or {}).get('name', '')}".strip()
        for each in act.manifests
    ]
    rest = len(names) - _NAMES_MAX
    return ", ".join(names[:_NAMES_MAX]) + (f" and {rest} more" if rest > 0 else "")


def _for(seconds: float | None) -> str:
    return "" if seconds is None else f" for {text_of(seconds)}"


def about(target: Target) -> str:
    """The objects of a target: ``Job team-a/train-*``."""
    labels = ",".join(f"{key}={value}" for key, value in target.labels.items())
    name = target.name or ("" if labels else "*")
    if target.namespace not in {"default", ""} and target.kind != "Node":
        name = f"{target.namespace}/{name or '*'}"
    return " ".join(part for part in (target.kind, name, labels) if part)

"""What the report says of an act where the file says nothing."""

from __future__ import annotations

from typing import Final, cast

from gpusched.lab.scenario.expansion.workload_manifests import manifest_duration
from gpusched.lab.scenario.model.scenario import (
    Act,
    ApplyAct,
    CordonAct,
    DeleteAct,
    DrainAct,
    EvictAct,
    FailNodeAct,
    FaultAct,
    PatchAct,
    RestartAct,
    ScaleAct,
    Target,
)
from gpusched.lab.scenario.model.workload import WorkloadSpec

_NAMES_MAX: Final = 3
_FAILURES: Final = {
    "notReady": "is NotReady",
    "lost": "is lost",
    "deleted": "is deleted",
    "gpus": "loses GPUs",
}


def submission_message(work: WorkloadSpec) -> str:
    """Sentence for a workload that is submitted."""
    parts = [_pods(sum(role.pods for role in work.roles) or cast("int", work.pods))]
    if work.gpus:
        parts.append(f"{work.gpus} GPUs each" if work.pods != 1 else f"{work.gpus} GPUs")
    if work.queue:
        parts.append(f"queue {work.queue}")
    if work.run_for_s is not None:
        parts.append(f"runs {manifest_duration(cast('float', work.run_for_s))}")
    return f"submit {work.kind} {work.name}: {', '.join(parts)}"


def _pods(number: int) -> str:
    return f"{number} pod" if number == 1 else f"{number} pods"


def act_message(act: Act) -> str:  # noqa: PLR0911  # one line for each act
    """Sentence for one act of the timeline."""
    match act:
        case ApplyAct():
            return f"apply {_manifests(act)}"
        case DeleteAct():
            return f"delete {target_message(act.target)}"
        case PatchAct():
            return f"patch {'the status of ' if act.status else ''}{target_message(act.target)}"
        case ScaleAct():
            return f"scale {target_message(act.target)} to {act.replicas}"
        case CordonAct():
            return f"{'cordon' if act.on else 'uncordon'} {target_message(act.target)}"
        case DrainAct():
            return f"drain {target_message(act.target)}"
        case FailNodeAct():
            lost = f"loses {act.gpus} GPUs" if act.how == "gpus" else _FAILURES[act.how]
            return f"{target_message(act.target)} {lost}{_for(act.for_s)}"
        case EvictAct():
            return f"evict {target_message(act.target)}"
        case FaultAct():
            what = (act.rule.get("fault") or {}).get("type")
            return f"fault {act.rule.get('name') or what}{_for(act.for_s)}"
        case RestartAct():
            after = f" after {act.after_writes} more bindings" if act.after_writes else ""
            verb = "kill" if act.what == "leader" else "restart"
            down = f", away for {manifest_duration(act.down_s)}" if act.down_s else ""
            return f"{verb} the {act.what}{after}{down}"


def _manifests(act: ApplyAct) -> str:
    names = [
        f"{each.obj.get('kind')} {(each.obj.get('metadata') or {}).get('name', '')}".strip()
        for each in act.manifests
    ]
    rest = len(names) - _NAMES_MAX
    return ", ".join(names[:_NAMES_MAX]) + (f" and {rest} more" if rest > 0 else "")


def _for(seconds: float | None) -> str:
    return "" if seconds is None else f" for {manifest_duration(seconds)}"


def target_message(target: Target) -> str:
    """The objects of a target: ``Job team-a/train-*``."""
    labels = ",".join(f"{key}={value}" for key, value in target.labels.items())
    name = target.name or ("" if labels else "*")
    if target.namespace not in {"default", ""} and target.kind != "Node":
        name = f"{target.namespace}/{name or '*'}"
    return " ".join(part for part in (target.kind, name, labels) if part)

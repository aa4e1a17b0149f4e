"""A Job's podFailurePolicy: what a failed pod means for its Job. Pure."""

from __future__ import annotations

from typing import Literal

import attrs

from gpusched.devcluster.controllers.job_pods import Obj

Verdict = Literal["FailJob", "FailIndex", "Ignore", "Count"]


@attrs.frozen
class Judgement:
    """The verdict on a failed pod, with the sentence for a Job that fails by it."""

    verdict: Verdict
    message: str = ""


_COUNT = Judgement("Count")


def judge(policy: Obj | None, pod: Obj) -> Judgement:
    """The first rule that fits a failed pod; without one it counts towards backoffLimit."""
    for index, rule in enumerate((policy or {}).get("rules") or ()):
        action = rule.get("action")
        why = _by_exit_code(rule.get("onExitCodes"), pod)
        why = why or _by_condition(rule.get("onPodConditions") or (), pod)
        if why:
            if action not in {"FailJob", "FailIndex", "Ignore"}:
                return _COUNT
            return Judgement(action, f"{why} matching {action} rule at index {index}")
    return _COUNT


def _by_exit_code(wanted: Obj | None, pod: Obj) -> str:
    if wanted is None:
        return ""
    status, metadata = pod.get("status") or {}, pod["metadata"]
    containers = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    for container in containers:
        if wanted.get("containerName") not in {None, container.get("name")}:
            continue
        ended = (container.get("state") or {}).get("terminated")
        code = (ended or {}).get("exitCode", 0)
        if code and (code in wanted.get("values", ())) == (wanted.get("operator") == "In"):
            place = f"{metadata['namespace']}/{metadata['name']}"
            name = container.get("name", "")
            return f"Container {name} for pod {place} failed with exit code {code}"
    return ""


def _by_condition(wanted: list[Obj] | tuple[Obj, ...], pod: Obj) -> str:
    metadata = pod["metadata"]
    conditions = (pod.get("status") or {}).get("conditions") or ()
    have = {c.get("type"): c.get("status") for c in conditions}
    for pattern in wanted:
        if have.get(pattern.get("type")) == pattern.get("status", "True"):
            place = f"{metadata['namespace']}/{metadata['name']}"
            return f"Pod {place} has condition {pattern.get('type')}"
    return ""

"""What it means when the pods of a gang end: failures that Jobs count, and budgets that keep pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpusched.api.jobs.job import Job
from gpusched.api.pod.pod import Pod, PodPhase
from gpusched.api.policy.kinds import DisruptionBudget
from gpusched.cli.inspect.cluster_reader import Json, list_objects, read_entity, value_at
from gpusched.io.client.api_client import ApiClient
from gpusched.session.framework.reasons import pods_text


def fatal_failures_text(jobs: Iterable[Json], pods: Sequence[Pod]) -> str:
    """Why a Job would fail for good if these pods were evicted; empty where each survives it.

    Args:
        jobs: as the server has them.
        pods: that are to be evicted.
    """
    read = ((read_entity("jobs", item), item) for item in jobs)
    known = [(job, item) for job, item in read if isinstance(job, Job)]
    for job, item in sorted(known, key=lambda each: each[0].key):
        going = sum(pod.owner is not None and pod.owner.uid == job.uid for pod in pods)
        if not going or job.ignores_evictions or job.controlled:
            continue
        before, more, limit = int(value_at(item, "status", "failed") or 0), going, "backoffLimit"
        if job.limit_per_index:
            before, more, limit = 0, 1, "backoffLimitPerIndex"
        if before + more > job.backoff_limit:
            return (
                f"each pod that is evicted counts as a failure of Job {job.key}, and {going} after {before} "
                f"would end it for good, as its {limit} is {job.backoff_limit}: gpusched suspend job "
                f"{job.name} ends its pods without a failure, gpusched resume job {job.name} starts it again"
            )
    return ""


async def forbidding_budget_text(api: ApiClient, namespace: str, pods: Sequence[Pod]) -> str:
    """Which budget does not let these pods end together; empty for none.

    Raises:
        Denied: budgets may not be read.
    """
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    for item in await list_objects(api, path, what="poddisruptionbudgets"):
        budget = read_entity("poddisruptionbudgets", item)
        if not isinstance(budget, DisruptionBudget) or budget.selector is None:
            continue
        guarded = sum(
            pod.phase is not PodPhase.PENDING and budget.selector.matches(pod.labels)
            for pod in pods
        )
        if guarded > budget.disruptions_allowed:
            return f"disruption budget {budget.name} lets {budget.disruptions_allowed} of {pods_text(guarded)} go"
    return ""

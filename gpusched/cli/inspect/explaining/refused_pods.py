"""Why pods of a gang are missing: what Kubernetes said where it refused to create them."""

from __future__ import annotations

from typing import Any, Final

from gpusched.base.errors import Denied, NotFound
from gpusched.cli.inspect.cluster_reader import Json, list_objects, value_at
from gpusched.cli.inspect.explaining.owners import makers_of
from gpusched.cli.inspect.explaining.subject import Subject
from gpusched.io.client.api_client import ApiClient

_GROUP: Final = "gpusched.io/pod-group"
_REFUSED: Final = "FailedCreate"


async def read_refused_pods(api: ApiClient, subject: Subject) -> list[dict[str, Any]]:
    """Events which tell that pods of a gang could not be created, as by a quota.

    Args:
        api: of the cluster.
        subject: of whose gang fewer pods exist than it needs.
    """
    makers = {(subject.kind, subject.name)} | makers_of(subject.pods)
    try:
        if subject.kind == "PodGroup":
            path = f"/apis/batch/v1/namespaces/{subject.namespace}/jobs"
            jobs = await list_objects(api, path, what="jobs")
            makers |= {
                ("Job", str(value_at(job, "metadata", "name")))
                for job in jobs
                if _group_of_template(job) == subject.name
            }
        query = {"fieldSelector": f"reason={_REFUSED}"}
        path = f"/api/v1/namespaces/{subject.namespace}/events"
        found = await list_objects(api, path, what="events", query=query)
    except (Denied, NotFound):
        return []
    return [
        each
        for each in found
        if each.get("reason") == _REFUSED
        and tuple(value_at(each, "involvedObject", key) for key in ("kind", "name")) in makers
    ]


def _group_of_template(job: Json) -> str:
    """The PodGroup that a Job's pods will name by their label; empty for none."""
    labels = value_at(job, "spec", "template", "metadata", "labels")
    return str(labels.get(_GROUP) or "") if isinstance(labels, dict) else ""

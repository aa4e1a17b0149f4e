"""The objects that one gang is made of, and the manifests that say something else about it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from gpusched.advice.trial import ObjectEdit, TrialCluster, edit_to
from gpusched.api.meta.identity import GangKey, ObjectKey
from gpusched.base.classes import frozen
from gpusched.cache.gangs.gang import DEFAULT_TERMS, Gang
from gpusched.engine.objects import Obj, key_of, plural_of

_MIN_MEMBER: Final = "gpusched.io/min-member"
_TOPOLOGY: Final = "gpusched.io/topology-required"
_QUEUE: Final = "gpusched.io/queue"
_OWN_GROUP: Final = "gpusched-as-one-group"
_TERM_ANNOTATIONS: Final = {
    "preemptible": "gpusched.io/preemptible",
    "minRuntime": "gpusched.io/min-runtime",
}


@frozen
class Workload:
    """Objects of a gang.

    Attributes:
        group: its PodGroup, None where it has none of ours.
        job: its Job, None where it is none.
        pods: members that have no place.
    """

    key: GangKey
    group: Obj | None
    job: Obj | None
    pods: tuple[Obj, ...]

    # -- what it could say instead -----------------------------------------------------------
    def with_min_member(self, count: int) -> tuple[ObjectEdit, ...]:
        """It starts with fewer members."""
        if self.group is not None:
            return (edit_to(_with_spec(self.group, minMember=count)),)
        return self._with_annotation(_MIN_MEMBER, str(count))

    def with_topology(self, level: str) -> tuple[ObjectEdit, ...]:
        """Its members share a domain of another level; empty for none."""
        if self.group is not None:
            topology = dict(self.group["spec"].get("topology") or {})
            topology.pop("required", None)
            if level:
                topology["required"] = level
            return (edit_to(_with_spec(self.group, topology=topology)),)
        return self._with_annotation(_TOPOLOGY, level)

    def without_max_wait(self) -> tuple[ObjectEdit, ...]:
        """It does not wait for a domain that it prefers."""
        if self.group is not None:
            topology = dict(self.group["spec"].get("topology") or {})
            topology.pop("maxWait", None)
            return (edit_to(_with_spec(self.group, topology=topology)),)
        return self._with_annotation("gpusched.io/topology-max-wait", "")

    def with_free_sub_groups(self) -> tuple[ObjectEdit, ...]:
        """Its sub-groups require no level; only of a PodGroup."""
        if self.group is None:
            return ()
        parts = [
            {name: value for name, value in each.items() if name != "topology"}
            for each in self.group["spec"].get("subGroups") or ()
        ]
        return (edit_to(_with_spec(self.group, subGroups=parts)),)

    def with_toleration(self, key: str, value: str, effect: str) -> tuple[ObjectEdit, ...]:
        """Its members tolerate a taint."""
        added = {"key": key, "operator": "Equal", "value": value, "effect": effect}

        def tolerate(obj: Obj) -> Obj:
            held = (obj.get("spec") or {}).get("tolerations") or ()
            return _with_spec(obj, tolerations=[*held, added])

        edits = [edit_to(tolerate(pod)) for pod in self.pods]
        if self.job is not None:
            edits.append(edit_to(_with_template(self.job, tolerate)))
        return tuple(edits)

    def with_preemptible(self) -> tuple[ObjectEdit, ...]:
        """It may be evicted for others."""
        if self.group is not None:
            return (edit_to(_with_spec(self.group, preemptible=True)),)
        return self._with_annotation("gpusched.io/preemptible", "true")

    def with_queue(self, queue: str) -> tuple[ObjectEdit, ...]:
        """It is submitted to another queue."""
        if self.group is not None:
            return (edit_to(_with_spec(self.group, queue=queue)),)
        return tuple(edit_to(each) for each in self._changed(lambda o: _labelled(o, _QUEUE, queue)))

    def with_priority_class(self, name: str, value: int) -> tuple[ObjectEdit, ...]:
        """It has another priority class, of this value."""
        edits: list[ObjectEdit] = []
        if self.group is not None:
            edits.append(edit_to(_with_spec(self.group, priorityClassName=name)))
        fields = {"priorityClassName": name, "priority": value}
        edits += [edit_to(_with_spec(pod, **fields)) for pod in self.pods]
        if self.job is not None:
            plain = {"priorityClassName": name}
            edits.append(edit_to(_with_template(self.job, lambda t: _with_spec(t, **plain))))
        return tuple(edits)

    def with_node_label(self, label: str, value: str | None) -> tuple[ObjectEdit, ...]:
        """Its members select nodes by another value of a label; None for any."""

        def select(obj: Obj) -> Obj:
            chosen = dict((obj.get("spec") or {}).get("nodeSelector") or {})
            chosen.pop(label, None)
            if value is not None:
                chosen[label] = value
            return _with_spec(obj, nodeSelector=chosen)

        edits = [edit_to(select(pod)) for pod in self.pods]
        if self.job is not None:
            edits.append(edit_to(_with_template(self.job, select)))
        return tuple(edits)

    def as_pod_group(self, gang: Gang) -> Workload:
        """The same gang as a PodGroup of ours would describe it, which says all that can be taken off.

        Itself where it is one, a lone pod, or says what such a PodGroup would say in other words.
        """
        terms = gang.terms
        if (
            self.group is not None or gang.min_member < 2 or gang.sub_groups or gang.min_roles
            or terms.gpu_types != DEFAULT_TERMS.gpu_types or terms.devices != DEFAULT_TERMS.devices
        ):  # fmt: skip
            return self
        group = {
            "apiVersion": "scheduling.gpusched.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": _OWN_GROUP, "namespace": gang.key.namespace},
            "spec": {
                "queue": gang.queue,
                "minMember": gang.min_member,
                "preemptible": terms.preemptible,
                "expectedDuration": f"{terms.expected_duration_ns // 10**9}s",
                "minRuntime": f"{terms.min_runtime_ns // 10**9}s",
                **({"topology": {"required": gang.topology.required}} if gang.topology.required else {}),
            },
        }  # fmt: skip
        key = GangKey("PodGroup", gang.key.namespace, _OWN_GROUP)
        members = (*self.pods, *self._pods_to_come(gang))
        pods = tuple(_labelled(pod, "gpusched.io/pod-group", _OWN_GROUP) for pod in members)
        return Workload(key, group, None, pods)

    def _pods_to_come(self, gang: Gang) -> Iterator[Obj]:
        """Pods that its Job would make; none that need claims, which are made with them."""
        template = self.job["spec"]["template"] if self.job is not None else {}
        if (template.get("spec") or {}).get("resourceClaims"):
            return
        for number in range(gang.expected_count):
            name = {"name": f"{_OWN_GROUP}-{number}", "namespace": gang.key.namespace}
            metadata = {**(template.get("metadata") or {}), **name}
            yield {"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}

    def rewritten(self, change: Callable[[Obj], Obj]) -> tuple[ObjectEdit, ...]:
        """Its PodGroup and its pods, each changed."""
        objects = self.pods if self.group is None else (*self.pods, self.group)
        return tuple(edit_to(change(obj)) for obj in objects)

    @property
    def node_labels(self) -> Mapping[str, str]:
        """Labels by which its members select nodes; those on which all members agree."""
        specs = [pod["spec"] for pod in self.pods]
        if self.job is not None:
            specs.append(self.job["spec"]["template"].get("spec") or {})
        selectors = [spec.get("nodeSelector") or {} for spec in specs]
        if not selectors:
            return {}
        shared = set(selectors[0].items())
        for each in selectors[1:]:
            shared &= set(each.items())
        return dict(sorted(shared))

    @property
    def targets(self) -> tuple[tuple[str, ObjectKey], ...]:
        """Plural and key of what says its terms: its PodGroup, else its Job and its pods."""
        if self.group is not None:
            return ((plural_of(self.group), key_of(self.group)),)
        objects = [*self.pods, *([self.job] if self.job is not None else [])]
        return tuple((plural_of(obj), key_of(obj)) for obj in objects)

    def command(self, patch: Mapping[str, Any]) -> str:
        """The command that changes its PodGroup; empty where it has none: it is submitted again."""
        if self.group is None:
            return ""
        body = json.dumps(patch, separators=(",", ":"), sort_keys=True)
        space = f" -n {self.key.namespace}"
        return f"kubectl patch podgroup {self.key.name}{space} --type merge -p '{body}'"

    def _with_annotation(self, name: str, text: str) -> tuple[ObjectEdit, ...]:
        return tuple(edit_to(each) for each in self._changed(lambda o: _noted(o, name, text)))

    def _changed(self, change: Callable[[Obj], Obj]) -> Iterator[Obj]:
        """Its pods, and its Job with its template, each with a change of metadata."""
        for pod in self.pods:
            yield change(pod)
        if self.job is not None:
            yield _with_template(change(self.job), change)


def with_terms(obj: Obj, terms: Mapping[str, Any]) -> Obj:
    """A PodGroup, a Job or a pod with other terms; None takes one off.

    Args:
        obj: its manifest.
        terms: by field of a PodGroup's spec.
    """
    if obj["kind"] == "PodGroup":
        spec = {**obj["spec"], **terms}
        return {**obj, "spec": {name: value for name, value in spec.items() if value is not None}}

    def note(part: Obj) -> Obj:
        for field, value in terms.items():
            name = _TERM_ANNOTATIONS.get(field)
            if name is not None:
                text = "" if value is None else str(value)
                part = _noted(part, name, text.lower() if isinstance(value, bool) else text)
        return part

    return _with_template(note(obj), note) if obj["kind"] == "Job" else note(obj)


def find_workload(trial: TrialCluster, gang: Gang) -> Workload:
    """The objects that a gang which waits is made of."""
    key = ObjectKey(gang.key.namespace, gang.key.name)
    names = [pod.key for each in gang.pod_sets for pod in each.pods if pod.uid]
    pods = [trial.objects.get("pods", name) for name in names]
    return Workload(
        gang.key,
        trial.objects.get("podgroups", key) if gang.key.kind == "PodGroup" else None,
        trial.objects.get("jobs", key) if gang.key.kind == "Job" else None,
        tuple(pod for pod in pods if pod is not None),
    )


def _with_spec(obj: Obj, **fields: Any) -> Obj:
    return {**obj, "spec": {**(obj.get("spec") or {}), **fields}}


def _with_template(job: Obj, change: Callable[[Obj], Obj]) -> Obj:
    template = job["spec"].get("template") or {}
    return _with_spec(job, template=change(template))


def _labelled(obj: Obj, name: str, text: str) -> Obj:
    return _with_metadata(obj, "labels", name, text)


def _noted(obj: Obj, name: str, text: str) -> Obj:
    return _with_metadata(obj, "annotations", name, text)


def _with_metadata(obj: Obj, part: str, name: str, text: str) -> Obj:
    metadata = obj.get("metadata") or {}
    held = dict(metadata.get(part) or {})
    held.pop(name, None)
    if text:
        held[name] = text
    return {**obj, "metadata": {**metadata, part: held}}

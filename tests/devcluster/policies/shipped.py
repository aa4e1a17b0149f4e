"""What the shipped policies let through and refuse, as conversations with a server that has them.

To record them on a real server apply ``manifests/namespace.yaml``, ``manifests/lease.yaml``,
``manifests/crds``, ``manifests/rbac.yaml`` and ``manifests/policies`` first, then run
``python -m tests.devcluster.policies.record KUBECONFIG --shipped``.
"""

from __future__ import annotations

from typing import Any

from .exchanges import Ask, Conversation, Obj

DAEMON = "system:serviceaccount:gpusched-system:gpusched"
ALICE = "shipped-alice"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/gpusched-system/leases/gpusched"
MERGE = "application/merge-patch+json"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


def _core(name: str, plural: str) -> str:
    return f"/api/v1/namespaces/vap-{name}/{plural}"


def _apps(name: str, plural: str, group: str = "apps/v1") -> str:
    return f"/apis/{group}/namespaces/vap-{name}/{plural}"


def _groups(name: str) -> str:
    return f"/apis/scheduling.gpusched.io/v1alpha1/namespaces/vap-{name}/podgroups"


def pod(name: str, *, labels: Obj | None = None, notes: Obj | None = None, **spec: Any) -> Obj:
    """A pod of ours, unless the spec says otherwise."""
    meta: Obj = {"name": name, "labels": labels or {}, "annotations": notes or {}}
    body = {
        "schedulerName": "gpusched",
        "automountServiceAccountToken": False,
        "containers": [{"name": "c", "image": "i"}],
        **spec,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body}


def template(labels: Obj | None = None, notes: Obj | None = None, **spec: Any) -> Obj:
    """A pod template of ours."""
    made = pod("", labels={"app": "a", **(labels or {})}, notes=notes, **spec)
    return {
        "metadata": {k: v for k, v in made["metadata"].items() if k != "name"},
        "spec": made["spec"],
    }


def job(name: str, *, labels: Obj | None = None, notes: Obj | None = None, **of: Any) -> Obj:
    """A suspended Job of ours."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels or {}, "annotations": notes or {}},
        "spec": {
            "suspend": True,
            "parallelism": 4,
            "template": template(restartPolicy="Never", **of),
        },
    }


def group(name: str, **spec: Any) -> Obj:
    """A PodGroup."""
    return {
        "apiVersion": "scheduling.gpusched.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": 1, **spec},
    }


def granted(name: str, user: str, *rules: Obj, as_: str = "role") -> list[tuple[str, Obj]]:
    """A Role in the conversation's namespace, and its binding to a user."""
    meta = {"name": f"shipped-{as_}"}
    head = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    place = f"{_RBAC}/namespaces/vap-{name}"
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": meta["name"]}
    return [
        (f"{place}/roles", {**head, "kind": "Role", "metadata": meta, "rules": list(rules)}),
        (
            f"{place}/rolebindings",
            {
                **head,
                "kind": "RoleBinding",
                "metadata": meta,
                "roleRef": reference,
                "subjects": [subject],
            },
        ),
    ]


def rule(api_group: str, resources: str, *verbs: str, names: tuple[str, ...] = ()) -> Obj:
    """A rule of a role, resources separated by spaces."""
    named = {"resourceNames": list(names)} if names else {}
    return {
        "apiGroups": [api_group],
        "resources": resources.split(),
        "verbs": list(verbs),
        **named,
    }


EDIT = (
    rule("", "pods replicationcontrollers", "create", "update", "patch"),
    rule("batch", "jobs cronjobs", "create", "update", "patch"),
    rule("apps", "deployments statefulsets", "create", "update", "patch"),
    rule("scheduling.gpusched.io", "podgroups", "create", "update", "patch"),
)
"""What the role ``edit`` grants of what is tried here."""


def _binding(name: str, notes: Obj) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": notes},
        "target": {"kind": "Node", "name": "n"},
    }


def _eviction(name: str, notes: Obj) -> Obj:
    meta = {"name": name, "annotations": notes}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}


def fence() -> Conversation:
    """Only the leader of this moment binds and evicts."""
    name = "fence"
    pods = _core(name, "pods")
    new, old = {"gpusched.io/fence": "d-1/3"}, {"gpusched.io/fence": "d-0/2"}
    held = {"spec": {"holderIdentity": "d-1", "leaseTransitions": 3}}
    lost = {"spec": {"holderIdentity": "d-2", "leaseTransitions": 4}}
    free = {"spec": {"holderIdentity": None, "leaseTransitions": 4}}

    def bind(pod_name: str, notes: Obj, user: str = DAEMON) -> Ask:
        return Ask("POST", f"{pods}/{pod_name}/binding", _binding(pod_name, notes), user)

    return Conversation(
        name,
        [
            *[(pods, pod(n)) for n in ("a", "b", "c", "d")],
            *granted(name, "other", rule("", "pods/binding", "create")),
        ],
        [
            Ask("PATCH", LEASE, held, "", MERGE),
            bind("a", old),
            bind("a", {}),
            Ask("POST", _core(name, "bindings"), _binding("a", old), DAEMON),
            bind("a", new),
            Ask("POST", f"{pods}/a/eviction", _eviction("a", old), DAEMON),
            Ask("POST", f"{pods}/a/eviction", _eviction("a", new), DAEMON),
            Ask("PATCH", LEASE, lost, "", MERGE),
            bind("b", new),
            bind("b", {"gpusched.io/fence": "d-2/4"}),
            bind("d", {"gpusched.io/fence": "d-3/4"}),
            bind("d", {"gpusched.io/fence": "d-3/5/6"}),
            bind("d", {"gpusched.io/fence": "d-3/99999999999"}),
            bind("d", {"gpusched.io/fence": "d-3/5"}),
            Ask("PATCH", LEASE, free, "", MERGE),
            bind("c", {"gpusched.io/fence": "d-2/4"}),
            bind("c", {}, "other"),
        ],
    )


def annotations() -> Conversation:
    """What the scheduler writes is written by nobody else."""
    name = "notes"
    pods, jobs = _core(name, "pods"), _apps(name, "jobs", "batch/v1")
    forged = {"gpusched.io/slots": "0-7"}

    def patch(path: str, notes: Obj, user: str = ALICE) -> Ask:
        return Ask("PATCH", path, {"metadata": {"annotations": notes}}, user, MERGE)

    return Conversation(
        name,
        [
            *granted(name, ALICE, *EDIT, rule("", "pods/binding pods/status", "create", "patch")),
            (pods, pod("held")),
            (jobs, job("held")),
        ],
        [
            Ask("POST", pods, pod("forged", notes=forged), ALICE),
            Ask("POST", pods, pod("forged", notes=forged, schedulerName="default"), ALICE),
            Ask("POST", pods, pod("forged", notes=forged)),
            Ask("POST", pods, pod("mine", notes={"gpusched.io/expected-duration": "1h"}), ALICE),
            patch(f"{pods}/mine", forged),
            patch(f"{pods}/mine", {"gpusched.io/seal": "x", "more": "y"}),
            patch(f"{pods}/mine/status", forged),
            Ask("POST", f"{pods}/mine/binding", _binding("mine", forged), ALICE),
            patch(f"{pods}/held", forged, ""),
            patch(f"{pods}/held", {"more": "y"}),
            patch(f"{pods}/held", {"gpusched.io/slots": "0"}),
            patch(f"{pods}/held", {"gpusched.io/slots": None}),
            Ask("POST", jobs, job("moved", notes={"gpusched.io/moved": "{}"}), ALICE),
            Ask("POST", jobs, {**job("in"), "spec": job("in", notes={})["spec"]}, ALICE),
            Ask("POST", jobs, _with_forged_template(), ALICE),
            patch(f"{jobs}/held", {"gpusched.io/moved": "{}"}),
            patch(f"{jobs}/held", {"gpusched.io/moved": "{}"}, DAEMON),
            patch(f"{jobs}/held", {"gpusched.io/moved": None}),
            patch(f"{jobs}/held", {"more": "y"}),
        ],
    )


def _with_forged_template() -> Obj:
    made = job("forged")
    made["spec"]["template"]["metadata"]["annotations"] = {"gpusched.io/rank": "0"}
    return made


def node_name() -> Conversation:
    """Pods of ours choose no node."""
    name = "node-name"
    pods = _core(name, "pods")
    return Conversation(
        name,
        granted(name, ALICE, *EDIT),
        [
            Ask("POST", pods, pod("a", nodeName="n"), ALICE),
            Ask("POST", pods, pod("b", nodeName="n", schedulerName="default-scheduler"), ALICE),
            Ask("POST", pods, pod("c"), ALICE),
        ],
    )


def own_jobs() -> Conversation:
    """Our account starts and pauses Jobs, and changes nothing else of them."""
    name = "own-jobs"
    jobs = _apps(name, "jobs", "batch/v1")
    least = {"kueue.x-k8s.io/job-min-parallelism": "1"}

    def patch(to: str, body: Obj) -> Ask:
        return Ask("PATCH", f"{jobs}/{to}", body, DAEMON, MERGE)

    return Conversation(
        name,
        [(jobs, job("a")), (jobs, job("b", notes=least))],
        [
            patch("a", {"spec": {"parallelism": 2}}),
            patch("a", {"spec": {"activeDeadlineSeconds": 5}}),
            patch("a", {"metadata": {"labels": {"x": "y"}}}),
            patch("a", {"metadata": {"annotations": {"x": "y"}}}),
            patch("b", {"metadata": {"annotations": {next(iter(least)): None}}}),
            patch("a", {"metadata": {"finalizers": ["x/y"]}}),
            patch("a", {"spec": {"template": {"metadata": {"labels": {"x": "y"}}}}}),
            patch("a", {"spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}}),
            patch("a", {"metadata": {"annotations": {"gpusched.io/admitted": "now"}}}),
            patch("a", {"spec": {"template": {"spec": {"nodeSelector": {"x": "y"}}}}}),
            patch("b", {"spec": {"parallelism": 2}}),
            patch("a", {"spec": {"suspend": False}}),
            patch("a", {"spec": {"suspend": True}}),
        ],
    )


def _owned(made: Obj) -> Obj:
    owner = {
        "apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "0-0", "controller": True,
    }  # fmt: skip
    made["metadata"]["ownerReferences"] = [owner]
    return made


def workload(kind: str, labels: Obj, **spec: Any) -> Obj:
    """A workload of apps/v1 whose pods are ours."""
    body: Obj = {
        "selector": {"matchLabels": {"app": "a"}},
        "replicas": 0,
        "template": template(labels, **spec),
    }
    if kind == "StatefulSet":
        body["serviceName"] = "s"
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w"}, "spec": body}


def _cron(labels: Obj, **of: Any) -> Obj:
    inner = {k: v for k, v in job("x", **of)["spec"].items() if k != "suspend"}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "w"},
        "spec": {
            "schedule": "0 0 1 1 *",
            "jobTemplate": {"metadata": {"labels": labels}, "spec": inner},
        },
    }


def queues() -> Conversation:
    """Submitting needs the verb submit on the queue."""
    name = "queues"
    pods, jobs = _core(name, "pods"), _apps(name, "jobs", "batch/v1")
    theirs, mine = {"gpusched.io/queue": "theirs"}, {"gpusched.io/queue": "mine"}
    own = {"gpusched.io/queue": "own"}
    submit = rule("scheduling.gpusched.io", "queues", "submit", names=("mine",))

    def label(path: str, labels: Obj, user: str = ALICE) -> Ask:
        return Ask("PATCH", path, {"metadata": {"labels": labels}}, user, MERGE)

    return Conversation(
        name,
        [
            *granted(name, ALICE, *EDIT, submit),
            *granted(name, _CONTROLLER, rule("", "pods", "create"), as_="controller"),
        ],
        [
            Ask(
                "PATCH", f"/api/v1/namespaces/vap-{name}", {"metadata": {"labels": own}}, "", MERGE
            ),
            Ask("POST", _groups(name), group("a"), ALICE),
            Ask("POST", _groups(name), group("b", queue="theirs"), ALICE),
            Ask("POST", _groups(name), group("c", queue="mine"), ALICE),
            Ask("POST", _groups(name), group("d", queue="own"), ALICE),
            Ask("POST", _groups(name), group("e", queue="theirs")),
            Ask("PATCH", f"{_groups(name)}/c", {"spec": {"queue": "theirs"}}, ALICE, MERGE),
            label(f"{_groups(name)}/c", theirs),
            Ask("PATCH", f"{_groups(name)}/e", {"spec": {"minMember": 2}}, ALICE, MERGE),
            Ask("POST", jobs, job("a", labels=theirs), ALICE),
            Ask("POST", jobs, job("a", labels={"kueue.x-k8s.io/queue-name": "theirs"}), ALICE),
            Ask("POST", jobs, job("a", notes={"volcano.sh/queue-name": "theirs"}), ALICE),
            Ask("POST", jobs, _queued_template(theirs), ALICE),
            Ask("POST", jobs, job("two", labels={**mine, "kai.scheduler/queue": "theirs"}), ALICE),
            Ask("POST", jobs, job("a", labels=mine), ALICE),
            Ask("POST", jobs, job("other", labels=theirs, schedulerName="else"), ALICE),
            label(f"{jobs}/a", theirs),
            label(f"{jobs}/a", {"more": "y"}),
            Ask("POST", _apps(name, "deployments"), workload("Deployment", theirs), ALICE),
            Ask("POST", _apps(name, "statefulsets"), workload("StatefulSet", theirs), ALICE),
            Ask("POST", _apps(name, "cronjobs", "batch/v1"), _cron(theirs), ALICE),
            Ask("POST", pods, pod("a", labels=theirs), ALICE),
            Ask("POST", pods, _owned(pod("a", labels=theirs)), ALICE),
            Ask("POST", pods, _owned(pod("made", labels=theirs)), _CONTROLLER),
            Ask("POST", pods, pod("a", labels=mine), ALICE),
            Ask("POST", pods, pod("none"), ALICE),
            Ask("POST", f"{pods}/a/binding", _binding("a", {})),
            label(f"{pods}/a", own),
            label(f"{pods}/a", {"gpusched.io/queue": None}),
            label(f"{pods}/a", {"gpusched.io/pod-group": "c"}),
            label(f"{pods}/a", {"more": "y"}),
        ],
    )


_CONTROLLER = "system:serviceaccount:kube-system:job-controller"


def _queued_template(labels: Obj) -> Obj:
    made = job("a")
    made["spec"]["template"] = template(labels, restartPolicy="Never")
    return made


def priority() -> Conversation:
    """Restricted priority classes need the verb use."""
    name = "priority"
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"

    def made(named: str, value: int, **labels: str) -> tuple[str, Obj]:
        meta = {"name": f"shipped-{named}", "labels": labels}
        head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        return classes, {**head, "metadata": meta, "value": value}

    use = rule("scheduling.k8s.io", "priorityclasses", "use", names=("shipped-mine",))
    only = {"gpusched.io/restricted": "true"}

    def spec(named: str) -> Obj:
        return {"priorityClassName": f"shipped-{named}"}

    return Conversation(
        name,
        [
            made("free", 1),
            made("mine", 2, **only),
            made("theirs", 3, **only),
            *granted(name, ALICE, *EDIT, use),
            *granted(name, _CONTROLLER, rule("", "pods", "create"), as_="controller"),
        ],
        [
            Ask("POST", _groups(name), group("a", **spec("free")), ALICE),
            Ask("POST", _groups(name), group("b", **spec("mine")), ALICE),
            Ask("POST", _groups(name), group("c", **spec("theirs")), ALICE),
            Ask("POST", _groups(name), group("c", priorityClassName="none"), ALICE),
            Ask("POST", _groups(name), group("d", priorityClassName="system-node-critical"), ALICE),
            Ask("POST", _groups(name), group("e", **spec("theirs"))),
            Ask("PATCH", f"{_groups(name)}/a", {"spec": spec("theirs")}, ALICE, MERGE),
            Ask("PATCH", f"{_groups(name)}/e", {"spec": {"minMember": 2}}, ALICE, MERGE),
            Ask("POST", _core(name, "pods"), pod("a", **spec("theirs")), ALICE),
            Ask("POST", _core(name, "pods"), pod("b", **spec("mine")), ALICE),
            Ask("POST", _core(name, "pods"), _owned(pod("c", **spec("theirs"))), ALICE),
            Ask("POST", _core(name, "pods"), _owned(pod("c", **spec("theirs"))), _CONTROLLER),
            Ask("POST", _apps(name, "jobs", "batch/v1"), job("a", **spec("theirs")), ALICE),
            Ask("POST", _apps(name, "jobs", "batch/v1"), job("b", **spec("mine")), ALICE),
            Ask("POST", _apps(name, "cronjobs", "batch/v1"), _cron({}, **spec("theirs")), ALICE),
            Ask(
                "POST",
                _apps(name, "deployments"),
                workload("Deployment", {}, **spec("theirs")),
                ALICE,
            ),
        ],
    )


def shipped_conversations() -> list[Conversation]:
    """Return one for each policy."""
    return [fence(), annotations(), node_name(), own_jobs(), queues(), priority()]

"""Conversations about admission policies that the embedded and a real server must hold alike.

``python -m tests.devcluster.policies.record KUBECONFIG`` plays them to a real server and writes
what it says to ``recorded.json``; the test plays them to the embedded one and compares.
"""

from __future__ import annotations

from typing import Any

import attrs

Obj = dict[str, Any]
GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{GROUP}/validatingadmissionpolicies"
BINDINGS = f"{GROUP}/validatingadmissionpolicybindings"
DENY = ["Deny"]


@attrs.frozen
class Ask:
    """One request; ``user`` is acted as, as an administrator may."""

    method: str
    path: str
    body: Any = None
    user: str = ""
    media: str = "application/json"


@attrs.frozen
class Conversation:
    """Objects that are there before, and requests in their order."""

    name: str
    before: list[tuple[str, Obj]]
    asks: list[Ask]

    @property
    def namespace(self) -> str:
        """A namespace of its own."""
        return f"vap-{self.name}"


def policy(name: str, rules: list[Obj] | None = None, **spec: Any) -> Obj:
    """A policy about config maps of its conversation's namespace, unless told otherwise."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"]}
    constraints = {
        "resourceRules": rules or [{**rule, "resources": ["configmaps"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": f"vap-{name}"}},
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": f"vap-{name}"},
        "spec": {"matchConstraints": constraints, **spec},
    }


def binding(name: str, *, actions: list[str] = DENY, **spec: Any) -> Obj:
    """A binding of the policy of a conversation."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": f"vap-{name}"},
        "spec": {"policyName": f"vap-{name}", "validationActions": actions, **spec},
    }


def config_map(name: str, **data: str) -> Obj:
    """A config map."""
    meta = {"name": name} if name else {"generateName": "made-"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def _maps(name: str) -> str:
    return f"/api/v1/namespaces/vap-{name}/configmaps"


def rule_on(*resources: str, group: str = "", operations: tuple[str, ...] = ("*",)) -> Obj:
    """Return a rule of a policy about some resources."""
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": list(operations),
        "resources": list(resources),
    }


def _on_maps(name: str, validations: list[Obj], *asks: Ask, **spec: Any) -> Conversation:
    actions = spec.pop("actions", DENY)
    made = policy(name, validations=validations, **spec)
    before = [(POLICIES, made), (BINDINGS, binding(name, actions=actions))]
    return Conversation(name, before, list(asks))


def _post(name: str, body: Obj, user: str = "") -> Ask:
    return Ask("POST", _maps(name), body, user)


def _basics() -> list[Conversation]:
    colour = {"expression": "has(object.data) && object.data.colour == 'blue'"}
    return [
        _on_maps(
            "plain",
            [colour],
            _post("plain", config_map("a", colour="blue")),
            _post("plain", config_map("b", colour="red")),
            _post("plain", config_map("c")),
            _post("plain", config_map("", colour="red")),
            Ask("PUT", _maps("plain") + "/a", config_map("a", colour="red")),
            Ask(
                "PATCH", _maps("plain") + "/a", {"data": {"colour": "green"}}, "",
                "application/merge-patch+json",
            ),
            Ask("POST", _maps("plain") + "?dryRun=All", config_map("b", colour="red")),
        ),
        _on_maps(
            "reasons",
            [
                {"expression": "object.data.n != '1'", "message": "  one  ", "reason": "Forbidden"},
                {"expression": "object.data.n != '2'"},
                {"expression": "object.data.n != '3'", "reason": "RequestEntityTooLarge"},
                {"expression": "object.data.n != '4'", "reason": "Invalid", "message": "four"},
                {"expression": "object.data.n != '1'", "message": "one again"},
            ],
            *[_post("reasons", config_map("a", n=n)) for n in "12345"],
        ),
        _on_maps(
            "messages",
            [
                {
                    "expression": "object.data.n != '1'",
                    "messageExpression": "'said of ' + object.metadata.name",
                },
                {
                    "expression": "object.data.n != '2'",
                    "messageExpression": "string(object.data.missing)",
                    "message": "the fixed one",
                },
                {"expression": "object.data.n != '3'", "messageExpression": "'  '"},
                {"expression": "object.data.n != '4'", "messageExpression": "'two\\nlines'"},
            ],
            *[_post("messages", config_map("a", n=n)) for n in "1234"],
        ),
        _on_maps(
            "warn",
            [{"expression": "object.data.n == '0'", "message": "not naught"}],
            _post("warn", config_map("a", n="1")),
            actions=["Warn", "Audit"],
        ),
    ]  # fmt: skip


def _faults() -> list[Conversation]:
    broken = [
        {"expression": "object.data.missing == 'x'"},
        {"expression": "object.data.a.b.c == 'x'"},
        {"expression": "variables.bad"},
    ]
    bad = [{"name": "bad", "expression": "object.data.nothing == 'x'"}]
    found = []
    for i, validation in enumerate(broken):
        name = f"fault{i}"
        asks = [_post(name, config_map("a", a="1")), Ask("DELETE", _maps(name) + "/zz")]
        found.append(_on_maps(name, [validation], *asks, variables=bad))
    ignored = _on_maps(
        "ignored",
        [{"expression": "object.data.missing == 'x'"}, {"expression": "object.data.n == '1'"}],
        _post("ignored", config_map("a", n="1")),
        _post("ignored", config_map("b", n="2")),
        failurePolicy="Ignore",
    )
    conditions = _on_maps(
        "conditions",
        [{"expression": "false", "message": "reached"}],
        _post("conditions", config_map("a", n="1")),
        _post("conditions", config_map("b", n="2")),
        _post("conditions", config_map("c")),
        matchConditions=[
            {"name": "one", "expression": "object.data.n == '1'"},
            {"name": "two", "expression": "object.metadata.name != 'c2'"},
        ],
    )
    costly = _on_maps(
        "costly",
        [
            {
                "expression": "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, "
                "[1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, "
                "[1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, a+b+c+d+e+f > 0))))))"
            }
        ],
        _post("costly", config_map("a", n="1")),
    )
    return [*found, ignored, conditions, costly]


def _variables() -> list[Conversation]:
    told = (
        "request.operation + ' ' + request.userInfo.username + ' ' + request.namespace + ' ' + "
        "request.kind.kind + ' ' + request.resource.resource + ' ' + string(request.dryRun) + ' ' + "
        "(has(request.name) ? request.name : '-') + ' ' + "
        "(has(request.subResource) ? request.subResource : '-') + ' ' + "
        "string(object == null) + ' ' + string(oldObject == null) + ' ' + "
        "namespaceObject.metadata.name + ' ' + namespaceObject.status.phase + ' ' + "
        "string('system:masters' in request.userInfo.groups) + ' ' + variables.twice"
    )
    variables = [
        {"name": "once", "expression": "request.operation.lowerAscii()"},
        {"name": "twice", "expression": "variables.once + variables.once"},
    ]
    seen = _on_maps(
        "seen",
        [{"expression": f"({told}) == ''", "messageExpression": told}],
        _post("seen", config_map("a", n="1")),
        _post("seen", config_map("", n="1")),
        Ask("POST", _maps("seen") + "?dryRun=All", config_map("a"), "carol"),
        Ask("PUT", "/api/v1/namespaces/vap-seen/configmaps/a", config_map("a")),
        variables=variables,
        matchConditions=[
            {"name": "not-root-ca", "expression": "request.?name.orValue('') != 'kube-root-ca.crt'"}
        ],
    )
    return [seen, _changes(), _rights()]


def _changes() -> Conversation:
    """Updates and deletions see the old object; a deletion has no new one."""
    return _on_maps(
        "changes",
        [
            {"expression": "oldObject.data.n == object.data.n", "message": "n stays"},
        ],
        _post("changes", config_map("a", n="1")),
        Ask("PUT", _maps("changes") + "/a", config_map("a", n="2")),
        Ask("PUT", _maps("changes") + "/a", config_map("a", n="1", more="2")),
        Ask("DELETE", _maps("changes") + "/a"),
        Ask("DELETE", _maps("changes") + "/none"),
        matchConditions=[{"name": "late", "expression": "request.operation != 'CREATE'"}],
    )


def _rights() -> Conversation:
    ask = "authorizer.group('scheduling.gpusched.io').resource('queues').name(object.data.queue)"
    name = "rights"
    made = policy(
        name,
        validations=[
            {
                "expression": f"{ask}.check('submit').allowed()",
                "messageExpression": "'no queue ' + object.data.queue",
                "reason": "Forbidden",
            },
            {
                "expression": "authorizer.requestResource.check('delete').allowed() || "
                "object.data.queue != 'strict'",
                "message": "may not delete it",
            },
            {
                "expression": "authorizer.path('/healthz').check('get').allowed() && "
                "!authorizer.serviceAccount('default', 'x').group('').resource('pods')"
                ".subresource('binding').namespace('default').check('create').allowed() && "
                "authorizer.group('').resource('pods').check('create').reason() == ''",
            },
        ],
    )
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "vap-rights"},
        "rules": [
            {
                "apiGroups": ["scheduling.gpusched.io"],
                "resources": ["queues"],
                "resourceNames": ["mine", "strict"],
                "verbs": ["submit"],
            },
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
        ],
    }
    bound = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "vap-rights"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "vap-rights",
        },
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "vap-carol"}
        ],
    }  # fmt: skip
    roles = "/apis/rbac.authorization.k8s.io/v1"
    before = [
        (f"{roles}/clusterroles", role),
        (f"{roles}/clusterrolebindings", bound),
        (POLICIES, made),
        (BINDINGS, binding(name)),
    ]
    asks = [_post(name, config_map(q, queue=q), "vap-carol") for q in ("mine", "yours", "strict")]
    return Conversation(name, before, [*asks, _post(name, config_map("all", queue="yours"))])


def _params() -> list[Conversation]:
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    limit = [{"expression": "int(object.data.n) <= int(params.data.most)"}]
    limit[0]["messageExpression"] = "'at most ' + params.data.most"
    keys = {"paramKind": kind}
    once = {"matchConditions": [{"name": "n", "expression": "has(object.data.n)"}]}
    found = []
    cases: list[tuple[str, Obj, list[Obj]]] = [
        ("named", {"name": "limit", "parameterNotFoundAction": "Deny"}, [{"most": "3"}]),
        ("absent", {"name": "limit", "parameterNotFoundAction": "Deny"}, []),
        ("lax", {"name": "limit", "parameterNotFoundAction": "Allow"}, []),
        (
            "chosen",
            {"selector": {"matchLabels": {"limit": "yes"}}, "parameterNotFoundAction": "Deny"},
            [{"most": "3"}, {"most": "2"}],
        ),
        (
            "elsewhere",
            {"name": "limit", "namespace": "default", "parameterNotFoundAction": "Deny"},
            [],
        ),
    ]
    for name, ref, params in cases:
        before: list[tuple[str, Obj]] = []
        for i, data in enumerate(params):
            held = config_map("limit" if not i else f"limit{i}", **data)
            held["metadata"]["labels"] = {"limit": "yes"}
            before.append((_maps(name), held))
        before.append((POLICIES, policy(name, validations=limit, **keys, **once)))
        before.append((BINDINGS, binding(name, paramRef=ref)))
        asks = [_post(name, config_map(f"n{n}", n=n)) for n in ("2", "3", "5")]
        found.append(Conversation(name, before, asks))
    return found


def _unusual() -> list[Conversation]:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"team": "a"}},
        "spec": {
            "schedulerName": "gpusched",
            "containers": [{"name": "c", "image": "i"}],
            "serviceAccountName": "default",
            "automountServiceAccountToken": False,
        },
    }
    name = "pods"
    pods = f"/api/v1/namespaces/vap-{name}/pods"
    bound = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "annotations": {"fence": "old"}},
        "target": {"kind": "Node", "name": "n"},
    }
    good = {**bound, "metadata": {"name": "p", "annotations": {"fence": "new"}}}
    evict = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    rules = [rule_on("pods/binding", "pods/eviction", "bindings", operations=("CREATE",))]
    told = (
        "request.kind.group + '/' + request.kind.kind + ' ' + request.resource.resource + ' ' + "
        "request.?subResource.orValue('-') + ' ' + request.name + ' ' + object.metadata.name + ' ' "
        "+ object.metadata.namespace"
    )
    fenced = policy(
        name,
        rules,
        validations=[
            {
                "expression": "object.metadata.?annotations[?'fence'].orValue('') == 'new'",
                "messageExpression": told,
                "reason": "Forbidden",
            }
        ],
    )
    stale = Conversation(
        name,
        [(pods, pod), (POLICIES, fenced), (BINDINGS, binding(name))],
        [
            Ask("POST", f"{pods}/p/binding", bound),
            Ask("POST", f"{pods}/p/eviction", evict),
            Ask("POST", f"{pods}/none/binding", {**bound, "metadata": {"name": "none"}}),
            Ask("POST", f"{pods}/none/eviction", {**evict, "metadata": {"name": "none"}}),
            Ask("POST", f"/api/v1/namespaces/vap-{name}/bindings", bound),
            Ask("POST", f"{pods}/p/binding?dryRun=All", bound),
            Ask("POST", f"{pods}/p/binding", good),
            Ask("DELETE", f"{pods}/p?gracePeriodSeconds=0"),
        ],
    )
    return [stale, _ways(), _scaled(), _selected(), _excluded(), _equivalent()]


def _ways() -> Conversation:
    """Every way to write an object leads past the policy, those that change nothing as well."""
    name = "ways"
    maps = _maps(name)
    told = (
        "request.operation + ' ' + request.?subResource.orValue('-') + ' ' + "
        "request.?name.orValue('-') + ' ' + string(has(request.options)) + ' ' + "
        "string(object == null ? 0 : size(object.metadata.?labels.orValue({})))"
    )
    made = policy(
        name,
        [rule_on("configmaps", "pods", "pods/status", "resourcequotas/status")],
        validations=[{"expression": f"({told}) == ''", "messageExpression": told}],
        matchConditions=[
            {
                "name": "marked",
                "expression": "[object, oldObject].exists(o, o != null && "
                "o.metadata.?labels[?'mark'].orValue('') == 'no')",
            }
        ],
    )
    held = config_map("held")
    marked = {"metadata": {"labels": {"mark": "no"}}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", **marked}
    fresh = {**body, "metadata": {"name": "fresh", **marked["metadata"]}}
    apply = "application/apply-patch+yaml"
    patches = [
        ("application/merge-patch+json", marked),
        ("application/strategic-merge-patch+json", marked),
        (
            "application/json-patch+json",
            [{"op": "add", "path": "/metadata/labels", "value": {"mark": "no"}}],
        ),
    ]
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {},
    }  # fmt: skip
    quotas = f"/api/v1/namespaces/vap-{name}/resourcequotas"
    return Conversation(
        name,
        [
            (maps, held),
            (maps, {**config_map("kept"), "metadata": {"name": "kept", **marked["metadata"]}}),
            (quotas, quota),
            (POLICIES, made),
            (BINDINGS, binding(name)),
        ],
        [
            *[Ask("PATCH", f"{maps}/held", patch, "", media) for media, patch in patches],
            Ask("PATCH", f"{maps}/held?fieldManager=a", {**body, "data": {}}, "", apply),
            Ask("PATCH", f"{maps}/fresh?fieldManager=a", fresh, "", apply),
            Ask("PATCH", f"{maps}/held?dryRun=All", marked, "", "application/merge-patch+json"),
            Ask("PATCH", f"{maps}/kept", {}, "", "application/merge-patch+json"),
            Ask(
                "PUT", f"{maps}/held", {**body, "metadata": {"name": "held", **marked["metadata"]}}
            ),
            Ask("PATCH", f"{quotas}/q/status", marked, "", "application/merge-patch+json"),
            Ask("DELETE", f"{maps}/kept"),
            Ask("DELETE", f"{maps}?labelSelector=mark=no"),
            Ask("DELETE", f"{maps}/kept?dryRun=All"),
            Ask("DELETE", f"{maps}/held"),
        ],
    )


def _scaled() -> Conversation:
    name = "scaled"
    deployments = f"/apis/apps/v1/namespaces/vap-{name}/deployments"
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"a": "b"}},
            "template": template,
        },
    }
    rules = [rule_on("deployments/scale", group="apps")]
    most = policy(
        name,
        rules,
        validations=[
            {
                "expression": "object.spec.replicas <= 2",
                "messageExpression": "object.kind + ' from ' + string(oldObject.?spec.replicas.orValue(0))",
            }
        ],
    )
    merge = "application/merge-patch+json"
    return Conversation(
        name,
        [(deployments, deployment), (POLICIES, most), (BINDINGS, binding(name))],
        [
            Ask("PATCH", f"{deployments}/d/scale", {"spec": {"replicas": 3}}, "", merge),
            Ask("PATCH", f"{deployments}/d", {"spec": {"replicas": 4}}, "", merge),
        ],
    )


def _selected() -> Conversation:
    name = "selected"
    made = policy(name, validations=[{"expression": "false", "message": "chosen"}])
    made["spec"]["matchConstraints"]["objectSelector"] = {"matchLabels": {"team": "a"}}
    mine = config_map("a")
    mine["metadata"]["labels"] = {"team": "a"}
    return Conversation(
        name,
        [(POLICIES, made), (BINDINGS, binding(name))],
        [_post(name, mine), _post(name, config_map("b"))],
    )


def _excluded() -> Conversation:
    name = "excluded"
    made = policy(name, validations=[{"expression": "false", "message": "all but b"}])
    constraints = made["spec"]["matchConstraints"]
    constraints["excludeResourceRules"] = [{**rule_on("configmaps"), "resourceNames": ["b"]}]
    return Conversation(
        name,
        [(POLICIES, made), (BINDINGS, binding(name))],
        [_post(name, config_map("a")), _post(name, config_map("b"))],
    )


def _equivalent() -> Conversation:
    name = "equivalent"
    rules = [rule_on("events", group="events.k8s.io")]
    told = "object.apiVersion + ' ' + object.note + ' ' + request.requestResource.group + '.'"
    made = policy(
        name, rules, validations=[{"expression": "object.note == 'x'", "messageExpression": told}]
    )
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "vap-equivalent"},
        "message": "said",
        "reason": "R",
        "type": "Normal",
        "source": {"component": "c"},
    }
    return Conversation(
        name,
        [(POLICIES, made), (BINDINGS, binding(name))],
        [Ask("POST", f"/api/v1/namespaces/vap-{name}/events", event)],
    )


def conversations() -> list[Conversation]:
    """Return all but those of ``refused_policies``."""
    return [*_basics(), *_faults(), *_variables(), *_params(), *_unusual()]

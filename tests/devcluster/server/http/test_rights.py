"""Rights: users, roles, service accounts and the reviews that ask about them."""

from __future__ import annotations

import asyncio

import pytest

from gpusched.base.clock import SystemClock
from gpusched.base.installed_files import path as asset
from gpusched.devcluster.apiserver.endpoints.access import RequestAccess
from gpusched.devcluster.apiserver.rbac.rules import (
    AccessRequest,
    User,
    account_of,
    account_user,
    is_subject,
    rule_allows,
)
from gpusched.devcluster.apiserver.writing.bodies import load_all_yaml
from gpusched.devcluster.cluster import ClusterOptions, build_core, start

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = "clusterroles.rbac.authorization.k8s.io"
REVIEWS = "/apis/authorization.k8s.io/v1"
BOB = {"Impersonate-User": "bob"}


async def as_user(http, method, path, headers, body=None):
    """Send a request as the admin who acts as someone."""
    async with http.session.request(
        method, http.cluster.url + path, json=body, headers=headers
    ) as response:
        return response.status, await response.json(content_type=None)


def binding(name, role, *subjects, kind="ClusterRoleBinding"):
    """A binding of a ClusterRole."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": list(subjects),
    }


def role(name, *rules):
    """A ClusterRole."""
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    return {**head, "metadata": {"name": name}, "rules": list(rules)}


async def test_a_bound_user_may_what_the_role_says(http):
    """Nothing before the binding, the role's verbs after it, and nothing again without it."""
    code, refused = await as_user(http, "GET", "/api/v1/namespaces/default/pods", BOB)
    assert code == 403
    assert refused["message"] == (
        'pods is forbidden: User "bob" cannot list resource "pods" in API group "" '
        'in the namespace "default"'
    )
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    await http.post(f"{RBAC}/clusterroles", role("lister", rule))
    made = await http.post(
        f"{RBAC}/clusterrolebindings", binding("bob", "lister", {"kind": "User", "name": "bob"})
    )
    assert made.body["subjects"][0]["apiGroup"] == "rbac.authorization.k8s.io"
    code, _ = await as_user(http, "GET", "/api/v1/namespaces/default/pods", BOB)
    assert code == 200
    code, _ = await as_user(http, "GET", "/api/v1/namespaces/default/pods/x", BOB)
    assert code == 403
    await http.send("DELETE", f"{RBAC}/clusterrolebindings/bob")
    code, _ = await as_user(http, "GET", "/api/v1/namespaces/default/pods", BOB)
    assert code == 403


async def test_a_role_binding_ends_at_its_namespace(http):
    """The same role bound in one namespace opens no other and nothing cluster-wide."""
    subject = {"kind": "Group", "name": "team"}
    body = binding("team", "system:aggregate-to-view", subject, kind="RoleBinding")
    await http.post(f"{RBAC}/namespaces/default/rolebindings", body)
    team = {"Impersonate-User": "eve", "Impersonate-Group": "team"}
    assert (await as_user(http, "GET", "/api/v1/namespaces/default/pods", team))[0] == 200
    for path in ("/api/v1/namespaces/kube-system/pods", "/api/v1/pods", "/api/v1/nodes"):
        assert (await as_user(http, "GET", path, team))[0] == 403
    assert (await as_user(http, "GET", "/api/v1/namespaces/default/secrets", team))[0] == 403


async def test_unions_follow_the_labels():
    """A role labelled for aggregation adds its rules to the unions, as those of operators do."""
    cluster = await start(ClusterOptions(stages=False))
    extra = role("queues-view", {"apiGroups": ["x.io"], "resources": ["y"], "verbs": ["get"]})
    extra["metadata"]["labels"] = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    cluster.client.create(ROLES, extra)
    async with asyncio.timeout(30):
        async for _ in cluster.client.watch(ROLES):
            unions = [cluster.client.get(ROLES, None, n) for n in ("view", "edit", "admin")]
            if all(extra["rules"][0] in (union["rules"] or ()) for union in unions):
                break
    await cluster.close()


async def test_a_service_account_comes_with_a_token(http):
    """A requested token is its account, until the account is gone."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await http.post(accounts, {"metadata": {"name": "runner"}})
    asked = await http.post(f"{accounts}/runner/token", {"spec": {"expirationSeconds": 600}})
    assert asked.code == 201
    assert asked.body["spec"]["audiences"] == ["https://kubernetes.default.svc.cluster.local"]
    token = asked.body["status"]["token"]
    me = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    info = (await http.send("POST", path, me, token=token)).body["status"]["userInfo"]
    assert info["username"] == "system:serviceaccount:default:runner"
    assert info["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ]
    review = {"spec": {"token": token}}
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    told = (await http.post(path, review)).body["status"]
    assert (told["authenticated"], told["user"]["uid"]) == (True, info["uid"])
    await http.send("DELETE", f"{accounts}/runner")
    assert (await http.send("GET", "/api/v1/pods", token=token)).code == 401
    assert "authenticated" not in (await http.post(path, review)).body["status"]


@pytest.mark.parametrize(
    ("seconds", "why"),
    [
        (599, "may not specify a duration less than 10 minutes"),
        (2**32 + 1, "may not specify a duration larger than 2^32 seconds"),
    ],
)
async def test_lifetimes_of_tokens_have_bounds(http, seconds, why):
    """Too short and too long are refused in the server's words."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await http.post(accounts, {"metadata": {"name": "runner"}})
    asked = await http.post(f"{accounts}/runner/token", {"spec": {"expirationSeconds": seconds}})
    assert (asked.code, why in asked.message) == (422, True)


async def test_a_forged_token_is_no_token(http):
    """Another signature, or claims that were changed, open nothing."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await http.post(accounts, {"metadata": {"name": "runner"}})
    token = (await http.post(f"{accounts}/runner/token", {})).body["status"]["token"]
    head, claims, signature = token.split(".")
    forged = (f"{head}.{claims}.{signature[::-1]}", f"{head}.{claims[:-4]}AAAA.{signature}")
    for bad in (*forged, "a.b.c", "...", "\u00e9.x.y"):
        assert (
            await http.send("GET", "/api/v1/pods", token=bad.encode().decode("latin1"))
        ).code == 401


async def test_whoever_acts_as_another_must_be_allowed_to(http):
    """Without the right to impersonate the request is refused; groups need a user."""
    headers = {"Authorization": "Bearer usertoken", **BOB}
    code, refused = await as_user(http, "GET", "/api/v1/pods", headers)
    assert (code, refused["message"]) == (
        403,
        (
            'users "bob" is forbidden: User "alice" cannot impersonate resource "users" '
            'in API group "" at the cluster scope'
        ),
    )
    code, refused = await as_user(http, "GET", "/api/v1/pods", {"Impersonate-Group": "g"})
    assert (code, refused["reason"]) == (500, "InternalError")


async def test_reviews_tell_what_allows(http):
    """A SubjectAccessReview names binding and role; a senseless one is refused."""
    subject = {"kind": "ServiceAccount", "name": "a", "namespace": "default"}
    await http.post(f"{RBAC}/clusterrolebindings", binding("all", "cluster-admin", subject))
    spec = {"user": "system:serviceaccount:default:a", "resourceAttributes": {"verb": "get"}}
    told = await http.post(f"{REVIEWS}/subjectaccessreviews", {"spec": spec})
    assert told.body["status"] == {
        "allowed": True,
        "reason": (
            'RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "cluster-admin" '
            'to ServiceAccount "a/default"'
        ),
    }
    refused = await http.post(f"{REVIEWS}/subjectaccessreviews", {"spec": {}})
    assert refused.code == 422
    assert "at least one of user or group must be specified" in refused.message


async def test_paths_that_are_no_resource(http):
    """Discovery is everybody's, other paths are not."""
    headers = {"Authorization": "Bearer usertoken"}
    assert (await as_user(http, "GET", "/apis", headers))[0] == 200
    code, refused = await as_user(http, "GET", "/metrics", headers)
    assert (code, refused["message"]) == (403, 'forbidden: User "alice" cannot get path "/metrics"')


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({}, "rules[0].verbs: Required value: verbs must contain at least one value"),
        (
            {"verbs": ["get"], "apiGroups": [""]},
            "rules[0].resources: Required value: resource rules must supply at least one resource",
        ),
        (
            {"verbs": ["get"], "resources": ["pods"]},
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
        ),
    ],
)
async def test_rules_that_say_too_little(http, rule, why):
    """A rule names verbs, groups and resources."""
    refused = await http.post(f"{RBAC}/clusterroles", role("r", rule))
    assert (refused.code, why in refused.message) == (422, True)


async def test_what_a_binding_binds_never_changes(http):
    """Another role needs another binding."""
    subject = {"kind": "User", "name": "bob"}
    await http.post(f"{RBAC}/clusterrolebindings", binding("b", "view", subject))
    refused = await http.put(f"{RBAC}/clusterrolebindings/b", binding("b", "edit", subject))
    assert refused.code == 422
    assert "cannot change roleRef" in refused.message


RULE = {"apiGroups": ["apps"], "resources": ["*/scale", "deployments"], "verbs": ["get", "list"]}


@pytest.mark.parametrize(
    ("ask", "covered"),
    [
        (AccessRequest(verb="get", group="apps", resource="deployments"), True),
        (AccessRequest(verb="get", group="apps", resource="deployments/status"), False),
        (AccessRequest(verb="get", group="apps", resource="replicasets/scale"), True),
        (AccessRequest(verb="get", group="", resource="deployments"), False),
        (AccessRequest(verb="patch", group="apps", resource="deployments"), False),
        (AccessRequest(verb="get", path="/apis"), False),
    ],
)
def test_one_rule_covers_the_whole_request(ask, covered):
    """Verb, group and resource must all fit one rule; subresources are named by themselves."""
    assert rule_allows(RULE, ask) is covered


def test_named_objects_and_paths():
    """Names bound a rule, and a star ends a path."""
    named = {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"], "verbs": ["*"]}
    assert rule_allows(named, AccessRequest(verb="get", resource="pods", name="a"))
    assert not rule_allows(named, AccessRequest(verb="list", resource="pods"))
    paths = {"nonResourceURLs": ["/apis/*"], "verbs": ["get"]}
    assert rule_allows(paths, AccessRequest(verb="get", path="/apis/apps"))
    assert not rule_allows(paths, AccessRequest(verb="get", path="/apis"))


def test_accounts_and_their_names():
    """A service account is a user with a telling name."""
    user = account_user("ns", "a")
    assert account_of(user.name) == ("ns", "a")
    assert account_of("system:serviceaccount:ns") is None
    assert is_subject({"kind": "ServiceAccount", "name": "a"}, user, "ns")
    assert not is_subject({"kind": "ServiceAccount", "name": "a"}, user, "other")
    assert not is_subject({"kind": "User", "name": "a"}, User("b", ()), "")


def test_the_manifests_grant_the_daemon_its_rights():
    """With manifests/rbac.yaml applied, the daemon's account may bind, and may not delete."""
    core = build_core(SystemClock(), 1)
    access = RequestAccess(core, "token")
    for doc in load_all_yaml((asset("manifests") / "rbac.yaml").read_text()):
        group, _, _ = doc["apiVersion"].rpartition("/")
        plural = doc["kind"].lower() + "s"
        name = f"{plural}.{group}" if group else plural
        meta = doc["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
        core.store.collection(name).write(key, doc)
    daemon = account_user("gpusched-system", "gpusched")

    def may(**what):
        return access.authorizer.decide(daemon, AccessRequest(**what)).allowed

    assert may(verb="create", resource="pods/binding", namespace="team-a")
    assert may(
        verb="update",
        group="coordination.k8s.io",
        resource="leases",
        name="gpusched",
        namespace="gpusched-system",
    )
    assert not may(verb="delete", resource="pods", namespace="team-a")
    assert not may(verb="get", resource="secrets", namespace="gpusched-system")


CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
RESULT = {"request": "r0", "driver": "d.example.com", "pool": "p", "device": "a"}
ALLOCATION = {"devices": {"results": [RESULT]}}


async def claim_of_bob(http, *rules):
    """A claim whose status bob may write, and do what the rules say besides."""
    status = {"resources": ["resourceclaims/status"], "verbs": ["patch", "update"]}
    rules = [{"apiGroups": ["resource.k8s.io"], **rule} for rule in (status, *rules)]
    user = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"}
    made = await http.post(f"{RBAC}/clusterroles", role("claims", *rules))
    assert made.code == 201
    made = await http.post(f"{RBAC}/clusterrolebindings", binding("claims", "claims", user))
    assert made.code == 201
    asked = {"requests": [{"name": "r0", "exactly": {"deviceClassName": "gpu"}}]}
    claim = {"metadata": {"name": "c"}, "spec": {"devices": asked}}
    return (await http.post(CLAIMS, claim)).body


async def test_allocations_need_the_right_to_bind(http):
    """Since 1.36 a claim is allocated by whoever may write resourceclaims/binding, too."""
    claim = await claim_of_bob(http)
    claim["status"] = {"allocation": ALLOCATION}
    code, refused = await as_user(http, "PUT", f"{CLAIMS}/c/status", BOB, claim)
    assert code == 422
    (cause,) = refused["details"]["causes"]
    assert (cause["field"], cause["reason"]) == ("status", "FieldValueForbidden")
    assert cause["message"] == (
        "Forbidden: changing status.allocation or status.reservedFor requires "
        'resource="resourceclaims/binding", verb="update" permission: resourceclaims.resource.k8s.io '
        'is forbidden: User "bob" cannot update resource "resourceclaims/binding" in API group '
        '"resource.k8s.io" at the cluster scope'
    )
    assert (await http.send("PUT", f"{CLAIMS}/c/status", claim)).code == 200


async def test_those_who_may_bind_allocate_but_speak_for_no_driver(http):
    """The right to bind is enough for allocations; devices of a status are their driver's."""
    bind = {"resources": ["resourceclaims/binding"], "verbs": ["update"]}
    driver = {
        "resources": ["resourceclaims/driver"],
        "verbs": ["arbitrary-node:update"],
        "resourceNames": ["d.example.com"],
    }
    claim = await claim_of_bob(http, bind, driver)
    claim["status"] = {"allocation": ALLOCATION}
    code, claim = await as_user(http, "PUT", f"{CLAIMS}/c/status", BOB, claim)
    assert code == 200
    device = {"driver": "d.example.com", "pool": "p", "device": "a"}
    claim["status"]["devices"] = [device]
    code, claim = await as_user(http, "PUT", f"{CLAIMS}/c/status", BOB, claim)
    assert code == 200
    claim["status"]["devices"] = [device, {**device, "driver": "e.example.com"}]
    code, refused = await as_user(http, "PUT", f"{CLAIMS}/c/status", BOB, claim)
    assert code == 422
    assert 'verb="[arbitrary-node:update]" permission' in refused["message"]
    assert 'resourceclaims.resource.k8s.io "e.example.com" is forbidden' in refused["message"]

"""SubjectAccessReview and its relatives: questions about rights, answered and not stored."""

from __future__ import annotations

from typing import Any, Final

from gpusched.devcluster.apimachinery import status
from gpusched.devcluster.apimachinery.field_errors import FieldError, invalid
from gpusched.devcluster.apiserver.rbac.authorizer import RbacAuthorizer
from gpusched.devcluster.apiserver.rbac.rules import AccessRequest, User
from gpusched.devcluster.apiserver.rbac.tokens import user_info

Obj = dict[str, Any]

_GROUP: Final = "authorization.k8s.io"


def answer_review(
    authorizer: RbacAuthorizer, user: User, plural: str, *, body: Obj, namespace: str = ""
) -> Obj:
    """Answer a review.

    Args:
        authorizer: knows the rights.
        user: the requester, and the subject of the ``self...`` reviews.
        plural: which review.
        body: the review.
        namespace: of the path; only a LocalSubjectAccessReview has one.

    Raises:
        StatusError: 422, the question makes no sense.
    """
    done: Obj = {"kind": body["kind"], "apiVersion": body["apiVersion"], "metadata": {}}
    spec: Obj = body.get("spec") or {}
    if plural == "selfsubjectreviews":
        return {**done, "status": {"userInfo": user_info(user)}}
    if plural == "selfsubjectrulesreviews":
        return {**done, "spec": {}, "status": _rules(authorizer, user, spec)}
    local = plural == "localsubjectaccessreviews"
    mine = plural == "selfsubjectaccessreviews"
    if errors := _errors(spec, mine=mine, namespace=namespace if local else None):
        raise status.invalid(body["kind"], _GROUP, "", errors=errors)
    if local:
        done["metadata"] = {"namespace": namespace}
    about = user if mine else _subject(spec)
    verdict = authorizer.decide(about, _ask(spec))
    decision: Obj = {"allowed": verdict.allowed}
    if verdict.reason:
        decision["reason"] = verdict.reason
    return {**done, "spec": spec, "status": decision}


def _subject(spec: Obj) -> User:
    return User(spec.get("user") or "", tuple(spec.get("groups") or ()))


def _ask(spec: Obj) -> AccessRequest:
    path = spec.get("nonResourceAttributes")
    if path is not None:
        return AccessRequest(verb=path.get("verb") or "", path=path.get("path") or "")
    wanted = spec["resourceAttributes"]
    resource = wanted.get("resource") or ""
    if wanted.get("subresource"):
        resource = f"{resource}/{wanted['subresource']}"
    return AccessRequest(
        verb=wanted.get("verb") or "",
        group=wanted.get("group") or "",
        resource=resource,
        name=wanted.get("name") or "",
        namespace=wanted.get("namespace") or "",
    )


def _rules(authorizer: RbacAuthorizer, user: User, spec: Obj) -> Obj:
    namespace = spec.get("namespace") or ""
    if not namespace:
        raise status.bad_request("no namespace on request")
    rules = authorizer.rules_of(user, namespace)
    of_resources = [rule for rule in rules if "nonResourceURLs" not in rule]
    of_paths = [rule for rule in rules if "nonResourceURLs" in rule]
    return {"resourceRules": of_resources, "nonResourceRules": of_paths, "incomplete": False}


def _errors(spec: Obj, *, mine: bool, namespace: str | None) -> list[FieldError]:
    errors = []
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        why = "cannot be specified in combination with resourceAttributes"
        errors.append(invalid("spec.nonResourceAttributes", path, why))
    if resource is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errors.append(invalid("spec.resourceAttributes", None, why))
    if not mine and not spec.get("user") and not spec.get("groups"):
        why = "at least one of user or group must be specified"
        errors.append(invalid("spec.user", "", why))
    if namespace is None:
        return errors
    if resource is not None and (found := resource.get("namespace") or "") != namespace:
        why = "must match metadata.namespace"
        errors.append(invalid("spec.resourceAttributes.namespace", found, why))
    if path is not None:
        why = "disallowed on this kind of request"
        errors.append(invalid("spec.nonResourceAttributes", path, why))
    return errors

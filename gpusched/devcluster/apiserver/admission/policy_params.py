"""The parameters of a binding: the objects that its policy is run with, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpusched.devcluster.apimachinery.selectors import label_selector_matches
from gpusched.devcluster.apiserver.admission_attributes import Attributes
from gpusched.devcluster.apiserver.reading.representations import view_function
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.registry.kinds import Resource

Obj = dict[str, Any]


class ParamsError(Exception):
    """A binding's parameters cannot be had; ``str()`` says why."""


def params_of(
    core: ServerState, kind: Obj | None, ref: Obj | None, asked: Attributes
) -> Sequence[Obj | None]:
    """Return the parameters of a binding, ``[None]`` where it has none.

    Args:
        core: whose objects they are.
        kind: ``paramKind`` of the policy.
        ref: ``paramRef`` of the binding.
        asked: the request, whose namespace counts where the reference names none.

    Raises:
        ParamsError: there are none, or they cannot be named so.
    """
    if not kind or not ref:
        return [None]
    resource = core.registry.by_kind(kind["apiVersion"], kind["kind"])
    if resource is None:
        known = f"&ParamKind{{APIVersion:{kind['apiVersion']},Kind:{kind['kind']},}}"
        raise ParamsError(f"paramKind kind `{known}` not known")
    namespace = _namespace(resource, ref, asked)
    found = _found(core, resource, namespace, ref)
    if not found and ref.get("parameterNotFoundAction") == "Deny":
        raise ParamsError("no params found for policy binding with `Deny` parameterNotFoundAction")
    shape = view_function(resource)
    return [obj if shape is None else shape(obj) for obj in found]


def _namespace(resource: Resource, ref: Obj, asked: Attributes) -> str:
    named: str = ref.get("namespace") or ""
    if not resource.namespaced:
        if named:
            raise ParamsError(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
            )
        return ""
    if not (named or asked.namespace):
        raise ParamsError(
            "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
        )
    return named or asked.namespace


def _found(core: ServerState, resource: Resource, namespace: str, ref: Obj) -> list[Obj]:
    collection = core.store.collection(resource.storage)
    if name := ref.get("name"):
        stored = collection.get(resource.key(namespace, name))
        return [] if stored is None else [stored.obj]
    return [
        stored.obj
        for _, stored in collection.scan(namespace)
        if label_selector_matches(ref.get("selector"), stored.obj["metadata"].get("labels") or {})
    ]

"""The objects of a new cluster, and those that files add before it is ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import yaml

from gpusched.base.errors import ConfigError
from gpusched.devcluster.apimachinery.metadata import copy_tree
from gpusched.devcluster.apimachinery.status import StatusError
from gpusched.devcluster.apiserver import api_services
from gpusched.devcluster.apiserver.client.local_client import LocalClient
from gpusched.devcluster.apiserver.rbac import default_roles
from gpusched.devcluster.apiserver.server_state import ServerState
from gpusched.devcluster.apiserver.writing import verbs
from gpusched.devcluster.apiserver.writing.bodies import load_all_yaml
from gpusched.devcluster.apiserver.writing.verbs import WriteOptions
from gpusched.devcluster.stages import load

Obj = dict[str, Any]

_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_PRIORITIES: Final = (
    (
        "system-cluster-critical",
        2_000_000_000,
        (
            "Used for system critical pods that must run in the cluster, "
            "but can be moved to another node if necessary."
        ),
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
)
API_SERVICE: Final[Obj] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {
        "name": "kubernetes",
        "namespace": "default",
        "labels": {"component": "apiserver", "provider": "kubernetes"},
    },
    "spec": {
        "clusterIP": "10.96.0.1",
        "clusterIPs": ["10.96.0.1"],
        "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}],
    },
}
"""The service under which pods know the API server."""
_FIRST: Final = {"Namespace": 0, "CustomResourceDefinition": 1, "PriorityClass": 2}
_NO_OBJECTS: Final = ("scenario.gpusched.io/", "kustomize.config.k8s.io/")
"""Groups of files that lie beside objects and are none: scenarios, lists for ``kubectl -k``."""
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


def create_initial_objects(core: ServerState) -> None:
    """Store the namespaces, priority classes, roles and service that every cluster has."""
    for name in _NAMESPACES:
        _store(core, "namespaces", {"kind": "Namespace", "apiVersion": "v1"}, name=name)
    for name, value, text in _PRIORITIES:
        head: Obj = {"kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1"}
        body = {"value": value, "description": text}
        _store(core, "priorityclasses.scheduling.k8s.io", {**head, **body}, name=name)
    for role in default_roles.cluster_roles():
        _create(core, "clusterroles.rbac.authorization.k8s.io", role)
    for binding in default_roles.cluster_role_bindings():
        _create(core, "clusterrolebindings.rbac.authorization.k8s.io", binding)
    _create(core, "services", copy_tree(API_SERVICE))
    api_services.sync_api_services(core)


def _store(core: ServerState, resource: str, obj: Obj, *, name: str) -> None:
    whole = {"kind": obj.pop("kind"), "apiVersion": obj.pop("apiVersion")}
    _create(core, resource, {**whole, "metadata": {"name": name}, **obj})


def _create(core: ServerState, resource: str, obj: Obj) -> None:
    kind = core.registry.named(resource)
    namespace = obj["metadata"].get("namespace", "")
    verbs.create_object(core, kind, namespace=namespace, obj=obj, options=WriteOptions())


def install_definitions(client: LocalClient, folder: Path) -> None:
    """Create every CustomResourceDefinition of a folder's YAML files."""
    for path, doc in _documents([folder]):
        if doc.get("kind") != "CustomResourceDefinition":
            continue
        try:
            client.create("customresourcedefinitions.apiextensions.k8s.io", doc)
        except StatusError as e:
            raise ConfigError(f"{path}: {e.message}") from None


def create_stages(client: LocalClient, paths: Sequence[Path]) -> None:
    """Create the Stage objects of files and folders; other kinds in them are passed over.

    Raises:
        StageError: a file cannot be read or holds a Stage that would not be played.
        ConfigError: a Stage is refused for its shape.
    """
    for document in load.stage_documents(paths):
        load.read_stage(document)  # a file given at the start fails the start, with its sentence
        try:
            client.create("stages.kwok.x-k8s.io", document)
        except StatusError as e:
            raise ConfigError(e.message) from None


def apply_files(client: LocalClient, paths: Sequence[Path], *, settle: Callable[[], None]) -> None:
    """Apply every object of files and folders, as ``kubectl apply --server-side`` would.

    What others stand on comes first, whatever the files are called. ``settle`` is called after
    each object, so that a definition serves the objects that follow it. A scenario or a
    kustomization among them is no object of a cluster: it is passed over.

    Raises:
        ConfigError: a file cannot be read or has nothing in it, or an object is refused.
    """
    documents = {path: list(_documents([path])) for path in paths}
    for path, inside in documents.items():
        if not inside:
            raise ConfigError(f"{path}: there is no object in it to apply")
    found = [
        (path, obj)
        for path, doc in chain.from_iterable(documents.values())
        if not str(doc.get("apiVersion")).startswith(_NO_OBJECTS)
        for obj in (doc.get("items", []) if doc.get("kind") == "List" else [doc])
    ]
    found.sort(key=lambda item: _FIRST.get(item[1].get("kind", ""), len(_FIRST)))
    for path, obj in found:
        _apply(client, path, obj)
        settle()


def _apply(client: LocalClient, path: Path, obj: Obj) -> None:
    meta = obj.get("metadata") or {}
    name = meta.get("name")
    kind = client.kind_of(obj.get("apiVersion") or "", obj.get("kind") or "")
    if kind is None:
        raise ConfigError(
            f"{path}: this cluster serves no {obj.get('kind')} of {obj.get('apiVersion')}"
        )
    namespace = (meta.get("namespace") or "default") if kind.namespaced else ""
    try:
        if not name:
            client.create(kind.qualified, obj, namespace)
            return
        client.patch(
            kind.qualified,
            namespace,
            name,
            obj,
            patch_type="apply",
            field_manager="gpusched-devcluster",
        )
    except StatusError as e:
        raise ConfigError(f"{path}: {e.message}") from None


def read_documents(file: Path) -> list[Any]:
    """Return every document of a YAML file.

    Raises:
        ConfigError: the file cannot be read, holds no YAML, or something that contains itself.
    """
    try:
        documents = list(load_all_yaml(file.read_text(encoding="utf-8")))
    except OSError as e:
        raise ConfigError(f"{file} cannot be read: {e.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is no UTF-8 text, so no YAML") from None
    except yaml.YAMLError as e:
        raise ConfigError(f"{file} is no YAML: {' '.join(str(e).split())}") from None
    if _contains_itself(documents):
        raise ConfigError(f"{file} holds an alias of something inside that very thing")
    return documents


def _contains_itself(value: Any) -> bool:
    """Whether a list or mapping is inside of itself; what has several aliases is looked at once."""
    around: set[int] = set()
    done: set[int] = set()
    stack = [(value, False)]
    while stack:
        each, left = stack.pop()
        if left:
            around.discard(id(each))
            done.add(id(each))
        elif id(each) in around:
            return True
        elif isinstance(each, dict | list) and id(each) not in done:
            around.add(id(each))
            stack.append((each, True))
            parts = each.values() if isinstance(each, dict) else each
            stack.extend((part, False) for part in parts)
    return False


def _documents(paths: Iterable[Path]) -> Iterator[tuple[Path, Obj]]:
    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path} does not exist")
        files = (
            sorted(p for p in path.rglob("*") if p.suffix in _SUFFIXES) if path.is_dir() else [path]
        )
        for file in files:
            for doc in read_documents(file):
                if not isinstance(doc, dict):
                    raise ConfigError(f"{file} holds something that is no object")
                yield file, doc

"""What may stand at a place of the command line: names of the cluster and of the kubeconfig.

Completion is never in the way: what cannot be asked within two seconds has no names, and no word is said.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

Completer = Callable[..., list[str]]
_ANSWER_MAX_S: Final = 2.0
_NAMES_MAX: Final = 500
_MANIFESTS: Final = (".yaml", ".yml", ".json")
_QUEUES: Final = "/apis/scheduling.gpusched.io/v1alpha1/queues"


def complete_namespaces(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Namespaces of the cluster."""
    return _asked(lambda: _names(parsed_args, ["/api/v1/namespaces"]))


def complete_queues(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Queues of the cluster, with the one that there always is."""
    return _asked(lambda: {"default", *_names(parsed_args, [_QUEUES])})


def complete_kubeconfig_entries(
    parsed_args: argparse.Namespace, action: argparse.Action, **_: object
) -> list[str]:
    """Contexts, clusters or users of the kubeconfig, as the option is called."""
    return _asked(lambda: _entries(parsed_args, f"{action.dest}s"))


def complete_objects(parsed_args: argparse.Namespace, prefix: str = "", **_: object) -> list[str]:
    """Of ``KIND NAME...`` kinds first, then names; of ``KIND/NAME`` the names behind the slash."""
    from gpusched.cli.act.named_objects import kind_words  # noqa: PLC0415 - when somebody asks

    before = [word for word in getattr(parsed_args, "objects", None) or [] if word != prefix]
    word, slash, _name = prefix.partition("/")
    if slash:
        return [f"{word}/{name}" for name in _asked(lambda: _of_kind(parsed_args, word))]
    if not before:
        return kind_words()
    if "/" in before[0]:
        return []
    return _asked(lambda: _of_kind(parsed_args, before[0]))


def complete_gang_names(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Names of the kind that was typed before."""
    kind = getattr(parsed_args, "kind", None)
    return _asked(lambda: _of_kind(parsed_args, str(kind))) if kind else []


def complete_explained(parsed_args: argparse.Namespace, prefix: str = "", **_: object) -> list[str]:
    """Kinds that are explained; of ``KIND/NAME`` the names behind the slash."""
    from gpusched.cli.inspect.explain import kind_words  # noqa: PLC0415 - when somebody asks

    word, slash, _name = prefix.partition("/")
    if slash:
        return [f"{word}/{name}" for name in _asked(lambda: _of_kind(parsed_args, word))]
    return kind_words()


def complete_manifests(prefix: str = "", **_: object) -> list[str]:
    """Files of manifests, and folders that may hold some."""
    folder = prefix.rpartition("/")[0] + "/" if "/" in prefix else ""

    def found() -> Iterable[str]:
        for each in Path(folder or ".").iterdir():
            if each.is_dir() or each.suffix in _MANIFESTS:
                yield f"{folder}{each.name}{'/' if each.is_dir() else ''}"

    return _asked(found)


COMPLETERS: Final[Mapping[str, Completer]] = {
    "namespace": complete_namespaces,
    "queue": complete_queues,
    "objects": complete_objects,
    "filename": complete_manifests,
    "name": complete_gang_names,
    "kind": complete_explained,
    **dict.fromkeys(("context", "cluster", "user"), complete_kubeconfig_entries),
}
"""By the names that arguments have in every command."""


def _asked(ask: Callable[[], Iterable[str]]) -> list[str]:
    """Sorted names; none where anything is in the way."""
    try:
        return sorted(set(ask()))
    except Exception:  # noqa: BLE001 - whatever it is, the user is typing
        return []


def _of_kind(parsed_args: argparse.Namespace, word: str) -> list[str]:
    from gpusched.cli.act.named_objects import collection_paths  # noqa: PLC0415 - as above
    from gpusched.cli.inspect.cluster_reader import default_namespace  # noqa: PLC0415 - as above
    from gpusched.cli.shell.connection import connection_choice  # noqa: PLC0415 - as above

    given = getattr(parsed_args, "namespace", None)
    namespace = given or default_namespace(connection_choice(parsed_args))
    return _names(parsed_args, collection_paths(word, namespace))


def _names(parsed_args: argparse.Namespace, paths: Iterable[str]) -> list[str]:
    """Names of the objects of the first collection that has any."""
    import attrs  # noqa: PLC0415 - as above

    from gpusched.cli.inspect import cluster_reader  # noqa: PLC0415 - as above
    from gpusched.cli.shell.connection import connection_choice  # noqa: PLC0415 - as above

    choice = attrs.evolve(connection_choice(parsed_args), request_timeout_s=_ANSWER_MAX_S)

    async def read(api: Any) -> list[str]:
        for path in paths:
            page = await cluster_reader.get_object(api, f"{path}?limit={_NAMES_MAX}", what="names")
            items = cluster_reader.items_at(page, "items")
            if items:
                return [str(cluster_reader.value_at(each, "metadata", "name")) for each in items]
        return []

    return cluster_reader.with_cluster(choice, read)


def _entries(parsed_args: argparse.Namespace, kind: str) -> list[str]:
    from gpusched.cli.inspect.cluster_reader import kubeconfig_entries  # noqa: PLC0415 - as above

    return kubeconfig_entries(getattr(parsed_args, "kubeconfig", None), kind)

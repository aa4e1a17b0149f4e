"""What a person says about the way to the cluster beside the kubeconfig, in the words of kubectl's options."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import attrs

from gpusched.base.classes import frozen
from gpusched.base.errors import UsageError
from gpusched.io.client.kubeconfig_library import KubeconfigLibrary

_SERVER_NAME: Final = "tls-server-name"
_NAMED_MAX: Final = 8


@frozen(kw_only=True)
class Impersonation:
    """Whom requests act as: the server asks whether the user may, then judges them as that one.

    Attributes:
        user: name; empty for nobody.
        groups: of that user.
        uid: of that user.
        extra: pairs of key and value of what else is known of that user.
    """

    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, str], ...] = ()

    def __attrs_post_init__(self) -> None:
        if not self.user and (self.groups or self.uid or self.extra):
            raise UsageError("a group or UID to act as needs a user to act as: give --as USER")

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Headers of every request."""
        if not self.user:
            return ()
        pairs = [("Impersonate-User", self.user)]
        pairs += [("Impersonate-Group", group) for group in self.groups]
        pairs += [("Impersonate-Uid", self.uid)] if self.uid else []
        pairs += [
            (f"Impersonate-Extra-{quote(key.lower(), safe='')}", value) for key, value in self.extra
        ]
        return tuple(pairs)


@frozen(kw_only=True)
class ConnectionChoice:
    """The choice of a command line; what is empty is as the kubeconfig or the pod's account says.

    Attributes:
        kubeconfig: a file, None for the usual places.
        context, cluster, user: names in the kubeconfig.
        server, token: in place of those of the kubeconfig.
        authority, certificate, key: files, in place of those of the kubeconfig.
        server_name: that the server's certificate is checked for.
        act_as: whom requests act as.
        request_timeout_s: the longest that one request may take, None for our own bounds.
    """

    kubeconfig: str | None = None
    context: str = ""
    cluster: str = ""
    user: str = ""
    server: str = ""
    token: str = attrs.field(default="", repr=False)
    authority: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""
    act_as: Impersonation = Impersonation()
    request_timeout_s: float | None = None

    @property
    def names_entries(self) -> bool:
        """Whether entries of a kubeconfig are named, so that one has to be read."""
        return bool(self.context or self.cluster or self.user)

    @property
    def changes_entries(self) -> bool:
        """Whether what a kubeconfig says is not taken as it stands."""
        rest = attrs.evolve(
            self, kubeconfig=None, act_as=Impersonation(), request_timeout_s=None, context=""
        )
        return rest != ConnectionChoice()


NO_CHOICE: Final = ConnectionChoice()


def chosen_config(library: KubeconfigLibrary, path: str, choice: ConnectionChoice) -> Any:
    """The content of kubeconfig files with the choice in place of what they say.

    Raises:
        UsageError: the choice names an entry that is not there.
    """
    module = library.config.kube_config
    merged = module.KubeConfigMerger(path).config
    entries = {kind: merged.value.get(kind) or [] for kind in ("contexts", "clusters", "users")}
    context_name = choice.context or str(merged.value.get("current-context") or "")
    context: dict[str, Any] = {}
    if context_name and not (choice.cluster and choice.user and not choice.context):
        context = dict(_entry(entries["contexts"], context_name, "context").value["context"])
    cluster_name = choice.cluster or context.get("cluster", "")
    user_name = choice.user or context.get("user", "")
    cluster = _entry(entries["clusters"], cluster_name, "cluster")
    users = [_entry(entries["users"], user_name, "user")] if user_name else []
    content = {
        "current-context": "chosen",
        "contexts": [_node(module, "chosen", {"context": {"cluster": "c", "user": "u"}}, path)],
        "clusters": [_node(module, "c", {"cluster": _cluster(cluster, choice)}, cluster.path)],
        "users": [_node(module, "u", {"user": _user(each, choice)}, each.path) for each in users]
        or [_node(module, "u", {"user": _login(choice)}, path)],
    }
    return module.ConfigNode("kube-config", content, path)


def chosen_namespace(library: KubeconfigLibrary, path: str, choice: ConnectionChoice) -> str:
    """The namespace of the context that counts; empty where it names none, or cannot be read.

    Connecting says better what is wrong with a file.
    """
    try:
        merged = library.config.kube_config.KubeConfigMerger(path).config
        named = choice.context or merged.value.get("current-context")
        entries = [each.value for each in merged.value["contexts"]]
        context = next(each["context"] for each in entries if each["name"] == named)
        return str(context.get("namespace") or "")
    except Exception:  # noqa: BLE001 - whatever stands in the file
        return ""


def _node(module: Any, name: str, value: dict[str, Any], path: object) -> Any:
    return module.ConfigNode(name, {"name": name, **value}, path)


def _entry(entries: list[Any], name: str, what: str) -> Any:
    for each in entries:
        if each.value.get("name") == name:
            return each
    names = sorted(str(each.value.get("name")) for each in entries)
    known = ", ".join(names[:_NAMED_MAX]) or "none"
    raise UsageError(f"the kubeconfig has no {what} {name[:80]!r}: known are {known}")


def _cluster(entry: Any, choice: ConnectionChoice) -> dict[str, Any]:
    cluster = dict(entry.value.get("cluster") or {})
    if choice.server:
        cluster["server"] = choice.server
        cluster.pop(_SERVER_NAME, None)  # the name of another server, as kubectl has it
    if choice.server_name:
        cluster[_SERVER_NAME] = choice.server_name
    if choice.authority:
        cluster.pop("certificate-authority-data", None)
        cluster["certificate-authority"] = str(Path(choice.authority).absolute())
    return cluster


def _user(entry: Any, choice: ConnectionChoice) -> dict[str, Any]:
    if choice.token or choice.certificate:
        return _login(choice)  # no other way of logging in is tried
    return dict(entry.value.get("user") or {})


def _login(choice: ConnectionChoice) -> dict[str, Any]:
    user = {"token": choice.token} if choice.token else {}
    if choice.certificate:
        user["client-certificate"] = str(Path(choice.certificate).absolute())
        user["client-key"] = str(Path(choice.key).absolute())
    return user

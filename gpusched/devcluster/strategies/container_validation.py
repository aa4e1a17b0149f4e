"""Containers of pods and pod templates: names, images, ports, environment, mounts, resources."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from gpusched.devcluster.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
)
from gpusched.devcluster.meta import name_errors, qualified_name_problems, subdomain_problems
from gpusched.devcluster.strategies.probe_validation import (
    lifecycle_errors,
    port_problems,
    probe_errors,
)
from gpusched.devcluster.strategies.resource_validation import requirement_errors
from gpusched.devcluster.strategies.security_validation import security_context_errors

Obj = dict[str, Any]

PULL: Final = ("Always", "IfNotPresent", "Never")
_MESSAGES: Final = ("File", "FallbackToLogsOnError")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_RESTART: Final = ("Always", "Never", "OnFailure")
_RESIZED: Final = ("cpu", "memory")
_RESIZE: Final = ("NotRequired", "RestartContainer")
_INIT_ONLY: Final = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_AMOUNTS: Final = tuple(
    f"{part}.{name}"
    for part in ("limits", "requests")
    for name in ("cpu", "ephemeral-storage", "memory")
)
_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef")
_SUBSCRIPT: Final = re.compile(r"(metadata\.(?:annotations|labels))\['(.*)'\]")
_ENV_TEXT: Final = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_TEXT: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  "
    "or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def container_errors(
    containers: Sequence[Obj], at: str, *, spec: Obj, volumes: Collection[str]
) -> Iterator[FieldError]:
    """Check the main containers of a pod."""
    if not containers:
        yield required(at)
        return
    names: set[str] = set()
    for i, container in enumerate(containers):
        here = f"{at}[{i}]"
        yield from _common_errors(container, here, spec=spec, volumes=volumes)
        name = container.get("name") or ""
        if name in names:
            yield duplicate(f"{here}.name", name)
        names.add(name)
        yield from lifecycle_errors(container.get("lifecycle"), f"{here}.lifecycle", spec=spec)
        yield from probe_errors(container, here, spec=spec)
    yield from _host_port_errors(containers, at)


def init_container_errors(spec: Obj, at: str, *, volumes: Collection[str]) -> Iterator[FieldError]:
    """Check containers that run before the main ones, or beside them as sidecars."""
    names = {c.get("name") or "" for c in spec.get("containers") or ()}
    for i, container in enumerate(spec.get("initContainers") or ()):
        here = f"{at}[{i}]"
        yield from _common_errors(container, here, spec=spec, volumes=volumes)
        name = container.get("name") or ""
        if name in names:
            yield duplicate(f"{here}.name", name)
        elif name:
            names.add(name)
        yield from _host_port_errors([container], at)
        if container.get("restartPolicy") == "Always":
            yield from lifecycle_errors(container.get("lifecycle"), f"{here}.lifecycle", spec=spec)
            yield from probe_errors(container, here, spec=spec)
            continue
        for key in _INIT_ONLY:
            if container.get(key) is not None:
                why = "may not be set for init containers without restartPolicy=Always"
                yield forbidden(f"{here}.{key}", why)


def _common_errors(
    container: Obj, at: str, *, spec: Obj, volumes: Collection[str]
) -> Iterator[FieldError]:
    name = container.get("name") or ""
    if name:
        yield from name_errors(name, field=f"{at}.name", label=True)
    else:
        yield required(f"{at}.name")
    if not container.get("image"):
        yield required(f"{at}.image")
    policy = container.get("terminationMessagePolicy")
    if policy not in _MESSAGES:
        yield not_supported(f"{at}.terminationMessagePolicy", policy, _MESSAGES)
    yield from _port_errors(container.get("ports") or (), f"{at}.ports")
    yield from _env_errors(container.get("env") or (), f"{at}.env")
    yield from _env_from_errors(container.get("envFrom") or (), f"{at}.envFrom")
    mounts = container.get("volumeMounts") or ()
    yield from _mount_errors(mounts, f"{at}.volumeMounts", volumes=volumes)
    if container.get("imagePullPolicy") not in PULL:
        yield not_supported(f"{at}.imagePullPolicy", container.get("imagePullPolicy"), PULL)
    yield from requirement_errors(container.get("resources") or {}, f"{at}.resources")
    yield from _resize_errors(container.get("resizePolicy") or (), f"{at}.resizePolicy", spec=spec)
    if (context := container.get("securityContext")) is not None:
        yield from security_context_errors(context, f"{at}.securityContext")
    restart = container.get("restartPolicy")
    if restart is not None and restart not in _RESTART:
        yield not_supported(f"{at}.restartPolicy", restart, _RESTART)


def _port_errors(ports: Sequence[Obj], at: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for i, port in enumerate(ports):
        here = f"{at}[{i}]"
        if name := port.get("name"):
            problems = port_problems(name)
            for why in problems:
                yield invalid(f"{here}.name", name, why)
            if not problems and name in names:
                yield duplicate(f"{here}.name", name)
            names.add(name)
        number = port.get("containerPort") or 0
        if not number:
            yield required(f"{here}.containerPort")
        for key in ("containerPort", "hostPort"):
            if port.get(key):
                for why in port_problems(port[key]):
                    yield invalid(f"{here}.{key}", port[key], why)
        protocol = port.get("protocol")
        if not protocol:
            yield required(f"{here}.protocol")
        elif protocol not in _PROTOCOLS:
            yield not_supported(f"{here}.protocol", protocol, _PROTOCOLS)


def _host_port_errors(containers: Sequence[Obj], at: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, container in enumerate(containers):
        for j, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            told = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
            if told in seen:
                yield duplicate(f"{at}[{i}].ports[{j}].hostPort", told)
            seen.add(told)


def _env_errors(variables: Sequence[Obj], at: str) -> Iterator[FieldError]:
    for i, variable in enumerate(variables):
        name = variable.get("name") or ""
        if not name:
            yield required(f"{at}[{i}].name")
        elif not _is_env_name(name):
            yield invalid(f"{at}[{i}].name", name, _ENV_TEXT)
        if (source := variable.get("valueFrom")) is not None:
            yield from _source_errors(source, variable, f"{at}[{i}].valueFrom")


def _is_env_name(name: str) -> bool:
    return name.isascii() and name.isprintable() and "=" not in name


def _source_errors(source: Obj, variable: Obj, at: str) -> Iterator[FieldError]:
    given = [key for key in _SOURCES if source.get(key) is not None]
    for key in given:
        reference, here = source[key], f"{at}.{key}"
        if key == "fieldRef":
            yield from _field_errors(reference, here)
        elif key == "resourceFieldRef":
            yield from _amount_errors(reference, here)
        else:
            yield from _key_reference_errors(reference, here)
    if not given and not source.get("fileKeyRef"):
        known = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        yield invalid(at, "", f"must specify one of: {known}")
    elif variable.get("value"):
        yield invalid(at, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        yield invalid(at, "", "may not have more than one field specified at a time")


def _field_errors(reference: Obj, at: str) -> Iterator[FieldError]:
    path = reference.get("fieldPath") or ""
    if not path:
        yield required(f"{at}.fieldPath")
    elif subscripted := _SUBSCRIPT.fullmatch(path):
        key = subscripted[2]
        key = key.lower() if subscripted[1].endswith("annotations") else key
        for why in qualified_name_problems(key):
            yield invalid(at, key, why)
    elif path in {"metadata.labels", "metadata.annotations"}:
        yield not_supported(f"{at}.fieldPath", path, _FIELDS)
    elif path not in _FIELDS:
        why = f"error converting fieldPath: field label not supported: {path}"
        yield invalid(f"{at}.fieldPath", path, why)


def _amount_errors(reference: Obj, at: str) -> Iterator[FieldError]:
    name = reference.get("resource") or ""
    if not name:
        yield required(f"{at}.resource")
    elif name not in _AMOUNTS and not name.startswith(("requests.hugepages-", "limits.hugepages-")):
        yield not_supported(f"{at}.resource", name, _AMOUNTS)


def _key_reference_errors(reference: Obj, at: str) -> Iterator[FieldError]:
    name, key = reference.get("name") or "", reference.get("key") or ""
    for why in subdomain_problems(name):
        yield invalid(f"{at}.name", name, why)
    if not key:
        yield required(f"{at}.key")
    for why in config_key_problems(key) if key else ():
        yield invalid(f"{at}.key", key, why)


def config_key_problems(key: str) -> list[str]:
    """Why a text cannot be a key of a config map or secret, in the API server's order."""
    problems = ["must be no more than 253 bytes"] if len(key.encode()) > 253 else []
    if not _KEY.fullmatch(key):
        problems.append(_KEY_TEXT)
    if key in {".", ".."}:
        problems.append(f"must not be '{key}'")
    elif key.startswith(".."):
        problems.append("must not start with '..'")
    return problems


def _env_from_errors(sources: Sequence[Obj], at: str) -> Iterator[FieldError]:
    for i, source in enumerate(sources):
        if (prefix := source.get("prefix")) and not _is_env_name(prefix):
            yield invalid(f"{at}[{i}].prefix", prefix, _ENV_TEXT)
        given = [key for key in ("configMapRef", "secretRef") if source.get(key) is not None]
        for key in given:
            name = source[key].get("name") or ""
            if not name:
                yield required(f"{at}[{i}].{key}.name")
            for why in subdomain_problems(name) if name else ():
                yield invalid(f"{at}[{i}].{key}.name", name, why)
        if not given:
            yield invalid(at, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(given) > 1:
            yield invalid(at, "", "may not have more than one field specified at a time")


def _mount_errors(
    mounts: Sequence[Obj], at: str, *, volumes: Collection[str]
) -> Iterator[FieldError]:
    paths: set[str] = set()
    for i, mount in enumerate(mounts):
        here = f"{at}[{i}]"
        name, path = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{here}.name")
        if name not in volumes:
            yield not_found(f"{here}.name", name)
        if not path:
            yield required(f"{here}.mountPath")
        if path in paths:
            yield invalid(f"{here}.mountPath", path, "must be unique")
        paths.add(path)
        for key in ("subPath", "subPathExpr"):
            yield from _descending_errors(mount.get(key) or "", f"{at}.{key}")
        if mount.get("subPath") and mount.get("subPathExpr"):
            why = "subPathExpr and subPath are mutually exclusive"
            yield invalid(f"{here}.subPathExpr", mount["subPathExpr"], why)


def _descending_errors(path: str, at: str) -> Iterator[FieldError]:
    if path.startswith("/"):
        yield invalid(at, path, "must be a relative path")
    if ".." in path.split("/"):
        yield invalid(at, path, "must not contain '..'")


def _resize_errors(policies: Sequence[Obj], at: str, *, spec: Obj) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, policy in enumerate(policies):
        name, restart = policy.get("resourceName") or "", policy.get("restartPolicy") or ""
        if name in seen:
            yield duplicate(f"{at}[{i}]", name)
        seen.add(name)
        for value, known in ((name, _RESIZED), (restart, _RESIZE)):
            if not value:
                yield required(at)
            elif value not in known:
                yield not_supported(at, value, known)
        if spec.get("restartPolicy") == "Never" and restart != "NotRequired":
            yield invalid(at, restart, "must be 'NotRequired' when `restartPolicy` is 'Never'")

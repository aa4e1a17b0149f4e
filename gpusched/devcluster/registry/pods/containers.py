"""Containers of pods and pod templates: names, images, ports, environment, mounts, resources,
probes, lifecycle hooks, and security contexts, which have no effect but must be valid.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from gpusched.devcluster.apimachinery.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
)
from gpusched.devcluster.apimachinery.metadata import (
    name_errors,
    qualified_name_problems,
    subdomain_problems,
)
from gpusched.devcluster.registry.pods.resources import requirement_errors

Obj = dict[str, Any]

_PORT_MAX: Final = 65535
_PORT_NAME_MAX: Final = 15
_PORT_NAME: Final = re.compile(r"[-a-z0-9]+")
_HEADER: Final = re.compile(r"[-A-Za-z0-9]+")
_HEADER_TEXT: Final = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', "
    "regex used for validation is '[-A-Za-z0-9]+')"
)
_COUNTS: Final = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)


def port_problems(port: Any) -> list[str]:
    """Why a value is no port number or name, in the API server's order."""
    if isinstance(port, int):
        fits = 1 <= port <= _PORT_MAX
        return [] if fits else [f"must be between 1 and {_PORT_MAX}, inclusive"]
    problems = []
    if len(port) > _PORT_NAME_MAX:
        problems.append(f"must be no more than {_PORT_NAME_MAX} bytes")
    if not _PORT_NAME.fullmatch(port):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", port):
        problems.append("must contain at least one letter (a-z)")
    if "--" in port:
        problems.append("must not contain consecutive hyphens")
    if port.startswith("-") or port.endswith("-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def probe_errors(container: Obj, at: str, *, spec: Obj) -> Iterator[FieldError]:
    """Check the three probes of a container."""
    for key in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(key)
        if probe is None:
            continue
        here = f"{at}.{key}"
        yield from _probe_errors(probe, here, spec=spec)
        grace = probe.get("terminationGracePeriodSeconds")
        if key == "readinessProbe":
            if grace is not None:
                why = "must not be set for readinessProbes"
                yield invalid(f"{here}.terminationGracePeriodSeconds", grace, why)
        elif probe.get("successThreshold") != 1:
            yield invalid(f"{here}.successThreshold", probe.get("successThreshold"), "must be 1")


def _probe_errors(probe: Obj, at: str, *, spec: Obj) -> Iterator[FieldError]:
    kinds = ("exec", "httpGet", "tcpSocket", "grpc")
    yield from _handler_errors(probe, at, kinds=kinds, spec=spec)
    for key in _COUNTS:
        if (probe.get(key) or 0) < 0:
            yield invalid(f"{at}.{key}", probe[key], "must be greater than or equal to 0")
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        yield invalid(f"{at}.terminationGracePeriodSeconds", grace, "must be greater than 0")


def lifecycle_errors(lifecycle: Obj | None, at: str, *, spec: Obj) -> Iterator[FieldError]:
    """Check the hooks of a container."""
    for key in ("postStart", "preStop"):
        hook = (lifecycle or {}).get(key)
        if hook is not None:
            kinds = ("exec", "httpGet", "tcpSocket", "sleep")
            yield from _handler_errors(hook, f"{at}.{key}", kinds=kinds, spec=spec)


def _handler_errors(
    handler: Obj, at: str, *, kinds: tuple[str, ...], spec: Obj
) -> Iterator[FieldError]:
    given = [key for key in kinds if handler.get(key) is not None]
    for i, key in enumerate(given):
        here = f"{at}.{key}"
        if i:
            yield forbidden(here, "may not specify more than 1 handler type")
        elif key == "exec":
            if not handler[key].get("command"):
                yield required(f"{here}.command")
        elif key == "httpGet":
            yield from _http_errors(handler[key], here)
        elif key == "sleep":
            yield from _sleep_errors(handler[key], here, spec=spec)
        else:
            yield from _probe_port_errors(handler[key].get("port", 0), f"{here}.port")
    if not given:
        yield required(at, "must specify a handler type")


def _http_errors(http: Obj, at: str) -> Iterator[FieldError]:
    if not http.get("path"):
        yield required(f"{at}.path")
    yield from _probe_port_errors(http.get("port", 0), f"{at}.port")
    if http.get("scheme") not in {"HTTP", "HTTPS"}:
        yield not_supported(f"{at}.scheme", http.get("scheme") or "", ("HTTP", "HTTPS"))
    for header in http.get("httpHeaders") or ():
        name = header.get("name") or ""
        if not _HEADER.fullmatch(name):
            yield invalid(f"{at}.httpHeaders", name, _HEADER_TEXT)


def _probe_port_errors(port: Any, at: str) -> Iterator[FieldError]:
    for why in port_problems(port):
        yield invalid(at, port, why)


def _sleep_errors(sleep: Obj, at: str, *, spec: Obj) -> Iterator[FieldError]:
    seconds, grace = sleep.get("seconds") or 0, spec.get("terminationGracePeriodSeconds", 30)
    if not 0 <= seconds <= grace:
        why = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        yield invalid(at, seconds, why)


_ID_MAX: Final = 0xFFFFFFFF
_ID_TEXT: Final = f"must be between 0 and {_ID_MAX}, inclusive"
_PROFILES: Final = ("Localhost", "RuntimeDefault", "Unconfined")


def pod_security_errors(context: Obj, at: str) -> Iterator[FieldError]:
    """Check the security context of a whole pod."""
    yield from _id_errors(context, at, keys=("fsGroup", "runAsUser", "runAsGroup"))
    for i, group in enumerate(context.get("supplementalGroups") or ()):
        if not 0 <= group <= _ID_MAX:
            yield invalid(f"{at}.supplementalGroups[{i}]", group, _ID_TEXT)
    for key, known in (
        ("fsGroupChangePolicy", ("Always", "OnRootMismatch")),
        ("supplementalGroupsPolicy", ("Merge", "Strict")),
    ):
        if context.get(key) is not None and context[key] not in known:
            yield not_supported(f"{at}.{key}", context[key], known)
    yield from _profile_errors(context.get("seccompProfile"), f"{at}.seccompProfile")


def security_context_errors(context: Obj, at: str) -> Iterator[FieldError]:
    """Check the security context of a container."""
    yield from _id_errors(context, at, keys=("runAsUser", "runAsGroup"))
    mount = context.get("procMount")
    if mount is not None and mount not in {"Default", "Unmasked"}:
        yield not_supported(f"{at}.procMount", mount, ("Default", "Unmasked"))
    yield from _profile_errors(context.get("seccompProfile"), f"{at}.seccompProfile")
    if context.get("allowPrivilegeEscalation") is False and context.get("privileged"):
        why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        yield invalid(at, context, why)


def _id_errors(context: Obj, at: str, *, keys: tuple[str, ...]) -> Iterator[FieldError]:
    for key in keys:
        value = context.get(key)
        if value is not None and not 0 <= value <= _ID_MAX:
            yield invalid(f"{at}.{key}", value, _ID_TEXT)


def _profile_errors(profile: Obj | None, at: str) -> Iterator[FieldError]:
    if profile is None:
        return
    kind = profile.get("type") or ""
    if not kind:
        yield required(f"{at}.type", "type is required when seccompProfile is set")
    elif kind not in _PROFILES:
        yield not_supported(f"{at}.type", kind, _PROFILES)
    local = profile.get("localhostProfile")
    if kind == "Localhost" and local is None:
        why = "must be set when seccomp type is Localhost"
        yield required(f"{at}.localhostProfile", why)


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
            port_text = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
            if port_text in seen:
                yield duplicate(f"{at}[{i}].ports[{j}].hostPort", port_text)
            seen.add(port_text)


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

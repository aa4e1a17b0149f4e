"""Where the API server is and how we prove who we are.

Parsing kubeconfig files, running exec plugins and reading service account tokens is left to
``kubernetes_asyncio``; this module decides which source counts, when to read it again, and
refuses what would switch TLS verification off.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import os
import ssl
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit
from urllib.request import (  # type: ignore[attr-defined]
    getproxies_environment,
    proxy_bypass_environment,
)

import attrs

from gpusched.base import limits
from gpusched.base.clock import Clock
from gpusched.base.errors import ClusterUnreachable, ConfigError
from gpusched.io.client.kubeconfig_library import kubeconfig_library
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.text import one_line

_SERVICE_HOST: Final = "KUBERNETES_SERVICE_HOST"
_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_ACT_AS: Final = ("as", "as-uid", "as-groups", "as-user-extra")
_PROXY_VARIABLES: Final = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")

_log = Logger(__name__)


@attrs.frozen(kw_only=True)
class ApiAccess:
    """One reading of the credentials.

    Attributes:
        host: ``scheme://host:port``, perhaps with a path, without a slash at the end.
        authorization: value of the header, empty for none. Never logged.
        reread_after_s: seconds after which the source is to be read again, None for never.
        tls_id: changes when any certificate or key does.
    """

    host: str
    authorization: str = attrs.field(default="", repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    proxy: str | None = attrs.field(default=None, repr=False)
    reread_after_s: float | None = None
    tls_id: bytes = b""

    def tls(self) -> ssl.SSLContext | None:
        """The context to connect with; None for plain HTTP.

        Raises:
            ConfigError: a certificate or key cannot be used.
        """
        if not self.host.startswith("https:"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, keyfile=self.key_file)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError(
                f"the certificates for {self.host} cannot be used: {one_line(str(error))}"
            ) from error
        return context


class CredentialSource(Protocol):
    """Something that knows the way to the API server; asked again when a token ages."""

    in_cluster: bool

    async def load(self) -> ApiAccess:
        """Read the credentials now.

        Raises:
            ClusterUnreachable: there is nothing to read.
            ConfigError: what is there cannot or must not be used.
        """


class InClusterCredentials:
    """The service account of the pod we run in."""

    in_cluster = True

    def __init__(
        self,
        *,
        token_file: str = f"{_ACCOUNT}/token",
        ca_file: str = f"{_ACCOUNT}/ca.crt",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._token_file = token_file
        self._ca_file = ca_file
        self._environ = dict(os.environ if environ is None else environ)

    async def load(self) -> ApiAccess:
        """Address and credentials of a pod's service account."""
        library = kubeconfig_library()
        configuration = library.new_configuration()
        try:
            library.config.incluster_config.InClusterConfigLoader(
                token_filename=self._token_file,
                cert_filename=self._ca_file,
                try_refresh_token=False,
                environ=self._environ,
            ).load_and_set(configuration)
        except Exception as error:
            raise ConfigError(f"the pod's service account is no use: {_why(error)}") from error
        return _access(configuration, environ=self._environ, reread_after_s=limits.TOKEN_AGE_MAX_S)


class KubeconfigCredentials:
    """A kubeconfig file, or several joined by colons as KUBECONFIG allows."""

    in_cluster = False

    def __init__(self, path: str, *, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    async def load(self) -> ApiAccess:
        """Address and credentials of a kubeconfig file."""
        if not self._exists():
            raise ClusterUnreachable(f"there is no kubeconfig file {one_line(self._path)}")
        library = kubeconfig_library()
        configuration = library.new_configuration()
        try:
            async with asyncio.timeout(limits.CREDENTIAL_LOAD_MAX_S):
                loader = await library.config.load_kube_config(
                    config_file=self._path, client_configuration=configuration, persist_config=False
                )
            user = loader._user  # noqa: SLF001 - the library's own refresh_token reads it too
            token_file = user.safe_get("tokenFile") if user is not None else None
            acts_as = [key for key in _ACT_AS if user is not None and user.safe_get(key)]
        except Exception as error:
            raise ConfigError(
                f"the kubeconfig {self._path} cannot be used: {_why(error)}"
            ) from error
        if not configuration.verify_ssl:
            raise ConfigError(
                f"the kubeconfig {self._path} sets insecure-skip-tls-verify, which gpusched"
                " refuses: give certificate-authority instead, and tls-server-name where the"
                " server's certificate has another name (docs/connecting.md)"
            )
        if acts_as:
            # Left out, it would act with the rights of the user itself, which are mostly more.
            raise ConfigError(
                f"the kubeconfig {self._path} sets {acts_as[0]} (impersonation), which gpusched"
                " does not know: name a user that has the rights itself"
            )
        return _access(
            configuration,
            environ=dict(os.environ),
            reread_after_s=self._reread_after(loader, token_file),
        )

    def _exists(self) -> bool:
        paths = (Path(part).expanduser() for part in self._path.split(os.pathsep) if part)
        # Not is_file: the answer of a command may be given as a pipe.
        return any(path.exists() and not path.is_dir() for path in paths)

    def _reread_after(self, loader: Any, token_file: object) -> float | None:
        expiry = getattr(loader, "exec_plugin_expiry", None)
        if isinstance(expiry, datetime):
            # A difference of wall times, taken once: the waiting is done on monotonic time.
            return max(
                limits.CREDENTIAL_REREAD_MIN_S,
                expiry.timestamp() - self._clock.now() - limits.CREDENTIAL_MARGIN_S,
            )
        return limits.TOKEN_AGE_MAX_S if token_file else None


@attrs.define
class GivenCredentials:
    """Credentials that need no reading."""

    access: ApiAccess
    in_cluster: bool = False

    async def load(self) -> ApiAccess:
        """Address and credentials as they were given."""
        return self.access


def choose_credentials(kubeconfig: str | None, *, clock: Clock) -> CredentialSource:
    """The source to use: a named kubeconfig, else the pod's account, else the default file.

    Raises:
        ClusterUnreachable: there is none of them.
    """
    if kubeconfig is not None:
        return KubeconfigCredentials(kubeconfig, clock=clock)
    if os.environ.get(_SERVICE_HOST):
        return InClusterCredentials()
    named = os.environ.get("KUBECONFIG")
    if named:
        return KubeconfigCredentials(named, clock=clock)
    default = Path.home() / ".kube" / "config"
    if default.is_file():
        return KubeconfigCredentials(str(default), clock=clock)
    raise ClusterUnreachable(
        f"no cluster to talk to: not in a pod, KUBECONFIG is not set and {default} does not"
        " exist; give --kubeconfig FILE or start one with gpusched devcluster"
    )


def report_proxy(access: ApiAccess, environ: Mapping[str, str]) -> None:
    """Say once at start which proxy variables are set and whether they matter."""
    names = sorted(name for name in environ if name.lower() in _PROXY_VARIABLES and environ[name])
    if names or access.proxy:
        _log.info(
            "requests to the API server go through a proxy"
            if access.proxy
            else "proxy variables are set but do not apply to the API server",
            variables=",".join(names) or "none",
            server=access.host,
        )


def _access(
    configuration: Any, *, environ: Mapping[str, str], reread_after_s: float | None
) -> ApiAccess:
    host = str(configuration.host).rstrip("/")
    parts = urlsplit(host)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f'the server address "{one_line(host)}" is not an http or https URL')
    files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    token = str(configuration.api_key.get("BearerToken", ""))
    return ApiAccess(
        host=host,
        # A token file usually ends in a newline, which would end the header.
        authorization=token.strip(),
        ca_file=files[0],
        cert_file=files[1],
        key_file=files[2],
        server_name=configuration.tls_server_name,
        proxy=_usable(configuration.proxy or _proxy_of(parts.scheme, parts.hostname, environ)),
        reread_after_s=reread_after_s,
        tls_id=_digest(files) if parts.scheme == "https" else b"",
    )


def _proxy_of(scheme: str, host: str, environ: Mapping[str, str]) -> str | None:
    """The proxy that the environment asks for; as in Go, never for the machine itself."""
    if host == "localhost" or _is_loopback(host):
        return None
    if not any(name.lower() in _PROXY_VARIABLES for name in environ):
        return None
    proxies = getproxies_environment()
    if proxy_bypass_environment(host, proxies):
        return None
    return proxies.get(scheme) or proxies.get("all")


def _usable(proxy: object) -> str | None:
    """A proxy that requests can go through; its sentence leaves out a password.

    Raises:
        ConfigError: it is none.
    """
    if not proxy:
        return None
    try:
        parts = urlsplit(proxy if isinstance(proxy, str) else "")
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        shown = one_line(str(proxy).rpartition("@")[2])
        raise ConfigError(
            f'the proxy "{shown}" for the API server is not http://HOST:PORT: gpusched speaks to'
            " HTTP proxies only; change proxy-url in the kubeconfig or HTTPS_PROXY"
        )
    return str(proxy)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _digest(files: tuple[str | None, ...]) -> bytes:
    digest = hashlib.sha256()
    for file in files:
        try:
            content = Path(file).read_bytes() if file else b""
        except OSError as error:
            raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.digest()


def _why(error: Exception) -> str:
    if isinstance(error, TypeError | AttributeError | AssertionError):
        # The loader stumbled over a part that is not there: its own words help nobody.
        return "its current-context, or the cluster or user that it names, is incomplete"
    return one_line(str(error)) or type(error).__name__

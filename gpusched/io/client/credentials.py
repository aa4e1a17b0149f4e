"""Where the API server is and how we prove who we are.

Parsing kubeconfig files, running exec plugins and reading service account tokens is left to
``kubernetes_asyncio``; this module decides which source counts, when to read it again, and
refuses what would switch TLS verification off.
"""

from __future__ import annotations

import asyncio
import hashlib
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
from gpusched.base.addresses import is_loopback
from gpusched.base.classes import define, frozen
from gpusched.base.clock import Clock
from gpusched.base.errors import ClusterUnreachable, ConfigError, UsageError
from gpusched.io.client.connection_choice import (
    NO_CHOICE,
    ConnectionChoice,
    Impersonation,
    chosen_config,
)
from gpusched.io.client.kubeconfig_library import KubeconfigLibrary, kubeconfig_library
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.text import one_line

_SERVICE_HOST: Final = "KUBERNETES_SERVICE_HOST"
_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_PROXY_VARIABLES: Final = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")

_log = Logger(__name__)


@frozen(kw_only=True)
class ApiAccess:
    """One reading of the credentials.

    Attributes:
        host: ``scheme://host:port``, perhaps with a path, without a slash at the end.
        authorization: value of the header, empty for none. Never logged.
        reread_after_s: seconds after which the source is to be read again, None for never.
        tls_id: changes when any certificate or key does.
        impersonation: headers that say whom requests act as.
        request_timeout_s: the longest that one request may take, None for what the caller says.
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
    impersonation: tuple[tuple[str, str], ...] = ()
    request_timeout_s: float | None = None

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
            raise ConfigError(
                f"the pod's service account is no use: {_error_text(error)}"
            ) from error
        return _access(configuration, environ=self._environ, reread_after_s=limits.TOKEN_AGE_MAX_S)


class KubeconfigCredentials:
    """A kubeconfig file, or several joined by colons as KUBECONFIG allows."""

    in_cluster = False

    def __init__(self, path: str, *, clock: Clock, choice: ConnectionChoice = NO_CHOICE) -> None:
        self._path = path
        self._clock = clock
        self._choice = choice

    async def load(self) -> ApiAccess:
        """Address and credentials of a kubeconfig file."""
        if not self._exists():
            raise ClusterUnreachable(
                f"there is no kubeconfig file {one_line(self._path)}{self._what_is_there()}"
            )
        library = kubeconfig_library()
        configuration = library.new_configuration()
        try:
            async with asyncio.timeout(limits.CREDENTIAL_LOAD_MAX_S):
                loader = await self._loader(library, configuration)
            user = loader._user  # noqa: SLF001 - the library's own refresh_token reads it too
            said = user.value if user is not None else {}
            acts_as = _impersonation(said)
        except UsageError:
            raise
        except Exception as error:
            raise ConfigError(
                f"the kubeconfig {self._path} cannot be used: {_error_text(error)}"
            ) from error
        if not configuration.verify_ssl:
            raise ConfigError(
                f"the kubeconfig {self._path} sets insecure-skip-tls-verify, which gpusched"
                " refuses: give certificate-authority instead, and tls-server-name where the"
                " server's certificate has another name (docs/connecting.md)"
            )
        access = _access(
            configuration,
            environ=dict(os.environ),
            reread_after_s=self._reread_after(loader, said.get("tokenFile")),
        )
        return _with_choice(attrs.evolve(access, impersonation=acts_as.headers()), self._choice)

    async def _loader(self, library: KubeconfigLibrary, configuration: Any) -> Any:
        """The library's loader, when it has filled the configuration."""
        choice = self._choice
        if not (choice.names_entries or choice.changes_entries):
            return await library.config.load_kube_config(
                config_file=self._path, client_configuration=configuration, persist_config=False
            )
        loader = library.config.kube_config.KubeConfigLoader(
            config_dict=chosen_config(library, self._path, choice), config_base_path=None
        )
        await loader.load_and_set(configuration)
        return loader

    def _exists(self) -> bool:
        paths = (Path(part).expanduser() for part in self._path.split(os.pathsep) if part)
        # Not is_file: the answer of a command may be given as a pipe.
        return any(path.exists() and not path.is_dir() for path in paths)

    def _what_is_there(self) -> str:
        folder = Path(self._path).expanduser().is_dir()
        return ": that is a folder, name a file in it" if folder else ""

    def _reread_after(self, loader: Any, token_file: object) -> float | None:
        expiry = getattr(loader, "exec_plugin_expiry", None)
        if isinstance(expiry, datetime):
            # A difference of wall times, taken once: the waiting is done on monotonic time.
            return max(
                limits.CREDENTIAL_REREAD_MIN_S,
                expiry.timestamp() - self._clock.now() - limits.CREDENTIAL_MARGIN_S,
            )
        return limits.TOKEN_AGE_MAX_S if token_file else None


@define
class GivenCredentials:
    """Credentials that need no reading."""

    access: ApiAccess
    in_cluster: bool = False

    async def load(self) -> ApiAccess:
        """Address and credentials as they were given."""
        return self.access


@define
class _CredentialsByChoice:
    """Credentials of a pod's account, or of no source at all, with the choice of a command line."""

    choice: ConnectionChoice
    inner: CredentialSource | None = None
    in_cluster: bool = False

    async def load(self) -> ApiAccess:
        """Read them again, and choose again."""
        choice, files = self.choice, (self.choice.authority, self.choice.certificate)
        account = await self.inner.load() if self.inner is not None else None
        access = account or _access_at(choice.server)
        changes: dict[str, Any] = {}
        if choice.server:
            changes = {"host": _access_at(choice.server).host, "server_name": None}
        if choice.server_name:
            changes["server_name"] = choice.server_name
        if choice.token or choice.certificate:
            changes["authorization"] = f"Bearer {choice.token}" if choice.token else ""
            changes |= {"cert_file": choice.certificate or None, "key_file": choice.key or None}
        if choice.authority:
            changes["ca_file"] = choice.authority
        if any(files):
            changes["tls_id"] = _digest((*files, choice.key))
        return _with_choice(attrs.evolve(access, **changes), choice)


def _access_at(server: str) -> ApiAccess:
    """The way to a server of which nothing else is known.

    Raises:
        ConfigError: it is no address of one.
    """
    configuration = kubeconfig_library().new_configuration()
    configuration.host = server
    return _access(configuration, environ=dict(os.environ), reread_after_s=None)


def choose_credentials(
    kubeconfig: str | None, *, clock: Clock, choice: ConnectionChoice = NO_CHOICE
) -> CredentialSource:
    """The source to use: a named kubeconfig, else the pod's account, else the default file.

    Args:
        kubeconfig: a file, None for the usual places.
        clock: ages tokens.
        choice: what the command line says beside it. Where it names a context, a cluster or a user, a
            pod's account does not count.

    Raises:
        ClusterUnreachable: there is none of them.
    """
    if kubeconfig is not None:
        return KubeconfigCredentials(kubeconfig, clock=clock, choice=choice)
    if os.environ.get(_SERVICE_HOST) and not choice.names_entries:
        account = InClusterCredentials()
        return (
            account
            if choice == NO_CHOICE
            else _CredentialsByChoice(choice, account, in_cluster=True)
        )
    named = os.environ.get("KUBECONFIG")
    if named:
        return KubeconfigCredentials(named, clock=clock, choice=choice)
    default = Path.home() / ".kube" / "config"
    if default.is_file():
        return KubeconfigCredentials(str(default), clock=clock, choice=choice)
    if choice.server and not choice.names_entries:
        return _CredentialsByChoice(choice)
    raise ClusterUnreachable(
        f"no cluster to talk to: not in a pod, KUBECONFIG is not set and {default} does not"
        " exist; give --kubeconfig FILE or start one with gpusched devcluster"
    )


def _impersonation(user: Mapping[str, Any]) -> Impersonation:
    """Whom a user of a kubeconfig acts as.

    Raises:
        ConfigError: it cannot be understood; left out, requests would have the user's own rights.
    """
    named = user.get("as") or ""
    extra, groups = user.get("as-user-extra") or {}, user.get("as-groups") or []
    lists = [groups, *(extra.values() if isinstance(extra, dict) else [0])]
    if not isinstance(named, str) or not all(isinstance(each, list) for each in lists):
        raise ConfigError("as is no name, or as-groups or as-user-extra hold no lists of texts")
    if not named and (groups or extra or user.get("as-uid")):
        raise ConfigError("as-uid, as-groups and as-user-extra count only beside as")
    return Impersonation(
        user=named,
        groups=tuple(str(group) for group in groups),
        uid=str(user.get("as-uid") or ""),
        extra=tuple((str(key), str(value)) for key in sorted(extra) for value in extra[key]),
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


def _with_choice(access: ApiAccess, choice: ConnectionChoice) -> ApiAccess:
    """Credentials with what holds whatever they were read from."""
    headers = choice.act_as.headers() or access.impersonation
    return attrs.evolve(access, impersonation=headers, request_timeout_s=choice.request_timeout_s)


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
    if is_loopback(host):
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


def _digest(files: tuple[str | None, ...]) -> bytes:
    digest = hashlib.sha256()
    for file in files:
        try:
            content = Path(file).read_bytes() if file else b""
        except OSError as error:
            raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.digest()


def _error_text(error: Exception) -> str:
    if isinstance(error, TypeError | AttributeError | AssertionError):
        # The loader stumbled over a part that is not there: its own words help nobody.
        return "its current-context, or the cluster or user that it names, is incomplete"
    return one_line(" ".join(str(error).split())) or type(error).__name__

"""TLS of the client: verified always, with client certificates, and across a new CA."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from aiohttp import web

from gpusched.base import errors, limits
from gpusched.base.clock import SystemClock
from gpusched.io.client import credentials
from gpusched.io.client.api_client import ApiClient

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="certificates are made with openssl")


class Authority:
    """A CA of its own that signs certificates for 127.0.0.1."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.ca = folder / f"{name}.crt"
        self._openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", folder / f"{name}.key", "-out", self.ca, "-subj", f"/CN={name}",
            "-days", "2", "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign",
        )  # fmt: skip

    def sign(self, subject: str) -> tuple[Path, Path]:
        """A certificate and its key."""
        stem = self.folder / f"{self.name}-{subject}"
        key, request, cert = (stem.with_suffix(s) for s in (".key", ".csr", ".crt"))
        extra = stem.with_suffix(".ext")
        extra.write_text("subjectAltName=IP:127.0.0.1\n")
        self._openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", key, "-out", request, "-subj", f"/CN={subject}",
        )  # fmt: skip
        self._openssl(
            "x509", "-req", "-in", request, "-CA", self.ca, "-CAkey",
            self.folder / f"{self.name}.key", "-CAcreateserial", "-out", cert,
            "-days", "2", "-extfile", extra,
        )  # fmt: skip
        return cert, key

    @staticmethod
    def _openssl(*args: object) -> None:
        assert OPENSSL is not None
        subprocess.run([OPENSSL, *map(str, args)], check=True, capture_output=True)


async def serve(authority: Authority, *, port: int = 0, ask_client: bool = False):
    """An HTTPS server whose answer names the client's certificate."""
    cert, key = authority.sign("server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.ca)
    context.load_cert_chain(cert, key)
    if ask_client:
        context.verify_mode = ssl.CERT_REQUIRED

    async def handler(request: web.Request) -> web.Response:
        peer = request.transport.get_extra_info("peercert") or {}
        return web.json_response(peer.get("subject", []))

    app = web.Application()
    app.router.add_get("/{tail:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    return runner, runner.addresses[0][1]


def kubeconfig(path: Path, port: int, *, ca: Path | None, user: dict | None = None) -> str:
    cluster = {"server": f"https://127.0.0.1:{port}"}
    if ca is not None:
        cluster["certificate-authority"] = str(ca)
    path.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": user or {"token": "t"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return str(path)


def test_a_server_of_another_authority_is_not_believed(tmp_path):
    """Neither with a wrong CA nor with the system's: unreachable, nothing sent."""

    async def main():
        mine, other = Authority(tmp_path, "mine"), Authority(tmp_path, "other")
        runner, port = await serve(mine)
        for ca in (other.ca, None):
            api = await ApiClient.connect(
                kubeconfig(tmp_path / "k", port, ca=ca), clock=SystemClock()
            )
            with pytest.raises(errors.ClusterUnreachable, match="certificate verify failed"):
                await api.request("POST", "/x", body=b"{}", timeout_s=10)
            await api.close()
        await runner.cleanup()

    asyncio.run(main())


def test_client_certificates_are_shown(tmp_path):
    """A kubeconfig with client certificate and key authenticates by them."""

    async def main():
        authority = Authority(tmp_path, "ca")
        cert, key = authority.sign("gpusched")
        runner, port = await serve(authority, ask_client=True)
        user = {"client-certificate": str(cert), "client-key": str(key)}
        path = kubeconfig(tmp_path / "k", port, ca=authority.ca, user=user)
        api = await ApiClient.connect(path, clock=SystemClock())
        answer = await api.request("GET", "/x", timeout_s=10)
        await api.close()
        await runner.cleanup()
        return json.loads(answer.body)

    assert asyncio.run(main()) == [[["commonName", "gpusched"]]]


def test_a_replaced_authority_is_read_again(tmp_path, monkeypatch):
    """After the CA file was swapped the client connects anew without a restart."""
    monkeypatch.setattr(limits, "CREDENTIAL_REREAD_MIN_S", 0.0)

    async def main():
        old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
        trusted = tmp_path / "ca.crt"
        trusted.write_bytes(old.ca.read_bytes())
        runner, port = await serve(old)
        api = await ApiClient.connect(
            kubeconfig(tmp_path / "k", port, ca=trusted), clock=SystemClock()
        )
        first = await api.request("GET", "/x", timeout_s=10)
        await runner.cleanup()
        runner, _ = await serve(new, port=port)
        trusted.write_bytes(new.ca.read_bytes())
        with pytest.raises(errors.ClusterUnreachable):
            await api.request("GET", "/x", timeout_s=10)
        second = await api.request("GET", "/x", timeout_s=10)
        await api.close()
        await runner.cleanup()
        return first.status, second.status

    assert asyncio.run(main()) == (200, 200)


def test_an_unusable_certificate_is_one_sentence(tmp_path):
    """A CA file that is none is a configuration error at start."""
    garbage = tmp_path / "garbage.crt"
    garbage.write_text("no certificate")

    async def main():
        path = kubeconfig(tmp_path / "k", 1, ca=garbage)
        with pytest.raises(errors.ConfigError, match="cannot be used"):
            await ApiClient.connect(path, clock=SystemClock())

    asyncio.run(main())


def test_the_service_account_of_a_pod(tmp_path):
    """In a pod: address from the environment, token and CA from files, newline or not."""

    async def main():
        authority = Authority(tmp_path, "ca")
        (tmp_path / "token").write_text("secret\n")
        source = credentials.InClusterCredentials(
            token_file=str(tmp_path / "token"),
            ca_file=str(authority.ca),
            environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"},
        )
        access = await source.load()
        with pytest.raises(errors.ConfigError, match="service account is no use"):
            await credentials.InClusterCredentials(token_file="/nonexistent", environ={}).load()
        return access

    access = asyncio.run(main())
    assert (access.host, access.authorization) == ("https://10.0.0.1:443", "Bearer secret")
    assert access.reread_after_s == limits.TOKEN_AGE_MAX_S
    assert "secret" not in repr(access)


@pytest.mark.parametrize(
    ("host", "environ", "proxy"),
    [
        ("https://10.0.0.1:443", {"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ("https://10.0.0.1:443", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "10.0.0.1"}, None),
        ("https://10.0.0.1:443", {"HTTP_PROXY": "http://p:3128"}, None),
        ("http://127.0.0.1:8001", {"HTTP_PROXY": "http://p:3128"}, None),
        ("http://localhost:8001", {"HTTP_PROXY": "http://p:3128"}, None),
        ("https://10.0.0.1:443", {}, None),
    ],
)
def test_proxy_variables(tmp_path, monkeypatch, host, environ, proxy):
    """As curl and kubectl do: by scheme, not for excepted hosts, never for this machine."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "k"
    kubeconfig(path, 1, ca=None)
    path.write_text(path.read_text().replace("https://127.0.0.1:1", host))
    source = credentials.KubeconfigCredentials(str(path), clock=SystemClock())
    assert asyncio.run(source.load()).proxy == proxy

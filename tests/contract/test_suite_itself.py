"""The conformance suite: every row of the table has a case, and any kubeconfig will do."""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from gpusched.devcluster.cluster import ClusterOptions, start

from .api import connect, names

ROWS = {"E": 5, "P": 9, "B": 7, "D": 4, "V": 3, "L": 9, "W": 9, "C": 6, "J": 5, "M": 2, "K": 3}


def test_every_row_of_the_table_has_a_case():
    """Each id of the table of behaviours stands at a test, and no other."""
    wanted = {f"{letter}{n}" for letter, count in ROWS.items() for n in range(1, count + 1)}
    files = Path(__file__).parent.glob("test_case_*.py")
    found = {
        case
        for file in files
        for case in re.findall(r'^@case\("(\w+)"\)', file.read_text(), re.MULTILINE)
    }
    assert found == wanted | {"X1"}


def _certificates(folder: Path) -> None:
    """A server certificate and a client's, each its own authority."""
    for name, extension in (("server", "subjectAltName=IP:127.0.0.1"), ("client", "")):
        more = ["-addext", extension] if extension else []
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
                *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
                *("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")),
                *("-addext", "keyUsage=critical,digitalSignature,keyCertSign", *more),
            ],
            check=True,
            capture_output=True,
        )


@asynccontextmanager
async def _tls_in_front_of(url: str, folder: Path) -> AsyncIterator[str]:
    """Terminate TLS, ask for the client's certificate, pass the bytes on."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.load_verify_locations(folder / "client.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    behind = urlsplit(url)

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(behind.hostname, behind.port)
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def _kubeconfig(folder: Path, url: str, token: str) -> str:
    """Two contexts, of which the one that works is not the current one."""
    files = {
        "certificate-authority": str(folder / "server.crt"),
        "client-certificate": str(folder / "client.crt"),
        "client-key": str(folder / "client.key"),
    }
    authority = files.pop("certificate-authority")
    contexts = [("wrong", "http://127.0.0.1:1"), ("right", url)]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "wrong",
        "clusters": [
            {"name": name, "cluster": {"server": where, "certificate-authority": authority}}
            for name, where in contexts
        ],
        "users": [{"name": "me", "user": {"token": token, **files}}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": "me"}} for name, _ in contexts
        ],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on this machine")
async def test_a_target_may_want_certificates_and_a_token(tmp_path: Path):
    """An authority, a client certificate, a token and a named context of a kubeconfig are used."""
    await asyncio.to_thread(_certificates, tmp_path)
    cluster = await start(ClusterOptions(stages=False, controllers=False, token="secret"))
    try:
        async with _tls_in_front_of(cluster.url, tmp_path) as url:
            config = _kubeconfig(tmp_path, url, "secret")
            async with connect(f"{config}#right") as api:
                assert "default" in names(await api.get("/api/v1/namespaces"))
            wrong = _kubeconfig(tmp_path, url, "garbage")
            async with connect(f"{wrong}#right") as api:
                assert (await api.get("/api/v1/namespaces")).code == 401
    finally:
        await cluster.close()

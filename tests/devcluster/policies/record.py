"""Record what a real server says: ``python -m tests.devcluster.policies.record KUBECONFIG``."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from .exchanges import BINDINGS, Conversation, conversations
from .playing import play
from .refused_policies import refused
from .shipped import shipped_conversations

RECORDED = Path(__file__).parent / "recorded.json"
SHIPPED = Path(__file__).parent / "recorded_shipped.json"
_SETTLED_S = 4.0
"""A real server's policies take effect a moment after they are written."""


async def main(config: Any) -> None:
    """Play every conversation and write the answers."""
    server = config["clusters"][0]["cluster"]["server"]
    token = config["users"][0]["user"]["token"]
    only, shipped = sys.argv[2:], "--shipped" in sys.argv
    known, file = (
        (shipped_conversations(), SHIPPED)
        if shipped
        else ([*conversations(), *refused()], RECORDED)
    )
    only = [each for each in only if each != "--shipped"]
    found = json.loads(file.read_text()) if only else {}
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(
        headers=headers, connector=aiohttp.TCPConnector(ssl=False)
    ) as session:
        for one in known:
            if not only or one.name in only:
                try:
                    found[one.name] = await _recorded(session, server, one)
                except AssertionError as fault:
                    sys.stderr.write(f"{one.name}: {fault}\n")
    file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


async def _recorded(session: aiohttp.ClientSession, server: str, one: Conversation) -> list:
    async def settle() -> None:
        if any(path == BINDINGS or "rbac" in path for path, _ in one.before):
            await asyncio.sleep(_SETTLED_S)

    try:
        return await play(session, server, one, settle=settle)
    finally:
        for path, obj in reversed(one.before):
            gone = f"{server}{path}/{obj['metadata']['name']}?gracePeriodSeconds=0"
            await session.delete(gone)
        await session.delete(f"{server}/api/v1/namespaces/{one.namespace}")


if __name__ == "__main__":
    asyncio.run(main(yaml.safe_load(Path(sys.argv[1]).read_text())))

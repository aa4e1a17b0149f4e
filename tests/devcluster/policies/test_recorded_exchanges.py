"""Conversations with a real Kubernetes 1.36.2, recorded, and the embedded server's part in them."""

from __future__ import annotations

import json
from pathlib import Path

import aiohttp
import pytest

from gpusched.devcluster.cluster import ClusterOptions, start

from .exchanges import Conversation, conversations
from .playing import play
from .refused_policies import refused

RECORDED = json.loads((Path(__file__).parent / "recorded.json").read_text())


async def _at_once() -> None:
    """Here policies take effect with the write."""


@pytest.mark.parametrize("one", [*conversations(), *refused()], ids=lambda one: one.name)
async def test_the_embedded_server_says_what_a_real_one_says(one: Conversation):
    """Codes, reasons, sentences, causes and warnings are those of the recording."""
    cluster = await start(ClusterOptions(stages=False, controllers=False))
    try:
        headers = {"Authorization": f"Bearer {cluster.token}"}
        async with aiohttp.ClientSession(headers=headers) as session:
            said = await play(session, cluster.url, one, settle=_at_once)
    finally:
        await cluster.close()
    assert said == RECORDED[one.name]

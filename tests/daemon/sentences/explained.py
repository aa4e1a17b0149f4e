"""What ``gpusched explain`` prints of objects of a world."""

from __future__ import annotations

import re
from pathlib import Path

from gpusched.cli.inspect import explain
from gpusched.cli.inspect.explaining import explanation, explanation_text
from gpusched.cli.inspect.explaining.gang_objects import gather_objects
from gpusched.cli.inspect.listing.view_source import ViewSource
from gpusched.config.model import DEFAULT
from gpusched.io.client.api_client import ApiClient

PAGE = (Path(__file__).parents[3] / "docs" / "why-it-waits.md").read_text(encoding="utf-8")
ROWS = {
    int(number): sentence
    for number, sentence in re.findall(r"^\| (\d+) \| `([^`]+)` \| ", PAGE, re.MULTILINE)
}
"""The sentence of each row of docs/why-it-waits.md, by its number."""


OF_API = ViewSource(chosen="api", election=DEFAULT.leader_election)
ANY_GANG = explain.kinds_of_word("podgroup")


async def explained(world, word, name, source=OF_API):
    """The lines that ``gpusched explain WORD NAME`` prints; empty where there is nothing of the name."""
    kinds = explain.kinds_of_word(word)
    api = await ApiClient.connect(str(world.kubeconfig), clock=world.clock)
    try:
        found = await gather_objects(
            api, namespace="default", name=name, kinds=kinds, source=source
        )
    finally:
        await api.close()
    if found is None:
        return []
    return explanation_text.render_explanation(explanation.explain_gang(found)).splitlines()


def facts(lines, title):
    """The facts of one title, such as ``needs`` or ``why``."""
    found = (line.split(maxsplit=1) for line in lines if line.startswith("  "))
    return [rest for first, rest in found if first == title]

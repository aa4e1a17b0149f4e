"""docs/why-it-waits.md: each row's sentence is what ``explain`` prints of the world that it is about."""

from __future__ import annotations

import pytest

from tests.daemon.sentences.explained import ROWS, explained, facts
from tests.daemon.sentences.kinds_of_waiting import KINDS


def test_there_is_a_row_for_each_kind():
    """Numbered from 1, no sentence twice; the last one is played in ``test_policies_told``."""
    assert sorted(ROWS) == list(range(1, len(KINDS) + 2))
    assert len(set(ROWS.values())) == len(ROWS)


@pytest.mark.parametrize(
    ("number", "kind"), list(enumerate(KINDS, start=1)), ids=[kind.__name__ for kind in KINDS]
)
def test_the_sentence_of_the_page_is_what_explain_prints(play, number, kind):
    """Given what the row is about, then explain says why in the words of the page, and once."""

    async def scenario(w):
        await w.start(nodes=2)
        daemon = w.daemon()
        await w.until(lambda: daemon.leading)
        word, name = await kind(w)
        await w.clock.sleep(8)
        lines = await explained(w, word, name)
        assert facts(lines, "why") == [ROWS.get(number)]

    play(scenario)

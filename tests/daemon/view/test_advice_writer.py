"""What would help is written on the objects that ask for it, for as long as they wait."""

from __future__ import annotations

from gpusched.io.client.api_client import ApiClient
from gpusched.io.serve.answers.advice_writer import ADVICE, AdviceWriter, advice_note
from gpusched.io.serve.reviews import AccessRefused
from gpusched.view.frames import ViewHead
from tests.daemon.conftest import GROUPS
from tests.daemon.view.followed import leader

START = {"kind": "now", "at": "", "nodes": [], "evicts": [], "reason": "", "message": ""}
FEWER = {"change": "members", "message": "with minMember 1 in place of 2", "at": "", "start": START}
LATER = {"change": "endOfOthers", "message": "when a has ended", "at": "T2", "start": START}
ADVICE_GIVEN = {
    "asOf": "T1", "never": None, "unchanged": {**START, "kind": "unknown"},
    "suggestions": [FEWER, LATER],
}  # fmt: skip
NOTE = "T1: it would start with minMember 1 in place of 2 (now), or when a has ended (expected T2)"


class GivenAnswers:
    """Answers each question with the same advice, and counts them."""

    def __init__(self):
        self.asked = []

    async def advise(self, namespace, kind, name, access):
        """That advice."""
        assert not access.sees_namespace("other")
        self.asked.append((namespace, kind, name))
        if name == "gone":
            raise AccessRefused(404, "NotFound", "it started a moment ago")
        return ADVICE_GIVEN


def written(w, name):
    """The annotation of a PodGroup; None for none."""
    metadata = w.client.get(GROUPS, "default", name)["metadata"]
    return (metadata.get("annotations") or {}).get(ADVICE)


def ask_for_advice(w, name):
    """The label on a PodGroup."""
    labels = {"gpusched.io/advise": "true"}
    w.client.patch(GROUPS, "default", name, {"metadata": {"labels": labels}})


def test_a_gang_that_asks_is_told_what_would_help_until_it_starts(play):
    """Given two gangs that wait, of which one asks: it is answered, again after five minutes, and not once it runs."""

    async def scenario(w):
        await w.start(nodes=1)
        store, _ = await leader(w)
        w.gang("waits", 2)
        w.gang("silent", 2)
        ask_for_advice(w, "waits")
        await w.clock.sleep(5)
        api = await ApiClient.connect(str(w.kubeconfig), clock=w.clock)
        w.closing.append(api.close)
        answers = GivenAnswers()
        writer = AdviceWriter(api, answers, store, w.clock)

        # While another leads nothing is written.
        store.take(ViewHead(version="1", daemon="d", leading=False))
        await writer.answer_once()
        assert answers.asked == []

        store.take(ViewHead(version="1", daemon="d", leading=True))
        await writer.answer_once()
        await writer.answer_once()
        assert answers.asked == [("default", "podgroup", "waits")]
        assert written(w, "waits") == NOTE
        assert written(w, "silent") is None

        await w.clock.sleep(301)
        await writer.answer_once()
        assert len(answers.asked) == 2

        # When there is room, then it starts and the advice is taken off.
        for name in ("n1", "n2", "n3"):
            w.node(name)
        await w.until(lambda: len(w.bound("waits")) == 2)
        await w.clock.sleep(30)
        await writer.answer_once()
        assert written(w, "waits") is None
        assert len(answers.asked) == 2

    play(scenario)


def test_a_note_says_why_never_and_that_nothing_helps():
    never = {"sentence": "never, even on an empty cluster: x cannot be given"}
    hopeless = {**ADVICE_GIVEN, "never": never, "suggestions": []}
    assert advice_note(hopeless) == f"T1: it starts {never['sentence']}"
    nothing = {**ADVICE_GIVEN, "suggestions": []}
    assert advice_note(nothing) == "T1: no change that was tried would let it start"
    starts = {**ADVICE_GIVEN, "unchanged": START}
    assert advice_note(starts) == "T1: it starts without any change"
    assert len(advice_note({**ADVICE_GIVEN, "suggestions": [FEWER] * 1000})) == 2000

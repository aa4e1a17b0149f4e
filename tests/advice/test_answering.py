"""What the process beside the daemon answers to a line."""

from __future__ import annotations

import json

import attrs
import msgspec

from gpusched.advice.service.answering import answer_line
from gpusched.api.affinity.selector import Requirement, Selector
from gpusched.cli.inspect.ask.advice_text import what_would_help
from gpusched.config.model import DEFAULT, ShardConfig
from gpusched.io.serve.answers.advice_writer import advice_note
from gpusched.view.over_time.advice_view import SHARDS_LEFT_OUT, AdviceView, shards_played
from gpusched.view.over_time.submission_view import SubmissionVariantsView, SubmissionView
from tests.advice.clusters import budget, gang, node, priority, queue, trial_of

SPACES = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    for name in ("team", "other")
]


class GivenCopy:
    """A copy of a cluster that is given."""

    def __init__(self, trial):
        self.given = trial
        self.forgotten = 0

    async def trial(self):
        """That one."""
        if isinstance(self.given, Exception):
            raise self.given
        return self.given

    def forget(self):
        """Counted."""
        self.forgotten += 1


def in_namespace(name, objects):
    """The same objects, in another namespace."""
    return [{**obj, "metadata": {**obj["metadata"], "namespace": name}} for obj in objects]


def busy(config=DEFAULT):
    """A node that a gang of another namespace fills, and a gang that waits for it."""
    others = in_namespace("other", gang("llm", 1, 8, on=["n0"]))
    trial = trial_of(SPACES, queue("a"), node("n0"), others, gang("new", 1, 8))
    trial.config = config
    return GivenCopy(trial)


async def ask(copy, **question):
    """The answer to a question about ``team/new``, unless told."""
    asked = {"ask": "advice", "kind": "podgroup", "namespace": "team", "name": "new", **question}
    return await answer_line(copy, json.dumps(asked).encode())


async def test_advice_names_others_where_the_configuration_shows_them():
    told = (await ask(busy()))["answer"]
    ends = [each for each in told["suggestions"] if each["change"] == "endOfOthers"]
    assert [each["message"] for each in ends] == ["when other/llm has ended"]
    assert not ends[0]["objects"]  # that is another namespace's pod, whatever names are shown


async def test_an_answer_is_what_the_api_describes():
    told = (await ask(busy()))["answer"]
    strict = msgspec.json.decode(msgspec.json.encode(told), type=AdviceView, strict=True)
    assert json.loads(msgspec.json.encode(strict)) == json.loads(json.dumps(told))


async def test_names_of_other_namespaces_are_hidden_where_it_hides_them():
    """Given hidden names, then who sees one namespace reads none of others, and an administrator all."""
    config = attrs.evolve(DEFAULT, names_of_other_namespaces="hidden")
    told = (await ask(busy(config)))["answer"]
    assert "other/" not in json.dumps(told)
    assert "when a workload of another namespace has ended" in json.dumps(told)
    whole = (await ask(busy(config), everything=True))["answer"]
    assert "when other/llm has ended" in json.dumps(whole)


async def test_a_budget_of_another_namespace_is_told_and_its_name_hidden_where_it_hides_them():
    """Given a PodDisruptionBudget of another namespace in the way, then so it is told, by name to who may read it."""
    classes = [priority("low", 1), priority("high", 1000)]
    others = in_namespace("other", [*gang("llm", 1, 8, on=["n0"], priorityClassName="low"),
                                    budget("keeps", "llm")])  # fmt: skip
    new = gang("new", 1, 8, priorityClassName="high")
    copy = GivenCopy(trial_of(SPACES, classes, queue("a"), node("n0"), others, new))

    async def forbidden(**question):
        told = msgspec.convert((await ask(copy, **question))["answer"], AdviceView)
        (change,) = [each for each in told.suggestions if each.forbidden_by]
        return change, change.forbidden_by[0]

    change, by = await forbidden()
    assert (by.rule, by.kind, by.hidden, by.gangs[0].hidden) == (
        "disruptionBudget", "PodDisruptionBudget", True, True,
    )  # fmt: skip
    assert change.command == "kubectl delete pdb keeps -n other"  # names in sentences are shown
    copy.given.config = attrs.evolve(DEFAULT, names_of_other_namespaces="hidden")
    change, by = await forbidden()
    assert by.message == "a PodDisruptionBudget of another namespace allows 0 evictions"
    assert change.message == "if a PodDisruptionBudget of another namespace were gone"
    assert not change.command
    change, by = await forbidden(everything=True)
    assert (by.namespace, by.name, by.gangs[0].name) == ("other", "keeps", "llm")


POD = """
apiVersion: v1
kind: Pod
metadata: {name: p%s}
spec: {schedulerName: gpusched, containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 4}}}]}
"""


async def test_when_is_answered_of_one_namespace_to_who_sees_one():
    """Given manifests: when they would start is told; those of another namespace are refused to who sees one."""
    copy = GivenCopy(trial_of(SPACES, queue("default"), node("n0")))
    asked = {"ask": "when", "manifests": POD % ", labels: {a: b}", "kind": ""}
    told = (await ask(copy, **asked))["answer"]
    answer = msgspec.convert(told, SubmissionView)
    assert answer.remarks == ("LimitRanges are looked at as far as they are among the manifests",)
    (gang,) = answer.gangs
    assert (gang.name, gang.namespace, gang.start.kind) == ("p", "team", "now")
    foreign = POD % ", namespace: other"
    refused = (await ask(copy, **{**asked, "manifests": foreign}))["refused"]
    assert (refused["status"], refused["message"].partition(",")[0]) == (
        403, "Pod p is of namespace other",
    )  # fmt: skip
    everything = await ask(copy, **{**asked, "manifests": foreign, "everything": True})
    assert everything["answer"]["gangs"][0]["namespace"] == "other"
    nonsense = (await ask(copy, **{**asked, "manifests": "a: [b"}))["refused"]
    assert nonsense["status"] == 400
    assert nonsense["message"].startswith("what was sent:2: is not YAML")


async def test_variants_are_answered_side_by_side_and_options_that_mean_nothing_are_refused():
    copy = GivenCopy(trial_of(SPACES, queue("default"), queue("b"), node("n0")))
    asked = {"ask": "when", "manifests": POD % "", "kind": ""}
    told = (await ask(copy, **asked, options={"queue": ["default", "b", "c"]}))["answer"]
    variants = msgspec.convert(told, SubmissionVariantsView).variants
    starts = [(each.options["queue"], each.answer.gangs[0].start.kind) for each in variants]
    assert starts == [("default", "now"), ("b", "now"), ("c", "never")]
    assert all(each.answer.remarks for each in variants)
    refused = (await ask(copy, **asked, options={"level": ["rak"]}))["refused"]
    assert refused["status"] == 400
    assert refused["message"].startswith('level "rak": the nodes have no such level')


async def test_answers_about_a_cluster_in_shards_say_what_they_leave_out():
    """Given a configuration with shards, then advice and the annotation say that they are left out, and when that they are played."""
    shards = tuple(
        ShardConfig(name, Selector((Requirement("hall", "In", (name,)),))) for name in "ab"
    )
    copy = busy(attrs.evolve(DEFAULT, shards=shards))
    told = (await ask(copy))["answer"]
    assert msgspec.convert(told, AdviceView).remarks == (SHARDS_LEFT_OUT,)
    assert SHARDS_LEFT_OUT in advice_note(told)
    assert [*what_would_help(msgspec.convert(told, AdviceView))][-1] == SHARDS_LEFT_OUT
    asked = {"ask": "when", "manifests": POD % "", "kind": ""}
    assert shards_played("ab") in (await ask(copy, **asked))["answer"]["remarks"]
    told = json.dumps([await ask(busy()), await ask(busy(), **asked)])
    assert SHARDS_LEFT_OUT not in told
    assert "shard" not in told


async def test_what_is_no_question_and_what_does_not_wait_is_refused_in_one_sentence():
    copy = busy()
    assert (await ask(copy, name="gone"))["refused"]["status"] == 404
    runs = (await ask(copy, namespace="other", name="llm"))["refused"]["message"]
    assert runs == "podgroup llm in namespace other runs: there is nothing that it waits for"
    for line in (b"{}", b"x", b"[]", b'{"ask":"advice"}', b"\xff", b'{"ask":"cow"}'):
        assert (await answer_line(copy, line))["refused"]["status"] == 400, line
    assert copy.forgotten == 0


async def test_a_fault_costs_one_answer_and_the_copy(capsys):
    copy = GivenCopy(RuntimeError("boom"))
    told = (await ask(copy))["refused"]
    assert (told["status"], copy.forgotten) == (500, 1)
    assert "this is a bug" in told["message"]
    assert "boom" in capsys.readouterr().err

"""The configuration file: good ones mean what they say, bad ones are told with file and line."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.base import limits
from gpusched.base.errors import ConfigError
from gpusched.config.load import load_config, load_file
from gpusched.config.model import DEFAULT, LimitsConfig, PluginChoice
from gpusched.config.read_limits import _FIELDS

SHIPPED = Path(__file__).parents[2] / "conf" / "gpusched.yaml"
TOP = (
    "schedulerNames, namesOfOtherNamespaces, podGroupPriority, nonPreemptibleFromPriority, users, gpuResources, gpuTypeWeights, prices, deviceQuota, actions, tiers, "
    "placement, cycle, limits, clientConnection, history, leaderElection, shards"
)


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_config(text, source="f.yaml")
    assert str(caught.value) == caught.value.problems[0]
    assert caught.value.exit_status == 78
    return caught.value.problems


def test_shipped_file_is_the_default():
    """The commented file in conf/ says exactly what is in force without a file."""
    assert load_file(str(SHIPPED)) == DEFAULT


def test_empty_mapping_asks_for_the_default():
    """Every key has a default."""
    assert load_config("{}", source="f.yaml") == DEFAULT


def test_every_limit_can_be_set():
    """A field of the limits that the table of the reader forgets would keep its default for ever."""
    assert set(_FIELDS) == set(attrs.fields_dict(LimitsConfig))


def test_every_key_is_read():
    """Each key of the contract arrives in the model, in its unit."""
    text = """
schedulerNames: [gpusched, team-a.example]
actions: [allocate]
tiers:
- plugins:
  - name: nodeorder
    arguments: {strategy: spread, deep: {list: [1, true, null, 0.5]}}
placement: {solver: greedy, timeBudget: 1s500ms, workers: 2, seed: 7}
cycle: {debounce: 0, maxPeriod: 1m}
leaderElection:
  leaseName: a
  leaseNamespace: b
  leaseDuration: 30s
  renewDeadline: 20s
  retryPeriod: 500ms
"""
    config = load_config(text, source="f.yaml")
    assert config.scheduler_names == ("gpusched", "team-a.example")
    assert config.actions == ("allocate",)
    assert config.action_lines == (3,)
    (choice,) = config.tiers[0].plugins
    assert choice == PluginChoice(
        "nodeorder", {"strategy": "spread", "deep": {"list": (1, True, None, 0.5)}}
    )
    assert (choice.line, dict(choice.argument_lines)) == (6, {"strategy": 7, "deep": 7})
    assert (config.placement.solver, config.placement.time_budget_s) == ("greedy", 1.5)
    assert (config.placement.workers, config.placement.seed) == (2, 7)
    assert (config.cycle.debounce_s, config.cycle.max_period_s) == (0.0, 60.0)
    election = config.leader_election
    assert (election.lease_name, election.lease_namespace) == ("a", "b")
    assert (election.lease_duration_s, election.renew_deadline_s) == (30.0, 20.0)
    assert election.retry_period_s == 0.5
    assert config.at(9) == "f.yaml:9"


def test_where_it_was_written_does_not_count():
    """Two configurations that ask for the same are equal, wherever they were written."""
    one = load_config("actions: [allocate]", source="a.yaml")
    other = load_config("\n\nactions:\n- allocate\n", source="b.yaml")
    assert one == other


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("limits: {sessionWork: 99999999999999999999}", "has more digits than any number here may"),
        ("limits: {sessionWork: 0x10}", "write a plain decimal, or quote it"),
        ("cycle: {debounce: 1_000}", "write a plain decimal, or quote it"),
        ("cycle: 010", "write a plain decimal, or quote it"),
        ("actions: yes", "write true or false, or quote it"),
        ("actions: [off]", "write true or false, or quote it"),
        ("leaderElection: {leaseName: off}", "write true or false, or quote it"),
        ("prices: {h100: 0x4}", "write a plain decimal, or quote it"),
        ("users: *who", "alias *who: write the value out again instead"),
        ("{0x10: 1}", "write a plain decimal, or quote it"),
    ],
)
def test_what_cannot_be_read_is_told_once(text, found):
    """And not again as nothing where something else was expected."""
    (told,) = problems(text)
    assert found in told


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "placement:\n  solvr: cpsat\n",
            (
                'f.yaml:2: unknown key "solvr" in placement: known keys are '
                'solver, timeBudget, workers, seed; did you mean "solver"?'
            ),
        ),
        (
            "Cycle: {}",
            (
                f'f.yaml:1: unknown key "Cycle" in the configuration: known keys are {TOP}; '
                'did you mean "cycle"?'
            ),
        ),
        (
            "<<: {actions: [enqueue]}",
            f'f.yaml:1: unknown key "<<" in the configuration: known keys are {TOP}',
        ),
        (
            "cycle:\n  debounce: 20ms\n  debounce: 30ms\n",
            'f.yaml:3: duplicate key "debounce": it is already in line 2',
        ),
        ("", "f.yaml:1: is empty: write {} to ask for the built-in configuration"),
        ("# nothing\n", "f.yaml:1: is empty: write {} to ask for the built-in configuration"),
        ("- 1", "f.yaml:1: the configuration must be a mapping, not a list"),
        ("null", "f.yaml:1: the configuration must be a mapping, not nothing"),
        ("{}\n---\n{}\n", "f.yaml:2: a second document begins: one file is one configuration"),
        ("cycle: [", "f.yaml:2: is not YAML: did not find expected node content"),
        ("\x01", "f.yaml:1: holds a character that YAML does not allow"),
        ("a:\n- \ud800", "f.yaml:2: holds a character that YAML does not allow"),
        ("? [a]\n: 1\n", "f.yaml:1: a key must be text"),
        ("cycle: &x {}", "f.yaml:1: anchor &x: aliases are not understood here"),
        ("[" * 100 + "]" * 100, "f.yaml:1: nesting is deeper than 16 levels"),
        (
            "cycle: !!python/object:os.system {}",
            (
                'f.yaml:1: tag "tag:yaml.org,2002:python/object:os.system": '
                "tags are not understood here"
            ),
        ),
        (
            "placement: {workers: true}",
            "f.yaml:1: workers must be a whole number from 1 to 64, not true",
        ),
        (
            'placement: {workers: "2"}',
            'f.yaml:1: workers must be a whole number from 1 to 64, not "2"',
        ),
        (
            "placement: {workers: 65}",
            "f.yaml:1: workers must be a whole number from 1 to 64, not 65",
        ),
        (
            "placement: {workers: 1.0}",
            "f.yaml:1: workers must be a whole number from 1 to 64, not 1.0",
        ),
        ("placement: {workers: 0x2}", 'f.yaml:1: "0x2": write a plain decimal, or quote it'),
        ("placement: {workers: 1_0}", 'f.yaml:1: "1_0": write a plain decimal, or quote it'),
        ("cycle: {debounce: 1:30}", 'f.yaml:1: "1:30": write a plain decimal, or quote it'),
        ("actions: [yes]", 'f.yaml:1: "yes": write true or false, or quote it'),
        (
            "placement: {solver: cpsta}",
            'f.yaml:1: solver must be one of cpsat, greedy, heuristic, not "cpsta"; did you mean "cpsat"?',
        ),
        (
            "placement: {timeBudget: 11s}",
            'f.yaml:1: timeBudget must be a duration from 1ms to 10s, not "11s"',
        ),
        (
            "cycle: {debounce: 20}",
            (
                "f.yaml:1: debounce must be a duration from 0s to 5s: "
                "'20' is not a duration such as 20ms, 90s or 1h30m"
            ),
        ),
        (
            "cycle: {debounce: false}",
            "f.yaml:1: debounce must be a duration from 0s to 5s, not false",
        ),
        (
            "cycle: {debounce: 1s, maxPeriod: 500ms}",
            "f.yaml:1: cycle.debounce (1s) must be shorter than cycle.maxPeriod (500ms)",
        ),
        (
            "leaderElection: {leaseDuration: 5s}",
            "f.yaml:1: leaderElection.leaseDuration (5s) must be longer than renewDeadline (10s)",
        ),
        (
            "leaderElection: {leaseDuration: 15500ms}",
            'f.yaml:1: leaseDuration must be whole seconds, as a Lease holds them, not "15500ms"',
        ),
        (
            "leaderElection: {retryPeriod: 9s}",
            (
                "f.yaml:1: leaderElection.renewDeadline (10s) must be longer than "
                "1.2 times retryPeriod (9s)"
            ),
        ),
        (
            "leaderElection: {retryPeriod: 2500ms}",
            (
                "f.yaml:1: leaderElection.renewDeadline (10s) less two retryPeriods (2s500ms) "
                "must be longer than one binding may take (5s)"
            ),
        ),
        (
            "leaderElection: {leaseName: 'a/b'}",
            'f.yaml:1: leaseName must be a name such as gpusched or team-a.example, not "a/b"',
        ),
        (
            "leaderElection: {leaseNamespace: a.b}",
            'f.yaml:1: leaseNamespace must be a namespace\'s name, not "a.b"',
        ),
        ("tiers: []", "f.yaml:1: tiers must be a list of at least one, not an empty list"),
        ("actions: enqueue", 'f.yaml:1: actions must be a list of at least one, not "enqueue"'),
        ("actions: [a, a]", 'f.yaml:1: "a" stands twice in actions'),
        ("tiers: [{}]", "f.yaml:1: a tier needs the key plugins"),
        ("tiers:\n- plugins:\n  - {}\n", "f.yaml:3: a plugin needs the key name"),
        (
            "tiers:\n- plugins:\n  - {name: gang}\n- plugins:\n  - {name: gang}\n",
            'f.yaml:5: plugin "gang" is named twice: it is already in line 3',
        ),
        (
            "tiers: [{plugins: [{name: gang, arguments: [1]}]}]",
            "f.yaml:1: arguments must be a mapping, not a list",
        ),
    ],
)
def test_each_mistake_has_its_sentence(text, sentence):
    """A mistake is told with file, line, what is known, and the nearest name."""
    assert problems(text)[0] == sentence


def test_an_alias_is_refused():
    """Aliases are refused where they are used as well."""
    found = problems("cycle: &x {}\nplacement: *x\n")
    assert "f.yaml:2: alias *x: write the value out again instead" in found


def test_all_problems_are_told_in_order_of_lines():
    """One run shows everything that is wrong."""
    found = problems("foo: 1\nplacement: {workers: no1, seed: -1}\nbar: 2\n")
    assert [problem.split(": ")[0] for problem in found] == [
        "f.yaml:1", "f.yaml:2", "f.yaml:2", "f.yaml:3",
    ]  # fmt: skip


def test_the_number_of_problems_is_bounded():
    """A wrong file of a thousand lines is not a thousand sentences."""
    found = problems("".join(f"k{number}: 1\n" for number in range(1000)))
    assert len(found) == limits.CONFIG_PROBLEMS_MAX + 1
    assert found[-1] == f"f.yaml: and {1000 - limits.CONFIG_PROBLEMS_MAX} more problems"


def test_foreign_text_is_cut_and_escaped():
    """A file cannot write control characters or pages of text into our sentences."""
    (sentence,) = problems('"a\\e[31m\\n' + "x" * 500 + '": 1')
    assert sentence.isprintable()
    assert "\\x1b[31m\\n" in sentence
    assert len(sentence) < 600


@pytest.mark.parametrize("text", ["a" * (2**20 + 1), "[" * 2**19, "{" * 2**19, "- " * 2**19])
def test_a_hostile_file_is_refused_at_once(text):
    """Size and nesting are bounded before they can cost anything."""
    (sentence,) = problems(text)
    assert "larger than 1 MiB" in sentence or "nesting is deeper" in sentence


def test_a_file_that_is_not_there():
    """A missing file is named with the reason."""
    with pytest.raises(ConfigError, match=r"^/no/such: cannot be read: No such file or directory$"):
        load_file("/no/such")


def test_a_file_that_is_no_text(tmp_path):
    """Bytes that are no UTF-8 are told with their line; a file above the limit is not read."""
    file = tmp_path / "x.yaml"
    file.write_bytes(b"actions:\n- \xff\n")
    with pytest.raises(ConfigError, match=r"x\.yaml:2: is not UTF-8 text"):
        load_file(str(file))
    file.write_bytes(b"#" * (limits.CONFIG_BYTES_MAX + 1))
    with pytest.raises(ConfigError, match="is larger than 1 MiB"):
        load_file(str(file))


@given(st.text(max_size=200))
def test_any_text_is_a_configuration_or_told_with_its_place(text):
    """No text makes loading raise anything but ConfigError with a place."""
    found: tuple[str, ...] = ()
    try:
        load_config(text, source="f.yaml")
    except ConfigError as error:
        found = error.problems
    assert all(problem.startswith("f.yaml") for problem in found)

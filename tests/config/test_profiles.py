"""What stands in conf/ is complete, explained, accepted, and does what its comments say."""

from __future__ import annotations

import itertools
import json

import pytest
import yaml

from gpusched.base import installed_files
from gpusched.cli.main import main
from gpusched.config.load import load_file
from gpusched.config.model import DEFAULT
from gpusched.pluginhost.registry import installed_entry_points
from gpusched.testing.given import Given

CONF = installed_files.path("conf")
PROFILES = sorted((CONF / "profiles").glob("*.yaml"))


def keys(value, path=""):
    """Every key of a configuration by its path; lists are values."""
    if not isinstance(value, dict):
        return {path}
    return {deep for key, item in value.items() for deep in keys(item, f"{path}.{key}")}


def test_the_shipped_file_shows_every_key(capsys):
    """An operator finds all that can be said in one file."""
    assert main(["check-config", str(CONF / "gpusched.yaml"), "-o", "json"]) == 0
    everything = json.loads(capsys.readouterr().out)["config"]
    shown = yaml.safe_load((CONF / "gpusched.yaml").read_text())
    assert keys(shown) == keys(everything)


def test_the_shipped_file_names_every_shipped_policy():
    """The default leaves nothing that we ship unmentioned: on, or in a comment that says why not."""
    text = (CONF / "gpusched.yaml").read_text()
    for group in ("gpusched.plugins", "gpusched.actions"):
        for point in installed_entry_points(group):
            assert point.name in text


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_a_profile_is_accepted_without_a_warning(capsys, path):
    """check-config has nothing to say, and it is not the default under another name."""
    assert main(["check-config", str(path)]) == 0
    assert not capsys.readouterr().err
    assert load_file(str(path)) != DEFAULT


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_a_profile_says_what_it_is_for_and_explains_each_line(path):
    """A head of some lines, and a comment above every key and plugin."""
    lines = path.read_text().splitlines()
    assert all(line.startswith("#") for line in lines[:4])
    for above, line in itertools.pairwise(lines):
        text = line.strip()
        if text and not text.startswith(("#", "- plugins:")) and not text.endswith(":"):
            assert above.strip().startswith("#"), line


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_a_profile_places_gangs(path):
    """A session under it starts what fits and tells the rest why not."""
    c = Given(config=load_file(str(path))).nodes(2, gpus=8).queue("a")
    c.gang("fits", pods=2, gpus=4, queue="a", created=1.0)
    c.gang("large", pods=3, gpus=8, queue="a", created=2.0)
    c.when.bound()
    assert c.then.started() == ["fits"]
    assert "needs 3 pods with 8 nvidia.com/gpu" in c.then.why("large")
    assert c.then.faults() == ()
    spread = "strategy: spread" in path.read_text()
    assert len(set(c.then.nodes().values())) == (2 if spread else 1)


def test_arguments_are_shown_as_they_stand_in_the_file(capsys):
    """As YAML, not as Python writes it."""
    assert main(["check-config", str(CONF / "profiles" / "volcano-like.yaml")]) == 0
    shown = capsys.readouterr().out
    assert "quota (nonPreemptibleWithinDeserved: false)" in shown
    assert "fairshare (order: priority, usageWeight: 0)" in shown
    assert "nodeorder (strategy: spread)" in shown


def two_queues_of_which_one_borrows(profile):
    """Queue a holds both nodes; b deserves one of them and waits for it."""
    c = Given(config=load_file(str(CONF / "profiles" / f"{profile}.yaml"))).nodes(2, gpus=8)
    for name in ("a", "b"):
        c.queue(name, limits={"deserved": {"nvidia.com/gpu": 8}})
    for number in range(2):
        c.group(f"old-{number}", queue="a", min_member=1)
        c.pod(f"old-{number}-0", group=f"old-{number}", gpus=8, node=f"node-{number}")
    c.gang("new", pods=1, gpus=8, queue="b")
    c.when.one_session()
    return c


@pytest.mark.parametrize(
    ("profile", "leave"),
    [
        ("volcano-like", 0),
        ("slurm-like", 0),
        ("kai-like", 1),
        ("inference", 1),
        ("large-gangs", 1),
    ],
)
def test_a_profile_takes_back_what_was_lent_or_says_that_it_does_not(profile, leave):
    """Only those whose actions name reclaim evict for another queue."""
    c = two_queues_of_which_one_borrows(profile)
    assert len(c.then.evicted()) == leave
    assert c.then.faults() == ()


@pytest.mark.parametrize(("priority", "leaves"), [(99, True), (100, False)])
def test_the_profile_for_users_of_kai_has_its_border_of_preemptibility(priority, leaves):
    """KAI's classes from 100 on are not preemptible; those below are."""
    c = Given(config=load_file(str(CONF / "profiles" / "kai-like.yaml"))).nodes(1, gpus=8)
    c.priority_class("holder", priority)
    c.queue("a", limits={"deserved": {"nvidia.com/gpu": 0}})
    c.queue("b", limits={"deserved": {"nvidia.com/gpu": 8}})
    c.group("old", queue="a", min_member=1, priority_class="holder")
    c.pod("old-0", group="old", gpus=8, node="node-0")
    c.gang("new", pods=1, gpus=8, queue="b")
    c.when.one_session()
    assert bool(c.then.evicted()) == leaves


def test_the_profile_for_users_of_kai_moves_small_jobs_together():
    """Two half-filled nodes give a whole one to a job that waits for it."""
    c = Given(config=load_file(str(CONF / "profiles" / "kai-like.yaml"))).nodes(2, gpus=2)
    c.queue("a", limits={"deserved": {"nvidia.com/gpu": 4}})
    for number in range(2):
        c.job(f"small-{number}", parallelism=1, completions=1, queue="a", gpus=1,
              node=f"node-{number}")  # fmt: skip
    c.gang("wide", pods=1, gpus=2, queue="a")
    c.when.one_session()
    assert len(c.then.evicted()) == 1
    assert c.then.faults() == ()

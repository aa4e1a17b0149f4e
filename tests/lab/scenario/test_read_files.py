"""Files, folders and configurations of scenarios; every example of the documentation is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from gpusched.base import installed_files
from gpusched.base.errors import ConfigError
from gpusched.config.model import DEFAULT, Config
from gpusched.lab.scenario.file.read import read_path, read_paths
from gpusched.lab.scenario.model.scenario import Scenario
from tests.lab.scenario.texts import HEAD, scenario, whole

DOCS = Path(__file__).parents[3] / "docs"
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)
OBJECT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n"


def named(folder: Path, file: str, name: str, spec: str = "nodes: []") -> Path:
    """A scenario of another name."""
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(whole(spec).replace("name: told", f"name: {name}"))
    return path


def names(found: list[Scenario]) -> list[str]:
    """Of scenarios."""
    return [each.name for each in found]


def test_every_example_of_the_documentation_is_read(tmp_path: Path) -> None:
    """Whole files as they are, parts of ``spec`` in a scenario around them."""
    blocks = BLOCK.findall((DOCS / "scenarios.md").read_text())
    assert len(blocks) >= 3
    for number, block in enumerate(blocks):
        file = tmp_path / f"{number}.yaml"
        file.write_text(block if block.startswith("apiVersion") else HEAD + indent(block, "  "))
        assert len(read_path(file)) == 1


def test_objects_beside_the_scenario_are_there_from_the_beginning(tmp_path: Path) -> None:
    """Documents of its file, files of its folder, but those that something names."""
    named(tmp_path, "scenario.yaml", "one", "timeline:\n- apply: later.yaml\nobjects: [sub]")
    with (tmp_path / "scenario.yaml").open("a") as file:
        file.write("---\n" + OBJECT.format(name="beside"))
    (tmp_path / "more.yaml").write_text("\n---\n".join(OBJECT.format(name=n) for n in ("b", "c")))
    (tmp_path / "later.yaml").write_text(OBJECT.format(name="later"))
    (tmp_path / "notes.txt").write_text("no manifest")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "named.yaml").write_text(
        "apiVersion: v1\nkind: List\nitems:\n- " + indent(OBJECT.format(name="d"), "  ").lstrip()
    )
    (found,) = read_path(tmp_path)
    assert [each.obj["metadata"]["name"] for each in found.before] == ["d", "beside", "b", "c"]
    assert str(found.before[3].place).endswith("more.yaml:6")


def test_a_folder_is_searched_for_scenarios(tmp_path: Path) -> None:
    """Names in order; folders that are one count as one, files that hold none are passed over."""
    named(tmp_path, "b.yaml", "b")
    named(tmp_path, "a/scenario.yaml", "a")
    named(tmp_path, "c/d.yml", "d")
    (tmp_path / "a" / "more.yaml").write_text(OBJECT.format(name="x"))
    (tmp_path / "stage.yaml").write_text(OBJECT.format(name="x"))
    assert names(read_path(tmp_path)) == ["a", "b", "d"]
    assert names(read_paths([tmp_path / "b.yaml", tmp_path / "a"])) == ["b", "a"]


def test_names_of_scenarios_differ(tmp_path: Path) -> None:
    """Results are kept by name: the second is told with the place of the first."""
    named(tmp_path, "a.yaml", "one")
    named(tmp_path, "b.yaml", "one")
    with pytest.raises(ConfigError, match=r'b.yaml:1: scenario "one" is there twice: .*a.yaml:1'):
        read_path(tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (OBJECT.format(name="a"), "holds no document of kind Scenario"),
        ("", "holds no document of kind Scenario"),
        (whole("nodes: []") + "---\n" + whole("nodes: []"), "8: a second scenario begins"),
        ("a: [", "is not YAML"),
        (whole("nodes: []").replace("v1alpha1", "v2"), "1: apiVersion must be one of"),
        (whole("nodes: []").replace("Scenario", "Scenaro"), 'did you mean "Scenario"?'),
        (whole("nodes: []").replace("told", "My Name"), "3: name must be a name such as"),
        (whole("nodes: []").replace("metadata: {name: told}\n", ""), "1: a scenario needs the key"),
        (
            whole("nodes: []").replace("  teaches: What a test needs.\n", ""),
            "needs the key teaches",
        ),
    ],
)
def test_what_is_no_scenario(text: str, sentence: str, tmp_path: Path) -> None:
    """A file that was named must hold one, whole."""
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        read_path(file)


def test_what_is_not_there(tmp_path: Path) -> None:
    """Missing files and folders without a scenario."""
    with pytest.raises(ConfigError, match="there is no such file or folder"):
        read_path(tmp_path / "a.yaml")
    with pytest.raises(ConfigError, match=r"holds no scenario: no scenario\.yaml"):
        read_path(tmp_path)


# -- configurations ----------------------------------------------------------------------------
def strategy(config: Config) -> object:
    """What the plugin nodeorder is told."""
    plugins = [plugin for tier in config.tiers for plugin in tier.plugins]
    return next(dict(each.arguments) for each in plugins if each.name == "nodeorder")


def test_what_differs_is_laid_over_the_shipped_configuration(tmp_path: Path) -> None:
    """Mappings are merged, lists replaced, arguments of plugins changed where they stand."""
    assert scenario(tmp_path, "nodes: []").config == DEFAULT
    found = scenario(
        tmp_path,
        """
        config:
          cycle: {maxPeriod: 5s}
          actions: [allocate]
          plugins: {nodeorder: {strategy: spread}}
        """,
    ).config
    assert (found.cycle.max_period_s, found.cycle.debounce_s) == (5.0, DEFAULT.cycle.debounce_s)
    assert found.actions == ("allocate",)
    assert strategy(found) == {"strategy": "spread"}
    assert len(found.tiers) == len(DEFAULT.tiers)


@pytest.mark.parametrize(
    ("spec", "plays"),
    [
        ("nodes: []", False),
        ("config: {cycle: {maxPeriod: 1m}}", False),
        ("config: {cycle: {playStarts: 2m}}", True),
    ],
)
def test_starts_are_played_where_the_scenario_says_so(
    tmp_path: Path, spec: str, plays: bool
) -> None:
    """Plays take time of the process that plays the scenario, so that no other one pays for them."""
    found = scenario(tmp_path, spec)
    assert found.plays_starts is plays
    assert found.config.cycle.play_starts_s == (120.0 if plays else 300.0)


def test_a_given_configuration_is_for_all_that_name_none(tmp_path: Path) -> None:
    """What differs is laid over it; a scenario with a whole one of its own is refused."""
    given = tmp_path / "given.conf"
    given.write_text(installed_files.path("conf/gpusched.yaml").read_text() + "\n")
    plain = named(tmp_path, "a.yaml", "a")
    differs = named(tmp_path, "b.yaml", "b", "config: {placement: {seed: 7}}")
    one, two = read_paths([plain, differs], config=given)
    assert (one.config.source, one.config_said) == (str(given), False)
    assert (two.config.placement.seed, two.config.tiers) == (7, one.config.tiers)
    own = named(tmp_path, "c.yaml", "c", "config: given.conf")
    assert read_path(own)[0].config.source == str(given)
    with pytest.raises(ConfigError, match=r"c.yaml:6: names its whole configuration"):
        read_path(own, config=given)


def test_names_that_are_meant_to_be_missing(tmp_path: Path) -> None:
    """``unchecked`` on an entry and an expectation, an annotation on an object."""
    found = scenario(
        tmp_path,
        """
        objects:
        - apiVersion: scheduling.gpusched.io/v1alpha1
          kind: PodGroup
          metadata: {name: a, annotations: {scenario.gpusched.io/unchecked: "true"}}
          spec: {queue: nowhere, minMembers: 3}
        timeline:
        - {submit: {name: b, queue: nowhere, priority: none}, unchecked: true}
        - {at: 1s, delete: {kind: Job, name: c}, unchecked: true}
        expect:
        - {job: c, is: gone, unchecked: true}
        """,
    )
    assert found.timeline[0].unchecked
    assert found.expect[0].unchecked


def test_faults_and_restarts_need_the_embedded_cluster(tmp_path: Path) -> None:
    """A scenario says why a real cluster cannot play it."""
    assert not scenario(tmp_path, "nodes: []").embedded_only
    found = scenario(tmp_path, "timeline:\n- restart: {what: apiserver, down: 5s}")
    assert found.embedded_only.endswith(
        "told.yaml:7: a restart of the apiserver needs the embedded cluster"
    )


def test_a_folder_that_may_not_be_looked_into_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence with the folder's name, beside everything else that is wrong."""
    (tmp_path / "wrong.yaml").write_text(whole("teach: x"), encoding="utf-8")
    (tmp_path / "locked").mkdir()

    def iterdir(folder: Path, kept: Callable[[Path], Iterator[Path]] = Path.iterdir) -> Any:
        if folder.name == "locked":
            raise PermissionError(13, "Permission denied", str(folder))
        return kept(folder)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    with pytest.raises(ConfigError) as refused:
        read_paths([tmp_path / "locked", tmp_path / "wrong.yaml"])
    first, *others = refused.value.problems
    assert first == f"{tmp_path / 'locked'}: cannot be read: Permission denied"
    assert any('unknown key "teach"' in each for each in others)

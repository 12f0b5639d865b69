"""The documents say what the code does: generated parts are fresh, and what is named is there."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args, get_origin

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from supervisor.app.ctl import COMMANDS, build
from supervisor.app.kinds import KINDS
from supervisor.app.limits import limits_table
from supervisor.app.settings import ClusterSection, Settings, parse
from supervisor.app.trial_sections import TrialStoreSection
from supervisor.buckets import KINDS as BUCKETS
from supervisor.model.lifecycle import Phase

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLE = (ROOT / "config.example.toml").read_text(encoding="utf-8")
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]


def test_generated_parts_are_as_they_would_be_generated():
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_readme(command):
    assert f"`supervisorctl {command}" in README


def test_every_command_that_a_page_names_is_there():
    for page in PAGES:
        for command in re.findall(r"supervisorctl(?: --config \S+)? ([a-z][a-z-]+)", page.read_text(encoding="utf-8")):
            assert command in COMMANDS or command in ("script", "too", "and"), f"{page.name}: supervisorctl {command}"


def test_every_option_that_a_page_names_is_there():
    parsers = build(list(COMMANDS)).own
    for page in PAGES:
        for command, rest in re.findall(r"`supervisorctl ([a-z-]+)([^`\n]*)`", page.read_text(encoding="utf-8")):
            helped = parsers[command].format_help() if command in parsers else ""
            for option in re.findall(r"--[a-z][a-z-]+", rest.partition(" -- ")[0]):
                assert option in helped, f"{page.name}: supervisorctl {command} {option}"


def test_every_file_that_a_page_points_at_is_there():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_every_make_target_that_the_readme_names_is_there():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"`make ([a-z]+)`|^make ([a-z]+)", README, re.MULTILINE))

    for target in {first or second for first, second in targets}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


# -- config.example.toml -----------------------------------------------------------------------------------------------


def test_the_example_is_a_config_and_all_its_defaults_are_the_codes():
    """As it stands only the clusters are on; everything else is a comment that shows the default."""
    made = parse(tomllib.loads(EXAMPLE), ROOT / "config.example.toml")
    plain = parse({}, ROOT / "config.example.toml")

    assert [each.kind for each in made.cluster] == list(KINDS)
    assert made.model_copy(update={"cluster": ()}) == plain


def part(heading: str) -> str:
    """The lines of one table of the example."""
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^# -{{20}}|\Z)", EXAMPLE, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def sections() -> list[tuple[str, type[BaseModel]]]:
    return [
        (name, field.annotation)
        for name, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    ]


def shown(text: str, name: str) -> object:
    found = re.search(rf"^(?:# )?{name} = (.+)$", text, re.MULTILINE)
    assert found, f"{name} is not in config.example.toml"
    return tomllib.loads(f"x = {found[1]}")["x"]


def agrees(text: str, model: type[BaseModel], skip: tuple[str, ...] = ()) -> None:
    for name, field in model.model_fields.items():
        if name in skip:
            continue
        value = shown(text, name)
        if field.default not in (PydanticUndefined, None, "", ()):
            default = list(field.default) if isinstance(field.default, tuple) else field.default
            assert value == (str(default) if isinstance(default, Path) else default), name


def tables_in(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Settings that are tables of their own, one or many."""
    found = {}
    for name, field in model.model_fields.items():
        inner = get_args(field.annotation)[0] if get_origin(field.annotation) is tuple else field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found[name] = inner
    return found


@pytest.mark.parametrize(("name", "model"), sections())
def test_every_setting_of_every_table_is_in_the_example_with_its_default(name, model):
    whole, inner = part(f"[{name}]"), tables_in(model)

    agrees(whole, model, tuple(inner))
    for key, each in inner.items():
        _, head, rest = whole.partition(f"[{name}.{key}]")
        assert head, f"[{name}.{key}] is not in config.example.toml"
        agrees(rest, each)


def test_every_setting_at_the_top_is_in_the_example_with_its_default():
    agrees(EXAMPLE.partition("\n# ---")[0], Settings, ("cluster", "buckets", "limits", *dict(sections())))


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_of_every_kind_of_cluster_is_in_the_example(kind):
    tables = EXAMPLE.split("[[cluster]]\n")[1:]
    mine = next(table for table in tables if f'kind = "{kind}"' in table).partition("\n# ---")[0]
    model = KINDS[kind].settings()
    above = set(
        re.findall(
            r"\b\w+\b", " ".join(line for line in mine.splitlines() if "as above" in line or line.startswith("# "))
        )
    )

    common, _, stores = tables[0].partition("\n# ---")[0].partition("# [[cluster.trial_stores]]\n")
    agrees(common, ClusterSection, ("name", "kind", "of_kind", "trial_stores"))
    agrees(stores, TrialStoreSection, ())
    for name in model.model_fields:
        if name != "kind" and not re.search(rf"^(?:# )?{name} = ", mine, re.MULTILINE):
            assert name in above, f"{kind}: {name}"


def test_every_limit_is_in_the_example_with_its_default():
    for name, entry in limits_table().items():
        found = re.search(rf"^# {name} = ([\d.e+]+)", part("[limits]"), re.MULTILINE)
        assert found, name
        assert float(found[1]) == entry["default"], name


def test_every_bucket_is_in_the_example():
    for bucket in BUCKETS:
        assert f"# [buckets.{bucket.name}]" in EXAMPLE


# -- rules and phases --------------------------------------------------------------------------------------------------


def test_every_rule_that_the_code_names_is_on_the_page_of_rules():
    page = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    rule = re.compile(
        r"\b(?:POLL|FIND|LIVE|BUCKET|CHAIN|FAIL|RL|SFT|DATAGEN|EVAL|NOISE|PROBE|KILL|CLEAN|HERO|SAY)-\d+\b"
    )
    named = {
        each for path in (ROOT / "supervisor").rglob("*.py") for each in rule.findall(path.read_text(encoding="utf-8"))
    }

    assert {each for each in named if f"| {each} |" not in page} == set()
    assert len(named) > 30


def test_the_readme_draws_the_table_of_the_state_machine():
    drawn = README.partition("```mermaid")[2].partition("```")[0]

    assert all(phase.value in drawn for phase in Phase)


def test_every_room_of_the_architecture_is_there():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {path.parent.name for path in (ROOT / "supervisor").glob("*/__init__.py")} - {"data"}

    assert {room for room in rooms if f"| `{room}` |" not in page} == set()
    for named in re.findall(r"`?(app/[a-z_]+)(?:\.py)?`?", page):
        assert importlib.util.find_spec(f"supervisor.{named.replace('/', '.')}"), named

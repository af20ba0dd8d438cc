"""Metadata, licence and scripts of the repository."""

from __future__ import annotations

import configparser
import pkgutil
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import polaformer

ROOT = Path(__file__).resolve().parents[2]


def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text().splitlines()
    found = (re.fullmatch(r"([\w.-]+)==([\w.]+)", line.strip()) for line in lines)
    return {match[1].lower(): match[2] for match in found if match}


def test_one_version_everywhere() -> None:
    assert metadata.version("polaformer") == polaformer.__version__
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None
    assert cited[1] == polaformer.__version__


def test_the_licence_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text.splitlines()[1]
    assert "END OF TERMS AND CONDITIONS" in text
    assert setup_cfg()["metadata"]["license"] == "Apache-2.0"


def test_every_requirement_has_an_exact_version() -> None:
    for name in ("requirements.txt", "requirements-dev.txt"):
        lines = [line.split("#")[0].strip() for line in (ROOT / name).read_text().splitlines()]
        loose = [line for line in lines if line and "==" not in line and not line.startswith("-r")]
        assert loose == []


def test_what_the_package_depends_on_is_pinned() -> None:
    lines = setup_cfg()["options"]["install_requires"].split()
    needed = {re.split(r"[<>=!~]", line)[0].lower() for line in lines}
    assert needed <= set(pins("requirements.txt"))


def test_importing_the_package_is_light() -> None:
    code = "import sys, polaformer; sys.exit(bool({'torch', 'mmengine'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_part_of_the_package_stands_in_a_storey() -> None:
    storeys = setup_cfg()["importlinter:contract:storeys"]["layers"]
    parts = {module.name for module in pkgutil.iter_modules(polaformer.__path__)}
    assert parts - set(re.findall(r"polaformer\.(\w+)", storeys)) == {"cli", "errors", "version"}


@pytest.mark.parametrize("script", ["tools/_env.sh", "tools/quickstart.sh", "tools/run_tests.sh"])
def test_scripts_parse(script: str) -> None:
    assert subprocess.run(["bash", "-n", str(ROOT / script)], check=False).returncode == 0


def test_ci_runs_the_tests_that_a_developer_runs() -> None:
    run = ROOT / ".ci" / "run"
    assert run.stat().st_mode & 0o111
    assert "exec bash tools/run_tests.sh" in run.read_text()


def test_the_changelog_has_an_unreleased_part() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert text.index("## [Unreleased]") < text.index("### Added")

"""What the documents promise: links lead somewhere, commands exist, configs load, code runs."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "data/README.md", "configs/*/README.md")
    for path in ROOT.glob(pattern)
)
RECIPES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("configs/**/*.py", "configs/**/*.yml")
    for path in ROOT.glob(pattern)
)
# Made by the reader while following the documents.
MADE_BY_READER = {
    "configs/classification/pets.py",
    "configs/classification/pola-pvt-t_pets.py",
    "configs/detection/pets.py",
    "configs/segmentation/streets.py",
}
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def fences(document: str, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(text_of(document)) if kind == language]


def commands() -> list[tuple[str, str]]:
    found = []
    for document in DOCUMENTS:
        for body in fences(document, "bash"):
            lines = body.replace("\\\n", " ").splitlines()
            found += [(document, line.strip()) for line in lines if line.strip()]
    return found


def configs_in_documents() -> list[tuple[str, str]]:
    return [
        (document, body)
        for document in DOCUMENTS
        for body in fences(document, "python")
        if re.search(r"^(\w+) = ", body, re.MULTILINE) and "import " not in body
    ]


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    words = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.strip().replace(" ", "-") for heading in words}


def test_the_documents_are_found() -> None:
    assert {"README.md", "CHANGELOG.md", "docs/attention.md", "data/README.md"} <= set(DOCUMENTS)
    tasks = ("classification", "detection", "segmentation")
    assert {f"configs/{task}/README.md" for task in tasks} <= set(DOCUMENTS)
    assert len(commands()) > 15
    assert len(configs_in_documents()) > 6


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files_and_headings(document: str) -> None:
    for target in LINK.findall(text_of(document)):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / document).parent / name if name else ROOT / document
        assert path.exists(), f"{document}: {target} leads nowhere"
        if anchor:
            assert anchor in anchors(path), f"{document}: no heading for {target}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_of_the_repository_that_are_named_exist(document: str) -> None:
    named = re.findall(r"`((?:tools|configs|polaformer|tests|docs)/[\w./-]+)`", text_of(document))
    missing = [
        name
        for name in named
        if not (ROOT / name).exists() and name not in {*MADE_BY_READER, *WRITTEN_IN_README}
    ]
    assert missing == []


WRITTEN_IN_README = {"polaformer/attention/relu.py"}


UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|TBD|LEAD|PICTURE|PLACEHOLDER)\b")


@pytest.mark.parametrize("document", [*DOCUMENTS, *RECIPES])
def test_nothing_is_left_to_be_filled_in(document: str) -> None:
    lines = enumerate(text_of(document).splitlines(), start=1)
    left = [f"{document}:{number}: {line}" for number, line in lines if UNFINISHED.search(line)]
    assert left == []


@lru_cache
def help_of(tool: str, *subcommand: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / tool), *subcommand, "--help"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("document, line", commands())
def test_commands_exist_and_know_their_options(document: str, line: str) -> None:
    words = shlex.split(line)
    if words[0].endswith("python") and words[1] == "-m":
        return
    if "=" in words[0]:  # a variable of the environment
        words = words[1:]
    if words[0] == "torchrun":
        words = ["python", *words[words.index("tools/train.py") :]]
    assert words[0] in {"bash", "python"}, f"{document}: unknown program in '{line}'"
    tool = words[1]
    assert (ROOT / tool).is_file(), f"{document}: {tool} is missing"
    if words[0] == "bash":
        assert subprocess.run(["bash", "-n", str(ROOT / tool)], check=False).returncode == 0
        return
    subcommand = [words[2]] if tool == "tools/prepare_data.py" else []
    known = help_of(tool, *subcommand)
    for word in words[2:]:
        if word.startswith("--"):
            assert re.search(rf"{word}\b", known), f"{document}: {tool} has no option {word}"
        elif word.startswith("configs/") and word not in MADE_BY_READER:
            assert list(ROOT.glob(word)), f"{document}: {word} is missing"


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the shipped configs where those of the documents can be tried."""
    target = tmp_path_factory.mktemp("documents") / "configs"
    shutil.copytree(ROOT / "configs", target)
    return target


@pytest.fixture(scope="module")
def relu() -> Iterator[None]:
    """The attention that README shows, registered as its readers would have it."""
    from polaformer.registry import ATTENTIONS

    if ATTENTIONS.get("relu") is not None:  # who follows the README has the file
        yield
        return
    (source,) = [body for body in fences("README.md", "python") if "register_module" in body]
    module = type(sys)("polaformer.attention.relu")
    sys.modules[module.__name__] = module
    exec(compile(source, "README.md", "exec"), module.__dict__)
    yield
    del sys.modules[module.__name__]
    del ATTENTIONS.module_dict["relu"]


@pytest.mark.usefixtures("relu")
@pytest.mark.parametrize("document, body", configs_in_documents())
def test_configs_load(document: str, body: str, configs: Path) -> None:
    from polaformer.config.load import load_config

    if "_base_" not in body:
        body = f'_base_ = "./pola-swin-t_300e_imagenet-224.py"\n{body}'
    (base,) = re.findall(r'^_base_ = "\./(.+)"$', body, re.MULTILINE)
    (folder,) = [path.parent for path in configs.glob(f"*/{base}")]
    path = folder / "from_the_documents.py"
    path.write_text(body)
    model = load_config(path).model
    assert model.type == load_config(folder / base).model.type


@pytest.mark.parametrize(
    "recipe",
    [
        "classification/pola-pvt-nano_digits",
        "detection/mask_rcnn_pola-swin-t_1x_coco",
        "segmentation/upernet_pola-swin-t_160k_ade20k",
    ],
)
def test_the_table_of_top_level_keys_has_those_of_the_recipes(recipe: str) -> None:
    from polaformer.config.load import load_config

    table = text_of("docs/configs.md").split("## Keys at the top level")[1]
    named = set(re.findall(r"`(\w+)`", table))
    assert {"classes", *load_config(ROOT / "configs" / f"{recipe}.py")} <= named


@pytest.mark.usefixtures("relu")
def test_the_attention_of_the_readme_works_in_a_backbone() -> None:
    import torch

    from polaformer.registry import MODELS

    for backbone in ("PolaPVT", "PolaSwin"):
        torch.manual_seed(0)
        model = MODELS.build(
            dict(
                type=f"polaformer.{backbone}",
                arch="nano",
                img_size=32,
                attention="relu*2+pola",
                out_indices=(0, 3),
            )
        )
        maps = model(torch.randn(2, 3, 33, 47))
        assert [tuple(m.shape[-2:]) for m in maps] == [(9, 12), (2, 2)]
        assert all(torch.isfinite(m).all() for m in maps)
        sum(m.square().sum() for m in maps).backward()
        first = model.stages[0].blocks[0].attn
        assert type(first).__name__ == "ReluAttention"
        assert first.q.weight.grad.abs().sum() > 0

"""The page of a classifier's run, whole, unfinished or broken."""

from __future__ import annotations

import errno
import json
import os
import tarfile
import time
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from conftest_visualization import write, write_scalars
from PIL import Image

from polaformer.errors import UserError
from polaformer.visualization import load_results, write_report
from polaformer.visualization.figure import WRONG
from polaformer.visualization.pictures import _with_palette, choose_predictions, draw_pictures
from polaformer.visualization.report import non_finite_steps, skipped_files

VOID = {"meta", "img", "br"}


class Checker(HTMLParser):
    """Notes unbalanced tags and everything that would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.errors: list[str] = []
        self.fetched: list[str] = []
        self.pictures = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href"):
                self.pictures += (value or "").startswith("data:image/png;base64,")
                if not (value or "").startswith("data:"):
                    self.fetched.append(value or "")
        if tag == "img" and not dict(attrs).get("alt"):
            self.errors.append("img without alt")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.errors.append(f"unexpected </{tag}>")


def checked(work_dir: Path) -> tuple[str, Checker]:
    html = write_report(work_dir).read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(html)
    assert checker.errors == []
    assert checker.open == []
    assert checker.fetched == []
    return html, checker


def test_a_finished_run(finished_run: Path) -> None:
    html, checker = checked(finished_run)
    assert "83.33 % top-1 on 6 test images" in html
    assert checker.pictures == 3
    assert "None found in run card, scalars and log." in html
    assert "<td>dog</td><td class=number>50.00</td><td class=number>1</td>" in html
    assert "<td>dog</td><td>bird</td><td class=number>1</td><td class=number>50.0</td>" in html
    assert "tools/train.py x" in html
    assert "versions.torch" in html
    for name in ("predictions", "curves", "confusion", "overview"):
        assert (finished_run / f"{name}.png").is_file()
    assert not list(finished_run.glob(".*"))


def test_the_overview_keeps_the_colour_of_mistakes(finished_run: Path) -> None:
    drawn, _ = draw_pictures(load_results(finished_run))
    image = Image.open(drawn["overview"]).convert("RGB")
    wanted = tuple(int(WRONG[i : i + 2], 16) for i in (1, 3, 5))
    near = [
        count
        for count, colour in image.getcolors(image.width * image.height) or []
        if max(abs(a - b) for a, b in zip(colour, wanted, strict=True)) < 12
    ]
    assert sum(near) > 300


def test_an_overview_of_noise_takes_no_minute() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (600, 1300, 3), dtype=np.uint8)
    started = time.process_time()
    page = _with_palette(Image.fromarray(noise))
    assert time.process_time() - started < 5
    assert page.size == (1300, 600)
    error = np.abs(np.asarray(page.convert("RGB")).astype(int) - noise).mean()
    assert error < 32  # of 256; one grey for all would be 64


def test_the_name_is_that_of_the_config(finished_run: Path) -> None:
    assert load_results(finished_run).name == "pola-pvt-nano_pets"
    write(finished_run, "run_card.json", {"config": "/a/configs/pola-swin-nano_pets.py"})
    assert load_results(finished_run).name == "pola-swin-nano_pets"


def test_an_empty_run_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "config.py").touch()
    html, checker = checked(tmp_path)
    assert "No test result yet" in html
    assert checker.pictures == 0
    for name in ("run_card.json", "metrics.json", "predictions.json", "scalars.json"):
        assert f"missing: {name}" in html


@pytest.mark.parametrize("file", [None, "cat/0.png", "notes.json"])
def test_what_is_no_work_folder_is_left_alone(tmp_path: Path, file: str | None) -> None:
    if file:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        UserError, match=r"no work folder: it holds none of run_card\.json, scalars"
    ):
        write_report(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("missing", [None, "predictions.json"])
def test_a_read_only_folder_is_one_message(
    finished_run: Path, missing: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    if missing:
        (finished_run / missing).unlink()
    monkeypatch.setattr("tempfile.mkstemp", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(UserError, match=r"cannot write the report into .*: Read-only file system$"):
        write_report(finished_run)


def test_a_run_that_goes_on_shows_its_curves(finished_run: Path) -> None:
    for name in ("metrics.json", "predictions.json"):
        (finished_run / name).unlink()
    with (finished_run / "scalars.json").open("a") as file:
        file.write('{"loss": 0.1, "it')
    html, checker = checked(finished_run)
    assert checker.pictures == 1
    assert "No test result yet" in html


def test_pictures_that_cannot_be_drawn_any_more_go(finished_run: Path) -> None:
    write_report(finished_run)
    write(finished_run, "metrics.json", {"metrics": {"top1": 50}})
    write_report(finished_run)
    assert not (finished_run / "confusion.png").exists()
    assert (finished_run / "curves.png").exists()


@pytest.mark.parametrize("name", ["metrics.json", "predictions.json", "run_card.json"])
@pytest.mark.parametrize("content", ["", "{", "[]", "null", "7", '{"metrics": [1]}', "[{}, 3]"])
def test_broken_files_never_stop_the_page(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / "config.py").touch()
    (tmp_path / name).write_text(content)
    html, _ = checked(tmp_path)
    assert "No test result yet" in html


def test_everything_is_escaped(finished_run: Path) -> None:
    evil = "<script>alert('x')</script>"
    write(finished_run, "run_card.json", {evil: evil, "skipped": [[evil, evil]]})
    metrics = json.loads((finished_run / "metrics.json").read_text())
    metrics["classes"] = [evil, "dog", "bird"]
    metrics["metrics"][evil] = evil
    write(finished_run, "metrics.json", metrics)
    (finished_run / "config.py").write_text(f"# {evil}")
    (finished_run / "a.log").write_text(f"t - mmengine - WARNING - {evil}\n")
    html, _ = checked(finished_run)
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 6


def test_problems_are_listed(finished_run: Path) -> None:
    write_scalars(finished_run, lambda step: float("nan") if step == 15 else 1.0)
    card = {"data": {"train": {"skipped": [["a.jpg", "cut off"], "b.jpg"]}}}
    write(finished_run, "run_card.json", card)
    html, _ = checked(finished_run)
    assert "not finite at 1 logged steps: 15" in html
    assert "2 files skipped: a.jpg (cut off), b.jpg" in html


def test_the_test_of_an_earlier_run_is_no_headline(finished_run: Path) -> None:
    os.utime(finished_run / "metrics.json", (1_000_000_000, 1_000_000_000))  # 2001-09-09 UTC
    write(finished_run, "run_card.json", {"started": "2001-09-09 03:46:39+0200"})
    html, _ = checked(finished_run)
    assert "83.33 % top-1 on 6 test images" in html
    assert "None found in run card" in html
    write(finished_run, "run_card.json", {"started": "2001-09-09 03:46:41+0200"})
    html, _ = checked(finished_run)
    assert "<p class='headline'>80.00 % top-1 in validation, epoch 2</p>" in html
    assert "<li>the test result is older than this run and belongs to an earlier one" in html
    assert "<h2>Test result of an earlier run</h2>" in html
    (finished_run / "scalars.json").unlink()
    assert "No result of this run yet" in checked(finished_run)[0]


def test_a_run_that_did_not_finish_says_why(finished_run: Path) -> None:
    starts = [{"epoch": 0}, {"epoch": 1, "reason": "loss <nan> 5 times"}]
    write(finished_run, "run_card.json", {"status": "failed", "starts": starts})
    html, _ = checked(finished_run)
    assert "training has not finished: failed (loss &lt;nan&gt; 5 times)" in html
    assert "<td>starts[1].epoch</td>" in html


def test_helpers_on_their_own() -> None:
    assert non_finite_steps([{"loss": None, "iter": 3, "step": 3}, {"top1": None, "step": 1}]) == [
        3
    ]
    assert skipped_files({"skipped": [], "n_skipped": 0, "a": {"skipped_files": 4}}) == [
        "skipped_files: 4"
    ]


def test_images_that_are_gone_are_said(finished_run: Path) -> None:
    for path in finished_run.glob("?.png"):
        path.unlink()
    html, checker = checked(finished_run)
    assert checker.pictures == 2
    assert "none of the predicted images can be opened" in html


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_images_come_from_an_archive_too(finished_run: Path, kind: str) -> None:
    archive = finished_run / f"val.{kind}"
    files = sorted(finished_run.glob("?.png"))
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as packed:
            for path in files:
                packed.write(path, f"pets/{path.name}")
    else:
        with tarfile.open(archive, "w") as packed_tar:
            for path in files:
                packed_tar.add(path, f"pets/{path.name}")
    rows = json.loads((finished_run / "predictions.json").read_text())
    for row in rows:
        row["path"] = f"{archive}/pets/{Path(row['path']).name}"
    write(finished_run, "predictions.json", rows)
    for path in files:
        path.unlink()
    drawn, problems = draw_pictures(load_results(finished_run))
    assert "predictions" in drawn
    assert problems == []


def test_a_zip_that_does_not_mark_its_names_as_utf8(finished_run: Path) -> None:
    archive = finished_run / "val.zip"
    rows = json.loads((finished_run / "predictions.json").read_text())
    with zipfile.ZipFile(archive, "w") as packed:
        for row in rows:
            packed.write(row["path"], f"gr~~n/{Path(row['path']).name}")
            Path(row["path"]).unlink()
            row["path"] = f"{archive}/grün/{Path(row['path']).name}"
    archive.write_bytes(archive.read_bytes().replace(b"gr~~n", "grün".encode()))
    write(finished_run, "predictions.json", rows)
    assert draw_pictures(load_results(finished_run))[1] == []


def test_wrong_predictions_lead_and_leave_room_for_right_ones() -> None:
    rows = [
        {
            "index": i,
            "label": i % 2,
            "prediction": (i + (i < 30)) % 2,
            "score": i / 100,
        }
        for i in range(100)
    ]
    chosen = choose_predictions(rows, limit=20)
    assert [row["index"] for row in chosen[:10]] == list(range(29, 19, -1))
    right = chosen[10:]
    assert len(right) == 10
    assert all(row["label"] == row["prediction"] for row in right)
    assert [row["label"] for row in right] == [0, 1] * 5
    assert choose_predictions(rows, limit=20) == chosen


def test_few_predictions_are_all_taken() -> None:
    rows = [{"label": 0, "prediction": p} for p in (0, 1, 1)]
    assert len(choose_predictions(rows, limit=32)) == 3
    assert choose_predictions([], limit=32) == []

"""ImageNet's layouts, on a thousand one-pixel pictures."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from polaformer.datasets import ImageNet
from polaformer.datasets.imagenet import imagenet_synsets
from polaformer.datasets.prepare.check import check_imagenet
from polaformer.errors import UserError


def picture() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (1, 1), (9, 8, 7)).save(buffer, "JPEG")
    return buffer.getvalue()


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as target:
        for name, body in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            target.addfile(member, io.BytesIO(body))


def tar_bytes(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as target:
        for name, body in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            target.addfile(member, io.BytesIO(body))
    return buffer.getvalue()


@pytest.fixture
def official(tmp_path: Path) -> Path:
    """The two archives as they are distributed, with one image per class, and a list for val."""
    body = picture()
    synsets = imagenet_synsets()
    inner = {f"{s}.tar": tar_bytes({f"{s}_1.JPEG": body}) for s in synsets}
    write_tar(tmp_path / "ILSVRC2012_img_train.tar", inner)
    names = [f"ILSVRC2012_val_{i:08d}.JPEG" for i in range(1, 1001)]
    write_tar(tmp_path / "ILSVRC2012_img_val.tar", dict.fromkeys(names, body))
    rows = zip(names, reversed(synsets), strict=True)
    (tmp_path / "val.txt").write_text("".join(f"{name} {s}\n" for name, s in rows))
    return tmp_path


def test_synsets_are_the_thousand_in_sorted_order():
    synsets = imagenet_synsets()
    assert len(set(synsets)) == 1000
    assert list(synsets) == sorted(synsets)
    assert (synsets[0], synsets[-1]) == ("n01440764", "n15075141")


def test_official_archives(official):
    train, val = ImageNet(official, "train"), ImageNet(official, "val")
    assert len(train) == len(val) == 1000
    assert train.classes == val.classes == imagenet_synsets()
    assert train.labels.tolist() == list(range(1000))
    assert val.labels.tolist() == list(reversed(range(1000)))
    assert train.names[0] == "n01440764/n01440764_1.JPEG"
    assert train.metainfo["class_names"][0] == "tench, Tinca tinca"
    assert train[3]["inputs"].shape == (3, 1, 1)


def test_val_without_folders_and_without_a_list_says_what_is_needed(official, tmp_path):
    (official / "val.txt").unlink()
    with pytest.raises(UserError, match=r"side by side.*val\.txt") as caught:
        ImageNet(official, "val")
    assert "ground-truth file does not serve" in str(caught.value)
    flat = tmp_path / "flat"
    (flat / "val").mkdir(parents=True)
    (flat / "val" / "ILSVRC2012_val_00000001.JPEG").write_bytes(picture())
    with pytest.raises(UserError, match="side by side"):
        ImageNet(flat, "val")
    (flat / "val" / "val.txt").write_text("ILSVRC2012_val_00000001.JPEG 65\n")
    assert ImageNet(flat, "val").labels.tolist() == [65]


def test_a_subset_of_a_list_keeps_the_numbers_of_the_thousand(official):
    rows = [f"ILSVRC2012_val_{i:08d}.JPEG {i - 1}" for i in range(1, 1001)]
    (official / "val.txt").write_text("\n".join(rows))
    wanted = [imagenet_synsets()[65], imagenet_synsets()[7]]
    subset = ImageNet(official, "val", classes=wanted)
    assert list(subset.names) == ["ILSVRC2012_val_00000008.JPEG", "ILSVRC2012_val_00000066.JPEG"]
    assert subset.labels.tolist() == [1, 0]
    assert subset.classes == tuple(wanted)


def test_a_flat_val_zip_is_read_with_its_list(tmp_path):
    with zipfile.ZipFile(tmp_path / "val.zip", "w") as target:
        target.writestr("ILSVRC2012_val_00000001.JPEG", picture())
    with pytest.raises(UserError, match="side by side"):
        ImageNet(tmp_path, "val")
    (tmp_path / "val.txt").write_text("ILSVRC2012_val_00000001.JPEG n01751748\n")
    assert ImageNet(tmp_path, "val").labels.tolist() == [65]


def test_folders_must_be_the_thousand_synsets(tmp_path):
    for name in (*imagenet_synsets()[:3], "n99999999", "dogs"):
        (tmp_path / "train" / name).mkdir(parents=True)
        (tmp_path / "train" / name / "a.JPEG").write_bytes(picture())
    with pytest.raises(UserError) as caught:
        ImageNet(tmp_path)
    text = str(caught.value)
    for words in ("5 class folders", ": dogs", "ImageNet-1K: n99999999", "997 of the 1000"):
        assert words in text
    subset = ImageNet(tmp_path, classes=imagenet_synsets()[:2])
    assert subset.classes == imagenet_synsets()[:2]
    assert len(subset) == 2


def test_unknown_split_and_missing_root(tmp_path):
    with pytest.raises(UserError, match="allowed: train, val"):
        ImageNet(tmp_path, "test")
    with pytest.raises(UserError, match="there is no"):
        ImageNet(tmp_path / "imagenet")


def test_the_check_reports_all_splits_at_once(official):
    report = check_imagenet(official)
    assert "train: 1,000 images in 1,000 classes" in str(report)
    assert report.problems == [
        "train has 1,000 images; ImageNet-1K has 1,281,167",
        "val has 1,000 images; ImageNet-1K has 50,000",
    ]
    (official / "val.txt").unlink()
    assert any("side by side" in text for text in check_imagenet(official).problems)

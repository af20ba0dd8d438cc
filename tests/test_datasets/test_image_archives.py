"""The same images in a .tar or .zip, read in place."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch
from picture_sets import write_classes, zip_without_mark
from torch.utils.data import DataLoader, default_collate

from polaformer.datasets import ImageFolder
from polaformer.errors import UserError


def pack(folder: Path, archive: Path, top: str = "", method: int = zipfile.ZIP_DEFLATED) -> Path:
    """All of ``folder`` below ``top`` in a .tar or .zip."""
    files = [(path, f"{top}{path.relative_to(folder)}") for path in sorted(folder.rglob("*"))]
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w", method) as target:
            for path, name in files:
                target.write(path, name)
    else:
        with tarfile.open(archive, "w") as target:
            for path, name in files:
                target.add(path, name, recursive=False)
    return archive


@pytest.fixture(params=[".tar", ".zip"])
def packed(request, tmp_path, colour_folders) -> Path:
    return pack(colour_folders, tmp_path / f"colours{request.param}")


def same_items(first: ImageFolder, second: ImageFolder) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a["inputs"], b["inputs"]) and a["labels"] == b["labels"]
        for a, b in zip(first, second, strict=True)
    )


def test_an_archive_holds_the_same_as_the_folder(packed, colour_folders):
    archive, folder = ImageFolder(packed), ImageFolder(colour_folders)
    assert same_items(archive, folder)
    assert archive.classes == folder.classes
    assert archive.fingerprint() == folder.fingerprint()
    assert archive.samples[0] == (f"{packed}/blue/0.jpg", 0)
    assert sorted(os.listdir(packed.parent)) == ["colours", packed.name]


def test_stored_zip(tmp_path, colour_folders):
    archive = pack(colour_folders, tmp_path / "s.zip", method=zipfile.ZIP_STORED)
    assert same_items(ImageFolder(archive), ImageFolder(colour_folders))


@pytest.mark.parametrize("encoding", ["utf-8", "cp437"])
def test_names_in_a_zip_that_does_not_mark_their_encoding(tmp_path, colour_folders, encoding):
    (colour_folders / "green").rename(colour_folders / "grün")
    archive = ImageFolder(zip_without_mark(colour_folders, tmp_path / "z.zip", encoding))
    folder = ImageFolder(colour_folders)
    assert archive.classes == ("blue", "grün", "red")
    assert same_items(archive, folder)
    assert archive.fingerprint() == folder.fingerprint()


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_several_workers_read_one_archive(packed, start):
    data = ImageFolder(packed)
    data[0]  # opens the file before the workers are made
    loader = DataLoader(
        data, batch_size=2, num_workers=2, multiprocessing_context=start, collate_fn=default_collate
    )
    batches = list(loader)
    assert torch.cat([batch["indices"] for batch in batches]).tolist() == list(range(12))
    for batch in batches:
        for position, index in enumerate(batch["indices"].tolist()):
            assert torch.equal(batch["inputs"][position], data[index]["inputs"])


def test_an_opened_archive_can_be_pickled(packed):
    data = ImageFolder(packed)
    copy = pickle.loads(pickle.dumps(data))
    assert torch.equal(copy[7]["inputs"], data[7]["inputs"])


@pytest.mark.parametrize("kind", [".tar", ".zip"])
@pytest.mark.parametrize("top", ["", "./", "imagenet/", "a/b/"])
def test_splits_are_found_below_a_top_folder(tmp_path, kind, top):
    write_classes(tmp_path / "set" / "train")
    write_classes(tmp_path / "set" / "val", per_class=1)
    archive = pack(tmp_path / "set", tmp_path / f"all{kind}", top)
    assert len(ImageFolder(archive, "train")) == 12
    assert len(ImageFolder(archive, "val")) == 3
    with pytest.raises(UserError, match="did you mean 'train'"):
        ImageFolder(archive, "trian")
    with pytest.raises(UserError, match="give split="):
        ImageFolder(archive)


def test_one_archive_per_split(tmp_path):
    write_classes(tmp_path / "a")
    write_classes(tmp_path / "b", per_class=1)
    pack(tmp_path / "a", tmp_path / "train.tar", "train/")
    pack(tmp_path / "b", tmp_path / "val.zip")
    assert len(ImageFolder(tmp_path, "train")) == 12
    assert len(ImageFolder(tmp_path, "val")) == 3


@pytest.mark.parametrize("kind", [".tar", ".zip"])
def test_members_that_lead_outside_are_left_out_with_a_reason(tmp_path, colour_folders, kind):
    archive = pack(colour_folders, tmp_path / f"x{kind}")
    body = (colour_folders / "red" / "0.jpg").read_bytes()
    evil = ["../red/evil.jpg", "/red/evil.jpg", "red/../../evil.jpg"]
    if kind == ".zip":
        with zipfile.ZipFile(archive, "a") as target:
            for name in evil:
                target.writestr(name, body)
    else:
        with tarfile.open(archive, "a") as target:
            for name in evil:
                member = tarfile.TarInfo(name)
                member.size = len(body)
                target.addfile(member, io.BytesIO(body))
    data = ImageFolder(archive)
    assert len(data) == 12
    reasons = dict(data.ignored)
    assert set(reasons) == set(evil)
    assert set(reasons.values()) == {"its path leads outside of the archive"}


def test_links_in_a_tar(tmp_path, colour_folders):
    archive = pack(colour_folders, tmp_path / "x.tar")
    with tarfile.open(archive, "a") as target:
        for name, kind, where in (
            ("green/hard.jpg", tarfile.LNKTYPE, "red/0.jpg"),
            ("green/soft.jpg", tarfile.SYMTYPE, "../red/1.jpg"),
            ("green/lost.jpg", tarfile.SYMTYPE, "../red/9.jpg"),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, where
            target.addfile(member)
    with pytest.raises(UserError, match=r"green/lost\.jpg: the link points to nothing"):
        ImageFolder(archive)
    data = ImageFolder(archive, on_error="skip")
    assert [name for name, _ in data.skipped] == ["green/lost.jpg"]
    names = list(data.names)
    for name, original in (("green/hard.jpg", "red/0.jpg"), ("green/soft.jpg", "red/1.jpg")):
        pair = data[names.index(name)], data[names.index(original)]
        assert torch.equal(pair[0]["inputs"], pair[1]["inputs"])


def test_class_archives_inside_a_tar_are_class_folders(tmp_path, colour_folders):
    with tarfile.open(tmp_path / "train.tar", "w") as outer:
        for folder in sorted(colour_folders.iterdir()):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as target:
                for path in sorted(folder.iterdir()):
                    target.add(path, path.name)
            member = tarfile.TarInfo(f"{folder.name}.tar")
            member.size = len(inner.getvalue())
            outer.addfile(member, io.BytesIO(inner.getvalue()))
    assert same_items(ImageFolder(tmp_path, "train"), ImageFolder(colour_folders))


def test_a_damaged_member_is_a_bad_file(tmp_path, colour_folders):
    archive = pack(colour_folders, tmp_path / "x.zip", method=zipfile.ZIP_STORED)
    raw = bytearray(archive.read_bytes())
    body = (colour_folders / "red" / "2.jpg").read_bytes()
    raw[raw.index(body) + len(body) // 2] ^= 0xFF
    archive.write_bytes(bytes(raw))
    with pytest.raises(
        UserError, match=r"1 of 12 images are bad:\n.*red/2\.jpg: damaged in the archive"
    ):
        ImageFolder(archive)
    assert len(ImageFolder(archive, on_error="skip")) == 11


@pytest.mark.parametrize("name", ["x.tar", "x.zip"])
def test_what_is_no_archive(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK not really" * 100)
    with pytest.raises(UserError, match="no readable"):
        ImageFolder(tmp_path / name)


def test_a_cut_archive(packed):
    raw = packed.read_bytes()
    packed.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(UserError, match="no readable"):
        ImageFolder(packed)


def test_a_compressed_tar_says_what_to_do(tmp_path, colour_folders):
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as target:
        target.add(colour_folders, "colours")
    with pytest.raises(UserError, match="unpack it"):
        ImageFolder(tmp_path / "x.tar.gz")


def test_a_list_names_members(tmp_path, packed):
    listed = tmp_path / "list.txt"
    listed.write_text("red/0.jpg red\nblue/1.jpg blue\nblue/missing.jpg blue\n")
    with pytest.raises(UserError, match=r"blue/missing\.jpg: no such member"):
        ImageFolder(packed, ann_file=listed)
    assert len(ImageFolder(packed, ann_file=listed, on_error="skip")) == 2

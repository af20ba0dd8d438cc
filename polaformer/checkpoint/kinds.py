"""Tell what a file is from its first bytes, so that a wrong one is named for what it is."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from polaformer.checkpoint.errors import CheckpointError

_HEAD = 512
_TEXT_MAGIC = b"L119547037146038801333356L"  # torch's magic number under pickle protocol 0
_SIGNATURES = {
    b"\x1f\x8b": "a gzip archive; unpack it first",
    b"\x89HDF": "an HDF5 file (Keras?), not PyTorch weights",
    b"7z\xbc\xaf": "a 7z archive; unpack it first",
    b"\x28\xb5\x2f\xfd": "a Zstandard archive; unpack it first",
    b"%PDF": "a PDF document",
    b"\x93NUMPY": "a NumPy array file, not PyTorch weights",
}


def identify(path: Path) -> str:
    """'zip', 'sequential' or 'safetensors'; raises `CheckpointError` that names anything else."""
    text = str(path)
    if text.startswith(("http:/", "https:/")):
        raise CheckpointError(f"{text} is a web address; download the file and give its path")
    if not os.path.lexists(path):
        raise CheckpointError(f"{path} does not exist")
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder, not a weight file")
    if not path.is_file():
        raise CheckpointError(f"{path} is not a regular file (a broken link or a device)")
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
        size = path.stat().st_size
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    if not head:
        raise CheckpointError(f"{path} is empty (0 bytes)")
    if head.startswith(b"PK\x03\x04"):
        _check_zip(path, size)
        return "zip"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= max(size, 100_000_000):
        return "safetensors"
    if head.startswith(_TEXT_MAGIC) or (head[0] == 0x80 and head[1:2] and head[1] <= 5):
        return "sequential"
    raise CheckpointError(f"{path} is {_describe(head)}")


def _check_zip(path: Path, size: int) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.split("/", 1)[-1] for name in archive.namelist()]
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is cut short or damaged: {size} bytes without the directory at the end"
        ) from error
    if "constants.pkl" in names:
        raise CheckpointError(
            f"{path} is a TorchScript archive, which holds code; open it where you trust it and "
            "save its state_dict() with safetensors.torch.save_file"
        )
    if "data.pkl" not in names:
        raise CheckpointError(f"{path} is a zip archive that torch.save did not write")


def _describe(head: bytes) -> str:
    for signature, description in _SIGNATURES.items():
        if head.startswith(signature):
            return description
    if head[257:262] == b"ustar":
        return "a tar archive; unpack it first"
    lower = head.lstrip().lower()
    if lower.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the file itself; fetch it with 'git lfs pull'"
    if lower.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "a web page (HTML), not weights; the download went wrong"
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        text = head[: error.start].decode("utf-8") if error.start > _HEAD - 4 else ""
    if text and all(c.isprintable() or c in "\r\n\t" for c in text):
        line = text.strip().splitlines()[0][:60] if text.strip() else ""
        return f"a text file (it begins with {line!r}), not weights"
    return f"not a weight file (it begins with {head[:4].hex(' ')})"

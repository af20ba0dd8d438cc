"""Make data (digits, digit-scenes: real handwriting) or check it (imagenet, coco, folder)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from polaformer import cli

if TYPE_CHECKING:
    from polaformer.datasets.prepare.check import Report

_EXAMPLES = """examples:
  python tools/prepare_data.py digits                    write data/digits (1,797 real digits)
  python tools/prepare_data.py digit-scenes              write data/digit_scenes (detection)
  python tools/prepare_data.py imagenet --check          look at data/imagenet
  python tools/prepare_data.py coco --check              look at data/coco
  python tools/prepare_data.py coco --check my/data --ann train.json val.json --images train val
  python tools/prepare_data.py folder --check my/images  look at your own class folders or archive
"""


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = cli.Parser(prog="prepare_data.py", description=__doc__, epilog=_EXAMPLES)
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="{" + ",".join(COMMANDS) + "}"
    )
    for name, (text, fill) in COMMANDS.items():
        fill(commands.add_parser(name, help=text, description=text))
    args = parser.parse_args(argv)
    if getattr(args, "check", "") is None:  # not argparse's `required`: it would hide misspellings
        parser.error(f"{args.command}: --check is required")
    return args


def _digits_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", default="data/digits", help="folder to make (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the split (%(default)s)")
    parser.add_argument(
        "--val-fraction", type=float, default=0.2, help="share of each class (%(default)s)"
    )
    parser.add_argument("--size", type=int, default=32, help="pixels per side; 8 is native (32)")
    parser.add_argument(
        "--force", action="store_true", help="replace what this command made before"
    )


def _digit_scenes_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", default="data/digit_scenes", help="folder to make (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of split and scenes (%(default)s)")
    parser.add_argument("--train", type=int, default=800, help="training scenes (%(default)s)")
    parser.add_argument("--val", type=int, default=200, help="validation scenes (%(default)s)")
    parser.add_argument(
        "--force", action="store_true", help="replace what this command made before"
    )


def _imagenet_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--check",
        nargs="?",
        const="data/imagenet",
        metavar="ROOT",
        help="the folder with train and val (data/imagenet)",
    )
    _files_option(parser, "header")


def _coco_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--check",
        nargs="?",
        const="data/coco",
        metavar="ROOT",
        help="the folder with annotations and images (data/coco)",
    )
    parser.add_argument(
        "--ann",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="annotation files, below ROOT or as given; without it they are looked for",
    )
    parser.add_argument(
        "--images",
        nargs="+",
        action="extend",
        default=[],
        metavar="FOLDER",
        help="folder of the images, one for each FILE or one for all; else it is looked for",
    )
    _files_option(parser, "header")


def _folder_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", metavar="ROOT", help="class folders, or train and val with them")
    _files_option(parser, "decode")


def _files_option(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--files",
        choices=("decode", "header", "none"),
        default=default,
        help="how closely each image is looked at (%(default)s)",
    )


COMMANDS = {
    "digits": ("write scikit-learn's handwritten digits as class folders", _digits_options),
    "digit-scenes": (
        "write scenes of digits with boxes and masks (COCO format)",
        _digit_scenes_options,
    ),
    "imagenet": ("check the layout, classes and files of ImageNet-1K", _imagenet_options),
    "coco": ("check detection data in COCO's format, also your own", _coco_options),
    "folder": ("check your own class folders, tar or zip", _folder_options),
}


def main(argv: list[str] | None = None) -> int:
    """Returns 0, or 1 if a check found problems."""
    args = parse_args(argv)
    if args.command in ("digits", "digit-scenes"):
        folder, reused = _make(args)
        print(f"{folder}: {'already there, complete and unchanged' if reused else 'written'}")
        return 0
    report = _check(args)
    print(report)
    return 1 if report.problems else 0


def _make(args: argparse.Namespace) -> tuple[Path, bool]:
    if args.command == "digits":
        from polaformer.datasets.prepare.digits import prepare_digits

        return prepare_digits(args.out, args.seed, args.val_fraction, args.size, args.force)
    from polaformer.datasets.prepare.digit_scenes import prepare_digit_scenes

    return prepare_digit_scenes(args.out, args.seed, args.train, args.val, args.force)


def _check(args: argparse.Namespace) -> Report:
    if args.command == "coco":
        from polaformer.datasets.prepare.coco_check import check_coco

        return check_coco(args.check, args.ann, args.images, args.files)
    from polaformer.datasets.prepare.check import check_folder, check_imagenet

    check = check_imagenet if args.command == "imagenet" else check_folder
    return check(args.check, args.files)


if __name__ == "__main__":
    cli.run(main)

"""Make data (digits, digit-scenes: real handwriting) or check it (all others)."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from polaformer import cli
from polaformer.errors import UserError

if TYPE_CHECKING:
    from polaformer.datasets.prepare.check import Report
    from polaformer.datasets.prepare.mask_report import MaskReport
    from polaformer.datasets.prepare.masks_check import MaskOptions

_EXAMPLES = """examples:
  python tools/prepare_data.py digits                    write data/digits (1,797 real digits)
  python tools/prepare_data.py digit-scenes              write data/digit_scenes (boxes, masks)
  python tools/prepare_data.py imagenet --check          look at data/imagenet
  python tools/prepare_data.py coco --check              look at data/coco
  python tools/prepare_data.py coco --check my/data --ann train.json val.json --images train val
  python tools/prepare_data.py folder --check my/images  look at your own class folders or archive
  python tools/prepare_data.py ade20k --check            look at data/ADEChallengeData2016
  python tools/prepare_data.py masks --check my/images my/masks --classes background road car
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


def _ade20k_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "root", nargs="?", metavar="ROOT", help="the folder with images and annotations"
    )
    parser.add_argument(
        "--check",
        nargs="?",
        const="",
        metavar="ROOT",
        help="the same (data/ADEChallengeData2016)",
    )
    _files_option(parser, "header")
    _out_option(parser, "work_dirs/check_ade20k")


def _masks_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folders",
        nargs="*",
        metavar="FOLDER",
        help="IMAGES MASKS, or IMAGES MASKS VAL_IMAGES VAL_MASKS; files pair by name",
    )
    parser.add_argument("--check", nargs="*", metavar="FOLDER", help="the same folders")
    parser.add_argument(
        "--classes",
        nargs="+",
        metavar="NAME",
        help="names in the order of their numbers; without them the values are listed",
    )
    parser.add_argument(
        "--class-set",
        metavar="NAME",
        help="instead of names: ade20k, cityscapes, voc2012 or coco_stuff",
    )
    parser.add_argument(
        "--label-values",
        nargs="+",
        type=_values,
        metavar="N",
        help="value of each class in turn; 7,8 for two values of one class",
    )
    parser.add_argument(
        "--label-colors",
        metavar="FILE",
        help="text file with a line for each class: red green blue, and maybe the name",
    )
    parser.add_argument(
        "--reduce-zero-label",
        action="store_true",
        help="0 is no class, and the first class has the value 1",
    )
    parser.add_argument(
        "--ignore-values",
        nargs="+",
        metavar="N",
        default=[],
        help="values that are no class, beside 255; rest for all that are none",
    )
    parser.add_argument("--img-suffix", metavar="END", help="what the names of images end in")
    parser.add_argument("--seg-map-suffix", metavar="END", help="the same of label images")
    parser.add_argument(
        "--ann-file",
        nargs="+",
        default=[],
        metavar="FILE",
        help="lists of the images to use, one for each split",
    )
    _files_option(parser, "decode")
    _out_option(parser, "work_dirs/check_masks")


def _values(text: str) -> int | tuple[int, ...]:
    """A whole number, or several with commas between them."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no whole number, nor several with commas between them (7,8)"
        ) from None
    return numbers if len(numbers) > 1 else numbers[0]


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


def _out_option(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--out",
        type=cli.folder,
        default=default,
        help="folder for classes.csv, classes.json and classes.png (%(default)s)",
    )


COMMANDS = {
    "digits": ("write scikit-learn's handwritten digits as class folders", _digits_options),
    "digit-scenes": (
        "write scenes of digits with boxes and masks (COCO format) and label images",
        _digit_scenes_options,
    ),
    "imagenet": ("check the layout, classes and files of ImageNet-1K", _imagenet_options),
    "coco": ("check detection data in COCO's format, also your own", _coco_options),
    "folder": ("check your own class folders, tar or zip", _folder_options),
    "ade20k": ("check ADE20K's scene parsing benchmark (150 classes)", _ade20k_options),
    "masks": ("check your own images and label images for segmentation", _masks_options),
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
    if args.command in ("ade20k", "masks"):
        return _check_label_images(args)
    if args.command == "coco":
        from polaformer.datasets.prepare.coco_check import check_coco

        return check_coco(args.check, args.ann, args.images, args.files)
    from polaformer.datasets.prepare.check import check_folder, check_imagenet

    check = check_imagenet if args.command == "imagenet" else check_folder
    return check(args.check, args.files)


def _check_label_images(args: argparse.Namespace) -> Report:
    if args.command == "ade20k":
        from polaformer.datasets.prepare.ade20k_check import check_ade20k

        root = _one_root(args)
        _refuse_out(args.out, [root])
        report = check_ade20k(root, args.files)
    else:
        from polaformer.datasets.prepare.masks_check import check_masks

        folders = [*args.folders, *args.check]
        _refuse_out(args.out, folders)
        report = check_masks(folders, _mask_options(args), args.files)
    _write_classes(report, args.out)
    return report


def _one_root(args: argparse.Namespace) -> str:
    if args.root and args.check:
        raise UserError(f"ROOT was given twice: {args.root} and {args.check}")
    return args.check or args.root or "data/ADEChallengeData2016"


def _mask_options(args: argparse.Namespace) -> MaskOptions:
    from polaformer.datasets.prepare.masks_check import MaskOptions

    ignored: list[int] | str = []
    if args.ignore_values == ["rest"]:
        ignored = "rest"
    else:
        for text in args.ignore_values:
            if not text.lstrip("-").isdecimal():
                raise UserError(f"--ignore-values: '{text}' is no whole number, nor 'rest' alone")
            ignored.append(int(text))
    return MaskOptions(
        classes=args.classes,
        class_set=args.class_set,
        img_suffix=args.img_suffix,
        seg_map_suffix=args.seg_map_suffix,
        label_values=args.label_values,
        label_colors=args.label_colors,
        reduce_zero_label=args.reduce_zero_label,
        ignore_values=ignored,
        ann_files=args.ann_file,
    )


def _refuse_out(out: str, data: list[str]) -> None:
    """Raise UserError if ``out`` lies in the data, or cannot be written to."""
    place = Path(out).expanduser().resolve()
    inside = [
        folder for folder in data if place.is_relative_to(Path(folder).expanduser().resolve())
    ]
    if inside:
        raise UserError(
            f"--out {out} lies in the data ({inside[0]}), which are not written to; name another "
            "folder"
        )
    above = next(path for path in (place, *place.parents) if path.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise UserError(f"--out {out}: cannot write to {above}; name another folder")


def _write_classes(report: MaskReport, out: str) -> None:
    if report.classes is None:
        return
    from polaformer.visualization.class_shares import write_shares

    title = f"{report.title}: pixels per class"
    try:
        paths = write_shares(report.classes.rows(), report.classes.shares(), out, title=title)
    except OSError as error:
        report.problems.append(f"cannot write into {out}: {error.strerror or error}")
        return
    report.lines += ["", f"written: {', '.join(map(str, paths))}"]


if __name__ == "__main__":
    cli.run(main)

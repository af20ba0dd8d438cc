"""Write the pictures and the page report.html of one or more work directories.

A run that is still going on, or that broke, gets a page too: it says what is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from polaformer.cli import USAGE_ERROR, Parser, run
from polaformer.errors import UserError


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(prog="report.py", description=__doc__)
    parser.add_argument("work_dir", nargs="+", help="folder that tools/train.py has written")
    parser.add_argument(
        "--predict",
        action="store_true",
        help="let the tested checkpoint predict the test images again, to show some of them",
    )
    return parser.parse_args(argv)


def predict(work_dir: Path) -> None:
    """Write ``predictions.json``: index, path, label, prediction and score of every test image.

    Nothing is done if the file is newer than ``metrics.json``. Raises UserError without a test.
    """
    metrics, out = work_dir / "metrics.json", work_dir / "predictions.json"
    if not metrics.is_file():
        raise UserError(f"{work_dir} has no metrics.json; run tools/test.py first")
    if out.is_file() and out.stat().st_mtime_ns >= metrics.stat().st_mtime_ns:
        return
    import torch
    from torch.utils.data import DataLoader

    from polaformer.checkpoint.io import load_weights
    from polaformer.config.load import load_config
    from polaformer.registry import DATASETS, MODELS
    from polaformer.visualization.figure import write_whole

    cfg = load_config(work_dir / "config.py")
    dataset = DATASETS.build(cfg.test_dataloader.dataset)
    model = MODELS.build(cfg.model).eval()
    checkpoint = Path(json.loads(metrics.read_text(encoding="utf-8"))["checkpoint"])
    load_weights(model, checkpoint if checkpoint.is_file() else work_dir / checkpoint.name)
    rows = []
    for batch in DataLoader(dataset, batch_size=64):
        with torch.no_grad():
            samples = model.test_step(batch)
        for sample in samples:
            score, prediction = sample["scores"].max(dim=0)
            rows.append(
                {
                    "index": int(sample["index"]),
                    "path": str(Path(dataset.samples[int(sample["index"])][0]).absolute()),
                    "label": int(sample["label"]),
                    "prediction": int(prediction),
                    "score": float(score),
                }
            )
    write_whole(out, lambda file: file.write(json.dumps(rows).encode("utf-8")))


def main(argv: list[str] | None = None) -> int:
    """Prints each page's path; returns 2 if one of the folders cannot be used."""
    args = parse_args(argv)
    from polaformer.visualization import write_report

    code = 0
    for work_dir in args.work_dir:
        try:
            if args.predict:
                predict(Path(work_dir))
            print(write_report(work_dir))
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            code = USAGE_ERROR
    return code


if __name__ == "__main__":
    run(main)

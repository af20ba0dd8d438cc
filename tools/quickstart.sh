#!/usr/bin/env bash
# From nothing to a trained PolaFormer: environment, data, training, test, pictures.
#
#   bash tools/quickstart.sh
#
# Runs from any folder. What is there is reused: a finished run only gets its page again, an interrupted
# one goes on. PYTHON and VENV choose interpreter and environment (tools/_env.sh). Exit code: 0 when the
# test reaches 97 % top-1, 1 when it does not, other codes when a step failed.
set -euo pipefail
exec </dev/null

case "${1:-}" in
  "") ;;
  -h | --help)
    sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  *)
    printf "error: unknown argument '%s'; quickstart.sh takes none but --help\n" "$1" >&2
    exit 2
    ;;
esac

# shellcheck source=tools/_env.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/_env.sh"

config=configs/classification/pola-pvt-nano_digits.py
work=work_dirs/quickstart
step="environment"
started=$SECONDS

on_exit() {
  local code=$?
  if [ "$code" -gt 1 ] || { [ "$code" -eq 1 ] && [ "$step" != done ]; }; then
    printf '\nquickstart stopped with exit code %s in step "%s".\n' "$code" "$step" >&2
    printf 'Run it again to go on from there. Logs: %s\n' "$repo/$work" >&2
  fi
}
trap on_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

begin() {
  step="$1"
  began=$SECONDS
  say ""
  say "== $step"
}
end() { say "   $step: $((SECONDS - began)) s"; }

begin "environment"
ensure_venv run requirements.txt
end

cd -- "$repo"
export PYTHONUNBUFFERED=1
# One thread trains a nano model in about a minute; more gain little, and on a machine that is busy
# with other things they wait for each other most of the time.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

begin "data: 1,797 handwritten digits"
"$venv_python" tools/prepare_data.py digits
end

begin "training"
finished="$work/.quickstart-finished"
recipe="$(cat "$config" configs/_base_/*.py configs/_base_/*/*.py | cksum | tr ' ' '-')"
if [ -f "$work/.quickstart-recipe" ] && [ "$(cat "$work/.quickstart-recipe")" != "$recipe" ]; then
  kept="$work.$(date +%Y%m%d-%H%M%S)"
  say "the recipe has changed since the last run, which moves to $kept"
  mv -- "$work" "$kept"
fi
if [ -f "$finished" ]; then
  say "reusing the finished run in $work (delete that folder to train again)"
else
  resume=""
  if ls "$work"/*.pth >/dev/null 2>&1; then
    resume="--resume"
    say "going on with the interrupted run in $work"
  fi
  mkdir -p "$work"
  printf '%s\n' "$recipe" >"$work/.quickstart-recipe"
  "$venv_python" tools/train.py "$config" --work-dir "$work" $resume
  : >"$finished"
fi
end

begin "test on the held-out digits"
if [ "$work/metrics.json" -nt "$finished" ]; then
  say "reusing $work/metrics.json"
else
  # The last weights, not those that were best on the very images of the test.
  checkpoint="$work/$(basename -- "$(cat "$work/last_checkpoint")")"
  "$venv_python" tools/test.py "$config" "$checkpoint" --work-dir "$work"
fi
end

begin "pictures and page"
"$venv_python" tools/report.py "$work" >/dev/null
end

top1="$("$venv_python" -c '
import json, sys
print("%.2f" % json.load(open(sys.argv[1]))["metrics"]["top1"])' "$work/metrics.json")"
step="done"
say ""
say "top-1 on the held-out digits: $top1 %"
say "page:       $repo/$work/report.html"
say "picture:    $repo/$work/overview.png"
say "weights:    $repo/$work ($(basename -- "$(cat "$work/last_checkpoint")"))"
say "total time: $((SECONDS - started)) s"
if ! "$venv_python" -c 'import sys; sys.exit(float(sys.argv[1]) < 97)' "$top1"; then
  printf 'warning: %s %% is below the 97 %% that this recipe reaches\n' "$top1" >&2
  exit 1
fi

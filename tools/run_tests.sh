#!/usr/bin/env bash
# Lint, format, types, import contracts and tests; every step runs even if an earlier one fails.
#
#   bash tools/run_tests.sh                    everything
#   bash tools/run_tests.sh -m "not slow"      arguments go to pytest
#
# PYTHON and VENV choose interpreter and environment (tools/_env.sh). Exit code: 0 if all steps passed.
set -euo pipefail
exec </dev/null

# shellcheck source=tools/_env.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/_env.sh"
ensure_venv dev requirements-dev.txt requirements.txt
cd -- "$repo"
# One thread: two on a busy machine of two cores can be fifty times slower.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

failed=0
summary=()

run_step() {
  local name="$1" began=$SECONDS result=ok
  shift
  printf '\n== %s\n' "$name"
  "$@" || { result=FAILED && failed=1; }
  summary+=("$(printf '%-18s %-7s %4d s' "$name" "$result" $((SECONDS - began)))")
}

contracts() {
  "$venv_python" -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'
}

output="$(mktemp "${TMPDIR:-/tmp}/polaformer-tests.XXXXXX")"
trap 'rm -f -- "$output"' EXIT
tests() { "$venv_python" -m pytest "$@" 2>&1 | tee -- "$output"; }

run_step "ruff check" "$venv_python" -m ruff check .
run_step "ruff format" "$venv_python" -m ruff format --check .
run_step "mypy" "$venv_python" -m mypy
run_step "import contracts" contracts
run_step "pytest" tests "$@"

printf '\n== summary\n'
printf '%s\n' "${summary[@]}"
tail -n 1 -- "$output"
exit "$failed"

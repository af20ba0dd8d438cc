# Sourced by quickstart.sh and run_tests.sh: the Python environment that both use.
#
#   PYTHON   the interpreter that makes the environment   (default: the first that is new enough)
#   VENV     where the environment is                     (default: .venv in the repository)
#
# A marker inside the environment holds a checksum of the requirements. While it agrees nothing is
# installed and no network is needed. Otherwise the environment is completed, or made anew if broken.

# An absolute path, as this file may be sourced from anywhere; spaces are allowed in it.
repo="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"
VENV="${VENV:-$repo/.venv}"
case "$VENV" in /*) ;; *) VENV="$PWD/$VENV" ;; esac
venv_python="$VENV/bin/python"

say() { printf '%s\n' "$*"; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}

# The pinned packages have no wheels below 3.11, whatever the package itself would accept.
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# Set `python` to an interpreter that can make the environment, or stop and say what to do.
find_python() {
  local candidate candidates=(python3 python3.13 python3.12 python3.11)
  [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
  python=""
  for candidate in "${candidates[@]}"; do
    if new_enough "$candidate"; then
      python="$candidate"
      break
    fi
  done
  [ -n "$python" ] || fail "no Python 3.11 or newer among: ${candidates[*]}.
  Install one, or name one: PYTHON=/path/to/python3.11 bash tools/..."
  "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
    fail "'$python' cannot make environments. On Debian and Ubuntu: apt install python3-venv"
}

# requirements_sum FILE...: one word that changes when a file does.
requirements_sum() { (cd -- "$repo" && cat -- "$@" | cksum | tr ' ' '-'); }

# marker_agrees KIND FILE...: what FILE... ask for is installed, for this checkout.
marker_agrees() {
  local marker="$VENV/.polaformer-$1"
  shift
  [ -f "$marker" ] && [ "$(cat -- "$marker")" = "$(requirements_sum "$@") $repo" ]
}

set_marker() {
  local marker="$VENV/.polaformer-$1"
  shift
  printf '%s %s\n' "$(requirements_sum "$@")" "$repo" >"$marker"
}

# The interpreter of the environment starts and has pip.
venv_starts() { [ -x "$venv_python" ] && "$venv_python" -c 'import pip' >/dev/null 2>&1; }

make_venv() {
  find_python
  if [ -d "$VENV" ] && [ ! -e "$VENV/pyvenv.cfg" ] && [ -n "$(ls -A -- "$VENV")" ]; then
    fail "VENV=$VENV is a folder with other things in it; name another one"
  fi
  say "environment: making $VENV with $("$python" -V 2>&1)"
  "$python" -m venv --clear "$VENV"
}

install_into_venv() {
  local pip=("$venv_python" -m pip install --disable-pip-version-check --no-input)
  "${pip[@]}" -r "$repo/$1" && "${pip[@]}" --no-deps -e "$repo"
}

# What an installation that was cut off leaves behind usually fails here.
venv_imports() {
  "$venv_python" -c 'import torch, torchvision, timm, mmengine, sklearn, matplotlib, polaformer' \
    >/dev/null
}

# ensure_venv KIND FILE...: make, complete or reuse the environment. KIND (run, dev) names the marker,
# the first FILE is what pip installs and the others are what it includes.
ensure_venv() {
  local kind="$1"
  shift
  if venv_starts && marker_agrees "$kind" "$@"; then
    say "environment: $VENV is complete, nothing to install"
    return
  fi
  local fresh=no
  if ! venv_starts; then
    [ ! -e "$VENV" ] || say "environment: $VENV is broken or half made"
    make_venv
    fresh=yes
  fi
  say "environment: installing $1 into $VENV (several GB and some minutes the first time)"
  if ! { install_into_venv "$1" && venv_imports; }; then
    [ "$fresh" = no ] || fail "the packages could not be installed; see above"
    say "environment: $VENV cannot be completed, making it anew"
    make_venv
    install_into_venv "$1" && venv_imports || fail "the packages could not be installed; see above"
  fi
  set_marker "$kind" "$@"
  # The development requirements include those of a run.
  [ "$kind" != dev ] || set_marker run requirements.txt
}

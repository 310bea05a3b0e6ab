#!/bin/sh
# Make the environment of a checkout: sh deploy/setup.sh [demo|dev]
#
#   demo  what `farside up` and `farside demo` need (the default)
#   dev   that, and the tools of `make check` and `make test`
#
# It installs the exact versions of requirements/ by their hashes, with uv where there is one, else
# with venv and pip, and then the checkout itself. When nothing has changed since the last time it
# does nothing, without a network. Exit code 3: something is absent; the one line says what brings it.
#
#   PYTHON=…  the interpreter to use (default: python3, else the newest python3.N from 3.11 on)
#   VENV=…    where the environment goes (default: .venv)
#   UV=…      the uv to use; empty: none

set -eu
cd "$(dirname "$0")/.."
set_name=${1:-demo}
venv=${VENV:-.venv}
uv=${UV-$(command -v uv || true)}

absent() {
    echo "farside: $1" >&2
    exit 3
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" || absent "PYTHON=$PYTHON is no Python 3.11 or newer"
        return
    fi
    for PYTHON in python3 python3.14 python3.13 python3.12 python3.11; do
        if new_enough "$PYTHON"; then return; fi
    done
    command -v python3 >/dev/null 2>&1 ||
        absent "python3 is missing; this brings it: apt-get install -y python3 python3-venv"
    absent "Python 3.11 or newer is missing; install one and set PYTHON=/path/to/python3"
}

check_venv() {
    package=python3-venv
    case $PYTHON in python3.*) package=$PYTHON-venv ;; esac
    "$PYTHON" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
        absent "$package is missing; this brings it: apt-get install -y $package"
}

make_environment() {
    [ -n "$uv" ] || check_venv
    mkdir -p "$venv" 2>/dev/null && [ -w "$venv" ] ||
        absent "$venv can't be made by this user; set VENV to a folder of your own"
    if [ -n "$uv" ]; then
        "$uv" venv --quiet --clear --python "$PYTHON" "$venv"
    else
        "$PYTHON" -m venv --clear "$venv"
    fi
}

install() {
    if [ -n "$uv" ]; then
        "$uv" pip install --quiet --python "$venv/bin/python" "$@"
    else
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
    fi
}

# What the environment was made from: any change of it means to install again.
stamp() { cat "requirements/$1.txt" pyproject.toml | cksum; }

current() {
    stamp_file=$venv/.farside-$1
    [ -f "$stamp_file" ] && [ "$(cat "$stamp_file")" = "$(stamp "$1")" ]
}

case $set_name in
demo | dev) ;;
*) echo "usage: sh deploy/setup.sh [demo|dev]" >&2 && exit 2 ;;
esac

if new_enough "$venv/bin/python"; then
    # dev holds all that demo needs
    if current dev || current "$set_name"; then exit 0; fi
else
    find_python
    make_environment
fi
[ -w "$venv" ] || absent "$venv belongs to someone else; set VENV to a folder of your own"
if [ -z "$uv" ] && ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    find_python # an environment that uv made, and uv is gone
    make_environment
fi

# A home that can't be written (a service's user, a container) is no place for a cache.
if [ ! -w "${HOME:-/nonexistent}" ]; then
    export PIP_NO_CACHE_DIR=1 UV_NO_CACHE=1
fi
echo "farside: installing into $venv (once; about a minute) …" >&2
install --require-hashes -r "requirements/$set_name.txt"
install --no-deps --no-build-isolation --editable .
stamp "$set_name" >"$venv/.farside-$set_name"

#!/bin/sh
# Makes DESTINATION, a folder with all that the image adds to its base: a virtual environment that holds the runtime
# part of requirements.lock and Headroom, compiled, writable by its owner only. The Dockerfile calls this; users may, too,
# to get that folder without a container engine. It stays where it was made: its scripts name their interpreter.
# usage: deploy/image/build.sh DESTINATION     (with python3 of version 3.11 or newer in PATH)
set -eu
umask 022

destination=${1:?usage: $0 DESTINATION}
here=$(cd "$(dirname "$0")" && pwd)
if [ -e "$destination" ]; then
    echo "$0: $destination is there already" >&2
    exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 "$here/locked.py" build >"$work/build.txt"
python3 "$here/locked.py" runtime >"$work/runtime.txt"

pip() { "$work/tools/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
pip_destination() { pip --python "$destination/bin/python" "$@"; }
# Wheels only: nothing is compiled from C here, and a platform without a wheel is refused.
locked="install --require-hashes --only-binary :all: --no-compile --requirement"

# Our own wheel is made by the locked build tools, in an environment that is thrown away.
python3 -m venv "$work/tools"
pip $locked "$work/build.txt"
pip wheel --no-deps --no-build-isolation --wheel-dir "$work/wheel" "$here/../.."

# The environment that stays has no pip. Our wheel comes by its name, so that no path of this build is recorded.
python3 -m venv --without-pip "$destination"
pip_destination $locked "$work/runtime.txt"
pip_destination install --no-deps --no-index --find-links "$work/wheel" --no-compile headroom
pip_destination check
rm "$destination"/bin/[Aa]ctivate* "$destination"/bin/*.py  # unused scripts

"$here/precompile.sh" "$destination/lib"
du -sh "$destination"

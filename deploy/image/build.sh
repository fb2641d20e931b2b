#!/bin/sh
# Makes DESTINATION, a folder with all that the image of a component adds to its base: a virtual environment that holds
# the component's group of requirements.lock and its part of Headroom, compiled, writable by its owner only. The
# Dockerfile calls this; users may, too, to get that folder without a container engine. It stays where it was made: its
# files name their interpreter. Of another ARCHITECTURE it holds the wheels, and the links to the interpreter are the same.
# For a folder that is moved into an image, PREFIX is its path there, and INTERPRETER that of the base's Python. Of
# `command`, the command line, only the packages are of use: a file of one is made of them.
# usage: deploy/image/build.sh agent|manager|command DESTINATION [amd64|arm64]     (with python3, 3.11 or newer, in PATH)
set -eu
umask 022

usage="usage: $0 agent|manager|command DESTINATION [amd64|arm64]"
component=${1:?$usage}
destination=${2:?$usage}
case $component in
    agent) others="deploy manager" ;;
    manager) others="agent" ;;
    command) others="" ;;
    *) echo "$usage: not $component" >&2; exit 2 ;;
esac
case ${3:-$(uname -m)} in
    amd64 | x86_64) machine=x86_64 ;;
    arm64 | aarch64) machine=aarch64 ;;
    *) echo "$usage: not ${3:-$(uname -m)}" >&2; exit 2 ;;
esac
prefix=${PREFIX:-$destination}
interpreter=${INTERPRETER:-$(python3 -c 'import sys; print(sys._base_executable)')}
here=$(cd "$(dirname "$0")" && pwd)
if [ -e "$destination" ]; then
    echo "$0: $destination is there already" >&2
    exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 "$here/locked.py" build >"$work/build.txt"
python3 "$here/locked.py" "$component" >"$work/component.txt"

pip() { "$work/tools/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
# Wheels only: nothing is compiled from C here, and a platform without a wheel is refused.
locked="install --require-hashes --only-binary :all: --no-compile"

# Our own wheel is made by the locked build tools, in an environment that is thrown away.
python3 -m venv "$work/tools"
pip $locked --requirement "$work/build.txt"
pip wheel --no-deps --no-build-isolation --wheel-dir "$work/wheel" "$here/../.."

# The environment that stays has no pip, and the wheels of its machine, which need not be this one.
packages=$destination/lib/$(python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')/site-packages
mkdir -p "$destination/bin" "$packages"
printf 'home = %s\ninclude-system-site-packages = false\n' "$(dirname "$interpreter")" >"$destination/pyvenv.cfg"
ln -s "$interpreter" "$destination/bin/python3"
ln -s python3 "$destination/bin/python"
for glibc in _2_17 2014 _2_26 _2_27 _2_28 _2_31 _2_34 _2_35 _2_36; do
    locked="$locked --platform manylinux${glibc}_$machine"
done
pip $locked --no-deps --target "$packages" --requirement "$work/component.txt"
rm -r "$packages/bin"  # these scripts name the interpreter of the build
# Our wheel comes by its name, so that no path of this build is recorded.
pip install --no-deps --no-index --find-links "$work/wheel" --no-compile --target "$packages" headroom-k8s
rm -r "$packages/bin"
sed -i '/^\(\.\.\/\)*bin\//d' "$packages"/*.dist-info/RECORD
for other in $others; do rm -r "$packages/$other"; done
find "$packages"/numpy -type d -name tests -prune -exec rm -r {} +  # its own, 16 MiB
if [ "$component" = manager ]; then
    printf '#!%s/bin/python\nfrom deploy.entry import main\n\nmain()\n' "$prefix" >"$destination/bin/headroom"
    chmod 755 "$destination/bin/headroom"
fi

"$here/precompile.sh" -s "$destination" -p "$prefix" "$destination/lib"
du -sh "$destination"

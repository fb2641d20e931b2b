#!/bin/sh
# Compiles every module below the given folders, since at run time the file system is read-only. The result is never
# compared with its source again, so copying the files, which may change their times, does not spoil it.
# The tests of the standard library are left out, which some bases bring: among them are files that do not compile.
# The order of what a set holds, and so the bytecode, is the same in each build.
# usage: deploy/image/precompile.sh [-s STRIPPED -p PREPENDED] FOLDER...
set -eu
umask 022
export PYTHONHASHSEED=0
exec python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/(test|lib2to3/tests)/' "$@"

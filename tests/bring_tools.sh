#!/bin/sh
# Bring what some tests need from outside of Python: a browser, and tools that make and disturb networks.
#
# As root on Debian and its relatives they are installed; anywhere else, and without a network, this only says what is
# missing: the tests that need it skip, and say so too. It never fails.

missing=''
packages=''
for pair in chromium:chromium ip:iproute2 iptables:iptables; do
    tool=${pair%%:*}
    # /usr/sbin is not in everybody's path, but that is where iptables is.
    PATH="$PATH:/usr/sbin:/sbin" command -v "$tool" >/dev/null 2>&1 || {
        missing="$missing $tool"
        packages="$packages ${pair##*:}"
    }
done
[ -z "$missing" ] && exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing for the tests:$packages"
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    # A machine without a network must not make anybody wait.
    patience='-o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o DPkg::Lock::Timeout=60'
    # shellcheck disable=SC2086 # both are lists of words
    if { apt-get $patience -qq update && apt-get $patience -qq install -y --no-install-recommends $packages; } >"$log" 2>&1
    then
        rm -f "$log"
        exit 0
    fi
    echo "They could not be installed; the end of what apt-get said:"
    tail -n 5 "$log"
    rm -f "$log"
else
    echo "Not installed:$missing. As root on Debian: apt-get install$packages"
fi
case "$missing" in *chromium*) echo "Tests of pages in a browser are skipped." ;; esac
case "$missing" in *ip*) echo "Tests of several hosts in network namespaces are skipped." ;; esac
exit 0

#!/bin/sh
# Install what some tests need besides Python packages: a browser, tools that make and disturb networks, containers, a Slurm, and
# a server of SSH.
#
# As root on Debian and its derivatives they are installed; otherwise, and without a network, this prints what is missing,
# and the tests that need it skip. It never fails.

missing=''
packages=''
for pair in chromium-headless-shell:chromium-headless-shell ip:iproute2 iptables:iptables podman:podman runc:runc \
    busybox:busybox-static slurmctld:slurmctld slurmd:slurmd srun:slurm-client sshd:openssh-server; do
    tool=${pair%%:*}
    # Some are in /usr/sbin, which is not in the path of all users.
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
    # Without a network, give up soon.
    patience='-o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o DPkg::Lock::Timeout=60'
    bring() {
        # shellcheck disable=SC2086 # both are lists of words
        apt-get $patience -qq update &&
            case "$packages" in *chromium-headless-shell*)
                # Only newer releases have it. With the whole browser, pages take twice the processor time.
                apt-cache show chromium-headless-shell || packages="chromium ${packages#*chromium-headless-shell}" ;;
            esac &&
            apt-get $patience -qq install -y --no-install-recommends $packages
    }
    if bring >"$log" 2>&1; then
        rm -f "$log"
        exit 0
    fi
    echo "They could not be installed; the end of the output of apt-get:"
    tail -n 5 "$log"
    rm -f "$log"
else
    echo "Not installed:$missing. As root on Debian: apt-get install$packages"
fi
case "$missing" in *chromium*) command -v chromium >/dev/null || echo "Tests of pages in a browser are skipped." ;; esac
case "$missing" in *podman* | *busybox*) echo "Tests of containers are skipped." ;; esac
case "$missing" in *slurm*) echo "Tests of Slurm are skipped." ;; esac
case "$missing" in *ip*) echo "Tests of several hosts in network namespaces are skipped." ;; esac
exit 0

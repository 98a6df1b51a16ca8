#!/usr/bin/env bash
# Runs docker/check.sh on a Debian machine that has neither a Docker engine nor an image registry, as root:
# podman and runc from Debian, base images made of Debian's packages under the official names, and containers
# in a network of their own that knows only its loopback.
#
#   CACHE   a folder to keep tools and images in for the next run (about 700 MB; default: a temporary one)
# shellcheck disable=SC2016 # what is in single quotes there is for other programs to expand
set -euo pipefail
self=$(realpath "${BASH_SOURCE[0]}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [ -z "${CACHE:-}" ]; then
    CACHE=$(mktemp -d "${TMPDIR:-/tmp}/envq-containers.XXXXXX")
    TEMPORARY=yes
fi
CERTIFICATES=/etc/ssl/certs/ca-certificates.crt

# Nothing of this lands in /etc or /var/lib/containers.
export CONTAINERS_STORAGE_CONF=$CACHE/storage.conf CONTAINERS_CONF=$CACHE/containers.conf
export BUILDAH_FORMAT=docker   # the other format has no health checks
export DISABLE_HC_SYSTEMD=true # nobody but check.sh asks for them

settings() {
    mkdir -p "$CACHE/networks"
    cat >"$CONTAINERS_STORAGE_CONF" <<CONF
[storage]
driver = "overlay"
graphroot = "$CACHE/storage"
runroot = "$CACHE/run"
CONF
    # Without the right to raise limits podman may not ask for more than the machine's own.
    local files processes most
    files=$(ulimit -Hn) processes=$(ulimit -Hu) most=$(cat /proc/sys/kernel/pid_max)
    [ "$files" != unlimited ] || files=1048576
    { [ "$processes" != unlimited ] && [ "$processes" -le "$most" ]; } || processes=$most
    cat >"$CONTAINERS_CONF" <<CONF
[containers]
default_ulimits = ["nofile=$files:$files", "nproc=$processes:$processes"]
[network]
network_config_dir = "$CACHE/networks"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "$CACHE/tmp"
CONF
}

tools() {
    local package missing=()
    for package in podman runc mmdebstrap catatonit netavark iproute2 python3-venv; do
        dpkg -s "$package" 2>/dev/null | grep -q '^Status: install ok installed' || missing+=("$package")
    done
    if [ ${#missing[@]} -gt 0 ]; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    fi
    if [ ! -x "$CACHE/tools/bin/podman-compose" ]; then
        python3 -m venv "$CACHE/tools"
        "$CACHE/tools/bin/pip" install --quiet --disable-pip-version-check podman-compose
    fi
}

mirror() { # where this machine gets the packages of a suite from
    apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
        awk -v suite="$1" '$1 == suite { print $2; exit }'
}

base_images() { # one file system serves as both: /usr/local is laid out as in the official Python image
    local suite sources=() each
    # shellcheck source=/dev/null
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    ! podman image exists docker.io/library/redis:7 || return 0
    for each in "$suite" "$suite-security"; do
        [ -z "$(mirror "$each")" ] || sources+=("deb $(mirror "$each") $each main")
    done
    mmdebstrap --quiet --mode=root --variant=minbase --include=ca-certificates,python3-venv,redis-server \
        --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Check-Date "false"' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --customize-hook='chroot "$1" python3 -m venv /usr/local' \
        --customize-hook='mkdir "$1/data"' \
        "$suite" "$CACHE/base.tar" "${sources[@]}"
    podman import --quiet --change 'ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' --change 'ENV LANG=C.UTF-8' \
        --change 'WORKDIR /data' "$CACHE/base.tar" docker.io/library/redis:7 >/dev/null
    podman tag docker.io/library/redis:7 "docker.io/library/python:$(python_version)-slim"
    rm "$CACHE/base.tar"
}

python_version() {
    podman run --rm --network none docker.io/library/redis:7 python -c 'import sys; print("%d.%d" % sys.version_info[:2])'
}

tidy() { # no container lives on: forget the run state, as a reboot does
    umount "$CACHE/storage/overlay" 2>/dev/null || true
    find /sys/fs/cgroup -depth -type d -path '*libpod_parent*' -exec rmdir {} + 2>/dev/null || true
    rm -rf "$CACHE/run" "$CACHE/tmp"
    [ -z "${TEMPORARY:-}" ] || rm -rf "$CACHE"
}

# Every process that is started in here ends with it. Builds keep the machine's network, for pip.
alone() { unshare --pid --fork --mount-proc --kill-child "$@"; }
offline() { unshare --net --pid --fork --mount-proc --kill-child sh -c 'ip link set lo up && exec "$@"' offline "$@"; }

step() {
    echo "==> $1 ($SECONDS s)"
    shift
    "$@"
}

case ${1:-all} in
_base_images) base_images ;; # called again inside the namespaces
_python_version) python_version ;;
all)
    trap tidy EXIT
    settings
    step "tools" tools
    export PATH=$CACHE/tools/bin:$PATH CACHE
    step "base images" alone bash "$self" _base_images
    version=$(alone bash "$self" _python_version)
    export ENGINE=podman
    export BUILD_OPTIONS="--pull-never --network=host --build-arg PYTHON_VERSION=$version-slim -v ${SSL_CERT_FILE:-$CERTIFICATES}:$CERTIFICATES:ro"
    export COMPOSE="podman-compose --podman-run-args=--pull=never" COMPOSE_FILES=docker/compose.loopback.yaml
    # podman-compose reads the files but has no command that only checks them.
    export COMPOSE_CONFIG="podman-compose"
    step "docker/check.sh build" alone bash docker/check.sh build
    step "docker/check.sh run" offline bash docker/check.sh run
    echo "==> done ($SECONDS s)"
    ;;
*) sed -n '2,6p' "$self" >&2; exit 2 ;;
esac

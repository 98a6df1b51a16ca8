#!/usr/bin/env bash
# Builds the image and tries it and the compose file for real, with Docker or Podman:
#
#   docker/check.sh          all of it
#   docker/check.sh build    the image only
#   docker/check.sh run      the image that is there
#
# Variables, for engines that need more than their defaults:
#   ENGINE          docker or podman (default: whichever is found)
#   BUILD_OPTIONS   further options of `ENGINE build`
#   COMPOSE         the compose command (default: "ENGINE compose")
#   COMPOSE_CONFIG  the compose command that checks the files (default: COMPOSE)
#   COMPOSE_FILES   files on top of compose.yaml, e.g. docker/compose.loopback.yaml
#   WEB_PORT        where the web app is published (default: 8000)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ENGINE=${ENGINE:-$(command -v docker || command -v podman)} || { echo "neither docker nor podman is here" >&2; exit 1; }
read -ra BUILD <<<"${BUILD_OPTIONS:-}"
read -ra COMPOSE <<<"${COMPOSE:-$ENGINE compose}"
read -ra CONFIG <<<"${COMPOSE_CONFIG:-${COMPOSE[*]}}"
FILES=(-f docker/compose.yaml)
for file in ${COMPOSE_FILES:-}; do FILES+=(-f "$file"); done
export WEB_PORT=${WEB_PORT:-8000}
readonly IMAGE=envq:dev PROJECT=envq-check WAIT_S=60

step() { printf '%4d s  %s\n' "$SECONDS" "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
compose() { "${COMPOSE[@]}" -p "$PROJECT" "${FILES[@]}" "$@"; }
inside() { compose exec -T "$@" </dev/null; }
container() {
    "$ENGINE" ps -aq --filter "label=com.docker.compose.project=$PROJECT" --filter "label=com.docker.compose.service=$1"
}
alone() { "$ENGINE" run --rm --network none --read-only --tmpfs /tmp --cap-drop ALL "$@"; }

build() {
    step "build $IMAGE"
    "$ENGINE" build ${BUILD[@]+"${BUILD[@]}"} --build-arg PACKAGES="fastapi uvicorn" -t "$IMAGE" -f docker/Dockerfile .
}

image() {
    step "the image: user, entry point, health check"
    local facts
    facts=$("$ENGINE" image inspect "$IMAGE" | tr -d ' \n')
    grep -q '"User":"10001:10001"' <<<"$facts" || fail "the image does not name a user without rights"
    grep -q '"Entrypoint":\["envq"\]' <<<"$facts" || fail "the entry point is not envq"
    grep -q '"CMD","envq","health"' <<<"$facts" || fail "there is no health check"

    step "the image: runs without rights, on a read-only file system"
    alone "$IMAGE" --version | grep -q '^envq ' || fail "the image does not start"
    [ "$(alone --entrypoint id "$IMAGE" -u)" = 10001 ] || fail "the container does not run as user 10001"
    alone --entrypoint python "$IMAGE" -c 'import envq, envq.cli.run_worker'
}

files() {
    step "the compose files are valid"
    "${CONFIG[@]}" "${FILES[@]}" config -q
}

up() {
    step "up"
    trap down EXIT
    compose up -d --no-build
    step "the web app answers, jobs run, and find the model clean"
    python3 - "http://127.0.0.1:$WEB_PORT" "$WAIT_S" <<'PYTHON' || { compose logs >&2; fail "over HTTP"; }
import json, sys, time, urllib.request

base, patience = sys.argv[1], float(sys.argv[2])

def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)

deadline = time.monotonic() + patience
while True:
    try:
        ask("/health")
        break
    except OSError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.2)
for _ in range(6):
    answer = ask("/predict", {"text": "what a lovely day"})
    assert (answer["label"], answer["texts_in_the_model"]) == ("praise", 1), answer
assert ask("/jobs/" + answer["job"])["status"] == "finished"
PYTHON
}

worker() {
    step "the worker: healthy, process 1, without rights, on a read-only file system"
    inside worker envq health || fail "the worker says it is not healthy"
    inside worker sh -c 'tr "\0" " " </proc/1/cmdline' | grep -q 'envq worker' || fail "envq is not process 1"
    [ "$(inside worker id -u | tr -d '\r')" = 10001 ] || fail "the worker does not run as user 10001"
    inside worker sh -c '! touch /opt/envq/x /app/x 2>/dev/null' || fail "the file system can be written"
    inside worker sh -c 'grep -q "^CapEff:[[:space:]]*0*$" /proc/self/status' || fail "the worker has capabilities"
}

stop() {
    step "SIGTERM: the job that runs ends, exit code 0"
    local id
    id=$(inside web python -c 'import time, envq; print(envq.Queue().enqueue(time.sleep, 3).id)' | tr -d '\r')
    inside web python -c '
import sys, time, envq
while envq.Job.fetch(sys.argv[1]).get_status() == "queued":
    time.sleep(0.05)' "$id"
    "$ENGINE" stop -t 30 "$(container worker)" >/dev/null
    local code
    code=$("$ENGINE" inspect -f '{{.State.ExitCode}}' "$(container worker)")
    [ "$code" = 0 ] || { compose logs worker >&2; fail "the worker exited with $code"; }
    inside web python -c 'import sys, envq; sys.exit(envq.Job.fetch(sys.argv[1]).get_status() != "finished")' "$id" ||
        fail "the job that ran did not end"
}

down() {
    step "down"
    compose down -v -t 5 >/dev/null 2>&1 || true
}

case ${1:-all} in
build) build ;;
run) image; files; up; worker; stop ;;
all) build; image; files; up; worker; stop ;;
*) sed -n '2,15p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac

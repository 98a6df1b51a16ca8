#!/bin/sh
# Fills $PEERS_VENVS (about 0.5 GB) with one virtual environment for each peer, each with the newest redis-py (and
# hiredis) that the peer allows, and with envq as it is in this checkout. PYTHON picks the interpreter;
# names of peers as arguments: only those. To measure a changed envq: make_venvs.sh envq
set -eu
: "${PEERS_VENVS:?set PEERS_VENVS to the folder to fill}"
PYTHON=${PYTHON:-python3}
CHECKOUT=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$PEERS_VENVS"
ONLY=" $* "
make() {
    name=$1; shift
    case "$ONLY" in "  " | *" $name "*) ;; *) return 0 ;; esac
    [ -x "$PEERS_VENVS/$name/bin/python" ] || "$PYTHON" -m venv "$PEERS_VENVS/$name"
    "$PEERS_VENVS/$name/bin/pip" install --quiet --disable-pip-version-check "$@"
    "$PEERS_VENVS/$name/bin/pip" freeze > "$PEERS_VENVS/$name.txt"
}
rm -rf "$CHECKOUT/build/lib" # pip builds in the checkout: what an earlier build left there would be installed too
make envq     --upgrade "$CHECKOUT" py-spy
case "$ONLY" in "  " | *" envq "*)
    git -C "$CHECKOUT" describe --always --exclude '*' --abbrev=10 --dirty=+ > "$PEERS_VENVS/envq.commit" || true ;;
esac
make floor    redis hiredis
make rq       rq redis hiredis
make celery   "celery[redis]" redis hiredis
make dramatiq "dramatiq[redis]" redis hiredis
make huey     huey redis hiredis
make arq      arq redis hiredis
make taskiq   taskiq taskiq-redis redis hiredis
make taskiq-uvloop taskiq taskiq-redis redis hiredis uvloop
make saq      "saq[redis]" hiredis uvloop typing_extensions  # imported by SAQ 0.26 without being required
make streaq   streaq uvloop

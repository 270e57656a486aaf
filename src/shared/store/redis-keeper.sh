#!/bin/sh
# Keeps one private Redis alive as long as any process uses it, and no longer.
#
#   sh redis-keeper.sh RUN_FOLDER ENDPOINT_FILE SERVER_COMMAND…      with the read end of RUN_FOLDER/users as descriptor 3
#
# Every user holds the write end of that FIFO open. The kernel closes it with the process, also after kill -9, so the end
# of the file means that the last user is gone: then the server gets SIGTERM and the run folder and the endpoint file go.
# A user that attaches writes its token as a line, and the keeper answers with the file RUN_FOLDER/welcome-TOKEN. No
# answer can come after the end of the file, so whoever is answered holds a server that stays.
#
# A server that ends by itself is started again on the same data and socket, five times within a minute of each other.
#
# Files in the run folder: users (the FIFO), server.pid, closing (no more restarts), ended (the server is gone for good),
# failed (it was given up).

run=${1:?}
endpoint=${2:?}
shift 2

# Ctrl-C and a closed terminal are for the users to answer, not for us.
trap '' INT HUP QUIT

say() {
  echo "$(date '+%Y-%m-%d %H:%M:%S') $1"
}

supervise() {
  failures=0
  until [ -e "$run/closing" ]; do
    started=$(date +%s)
    "$@" &
    echo $! >"$run/server.pid"
    wait $!
    code=$?
    if [ -e "$run/closing" ]; then break; fi
    if [ $(($(date +%s) - started)) -ge 60 ]; then failures=0; fi
    failures=$((failures + 1))
    if [ "$failures" -gt 5 ]; then
      say "the server ended with code $code; giving it up after $failures times"
      : >"$run/failed"
      break
    fi
    say "the server ended with code $code; starting it again ($failures of 5)"
    sleep 0.1
  done
  : >"$run/ended"
}

finish() {
  : >"$run/closing"
  rounds=0
  until [ -e "$run/ended" ]; do
    # Sent again each round: a restart may have been under way, and redis-server takes the second one calmly.
    signal=TERM
    if [ "$rounds" -gt 200 ]; then signal=KILL; fi
    kill -s "$signal" "$(cat "$run/server.pid" 2>/dev/null)" 2>/dev/null
    rounds=$((rounds + 1))
    sleep 0.05
  done
  rm -rf "${run:?}"
  # Last of all: while this file stands, whoever starts waits for us.
  rm -f "$endpoint"
  exit 0
}

trap finish TERM

# Only the keeper itself may hold the FIFO: its being open for reading is the proof that the keeper lives. Closed by
# `exec`, because a redirection of the call would keep a copy to restore afterwards.
(
  exec 3<&-
  supervise "$@"
) &

while read -r token <&3; do
  case $token in
    *[!0-9a-f]* | '') ;;
    *) : >"$run/welcome-$token" ;;
  esac
done
finish

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
# A server that ends by itself is started again on the same data and socket: at once the first five times within a minute
# of each other, then ever more slowly, down to every ten seconds.
#
# While there may be a server, the file `alive` next to the endpoint file is written every two seconds. It tells those
# who see the data folder and not the run folder: a service with a /tmp of its own, a container.
#
# Files in the run folder: users (the FIFO), closing (no more restarts), ended (the server is gone for good), failed (it
# does not stay).

run=${1:?}
endpoint=${2:?}
alive=${endpoint%/*}/alive
host=$(uname -n)
shift 2

# Ctrl-C and a closed terminal are for the users to answer, not for us.
trap '' INT HUP QUIT

say() {
  echo "$(date '+%Y-%m-%d %H:%M:%S') $1"
}

# `:` instead of `true` would end the shell where the file cannot be written.
mark() {
  true >"$1"
} 2>/dev/null

# A signal interrupts `wait`, but would have to wait for the end of a `sleep`.
nap() {
  sleep "$1" &
  napping=$!
  wait "$napping" || kill "$napping" 2>/dev/null
}

sign() {
  echo "$run on $host" >"$alive"
  # Temporary folders are cleared of what nobody has touched for days.
  touch -c "$run" "$run"/*
} 2>/dev/null

beat() {
  trap 'kill "$napping"; exit' TERM
  while kill -0 "$supervisor"; do
    sign
    nap 2
  done
} 2>/dev/null

is_own() {
  read -r line <"$1" && case $line in *"${run##*/}"*) true ;; *) false ;; esac
} 2>/dev/null

# Another server may have begun in the data folder since: what is its own stays. Without the endpoint file nothing of ours
# is written there any more.
leave() {
  if is_own "$alive"; then rm -f "$alive"; fi
  if is_own "$endpoint"; then rm -f "$endpoint"; fi
}

is_closing() {
  [ -n "$closing" ] || [ -e "$run/closing" ] || [ ! -d "$run" ]
}

stop() {
  closing=yes
  signals=$((signals + 1))
  signal=TERM
  if [ "$signals" -gt 200 ]; then signal=KILL; fi
  if [ -n "$server" ]; then kill -s "$signal" "$server" 2>/dev/null; fi
}

supervise() {
  server='' closing='' signals=0 failures=0
  trap stop TERM
  # In here `$$` is still the keeper.
  supervisor=$(exec sh -c 'echo "$PPID"')
  sign
  beat &
  heart=$!
  until is_closing; do
    started=$(date +%s)
    "$@" &
    server=$!
    # A signal of a moment ago found no server.
    if is_closing; then stop; fi
    wait "$server"
    code=$?
    # A signal ends the wait, and not always the server.
    while [ "$code" -gt 128 ] && kill -0 "$server" 2>/dev/null; do
      wait "$server"
      code=$?
    done
    server=''
    if is_closing; then break; fi
    if [ $(($(date +%s) - started)) -ge 60 ]; then
      failures=0
      rm -f "$run/failed"
    fi
    failures=$((failures + 1))
    if [ "$failures" -le 5 ]; then
      tenths=1
      say "the server ended with code $code; starting it again ($failures of 5)"
    else
      mark "$run/failed"
      tenths=$((tenths * 2))
      if [ "$tenths" -gt 100 ]; then tenths=100; fi
      say "the server ended with code $code, $failures times now; starting it again in $((tenths / 10)).$((tenths % 10)) s"
    fi
    nap "$((tenths / 10)).$((tenths % 10))"
  done
  kill "$heart" 2>/dev/null
  wait "$heart"
  leave
  mark "$run/ended"
}

finish() {
  mark "$run/closing"
  # Sent again each round: a restart may have been under way, and redis-server takes the second one calmly.
  until [ -e "$run/ended" ] || ! kill -s TERM "$supervisor" 2>/dev/null; do
    sleep 0.05
  done
  leave
  rm -rf "${run:?}"
  exit 0
}

trap finish TERM

# Only the keeper itself may hold the FIFO: its being open for reading is the proof that the keeper lives. Closed by
# `exec`, because a redirection of the call would keep a copy to restore afterwards.
(
  exec 3<&-
  supervise "$@"
) &
supervisor=$!

while read -r token <&3; do
  case $token in
    *[!0-9a-f]* | '') ;;
    *) mark "$run/welcome-$token" ;;
  esac
done
finish

#!/usr/bin/env bash
#
# Several processes of one run on this machine over loopback, as on a cluster. From the root of the
# repository:
#
#   bash launch/local.sh N [--devices=D] [--port=P] [--logs=DIR] [--dry-run] -- FLAGS OF MAIN.PY
#
#   N           number of processes
#   --devices   virtual CPU devices per process (1)
#   --port      of the coordinator (a free one)
#   --logs      folder of the logs, one per process (runs/local)
#   --dry-run   print the commands, run nothing
#
# SIGTERM and Ctrl-C send SIGTERM to every process. If one fails, the others are stopped, since they
# would wait for it forever. Exit code: the worst one, where 75 (stopped: start again) is worse than
# 0 and better than any other. PYTHON sets the interpreter.

set -euo pipefail

usage() { awk 'NR > 2 && !/^#/ { exit } NR > 2 { sub(/^# ?/, ""); print }' "${BASH_SOURCE[0]}"; }

die() {
  echo "error: $*" >&2
  exit 2
}

quoted() { # words quoted for a shell, only where they need it
  local word line=
  for word; do
    [[ $word =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]] || word="'${word//\'/\'\\\'\'}'"
    line+="${line:+ }$word"
  done
  printf '%s\n' "$line"
}

count() { [[ $2 =~ ^[1-9][0-9]*$ ]] || die "$1 '$2' is not a positive number"; }

interpreter() {
  if [[ -n ${PYTHON:-} ]]; then
    echo "$PYTHON"
  elif [[ -x .venv/bin/python ]]; then
    echo .venv/bin/python
  else
    echo python3
  fi
}

free_port() {
  "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

set_command() { # of process $1
  command=(
    env JAX_PLATFORMS=cpu
    "XLA_FLAGS=${XLA_FLAGS:+$XLA_FLAGS }--xla_force_host_platform_device_count=$devices"
    "$python" main.py
    "--coordinator=127.0.0.1:$port" "--num_processes=$processes" "--process_id=$1" "${flags[@]}"
  )
}

stop_all() { # by signal $1
  local process
  signaled=yes
  for process in "${running[@]}"; do
    kill "-$1" "${pids[$process]}" 2>/dev/null || true
  done
}

severity() { # the rank of exit code $1
  case $1 in
    0) echo 0 ;;
    75) echo 1 ;;
    *) echo $((1 + $1)) ;;
  esac
}

collect() { # wait for all processes and keep the worst exit code
  local process code still stopped_at=
  while ((${#running[@]})); do
    still=()
    for process in "${running[@]}"; do
      if kill -0 "${pids[$process]}" 2>/dev/null; then
        still+=("$process")
        continue
      fi
      code=0
      wait "${pids[$process]}" || code=$?
      # Killed by our own signal while main.py didn't handle it: before it started or at its end.
      if [[ -n $signaled ]] && ((code == 143 || code == 137)); then code=75; fi
      if (($(severity "$code") > $(severity "$worst"))); then worst=$code; fi
      if ((code != 0 && code != 75)); then
        echo "process $process ended with $code; the end of $logs/$process.log:" >&2
        tail -n 5 "$logs/$process.log" >&2
      fi
    done
    running=("${still[@]}")
    if ((worst != 0 && worst != 75)) && ((${#running[@]})); then
      if [[ -z $stopped_at ]]; then
        stopped_at=$SECONDS
        stop_all TERM
      elif ((SECONDS - stopped_at > 10)); then
        stop_all KILL # a process waiting in a collective ignores SIGTERM
      fi
    fi
    sleep 0.1 || true # Ctrl-C interrupts it
  done
}

((BASH_VERSINFO[0] >= 5 || (BASH_VERSINFO[0] == 4 && BASH_VERSINFO[1] >= 4))) ||
  die "bash 4.4 or newer is needed, this is $BASH_VERSION"
processes=${1:-}
case $processes in
  -h | --help)
    usage
    exit 0
    ;;
  '') die "the number of processes is missing: bash launch/local.sh N -- FLAGS (see --help)" ;;
esac
shift
count "number of processes" "$processes"
devices=1 port='' logs=runs/local dry=
while (($#)); do
  case $1 in
    --devices=*) devices=${1#*=} ;;
    --port=*) port=${1#*=} ;;
    --logs=*) logs=${1#*=} ;;
    --dry-run) dry=yes ;;
    --)
      shift
      break
      ;;
    *) die "unknown option '$1': flags of main.py come after --" ;;
  esac
  shift
done
flags=("$@")
((${#flags[@]})) || die "give the flags of main.py after --"
count --devices "$devices"
[[ -f main.py ]] || die "run this from the root of the repository: there is no main.py here"
python=$(interpreter)
command -v "$python" >/dev/null || [[ -n $dry && -n $port ]] || die "$python is not installed"
[[ -n $port ]] || port=$(free_port)
count --port "$port"

if [[ -n $dry ]]; then
  for ((process = 0; process < processes; process++)); do
    set_command "$process"
    echo "$(quoted "${command[@]}") > $(quoted "$logs/$process.log") 2>&1 &"
  done
  exit 0
fi

mkdir -p "$logs" || die "can't create the log folder $logs"
pids=() running=() worst=0 signaled=''
trap 'stop_all TERM' TERM INT
for ((process = 0; process < processes; process++)); do
  set_command "$process"
  "${command[@]}" >"$logs/$process.log" 2>&1 &
  pids+=("$!")
  running+=("$process")
done
echo "$processes processes x $devices devices, port $port: tail -F $logs/0.log"
collect
exit "$worst"

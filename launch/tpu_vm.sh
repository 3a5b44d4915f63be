#!/usr/bin/env bash
#
# A run on a TPU VM or pod slice, with gcloud's queued resources. From the root of the repository:
#
#   bash launch/tpu_vm.sh create  --name=NAME --zone=ZONE [--type=T] [--version=V] [--spot]
#   bash launch/tpu_vm.sh install --name=NAME --zone=ZONE
#   bash launch/tpu_vm.sh run     --name=NAME --zone=ZONE -- FLAGS OF MAIN.PY
#   bash launch/tpu_vm.sh logs    --name=NAME --zone=ZONE
#   bash launch/tpu_vm.sh delete  --name=NAME --zone=ZONE
#   bash launch/tpu_vm.sh keep    (options of create) -- FLAGS OF MAIN.PY
#
#   create      request the TPU, which becomes available when its turn in the queue comes
#   install     copy this checkout to all workers and install it in a virtual environment
#   run         start main.py on all workers in the background
#   logs        follow the output of worker 0 until Ctrl-C
#   delete      release the TPU, even if it is running
#   keep        create, install and run, again after each preemption, until the run has ended; keep
#               itself may be stopped and started again. It doesn't delete the TPU at the end.
#   --type      accelerator type (v5litepod-16); --version: its runtime (v2-alpha-tpuv5-lite)
#   --spot      cheaper, but may be preempted at any time
#   --project   (gcloud's default)
#   --poll=S    seconds between keep's checks (60)
#   --dry-run   print the commands, run nothing
#
# The workdir should be in a bucket (--workdir=gs://...): a TPU's disk is deleted with it. Workers
# restart a run that exits with 75 (stopped: start again); any other code ends the run. keep exits
# with the code of main.py.

set -euo pipefail

readonly folder=mimetic_jax archive=build/mimetic_jax.tar.gz
readonly log=runs/tpu_vm.log started=runs/tpu_vm.started ended=runs/tpu_vm.ended

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

run() {
  if [[ -n $dry ]]; then quoted "$@"; else "$@"; fi
}

tpus() { run gcloud compute tpus "$@" "${place[@]}"; }

ssh_to() { # worker $1, command $2
  tpus tpu-vm ssh "$name" "--worker=$1" "--command=cd $folder && $2"
}

create() {
  tpus queued-resources create "$name" "--node-id=$name" "--accelerator-type=$type" \
    "--runtime-version=$version" "${spot[@]}"
}

delete() { tpus queued-resources delete "$name" --force --quiet; }

# With uv, because the VM's own Python may be older than 3.11. All workers install the same pins.
# shellcheck disable=SC2088 # the tilde is the worker's
install() { # chained by &&: where keep calls it, the shell doesn't exit at a failure
  run mkdir -p "${archive%/*}" &&
    run tar -czf "$archive" --exclude=__pycache__ main.py pyproject.toml requirements.txt \
      README.md LICENSE mimetic_jax configs launch &&
    tpus tpu-vm scp "$archive" "$name:${archive##*/}" --worker=all &&
    tpus tpu-vm ssh "$name" --worker=all "--command=mkdir -p $folder && cd $folder \
&& tar -xzf ../${archive##*/} && python3 -m pip install --quiet --user uv \
&& ~/.local/bin/uv venv --quiet --allow-existing --python 3.11 .venv \
&& ~/.local/bin/uv pip install --quiet --python .venv --constraint requirements.txt -e '.[train,tpu,gcs]'"
}

start() {
  ssh_to all "mkdir -p runs && rm -f $ended && touch $started && \
{ nohup bash launch/tpu_vm.sh worker -- $(quoted "${flags[@]}") >> $log 2>&1 < /dev/null & }"
}

worker() { # runs on each worker of the TPU
  local code=75
  while ((code == 75)); do
    code=0
    .venv/bin/python main.py --distributed "${flags[@]}" || code=$?
  done
  echo "$code" >"$ended"
}

state() { # of the queued resource; ABSENT if there is none, empty if gcloud fails
  local output
  if output=$(tpus queued-resources describe "$name" '--format=value(state.state)' 2>&1); then
    echo "$output"
  elif [[ $output == *NOT_FOUND* ]]; then
    echo ABSENT
  fi
}

progress() { # of the run: fresh, running or its exit code; empty if worker 0 can't be reached
  tpus tpu-vm ssh "$name" --worker=0 "--command=cd $folder 2> /dev/null && cat $ended 2> /dev/null \
|| { test -e $started && echo running; } || echo fresh" || true
}

keep() {
  local now before=
  while true; do
    now=$(state)
    if [[ $now != "$before" ]]; then echo "$(date '+%F %T') $name: ${now:-unknown}"; fi
    before=$now
    case $now in
      ABSENT) create ;;
      SUSPENDED | FAILED) delete ;;
      ACTIVE)
        now=$(progress)
        case $now in
          fresh) { install && start; } || echo "couldn't start the run: retrying in $poll s" ;;
          running | '' | *[!0-9]*) ;;
          *)
            echo "the run ended with $now"
            exit "$now"
            ;;
        esac
        ;;
    esac
    sleep "$poll"
  done
}

explain() { # what keep would do
  echo "# every $poll seconds:"
  run gcloud compute tpus queued-resources describe "$name" '--format=value(state.state)' \
    "${place[@]}"
  echo "# if there is none:"
  create
  echo "# if it is SUSPENDED (preempted) or FAILED:"
  delete
  echo "# if it is ACTIVE:"
  progress
  echo "# and if that prints fresh:"
  install
  start
}

command=${1:-}
case $command in
  create | install | run | logs | delete | keep | worker) shift ;;
  -h | --help)
    usage
    exit 0
    ;;
  *) die "unknown command '$command': create, install, run, logs, delete or keep (--help)" ;;
esac
name='' zone='' project='' type=v5litepod-16 version=v2-alpha-tpuv5-lite spot=() poll=60 dry=''
while (($#)); do
  case $1 in
    --name=*) name=${1#*=} ;;
    --zone=*) zone=${1#*=} ;;
    --project=*) project=${1#*=} ;;
    --type=*) type=${1#*=} ;;
    --version=*) version=${1#*=} ;;
    --poll=*) poll=${1#*=} ;;
    --spot) spot=(--spot) ;;
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
case $command in
  run | keep | worker) ((${#flags[@]})) || die "give the flags of main.py after --" ;;
  *) ((${#flags[@]} == 0)) || die "$command takes no flags of main.py" ;;
esac
[[ -f main.py ]] || die "run this from the root of the repository: there is no main.py here"
if [[ $command == worker ]]; then
  worker
  exit 0
fi
[[ -n $name ]] || die "--name is missing"
[[ -n $zone ]] || die "--zone is missing"
[[ $poll =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "--poll '$poll' is not a number of seconds"
place=("--zone=$zone")
if [[ -n $project ]]; then place+=("--project=$project"); fi
[[ -n $dry ]] || command -v gcloud >/dev/null ||
  die "gcloud is not installed: --dry-run prints what would be run"

case $command in
  create) create ;;
  install) install ;;
  run) start ;;
  logs) ssh_to 0 "tail -n 100 -F $log" ;;
  delete) delete ;;
  keep) if [[ -n $dry ]]; then explain; else keep; fi ;;
esac

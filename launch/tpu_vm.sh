#!/usr/bin/env bash
#
# A run on a TPU VM or a pod slice, by gcloud and queued resources. From the root of the repository:
#
#   bash launch/tpu_vm.sh create  --name=NAME --zone=ZONE [--type=T] [--version=V] [--spot]
#   bash launch/tpu_vm.sh install --name=NAME --zone=ZONE
#   bash launch/tpu_vm.sh run     --name=NAME --zone=ZONE -- FLAGS OF MAIN.PY
#   bash launch/tpu_vm.sh logs    --name=NAME --zone=ZONE
#   bash launch/tpu_vm.sh delete  --name=NAME --zone=ZONE
#   bash launch/tpu_vm.sh keep    (options of create) -- FLAGS OF MAIN.PY
#
#   create      ask for the TPU; it is there once the queue has come to it
#   install     copy this checkout to all workers and install it in an environment there
#   run         start main.py on all workers and leave it running
#   logs        follow what worker 0 prints, until Ctrl-C
#   delete      give the TPU back, running or not
#   keep        all of it, and again whenever the TPU is preempted, until the run has ended; it may
#               be stopped and started again. Delete stays with you.
#   --type      accelerator type (v5litepod-16); --version: its runtime (v2-alpha-tpuv5-lite)
#   --spot      cheaper, and may be taken away at any time
#   --project   unless gcloud's own
#   --poll=S    seconds between two looks of keep (60)
#   --dry-run   print the commands, run nothing
#
# The workdir should be in a bucket (--workdir=gs://...): the disk of a TPU goes with it. A run that
# ends with 75 (stopped: start me again) is started again by its worker; any other code ends it.
# Exit code of keep: that of main.py.

set -euo pipefail

readonly folder=mimetic_jax archive=build/mimetic_jax.tar.gz
readonly log=runs/tpu_vm.log started=runs/tpu_vm.started ended=runs/tpu_vm.ended

usage() { awk 'NR > 2 && !/^#/ { exit } NR > 2 { sub(/^# ?/, ""); print }' "${BASH_SOURCE[0]}"; }

die() {
  echo "error: $*" >&2
  exit 2
}

quoted() { # words as a shell would need them, readable where nothing needs quoting
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

# By uv, because the VM's own Python may be older than 3.11; the pins are the same on all workers.
# shellcheck disable=SC2088 # the tilde is the worker's
install() { # a chain: keep calls it where the shell doesn't end at a failure
  run mkdir -p "${archive%/*}" &&
    run tar -czf "$archive" --exclude=__pycache__ main.py pyproject.toml requirements.txt \
      README.md LICENSE mimetic_jax configs launch &&
    tpus tpu-vm scp "$archive" "$name:${archive##*/}" --worker=all &&
    tpus tpu-vm ssh "$name" --worker=all "--command=mkdir -p $folder && cd $folder \
&& tar -xzf ../${archive##*/} && python3 -m pip install --quiet --user uv \
&& ~/.local/bin/uv venv --quiet --allow-existing --python 3.11 .venv \
&& ~/.local/bin/uv pip install --quiet --python .venv --constraint requirements.txt -e '.[tpu,gcs]'"
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

state() { # of the queued resource; ABSENT where there is none, nothing where gcloud can't tell
  local said
  if said=$(tpus queued-resources describe "$name" '--format=value(state.state)' 2>&1); then
    echo "$said"
  elif [[ $said == *NOT_FOUND* ]]; then
    echo ABSENT
  fi
}

progress() { # of the run: fresh, running or its exit code; nothing where worker 0 can't be reached
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
          fresh) { install && start; } || echo "couldn't start the run: again in $poll s" ;;
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
  echo "# where that finds none:"
  create
  echo "# where it is SUSPENDED (preempted) or FAILED:"
  delete
  echo "# where it is ACTIVE:"
  progress
  echo "# and where that says fresh:"
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

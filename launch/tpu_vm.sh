#!/usr/bin/env bash
#
# A run on a TPU VM or pod slice, with gcloud's queued resources. From the root of the repository:
#
#   bash launch/tpu_vm.sh create  --name=NAME --zone=ZONE [--type=T] [--version=V] [--spot]
#   bash launch/tpu_vm.sh install --name=NAME --zone=ZONE
#   bash launch/tpu_vm.sh run     --name=NAME --zone=ZONE -- FLAGS OF MAIN.PY
#   bash launch/tpu_vm.sh logs    --name=NAME --zone=ZONE
#   bash launch/tpu_vm.sh delete  --name=NAME --zone=ZONE
#
#   create      request the TPU, which becomes available when its turn in the queue comes
#   install     copy this checkout to all workers and install it in a virtual environment
#   run         start main.py on all workers in the background
#   logs        follow the output of worker 0 until Ctrl-C
#   delete      release the TPU, even if it is running
#   --type      accelerator type (v5litepod-16); --version: its runtime (v2-alpha-tpuv5-lite)
#   --spot      cheaper, but may be preempted at any time
#   --project   (gcloud's default)
#   --dry-run   print the commands, run nothing
#
# The workdir should be in a bucket (--workdir=gs://...): a TPU's disk is deleted with it. Workers
# restart a run that exits with 75 (stopped: start again); any other code ends the run. After a
# preemption, delete, create, install and run continue it; launch/sky.yaml does so by itself.

set -euo pipefail

readonly folder=mimetic_jax archive=build/mimetic_jax.tar.gz log=runs/tpu_vm.log

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

ssh_to() { tpus tpu-vm ssh "$name" "--worker=$1" "--command=$2"; }

# With uv, because the VM's own Python may be older than 3.11. All workers install the same pins.
# shellcheck disable=SC2088 # the tilde is the worker's
install() {
  run mkdir -p "${archive%/*}"
  run tar -czf "$archive" --exclude=__pycache__ main.py pyproject.toml requirements.txt \
    README.md LICENSE mimetic_jax configs launch
  tpus tpu-vm scp "$archive" "$name:${archive##*/}" --worker=all
  ssh_to all "mkdir -p $folder && cd $folder && tar -xzf ../${archive##*/} \
&& python3 -m pip install --quiet --user uv \
&& ~/.local/bin/uv venv --quiet --allow-existing --python 3.13 .venv \
&& ~/.local/bin/uv pip install --quiet --python .venv --constraint requirements.txt -e '.[train,tfds,tpu,gcs]'"
}

command=${1:-}
if [[ $command == --help || $command == -h ]]; then
  while IFS= read -r line && [[ $line == '#'* ]]; do
    [[ $line == '#!'* ]] || { line=${line#\#} && printf '%s\n' "${line# }"; }
  done < "$0"
  exit
fi
[[ $command =~ ^(create|install|run|logs|delete)$ ]] ||
  die "unknown command '$command': create, install, run, logs or delete, see launch/tpu_vm.sh"
shift
name='' zone='' project='' type=v5litepod-16 version=v2-alpha-tpuv5-lite spot=() dry=''
while (($#)) && [[ $1 != -- ]]; do
  case $1 in
    --name=*) name=${1#*=} ;;
    --zone=*) zone=${1#*=} ;;
    --project=*) project=${1#*=} ;;
    --type=*) type=${1#*=} ;;
    --version=*) version=${1#*=} ;;
    --spot) spot=(--spot) ;;
    --dry-run) dry=yes ;;
    *) die "unknown option '$1': flags of main.py come after --" ;;
  esac
  shift
done
flags=("${@:2}")
[[ $command != run ]] || ((${#flags[@]})) || die "give the flags of main.py after --"
for flag in "${flags[@]}"; do
  file=${flag#--config=} && file=${file%%:*}
  [[ $flag != --config=* || -f $file ]] || die "there is no config file '$file'"
done
[[ -f main.py ]] || die "run this from the root of the repository: there is no main.py here"
[[ -n $name && -n $zone ]] || die "--name or --zone is missing"
place=("--zone=$zone" ${project:+"--project=$project"})

case $command in
  create) tpus queued-resources create "$name" "--node-id=$name" "--accelerator-type=$type" \
    "--runtime-version=$version" "${spot[@]}" ;;
  install) install ;;
  run) ssh_to all "cd $folder && mkdir -p runs && { nohup bash -c 'code=75; while ((code == 75)); \
do code=0; .venv/bin/python main.py --distributed \"\$@\" || code=\$?; done' main.py \
$(quoted "${flags[@]}") >> $log 2>&1 < /dev/null & }" ;;
  logs) ssh_to 0 "tail -n 100 -F $folder/$log" ;;
  delete) tpus queued-resources delete "$name" --force --quiet ;;
esac

#!/usr/bin/env bash
#
# A run on GKE, on a TPU slice or GPU nodes. From the root of the repository:
#
#   bash launch/gke/run.sh --name=NAME --image=IMAGE --tpu=TYPE --topology=4x4 --hosts=4 --chips=4 \
#       [OPTIONS] -- FLAGS OF MAIN.PY
#   bash launch/gke/run.sh --name=NAME --image=IMAGE --gpu=TYPE [--hosts=1] [--chips=8] \
#       [OPTIONS] -- FLAGS OF MAIN.PY
#
#   --image       built from the Dockerfile, in a registry that the cluster reads
#   --tpu         accelerator of the node pool, such as tpu-v5-lite-podslice, with --topology
#   --gpu         accelerator of the node pool, such as nvidia-h100-80gb
#   --hosts       pods, one per node (1)
#   --chips       chips per pod (8 for --gpu, 4 for --tpu)
#   --spot        use a spot node pool
#   --restarts=N  after failures other than preemption (3)
#   --claim=C     a PersistentVolumeClaim, mounted at /mnt/data
#   --dry-run     print the manifest, do nothing
#
# Fills in launch/gke/jobset.yaml, which documents the restarts, and applies it with kubectl.
# Follow the run: kubectl logs -f -l jobset.sigs.k8s.io/jobset-name=NAME
# End the run:    kubectl delete jobset NAME

set -euo pipefail

readonly template=launch/gke/jobset.yaml port=8476

usage() { awk 'NR > 2 && !/^#/ { exit } NR > 2 { sub(/^# ?/, ""); print }' "${BASH_SOURCE[0]}"; }

die() {
  echo "error: $*" >&2
  exit 2
}

count() { [[ $2 =~ ^[1-9][0-9]*$ ]] || die "$1 '$2' is not a positive number"; }

shaped() { # what goes into YAML without quotes can't hold a newline, a colon or a brace
  [[ -z $2 || $2 =~ ^($3)$ ]] || die "$1 '${2//[[:cntrl:]]/?}' is no $4"
}

in_yaml() { # a string in double quotes
  local text=${1//\\/\\\\}
  printf '"%s"\n' "${text//\"/\\\"}"
}

arguments() { # one line per flag; each $ is doubled, because Kubernetes expands $(NAME)
  local flag
  for flag in "${flags[@]}"; do
    echo "- $(in_yaml "${flag//\$/\$\$}")"
  done
  if ((hosts > 1)); then
    if [[ -n $tpu ]]; then
      echo '- "--distributed"'
    else
      echo "- \"--coordinator=$name-main-0-0.$name:$port\""
      echo "- \"--num_processes=$hosts\""
      # shellcheck disable=SC2016 # Kubernetes fills this in
      echo '- "--process_id=$(JOB_COMPLETION_INDEX)"'
    fi
  fi
}

selector() {
  if [[ -n $tpu ]]; then
    echo "cloud.google.com/gke-tpu-accelerator: $tpu"
    echo "cloud.google.com/gke-tpu-topology: $topology"
  else
    echo "cloud.google.com/gke-accelerator: $gpu"
  fi
  if [[ -n $spot ]]; then echo 'cloud.google.com/gke-spot: "true"'; fi
}

tolerations() {
  if [[ -n $spot ]]; then
    echo 'tolerations:'
    echo '  - {key: cloud.google.com/gke-spot, operator: Equal, value: "true", effect: NoSchedule}'
  fi
}

mounts() {
  if [[ -n $claim ]]; then
    echo 'volumeMounts:'
    echo '  - {name: data, mountPath: /mnt/data}'
  fi
}

volumes() {
  if [[ -n $claim ]]; then
    echo 'volumes:'
    echo "  - {name: data, persistentVolumeClaim: {claimName: $claim}}"
  fi
}

manifest() {
  local line indent
  while IFS= read -r line; do
    indent=${line%%[! ]*}
    case $line in
      *@SELECTOR@*) selector | sed "s/^/$indent/" ;;
      *@TOLERATIONS@*) tolerations | sed "s/^/$indent/" ;;
      *@ARGS@*) arguments | sed "s/^/$indent/" ;;
      *@MOUNTS@*) mounts | sed "s/^/$indent/" ;;
      *@VOLUMES@*) volumes | sed "s/^/$indent/" ;;
      *)
        line=${line//@NAME@/"$name"}
        line=${line//@RESTARTS@/"$restarts"}
        line=${line//@HOSTS@/"$hosts"}
        line=${line//@IMAGE@/"$image"}
        line=${line//@RESOURCE@/"$resource"}
        printf '%s\n' "${line//@CHIPS@/"$chips"}"
        ;;
    esac
  done <"$template"
}

name='' image='' tpu='' gpu='' topology='' hosts=1 chips='' spot='' restarts=3 claim='' dry=''
while (($#)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --name=*) name=${1#*=} ;;
    --image=*) image=${1#*=} ;;
    --tpu=*) tpu=${1#*=} ;;
    --topology=*) topology=${1#*=} ;;
    --gpu=*) gpu=${1#*=} ;;
    --hosts=*) hosts=${1#*=} ;;
    --chips=*) chips=${1#*=} ;;
    --spot) spot=yes ;;
    --restarts=*) restarts=${1#*=} ;;
    --claim=*) claim=${1#*=} ;;
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
# Kubernetes adds suffixes, and the result must fit into 63 characters.
[[ $name =~ ^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$ ]] ||
  die "--name '$name' must be at most 40 characters of a-z, 0-9 and -, starting with a letter"
[[ -n $image ]] || die "--image is missing"
[[ -n $tpu || -n $gpu ]] || die "give either --tpu or --gpu"
[[ -z $tpu || -z $gpu ]] || die "give either --tpu or --gpu, not both"
[[ -z $tpu || -n $topology ]] || die "--tpu=$tpu needs --topology"
if [[ -n $tpu ]]; then
  resource=google.com/tpu chips=${chips:-4}
else
  resource=nvidia.com/gpu chips=${chips:-8}
fi
shaped --image "$image" '[A-Za-z0-9][A-Za-z0-9._/:-]*(@sha256:[0-9a-f]+)?' 'image'
shaped --tpu "$tpu" '[a-z][a-z0-9-]*' 'accelerator'
shaped --gpu "$gpu" '[a-z][a-z0-9-]*' 'accelerator'
shaped --topology "$topology" '[0-9]+(x[0-9]+)+' 'topology such as 4x4'
shaped --claim "$claim" '[a-z0-9]([a-z0-9.-]*[a-z0-9])?' 'name of a PersistentVolumeClaim'
for flag in "${flags[@]}"; do
  [[ $flag != *[[:cntrl:]]* ]] || die "flag '${flag//[[:cntrl:]]/?}' has a control character"
done
count --hosts "$hosts"
count --chips "$chips"
[[ $restarts == 0 ]] || count --restarts "$restarts"
[[ -f $template ]] || die "run this from the root of the repository: there is no $template here"

if [[ -n $dry ]]; then
  manifest
  exit 0
fi
command -v kubectl >/dev/null ||
  die "kubectl is not installed: --dry-run prints the manifest"
manifest | kubectl apply -f -

#!/usr/bin/env bash
# Sets up one TPU VM, or all workers of a pod, to run bert_jax.
#   on the TPU VM:            bash tpu_setup.sh
#   on all workers of a pod:  bash tpu_setup.sh POD_NAME ZONE [PROJECT]      (from a machine with gcloud)
#   then train on all:        bash tpu_setup.sh POD_NAME ZONE PROJECT --config=configs/base.py --config.workdir=… …
#                             started again by itself when it was told to stop, or a worker died
# Installs jax[tpu] at the version of requirements.txt and the rest of it into ~/bert_jax_env, then counts the devices.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)

setup_this_worker() {
    python3 -m venv "$HOME/bert_jax_env"
    "$HOME/bert_jax_env/bin/pip" install --quiet --upgrade pip
    jax=$(grep '^jax==' "$here/requirements.txt")
    "$HOME/bert_jax_env/bin/pip" install --quiet "jax[tpu]${jax#jax}" \
        -f https://storage.googleapis.com/jax-releases/libtpu_releases.html -r "$here/requirements.txt"
    check_devices
}

check_devices() {
    "$HOME/bert_jax_env/bin/python" - <<'PYTHON'
import sys
import jax

print(f'{jax.local_device_count()} local device(s) of kind {jax.devices()[0].device_kind}')
sys.exit(0 if jax.default_backend() == 'tpu' else 'error: no TPU found; is this a TPU VM?')
PYTHON
}

setup_pod() {
    local ssh=(gcloud compute tpus tpu-vm ssh "$1" --zone "$2" ${3:+--project "$3"} --worker=all)
    gcloud compute tpus tpu-vm scp --recurse "$here" "$1:bert_jax_source" --zone "$2" ${3:+--project "$3"} --worker=all
    # A pod's jax starts only when every worker asks for its devices: hence one command on all of them.
    "${ssh[@]}" --command "bash bert_jax_source/tpu_setup.sh"
    echo "Now: bash tpu_setup.sh $1 $2 ${3:-PROJECT} --config=configs/base.py --config.workdir=…"
}

# The same command on every worker, which starts it again while it ends with what a restart helps against: saved or
# another worker died (75), killed (137, 134).
train_on_pod() {
    local name=$1 zone=$2 project=$3
    shift 3
    local train="\$HOME/bert_jax_env/bin/python -m bert_jax.main --distributed$(printf ' %q' "$@")"
    gcloud compute tpus tpu-vm ssh "$name" --zone "$zone" --project "$project" --worker=all --command "
        cd bert_jax_source
        for try in \$(seq 20); do
            $train
            status=\$?
            case \$status in 75 | 134 | 137) ;; *) break ;; esac
        done
        exit \$status"
}

if [ $# -ge 4 ]; then train_on_pod "$@"; elif [ $# -ge 2 ]; then setup_pod "$@"; else setup_this_worker; fi

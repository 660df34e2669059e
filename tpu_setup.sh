#!/usr/bin/env bash
# Installs bert_jax on TPU VMs and trains on them.
#
#   on a TPU VM            bash tpu_setup.sh                            install, then count the devices
#                          bash tpu_setup.sh train --config=…           train in the background, follow the log
#                          bash tpu_setup.sh stop                       save and stop the training
#   on a machine with gcloud, for all workers of a pod (or of a single TPU VM):
#                          bash tpu_setup.sh POD ZONE [PROJECT]         copy this checkout, install
#                          bash tpu_setup.sh POD ZONE [PROJECT] --config=…   train
#                          bash tpu_setup.sh POD ZONE [PROJECT] stop    save and stop
#
# Training survives a lost connection: rerun the same command to follow the log again. It is restarted after a
# worker died or was preempted, but not after a mistake in the config. --config.workdir and --config.data.corpus
# must be on storage that all workers see.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
environment=$HOME/bert_jax_env
state=$HOME/bert_jax_state # log, process id and exit status of the training
remote=bert_jax_source     # where the code is on a worker

die() {
    echo "error: $1" >&2
    exit 2
}

# Prints the version of a Python, such as 3.12; fails if there is none, or one before 3.11.
version_of() {
    command -v "$1" >/dev/null &&
        "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

makes_environments() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

apt_install() { sudo apt-get install --yes --quiet "$@" >&2; }

# Prints the name of a Python from 3.11 that makes environments with pip. Installs what is missing: Debian and
# Ubuntu have ensurepip in a package of its own, and Ubuntu 22.04 has Python 3.10.
find_python() {
    local candidates=(python3.13 python3.12 python3.11 python3) python version
    for python in "${candidates[@]}"; do
        if version_of "$python" >/dev/null && makes_environments "$python"; then
            echo "$python"
            return
        fi
    done
    sudo apt-get update --quiet --quiet >&2
    for python in "${candidates[@]}"; do
        if version=$(version_of "$python") && apt_install "python$version-venv" && makes_environments "$python"; then
            echo "$python"
            return
        fi
    done
    for version in 3.13 3.12 3.11; do
        if apt_install "python$version" "python$version-venv"; then
            echo "python$version"
            return
        fi
    done
    die "no Python 3.11 or later with ensurepip found, and apt-get cannot install one: install one and run this again"
}

install() {
    local python
    python=$(find_python)
    "$python" -m venv "$environment"
    "$environment/bin/pip" install --quiet --upgrade pip
    "$environment/bin/pip" install --quiet --constraint "$here/requirements.lock" --editable "$here[tpu,gcs]" # gcs reads gs://
    "$environment/bin/python" - <<'PYTHON'
import sys
import jax

print(f'{jax.local_device_count()} local device(s) of kind {jax.devices()[0].device_kind}')
sys.exit(0 if jax.default_backend() == 'tpu' else 'error: no TPU found; is this a TPU VM?')
PYTHON
}

# Tells a process from a later one with its id: the boot of the machine, and the start in ticks since then.
start_of() {
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return
    echo "$(cat /proc/sys/kernel/random/boot_id) $(cut --delimiter=' ' --fields=20 <<<"${stat##*) }")"
}

recorded_pid() { sed --quiet 1p "$state/pid"; }

# Whether the training that was recorded runs, rather than another process with its id.
is_running() { [ -f "$state/pid" ] && [ "$(start_of "$(recorded_pid)")" = "$(sed --quiet 2p "$state/pid")" ]; }

# Repeats the training until it finishes (0), finds a mistake (2), or has failed 20 times.
train_until_done() {
    local status=0
    cd "$here"
    for _ in $(seq 20); do
        status=0
        "$environment/bin/python" -m bert_jax.main "$@" || status=$?
        case $status in 0 | 2) break ;; esac
        echo "training ended with status $status; restarting"
        sleep "${BERT_JAX_RESTART_SECONDS:-10}"
    done
    echo "$status" >"$state/status"
}

train() {
    mkdir -p "$state"
    if ! is_running; then
        rm -f "$state/status"
        : >"$state/log" # tail needs it before the training opens it
        setsid nohup bash "$here/tpu_setup.sh" train_until_done "$@" >>"$state/log" 2>&1 </dev/null &
        printf '%s\n' $! "$(start_of $!)" >"$state/pid"
    elif [ "$(cat "$state/arguments")" != "$*" ]; then
        die "a training with other arguments is running here ($(cat "$state/arguments")); stop it first"
    fi
    echo "$*" >"$state/arguments"
    tail --lines=+1 --follow --pid="$(recorded_pid)" "$state/log" || true
    [ -f "$state/status" ] || die "the training was stopped; the same command resumes it"
    return "$(cat "$state/status")"
}

# Ends the loop of train_until_done first; SIGTERM then makes the training save and end.
stop() {
    is_running || die "no training is running here"
    local loop trainer
    loop=$(recorded_pid)
    trainer=$(pgrep --parent "$loop" || true)
    kill "$loop"
    [ -z "$trainer" ] || kill $trainer
}

on_all_workers() {
    local pod=$1 zone=$2 project=$3
    gcloud compute tpus tpu-vm ssh "$pod" --zone "$zone" ${project:+--project "$project"} --worker=all --command "$4"
}

# Replaces older code on the workers; keeps runs and prepared corpora.
install_on_pod() {
    local archive
    archive=$(mktemp -d)/bert_jax.tar.gz
    tar --create --gzip --file "$archive" --directory "$here" --exclude-vcs \
        --exclude=./runs --exclude=./corpora --exclude=./.venv --exclude=__pycache__ .
    gcloud compute tpus tpu-vm scp "$archive" "$1:bert_jax.tar.gz" --zone "$2" ${3:+--project "$3"} --worker=all
    on_all_workers "$1" "$2" "$3" "mkdir -p $remote &&
        find $remote -mindepth 1 -maxdepth 1 ! -name runs ! -name corpora -exec rm -rf {} + &&
        tar --extract --gzip --file bert_jax.tar.gz --directory $remote &&
        bash $remote/tpu_setup.sh"
    echo "Now: bash tpu_setup.sh $1 $2 ${3:-PROJECT} --config=configs/base.py --config.workdir=…"
}

case ${1:-} in
'') install ;;
train_until_done | train) "$@" ;;
stop) stop ;;
-*) die "give POD ZONE PROJECT before $1, or 'train' on a TPU VM itself" ;;
*)
    [ $# -ge 2 ] || die "usage: bash tpu_setup.sh POD ZONE [PROJECT] [stop | --config=…]"
    pod=$1 zone=$2 project=
    shift 2
    case ${1:-} in
    '' | stop | -*) ;;
    *)
        project=$1
        shift
        ;;
    esac
    case ${1:-} in
    '') install_on_pod "$pod" "$zone" "$project" ;;
    stop) on_all_workers "$pod" "$zone" "$project" "bash $remote/tpu_setup.sh stop" ;;
    -*) on_all_workers "$pod" "$zone" "$project" "bash $remote/tpu_setup.sh train --distributed$(printf ' %q' "$@")" ;;
    *) die "$1 is neither stop nor a flag: bash tpu_setup.sh POD ZONE [PROJECT] [stop | --config=…]" ;;
    esac
    ;;
esac

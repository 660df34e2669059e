"""tpu_setup.sh, executed against stubs of gcloud, apt-get and Python in the place of a pod."""

import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[1]
WORKERS = ('worker0', 'worker1')

# Runs what `ssh --command` says in the home folder of each worker at once; `scp` copies to each.
GCLOUD = """#!/usr/bin/env bash
echo "$*" >>"$STUBS/gcloud.log"
[[ $* == *--worker=all* ]] || exit 9
if [ "$4" = scp ]; then
    for worker in worker0 worker1; do cp "$5" "$STUBS/$worker/${6#*:}"; done
    exit
fi
command=${@: -1}
for worker in worker0 worker1; do
    (cd "$STUBS/$worker" && HOME="$STUBS/$worker" bash -c "$command") &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
exit ${status:-0}
"""
# `-c CODE` runs CODE as in this version, which has ensurepip or is without it until its package is
# installed; `-m venv DIR` makes an environment of stubs.
PYTHON = f"""#!/usr/bin/env bash
if [ "$1" = -c ]; then
    code="import sys; sys.version_info = (*map(int, 'VERSION'.split('.')), 0)"
    [ HAS_ENSUREPIP = True ] || [ -e "$STUBS/bin/pythonVERSION-venv" ] ||
        code+="; sys.modules['ensurepip'] = None"
    exec {sys.executable} -c "$code; exec(sys.argv[1])" "$2"
fi
mkdir -p "$3/bin"
printf '#!/bin/bash\\necho "pip $*" >>"$HOME/pip.log"\\n' >"$3/bin/pip"
cp "$STUBS/environment_python" "$3/bin/python"
chmod +x "$3/bin/"*
"""
# Training: a line of log, then the next exit status of $HOME/statuses (0 if there is none).
ENVIRONMENT_PYTHON = """#!/usr/bin/env bash
if [ "$1" != -m ]; then cat >/dev/null; echo "4 local device(s) of kind TPU"; exit; fi
echo "training $*"
trap 'echo saved; exit 75' TERM
while [ -f "$HOME/wait" ]; do sleep 0.05; done
status=$(head -1 "$HOME/statuses" 2>/dev/null || echo 0)
sed -i 1d "$HOME/statuses" 2>/dev/null
exit ${status:-0}
"""
# Installs the files of $STUBS/archive.
APT = """#!/usr/bin/env bash
echo "apt-get $*" >>"$STUBS/apt.log"
if [ "$1" = update ]; then exit; fi
for package in "${@:4}"; do
    if [ ! -e "$STUBS/archive/$package" ]; then
        echo "E: Unable to locate package $package" >&2
        exit 100
    fi
done
for package in "${@:4}"; do cp "$STUBS/archive/$package" "$STUBS/bin"; done
"""
SUDO = '#!/usr/bin/env bash\n"$@"\n'


class Pod:
    """A folder of stubs, with a home folder for each worker."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.checkout = folder / 'checkout'
        self.checkout.mkdir()
        shutil.copy(ROOT / 'tpu_setup.sh', self.checkout)
        for name in ('requirements.lock', 'pyproject.toml'):
            shutil.copy(ROOT / name, self.checkout)
        for large in ('runs', 'corpora', '.git'):
            (self.checkout / large).mkdir()
            (self.checkout / large / 'large').touch()
        for worker in WORKERS:
            (folder / worker).mkdir()
        for name, text in (('gcloud', GCLOUD), ('sudo', SUDO), ('apt-get', APT)):
            self.stub(name, text)
        (folder / 'environment_python').write_text(ENVIRONMENT_PYTHON)
        for version in ('3.11', '3.12', '3.13'):  # hide those of this machine
            self.python(f'python{version}', '3.10')
        self.python('python3', '3.11')

    def stub(self, name: str, text: str, folder: str = 'bin') -> None:
        path = self.folder / folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def python(self, name: str, version: str, has_ensurepip: bool = True, **options: str) -> None:
        text = PYTHON.replace('VERSION', version).replace('HAS_ENSUREPIP', str(has_ensurepip))
        self.stub(name, text, **options)

    def packages_of_python(self, version: str) -> None:
        """Let apt-get have a Python, and its ensurepip apart, as Debian and Ubuntu do."""
        self.python(f'python{version}', version, has_ensurepip=False, folder='archive')
        self.stub(f'python{version}-venv', '', folder='archive')

    def installed_packages(self) -> list[str]:
        """The packages that apt-get was asked for, known or not."""
        lines = (self.folder / 'apt.log').read_text().splitlines()
        return [
            line.removeprefix('apt-get install --yes --quiet ')
            for line in lines
            if ' install ' in line
        ]

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen:
        return subprocess.Popen(
            ['bash', str(self.checkout / 'tpu_setup.sh'), *arguments],
            env=os.environ
            | {
                'PATH': f'{self.folder / "bin"}:{os.environ["PATH"]}',
                'STUBS': str(self.folder),
                'HOME': str(self.folder / 'worker0'),
                'BERT_JAX_RESTART_SECONDS': '0',
            }
            | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        process = self.start(*arguments, **environment)
        output = process.communicate(timeout=60)[0]
        return process.returncode, output

    def of_workers(self, name: str) -> list[pathlib.Path]:
        return [self.folder / worker / name for worker in WORKERS]


@pytest.fixture
def pod(tmp_path):
    return Pod(tmp_path)


@pytest.fixture
def installed(pod):
    status, output = pod.run('pod', 'zone', 'project')
    assert status == 0, output
    return pod


def test_all_workers_get_the_code_and_the_pinned_requirements(installed):
    for home in installed.of_workers(''):
        assert (home / 'bert_jax_source/tpu_setup.sh').exists()
        installed = (home / 'pip.log').read_text()
        assert '--constraint bert_jax_source/requirements.lock' in installed.replace(f'{home}/', '')
        assert '[tpu,gcs]' in installed
        for large in ('runs', 'corpora', '.git'):
            assert not (home / 'bert_jax_source' / large).exists()


def test_installing_again_replaces_older_code_and_keeps_runs(installed):
    for home in installed.of_workers('bert_jax_source'):
        (home / 'removed_since.py').touch()
        (home / 'runs/base').mkdir(parents=True)
    status, output = installed.run('pod', 'zone')
    assert status == 0, output
    for home in installed.of_workers('bert_jax_source'):
        assert not (home / 'removed_since.py').exists()
        assert (home / 'runs/base').exists()


@pytest.mark.parametrize(
    'image', [{'python3': '3.12'}, {'python3': '3.13'}, {'python3': '3.10', 'python3.13': '3.13'}]
)
def test_a_python_that_makes_environments_is_used_as_it_is(pod, image):
    for name, version in image.items():
        pod.python(name, version)
    status, output = pod.run()
    assert status == 0, output
    assert not (pod.folder / 'apt.log').exists()


@pytest.mark.parametrize('version', ['3.12', '3.13'])
def test_ensurepip_is_installed_for_a_python_without_it(pod, version):
    """As in images of Ubuntu 24.04 and Debian 13, whose repositories have no other Python."""
    pod.python('python3', version, has_ensurepip=False)
    pod.python(f'python{version}', version, has_ensurepip=False)
    pod.packages_of_python(version)
    status, output = pod.run()
    assert status == 0, output
    assert pod.installed_packages() == [f'python{version}-venv']


@pytest.mark.parametrize(
    ('available', 'tried'),
    [
        ('3.11', ['3.13', '3.12', '3.11']),  # Ubuntu 22.04
        ('3.13', ['3.13']),
    ],
)
def test_an_old_python_is_replaced_by_the_newest_that_can_be_installed(pod, available, tried):
    pod.python('python3', '3.10')
    pod.packages_of_python(available)
    status, output = pod.run()
    assert status == 0, output
    wanted = [f'python{version} python{version}-venv' for version in tried]
    assert pod.installed_packages() == wanted


@pytest.mark.parametrize('version', ['3.10', '3.12'])
def test_a_machine_that_cannot_install_python_is_told_so(pod, version):
    pod.python('python3', version, has_ensurepip=False)
    status, output = pod.run()
    assert status == 2
    line = output.splitlines()[-1]
    assert line.startswith('error: no Python 3.11 or later with ensurepip found')


def test_training_restarts_after_a_death_and_passes_on_its_status(installed):
    for home in installed.of_workers(''):
        (home / 'statuses').write_text('75\n137\n0\n')
    status, output = installed.run('pod', 'zone', 'project', '--config=configs/base.py')
    assert status == 0, output
    for log in installed.of_workers('bert_jax_state/log'):
        assert log.read_text().count('training -m bert_jax.main --distributed --config=') == 3


def test_training_does_not_restart_after_a_mistake(installed):
    for home in installed.of_workers(''):
        (home / 'statuses').write_text('2\n0\n')
    status, _ = installed.run('pod', 'zone', 'project', "--config.data.sources=('a b',)")
    assert status == 2
    for log in installed.of_workers('bert_jax_state/log'):
        assert log.read_text() == (
            "training -m bert_jax.main --distributed --config.data.sources=('a b',)\n"
        )


def wait_for(condition) -> None:
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError


def test_training_survives_a_lost_connection_and_can_be_followed_again(installed):
    waits, logs = installed.of_workers('wait'), installed.of_workers('bert_jax_state/log')
    for path in waits:
        path.touch()
    command = ('pod', 'zone', 'project', '--config=configs/base.py')
    lost = installed.start(*command)
    wait_for(lambda: all(log.exists() and log.read_text() for log in logs))
    os.killpg(lost.pid, 9)
    again = installed.start(*command)
    for path in waits:
        path.unlink()
    output = again.communicate(timeout=60)[0]
    assert again.returncode == 0, output
    assert [log.read_text().count('training') for log in logs] == [1, 1]
    assert output.count('training -m') == 2


def test_stop_lets_the_training_save_and_does_not_restart_it(installed):
    for path in installed.of_workers('wait'):
        path.touch()
    logs = installed.of_workers('bert_jax_state/log')
    training = installed.start('pod', 'zone', 'project', '--config=configs/base.py')
    wait_for(lambda: all(log.exists() and log.read_text() for log in logs))
    recorded = installed.of_workers('bert_jax_state/arguments')  # written after the process
    wait_for(lambda: all(path.exists() for path in recorded))
    assert installed.run('pod', 'zone', 'project', 'stop')[0] == 0
    training.communicate(timeout=60)
    assert training.returncode == 2
    wait_for(lambda: all('saved' in log.read_text() for log in logs))
    assert [log.read_text().count('training') for log in logs] == [1, 1]


@pytest.mark.parametrize('project', [(), ('project',)])
def test_stop_installs_nothing(installed, project):
    for home in installed.of_workers(''):
        (home / 'pip.log').unlink()
    status, output = installed.run('pod', 'zone', *project, 'stop')
    assert status == 2
    assert output.count('error: no training is running here') == 2
    assert not any(log.exists() for log in installed.of_workers('pip.log'))


def test_training_needs_no_project(installed):
    status, output = installed.run('pod', 'zone', '--config=configs/base.py')
    assert status == 0, output
    assert output.count('training -m bert_jax.main --distributed --config=configs/base.py') == 2


def test_a_process_that_got_the_id_of_the_training_is_left_alone(installed):
    other = subprocess.Popen(['sleep', '60'])  # as after a reboot
    try:
        for home in installed.of_workers(''):
            (home / 'bert_jax_state').mkdir()
            record = f'{other.pid}\nanother-boot 12345\n'
            (home / 'bert_jax_state/pid').write_text(record)
        status, output = installed.run('pod', 'zone', 'project', 'stop')
        assert status == 2
        assert 'no training is running here' in output
        assert other.poll() is None
        status, output = installed.run('pod', 'zone', 'project', '--config=configs/base.py')
        assert status == 0, output
    finally:
        other.kill()
        other.wait()

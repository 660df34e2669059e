"""Accelerators by name, as the real compilers see them without the hardware.

A topology is written GENERATION:SHAPE for a slice of TPU chips (`v5p:2x2x2`, `v5e:16x16`) and
MODEL:NUMBER for GPUs of one host (`h200:8`).
"""

import importlib.util
import math
import os
import re
from typing import NamedTuple

from bert_jax.errors import UserError, unknown
from bert_jax.xla_flags import known_flags


class Chip(NamedTuple):
    """An accelerator.

    Attributes:
        platform: 'tpu' or 'cuda'.
        kind: JAX's name, as in the table of bert_jax/training/devices.py.
        memory: bytes of memory of a device.
        target: for GPUs, further fields of the description that XLA's compiler reads.
    """

    platform: str
    kind: str
    memory: int
    target: str = ''


# TPU: https://cloud.google.com/tpu/docs/system-architecture-tpu-vm. GPU: data sheets of H200 SXM
# and A100 80GB SXM, and the specifications in openxla/xla, xla/backends/gpu/target_config/specs.
CHIPS = {
    'v5e': Chip('tpu', 'TPU v5e', 16 * 2**30),
    'v5p': Chip('tpu', 'TPU v5p', 95 * 2**30),
    'v6e': Chip('tpu', 'TPU v6e', 32 * 2**30),
    'h200': Chip(
        'cuda',
        'H200',
        151_397_597_184,
        'cuda_compute_capability { major: 9 } core_count: 132 fpus_per_core: 128 '
        'clock_rate_ghz: 1.98 memory_bandwidth: 4800000000000 l2_cache_size: 52428800 '
        'shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448',
    ),
    'a100': Chip(
        'cuda',
        'A100',
        85_100_068_864,
        'cuda_compute_capability { major: 8 } core_count: 108 fpus_per_core: 64 '
        'clock_rate_ghz: 1.41 memory_bandwidth: 2039040000000 l2_cache_size: 41943040 '
        'shared_memory_per_core: 167936 shared_memory_per_block_optin: 166912',
    ),
}
# The same for all CUDA GPUs.
_TARGET = """
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 registers_per_core_limit: 65536 registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  device_memory_size: {memory} {target}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
"""
_INSTALLATION = {'tpu': '.[tpu]', 'cuda': '.[cuda12]'}


class Topology(NamedTuple):
    """Devices of one kind.

    Attributes:
        name: the name on the command line.
        chip: the kind of device.
        shape: size of the slice in each direction.
    """

    name: str
    chip: Chip
    shape: tuple[int, ...]

    @property
    def num_devices(self) -> int:
        return math.prod(self.shape)

    def devices(self) -> list:
        """Return devices that programs can be compiled for.

        Raises:
            UserError: the compiler is not installed or does not support this slice.
        """
        if not is_installed(self.chip.platform):
            raise UserError(
                f'the compiler for {self.name} is not installed; install it with '
                f'pip install -e "{_INSTALLATION[self.chip.platform]}"'
            )
        from jax.experimental import topologies

        options = {}
        if self.chip.platform == 'cuda':
            target = _TARGET.format(memory=self.chip.memory, target=self.chip.target)
            options = dict(target_config=target, topology=f'1x1x{self.num_devices}')
        try:
            return topologies.get_topology_desc(self.name, self.chip.platform, **options).devices
        except (RuntimeError, ValueError) as error:
            message = ' '.join(str(error).split())
            raise UserError(f'cannot compile for {self.name}: {message}') from error


def is_installed(platform: str) -> bool:
    """Whether the compiler of a platform, 'tpu' or 'cuda', can be loaded."""
    if platform == 'tpu':
        return 'TPU_LIBRARY_PATH' in os.environ or bool(importlib.util.find_spec('libtpu'))
    plugins = importlib.util.find_spec('jax_plugins')
    return bool(plugins) and any(
        importlib.util.find_spec(f'jax_plugins.xla_{version}') for version in ('cuda12', 'cuda13')
    )


def parse(name: str) -> Topology:
    """Parse the name of a topology. Raises UserError if it is not valid."""
    kind, _, shape = name.partition(':')
    if kind not in CHIPS:
        raise unknown('kind of device', kind, CHIPS)
    if not re.fullmatch(r'[1-9]\d*(x[1-9]\d*)*', shape):
        raise UserError(
            f'topology {name!r} is not valid; write v5e:2x4, v5p:2x2x2 or h200:8, for example'
        )
    return Topology(name, CHIPS[kind], tuple(map(int, shape.split('x'))))


def configure(topology: Topology, cublas: bool = False) -> None:
    """Set the environment of the compiler; call before JAX is imported.

    Args:
        topology: the devices.
        cublas: on GPU, leave all matrix products to cuBLAS.
    """
    os.environ['JAX_PLATFORMS'] = 'cpu'  # nothing runs on the devices
    os.environ['TPU_SKIP_MDS_QUERY'] = '1'  # this machine is not a TPU VM
    os.environ.setdefault('TPU_ACCELERATOR_TYPE', 'v5p-16')  # otherwise libtpu prints its guess
    os.environ.setdefault('TPU_WORKER_HOSTNAMES', 'localhost')
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    if topology.chip.platform == 'cuda':
        os.environ['JAX_SKIP_CUDA_CONSTRAINTS_CHECK'] = '1'  # there is no driver
        flags = ['--xla_gpu_autotune_level=0']  # autotuning would run kernels
        if cublas:
            flags.append('--xla_gpu_enable_triton_gemm=false')
        os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {known_flags(*flags)}'

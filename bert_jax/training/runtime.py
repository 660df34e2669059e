"""How JAX and XLA are told to run, in one place: what gives the same result with less memory or
time. Each entry was measured (experiments/benchmarks/training_step.md).
"""

import os

import jax

from bert_jax.training import allocator

CACHE = os.path.join(os.environ.get('XDG_CACHE_HOME', os.path.expanduser('~/.cache')), 'bert_jax')
COMPILER_OPTIONS = {
    # The order of instructions that needs the least memory, not the one that could run most of them
    # at once: each product of a step uses all cores by itself.
    'cpu': {'xla_cpu_scheduler_type': 'CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED'},
}


def configure():
    """To be called once by a command, before anything is computed."""
    allocator.keep_freed_memory()
    one_step_at_a_time()
    jax.config.update(
        'jax_compilation_cache_dir', os.environ.get('JAX_COMPILATION_CACHE_DIR', CACHE)
    )


def one_step_at_a_time():
    """A step on a CPU begins when the one before it has given its buffers back; else the two would
    hold theirs at the same time. No effect elsewhere, or after the first computation."""
    jax.config.update('jax_cpu_enable_async_dispatch', False)


def compiler_options() -> dict[str, str]:
    """For `jax.jit` of what needs much memory, on the platform in use."""
    return COMPILER_OPTIONS.get(jax.default_backend(), {})

"""What XLA is told on this platform."""

import jax

from bert_jax.training import platform


def test_the_order_of_instructions_that_needs_the_least_memory():
    def draw(key):
        return [jax.random.normal(jax.random.fold_in(key, i), (500, 500)) for i in range(6)]

    def temporaries(**options):
        compiled = jax.jit(draw, **options).lower(jax.random.key(0)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporaries(compiler_options=platform.compiler_options()) < temporaries() / 2

"""Flags of XLA are set only if the installed jaxlib knows them."""

import pytest

from bert_jax.xla_flags import known_flags

KNOWN = '--xla_force_host_platform_device_count=2'


def test_only_known_flags_are_returned():
    assert known_flags('--xla_no_such_flag=true', KNOWN, '--xla_nor_such=1') == KNOWN


def test_a_value_that_is_refused_is_an_error():
    with pytest.raises(RuntimeError, match="XLA_FLAGS='--xla_backend_optimization_level=many'"):
        known_flags('--xla_backend_optimization_level=many')

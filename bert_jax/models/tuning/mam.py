"""Mix-and-match adapters (He et al. 2022, arXiv 2110.04366, section 4.6)."""

import dataclasses

from bert_jax.models.tuning.parallel import Parallel
from bert_jax.models.tuning.prefix import PrefixTuning


@dataclasses.dataclass(frozen=True)
class Mam(PrefixTuning, Parallel):
    """A prefix and parallel adapters together."""

    method: str = 'mam'

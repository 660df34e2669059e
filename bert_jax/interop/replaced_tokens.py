"""The two models in a checkpoint of replaced-token detection, which share embeddings."""

from bert_jax.errors import UserError
from bert_jax.models.architecture import Architecture
from bert_jax.objectives.generator import SHARED, Generation, generator_architecture


def discriminator(params: dict) -> dict:
    """Of the parameters of such a checkpoint those of the discriminator, its token embeddings as it
    reads them: with disentangled sharing the generator's plus a difference of its own."""
    kept = {part: leaves for part, leaves in params.items() if part != 'generator'}
    delta = params.get('generator', {}).get('delta')
    if delta is None:
        return kept
    embeddings = params['encoder']['embeddings']
    embeddings = embeddings | {'token': embeddings['token'] + delta}
    return kept | {'encoder': params['encoder'] | {'embeddings': embeddings}}


def generator(
    architecture: Architecture, generation: dict, params: dict
) -> tuple[Architecture, dict]:
    """Of the parameters of such a checkpoint those of the generator, an encoder with `mlm`, and its
    architecture.

    generation: `rtd` of the run's config. Raises UserError if there is no generator.
    """
    if 'generator' not in params:
        raise UserError('there is no generator: the model was not trained with rtd')
    own = params['generator']
    shared = {name: p for name, p in params['encoder']['embeddings'].items() if name in SHARED}
    encoder = own['encoder'] | {'embeddings': own['encoder'].get('embeddings', {}) | shared}
    smaller = generator_architecture(architecture, Generation(**generation))
    return smaller, {'encoder': encoder, 'mlm': {'head': own['head']}}

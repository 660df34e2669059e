"""What is trained and how fast: parameters by their distance from the heads.

Level 0 are the heads (all that is not the encoder, and its pooler), level 1 the last layer, …,
level L the first, level L + 1 the embeddings. Layers that share their parameters are one layer.
"""

import dataclasses
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.training.optimizers import STACK
from bert_jax.training.schedules import duration

Tree = Any  # a pytree of arrays; in place of a parameter that is never trained there can be None

# Parts of an encoder beside its layers: the level of each, of L layers.
_LEVELS = {
    'pooler': lambda num_layers: 0,
    'final_norm': lambda num_layers: 1,
    'convolution': lambda num_layers: num_layers,  # it ends the first layer
    'relative_positions': lambda num_layers: num_layers + 1,  # read by all layers
    'embeddings': lambda num_layers: num_layers + 1,
}


@dataclasses.dataclass(frozen=True)
class Transfer:
    """The parameters that are trained, from which step on and at which share of the rate.

    trainable: 'all', 'heads', or 'last:K': the heads and the last K layers. The rest is never
        trained: it has no gradient, no moments and no decay.
    layer_decay: the rate of a level as a share of that of the level above: heads 1, last layer
        layer_decay, embeddings layer_decay^(L + 1). ULMFiT's discriminative rates (Howard & Ruder
        2018, section 3.2) are 1 / 2.6, ELECTRA's decay by layer 0.8 or 0.9.
    faithful_layer_decay: the factor twice between heads and last layer, as the original code of
        ELECTRA has it (google-research/electra, model/optimization.py).
    unfreeze_every_steps: gradual unfreezing (ULMFiT, section 3.3): level n stays as it is up to
        step n · unfreeze_every_steps; 0: all move from the start. Gradients and moments are
        computed all the while, so that nothing is compiled anew and the first update of a level
        has the size of a settled one.
    """

    trainable: str = 'all'
    layer_decay: float = 1.0
    faithful_layer_decay: bool = False
    unfreeze_every_steps: int = 0

    def part(self, params: Tree, tree: Tree | None = None) -> Tree:
        """`tree`, shaped like `params` and by default these, with None for what is never trained.

        Raises UserError for more layers than there are.
        """
        tree = params if tree is None else tree
        if self.trainable == 'all':
            return tree
        last = self._last_level(_num_layers(params))
        return jax.tree.map(
            lambda level, leaf: leaf if np.min(level) <= last else None, _levels(params), tree
        )

    def whole(self, trained: Tree, params: Tree) -> Tree:
        """`params` with those of `trained`, a part, in their places; of stacked layers the gradient
        is cut where they are not trained."""
        if self.trainable == 'all':
            return trained
        last = self._last_level(_num_layers(params))

        def put(level, param, own):
            if own is None:
                return param
            return jnp.where(level <= last, own, param) if np.max(level) > last else own

        return jax.tree.map(put, _levels(params), params, trained)

    def moving(self, trained: Tree, step: jax.typing.ArrayLike) -> Tree:
        """Whether each parameter of a part moves at `step`: bools that broadcast with it."""
        if not self.unfreeze_every_steps:
            return jax.tree.map(lambda _: True, trained)
        return jax.tree.map(
            lambda level: level * self.unfreeze_every_steps <= step, _levels(trained)
        )

    def scale_updates(
        self, optimizer: optax.GradientTransformation
    ) -> optax.GradientTransformation:
        """An optimizer of a part whose updates have the share of their level."""
        if self.layer_decay == 1:
            return optimizer

        def scale(update, level):
            return update * jnp.asarray(self._share(level), update.dtype)

        return optax.chain(
            optimizer,
            optax.stateless(lambda updates, _: jax.tree.map(scale, updates, _levels(updates))),
        )

    def describe(self, params: Tree) -> list[str]:
        """Lines for the log; none where everything is trained alike."""
        lines, num_layers = [], _num_layers(params)
        if self.trainable != 'all':
            moved, total = self._count(params)
            lines.append(f'{moved:,} of {total:,} parameters are trained ({self.trainable})')
        if self.layer_decay != 1:
            first = f'{self._share(np.array(num_layers)):.3g}'
            lines.append(
                f'rates × {self.layer_decay:.4g} from layer to layer, × {first} in layer 0'
            )
        if self.unfreeze_every_steps:
            last = self._last_level(num_layers)
            lines.append(
                f'unfreezing: the heads at once, another layer every {self.unfreeze_every_steps:,} '
                f'steps, the last at step {last * self.unfreeze_every_steps:,}'
            )
        return lines

    def _last_level(self, num_layers: int) -> int:
        """The level farthest from the heads that is trained."""
        if self.trainable == 'all':
            return num_layers + 1
        last = 0 if self.trainable == 'heads' else int(self.trainable.removeprefix('last:'))
        if last > num_layers:
            raise UserError(
                f'transfer.trainable is {self.trainable!r}, but there are {num_layers} layers '
                "(shared ones count once); choose fewer, or 'all'"
            )
        return last

    def _count(self, params: Tree) -> tuple[int, int]:
        """Of the parameters: how many are trained, and all."""
        last = self._last_level(_num_layers(params))
        counts = jax.tree.map(
            lambda level, leaf: round(leaf.size * np.mean(level <= last)), _levels(params), params
        )
        return sum(jax.tree.leaves(counts)), sum(leaf.size for leaf in jax.tree.leaves(params))

    def _share(self, level):
        """Of the rate."""
        twice = (level > 0) & self.faithful_layer_decay
        return self.layer_decay ** (level + twice).astype(np.float32)


EVERYTHING = Transfer()


def build(settings: Any, total_steps: int) -> Transfer:
    """The Transfer that `config.transfer` asks for in a run of so many steps.

    Raises UserError for values that have no meaning.
    """
    if not re.fullmatch('all|heads|last:[1-9][0-9]*', settings.trainable):
        raise UserError(
            f"transfer.trainable is {settings.trainable!r}; 'all', 'heads' or 'last:2' for the "
            'heads and the last 2 layers'
        )
    if not 0 < settings.layer_decay <= 1:
        raise UserError(
            f'transfer.layer_decay is {settings.layer_decay}, must be above 0 and at most 1'
        )
    every = duration(settings, 'unfreeze_every', total_steps)
    if every and settings.trainable == 'heads':
        raise UserError("transfer.unfreeze_every has nothing to unfreeze with trainable='heads'")
    return Transfer(settings.trainable, settings.layer_decay, settings.faithful_layer_decay, every)


def _levels(tree: Tree) -> Tree:
    """The level of every parameter, an int32 array that broadcasts with it: a scalar, or with
    stacked layers one a layer."""
    num_layers = _num_layers(tree)

    def level(path, leaf):
        parts = tree_paths.path_name(path).split('/')
        if parts[0] != 'encoder':
            return np.array(0)
        if parts[1] == STACK:
            return np.arange(num_layers, 0, -1).reshape(-1, *(1,) * (leaf.ndim - 1))
        number = _layer_number(parts[1])
        if number is not None:
            return np.array(num_layers - number)
        if parts[1] not in _LEVELS:
            raise ValueError(f'_LEVELS does not say how far encoder/{parts[1]} is from the heads')
        return np.array(_LEVELS[parts[1]](num_layers))

    return jax.tree_util.tree_map_with_path(level, tree)


def _num_layers(tree: Tree) -> int:
    """Of the encoder, also if only its last ones are there."""
    encoder = tree.get('encoder', {})
    stacked = jax.tree.leaves(encoder.get(STACK))
    if stacked:
        return len(stacked[0])
    numbers = [_layer_number(part) for part, leaves in encoder.items() if jax.tree.leaves(leaves)]
    return 1 + max((number for number in numbers if number is not None), default=-1)


def _layer_number(part: str) -> int | None:
    found = re.fullmatch(rf'{STACK}_(\d+)', part)
    return found and int(found[1])

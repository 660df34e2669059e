"""Installs the recipes of `configs/` as `bert_jax.configs`; pyproject.toml has everything else."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=['bert_jax*']), 'bert_jax.configs'],
    package_dir={'bert_jax.configs': 'configs'},
    package_data={
        'bert_jax.labels': ['samples/*', 'samples/formats/*'],
        'bert_jax.text.sources': ['sample_books/*'],
        'bert_jax.export_formats': ['loaders/*'],
        'bert_jax.page': ['assets/*', 'assets/views/*'],
    },
)

"""Print a script that makes bash and zsh complete commands, flags and config keys.

python -m bert_jax.completion > bert_jax_completion.sh && source bert_jax_completion.sh
"""

import contextlib
import io
import re
from collections.abc import Callable, Iterable

from bert_jax import lazy_table, recipes
from bert_jax.config_keys import flatten
from bert_jax.labels import loader
from bert_jax.problems import PROBLEMS

# Command → 'module:main', and its name when installed.
COMMANDS = {
    'main': ('bert_jax.main:main', 'bert-jax-train'),
    'prepare': ('bert_jax.prepare:main', 'bert-jax-prepare'),
    'predict': ('bert_jax.predict:main', 'bert-jax-predict'),
    'evaluate': ('bert_jax.evaluate:main', 'bert-jax-evaluate'),
    'export': ('bert_jax.export:main', 'bert-jax-export'),
    'analyze': ('bert_jax.analyze.__main__:main', 'bert-jax-analyze'),
    'page': ('bert_jax.page.__main__:main', 'bert-jax-page'),
}
_ANALYSES = 'bert_jax.analyze:ANALYSES'
# After '=', and for other programs, bash completes names of files.
SCRIPT = """\
if [ -n "$ZSH_VERSION" ]; then autoload -U +X bashcompinit && bashcompinit; fi
_bert_jax() {{
    local words=""
    local command="${{COMP_WORDS[0]##*/}} ${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}"
    case "$command" in
{cases}
        python*" -m "*) [ "$COMP_CWORD" -eq 2 ] && words="{modules}" ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o bashdefault -o default -o nospace -F _bert_jax python python3 {commands}"""


def script() -> str:
    """Return the script; it has all words, so that completing runs no Python."""
    cases = []
    for module, (main, command) in COMMANDS.items():
        words = ' '.join(_words(module, lazy_table.load(main)))
        cases.append(f'        python*" -m bert_jax.{module}" | {command}*) words="{words}" ;;')
    return SCRIPT.format(
        cases='\n'.join(cases),
        modules=' '.join(f'bert_jax.{module}' for module in COMMANDS),
        commands=' '.join(command for _, command in COMMANDS.values()),
    )


def _words(module: str, main: Callable[[list[str]], None]) -> Iterable[str]:
    """Return the words that may follow a command."""
    if module == 'main':
        keys = {key for config in recipes.all_configs() for key in flatten(config)}
        return _flags(main, 'main') + [f'--config.{key}=' for key in sorted(keys)]
    if module == 'analyze':
        analyses = lazy_table.load(_ANALYSES)
        flags = {flag for name in analyses for flag in _flags(main, name)}
        return [*analyses, *sorted(flags)]
    if module == 'evaluate':
        return _flags(main) + _keys_of_evaluate()
    return _flags(main)


def _keys_of_evaluate() -> list[str]:
    """Return the flags that change how gold files are read, and how a trained model answers."""
    data = flatten(loader.make_config())
    settings = {key for kind in PROBLEMS.values() for key in kind.load().answer_settings}
    keys = [f'data.{key}' for key in data] + [f'problem.{key}' for key in settings]
    return [f'--{key}=' for key in sorted(keys)]


def _flags(main: Callable[[list[str]], None], *arguments: str) -> list[str]:
    """Return the flags that the help of a command names, with '=' if they take a value."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*arguments, '--help'])
    flags = dict(
        re.findall(r'^  (?:-h, )?(--\w+)(=| [A-Z{]|(?=[\s:]))', printed.getvalue(), re.MULTILINE)
    )
    return sorted(flag + '=' * bool(value) for flag, value in flags.items())


if __name__ == '__main__':
    print(script())

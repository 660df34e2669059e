"""Print a script that makes bash and zsh complete commands, flags and config keys.

python -m bert_jax.completion > bert_jax_completion.sh && source bert_jax_completion.sh
"""

import contextlib
import importlib
import io
import re
from collections.abc import Callable, Iterable

from bert_jax import analyze, recipes
from bert_jax.config_values import flatten

COMMANDS = {  # command → module with its `main`, and its name when installed
    'main': ('main', 'bert-jax-train'),
    'prepare': ('prepare', 'bert-jax-prepare'),
    'predict': ('predict', 'bert-jax-predict'),
    'evaluate': ('evaluate', 'bert-jax-evaluate'),
    'export': ('export', 'bert-jax-export'),
    'analyze': ('analyze.__main__', 'bert-jax-analyze'),
    'page': ('page.__main__', 'bert-jax-page'),
}
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
    for module, (path, command) in COMMANDS.items():
        words = ' '.join(_words(module, importlib.import_module(f'bert_jax.{path}').main))
        cases.append(f'        python*" -m bert_jax.{module}" | {command}*) words="{words}" ;;')
    return SCRIPT.format(
        cases='\n'.join(cases),
        modules=' '.join(f'bert_jax.{module}' for module in COMMANDS),
        commands=' '.join(command for _, command in COMMANDS.values()),
    )


def _words(module: str, main: Callable[[list[str]], None]) -> Iterable[str]:
    """Return the words that may follow a command."""
    if module == 'main':
        keys = {key for config in recipes.all_configs() for key, _ in flatten(config)}
        return _flags(main, 'main') + [f'--config.{key}=' for key in sorted(keys)]
    if module == 'analyze':
        flags = {flag for name in analyze.ANALYSES for flag in _flags(main, name)}
        return [*analyze.ANALYSES, *sorted(flags)]
    return _flags(main)


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

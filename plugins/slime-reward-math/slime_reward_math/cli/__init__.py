"""`slime-grade`: grade files of answers, explain one verdict, compare two runs.

Example:

    slime-grade run answers.jsonl --reward math --out graded.jsonl
"""

import click

from slime_reward_math.cli.compare import compare
from slime_reward_math.cli.explain import explain
from slime_reward_math.cli.run import run


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="slime-reward-math")
def main() -> None:
    """Grade answers: files of them, one step by step, or two runs against each other."""


main.add_command(run)
main.add_command(explain)
main.add_command(compare)

__all__ = ["main"]

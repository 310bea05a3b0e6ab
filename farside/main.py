"""The command line: one group, one file a command, and what every command shares.

Exit codes: 0 done, 1 what was asked is not so, 2 wrong usage or configuration, 3 something needed
is absent or not permitted. No traceback reaches a person for what a person can mend.
"""

import importlib
import os
import sys
from importlib.metadata import version

import click

from runtime.errors import FarsideError, Misconfigured, NotPermitted

COMMANDS = (
    "up", "demo", "collect", "detect", "execute", "notify", "topics", "consume",
    "replay", "explain", "check", "top",
)  # fmt: skip


class Commands(click.Group):
    """Finds a command in the file of its name; nothing is imported that does not run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help page."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, or None where there is none of that name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        try:
            module = importlib.import_module(f"farside.commands.{cmd_name}")
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] in {"farside", "runtime", "bus"}:
                raise
            msg = (
                f"{cmd_name} needs the Python package {error.name}, which is not installed: "
                f"pip install 'farside[demo]'"
            )
            raise NotPermitted(msg) from None
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; that nobody reads its output any more is a good end (click says 1)."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The interpreter must not try to flush it again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return code


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("farside"), prog_name="farside")
def cli() -> None:
    """See sick nodes and containers before they fail, and take only them out of harm's way."""


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; return its exit code."""
    try:
        code = cli.main(arguments, prog_name="farside", standalone_mode=False)
    except click.exceptions.Exit as error:
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 0
    except click.ClickException as error:
        error.show()
        code = 2
    except FarsideError as error:
        click.echo(f"farside: {error}", err=True)
        code = _code_of(error)
    return code if isinstance(code, int) else 0


def _code_of(error: FarsideError) -> int:
    if isinstance(error, Misconfigured):
        return 2
    return 3 if isinstance(error, NotPermitted) else 1


if __name__ == "__main__":
    main()

"""`python -m holdfast`: the same as the command."""

from holdfast.cli import main

main()

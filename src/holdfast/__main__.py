"""`python -m holdfast`: the same as the command."""

from holdfast.cli.root import main

main()

"""One module a verb: a docstring whose first line is the help, `add(parser)` and `main(arguments) -> exit code`."""

"""The command `coldstream`: one module for each command, and what they share.

Commands parse their options, make one call into the library, and print the result. Anything worth calling from
elsewhere belongs into another package. Data goes to standard output, everything else to standard error.

Begin with `main`, which lists the commands. Modules import what is heavy inside the command, so that `--help` and the
shell's completion are quick.
"""

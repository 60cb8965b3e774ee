"""What the command line and the Spark jobs share: exit codes, the text they print, and which extra to install.

`exits` turns errors into exit codes and advice, `output` writes to standard output, `extras` names the extra that a
missing package comes with. No command lives here, and nothing here knows typer, AWS or a broker: jobs import it where
the command line is not installed. Begin with `exits`.
"""

"""Run the command line as `python -m encgraph`."""

from encgraph.cli.app import main

if __name__ == "__main__":
    main()

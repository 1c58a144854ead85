"""`python -m aftercommit`: the command line."""

from aftercommit.cli import main

if __name__ == "__main__":
    main()

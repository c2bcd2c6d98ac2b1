"""`python -m pocketbert`: the same as the `pocketbert` command."""

from pocketbert.cli import run

if __name__ == "__main__":
    run()

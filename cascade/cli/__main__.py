"""Run the command line as a module."""

from cascade.cli import main

if __name__ == "__main__":
    main()
